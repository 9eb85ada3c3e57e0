//! A gateway with a thousand peers.

use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::{ADDRESSES, ATTEMPT, INNER, KEY, PORTS, SECRET, hosts, until};
use crate::common::Ground;
use crate::common::gateways::{Site, text};
use headroom_load::{Server, packets};
use headroom_testing::{privileged, retried};

/// The address and the network of one of many peers.
fn one_of_many(peer: u16) -> (String, String) {
    let (high, low) = (peer / 250, peer % 250 + 1);
    (format!("10.200.{high}.{low}"), format!("10.3.{high}.{low}/32"))
}

/// Two hosts of which the second is many peers of the first, by as many addresses. Returns the
/// configurations of both, with `more` lines in the first `[[child]]`.
fn many(ground: &Ground, hosts: &[Site; 2], peers: u16, more: &str) -> [PathBuf; 2] {
    let addresses =
        (0..peers).map(|peer| format!("addr replace {}/32 dev eth0\n", one_of_many(peer).0));
    let batch = ground.write("addresses", &addresses.collect::<String>());
    hosts[1].ip(&format!("-batch {}", text(&batch)));
    hosts[0].ip("route replace 10.200.0.0/16 dev eth0 src 192.0.2.1");
    let configuration = |end: usize| {
        let mut file = "name = \"hr0\"\n".to_owned();
        for peer in 0..peers {
            let more = if peer == 0 { more } else { "" };
            let (address, network) = one_of_many(peer);
            let (local, remote, begins) = match end {
                0 => (ADDRESSES[0], &*address, "initiate = false"),
                _ => (&*address, ADDRESSES[0], "initiate = true"),
            };
            let (near, far) = match end {
                0 => (INNER[0], &*network),
                _ => (&*network, INNER[0]),
            };
            file += &format!(
                "[[ike]]\nname = \"peer-{peer}\"\nlocal = \"{local}\"\nremote = \"{remote}\"\n\
                 psk = \"{KEY} {peer}\"\n{begins}\n\
                 [[child]]\nike = \"peer-{peer}\"\nlocal = \"{near}\"\nremote = \"{far}\"\n{more}\n"
            );
        }
        let file = ground.write(&format!("many-{end}.toml"), &file);
        let mode = std::fs::Permissions::from_mode(0o600);
        std::fs::set_permissions(&file, mode).expect("chmod");
        file
    };
    [configuration(0), configuration(1)]
}

/// The number of IKE SAs that stand, and of all their CHILD SAs.
fn standing(host: &Site) -> (usize, u64) {
    let status = host.status();
    let sessions = status["ike"].as_array().expect("IKE SAs");
    let standing: Vec<_> = sessions.iter().filter(|one| one["established"] == true).collect();
    (standing.len(), standing.iter().filter_map(|one| one["children"].as_u64()).sum())
}

fn cpu_seconds(pid: nix::unistd::Pid) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("a process");
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or("").split_whitespace().collect();
    let ticks: f64 = fields[11..13].iter().filter_map(|ticks| ticks.parse::<f64>().ok()).sum();
    ticks / 100.0
}

/// Brings up `peers` peers and returns the gateways' processes, with words about how long it took.
fn bring_up(hosts: &[Site; 2], files: &[PathBuf; 2], peers: u16) -> [nix::unistd::Pid; 2] {
    let begin = Instant::now();
    let hub = hosts[0].up(&files[0]);
    println!("the first gateway is up after {:.1?}", begin.elapsed());
    let begin = Instant::now();
    let spokes = hosts[1].up(&files[1]);
    println!("the second gateway is up after {:.1?}", begin.elapsed());
    let begin = Instant::now();
    let all = (usize::from(peers), u64::from(peers));
    until("all peers are connected", || hosts.iter().all(|host| standing(host) == all));
    println!(
        "{peers} peers are connected {:.1?} later; CPU {:.2} s and {:.2} s",
        begin.elapsed(),
        cpu_seconds(hub),
        cpu_seconds(spokes)
    );
    [hub, spokes]
}

#[test]
fn one_gateway_has_a_thousand_peers() {
    if !privileged() {
        return;
    }
    let ground = Ground::new("ike-many");
    let hosts = hosts(&ground);
    let files = many(&ground, &hosts, 1000, "");
    hosts[1].ip("addr add 10.3.2.7/32 dev lo");
    bring_up(&hosts, &files, 1000);
    let sockets = [hosts[0].socket(PORTS[0]), hosts[1].socket("10.3.2.7:5000")];
    sockets[0].set_read_timeout(Some(ATTEMPT)).expect("a timeout");
    let mut room = [0; 100];
    until("packets of one of them pass", || {
        sockets[1].send_to(SECRET, PORTS[0]).expect("sent");
        retried(|| sockets[0].recv(&mut room)).is_ok_and(|len| room[..len] == *SECRET)
    });
}

#[test]
#[ignore = "measures; for a quiet machine"]
fn measures_a_thousand_peers() {
    if !privileged() {
        return;
    }
    let ground = Ground::new("ike-measured");
    let hosts = hosts(&ground);
    // the load's source is the first address
    hosts[1].ip(&format!("addr del {}/32 dev lo", INNER[1]));
    hosts[1].ip("addr add 10.3.2.7/32 dev lo");
    let to = SocketAddr::from(([10, 1, 0, 1], 7000));
    hosts[0].run(move || {
        let server = Server::bind(to, None).expect("an address");
        std::thread::spawn(move || server.run());
    });
    for round in 0..6 {
        // in turns, and each of the two first as often
        for turn in [0, 1] {
            let more = ["", "rekey_seconds = 1"][(round + turn) % 2];
            let files = many(&ground, &hosts, 1000, more);
            let gateways = bring_up(&hosts, &files, 1000);
            let before = gateways.map(cpu_seconds);
            std::thread::sleep(Duration::from_secs(5));
            let idle = [0, 1].map(|end| (cpu_seconds(gateways[end]) - before[end]) / 5.0);
            let time = Duration::from_secs(10);
            let load = hosts[1].run(move || packets(to, 1280, time, b"rekey").expect("a load"));
            let rekeys = hosts[0].status()["ike"].as_array().map_or(0, |sessions| {
                sessions.iter().filter_map(|one| one["child_rekeys"].as_u64()).sum()
            });
            let rate = load.packets as f64 * 1280.0 * 8.0 / load.seconds / 1e9;
            println!(
                "{more:?}: {rate:.3} Gbit/s, {} lost, {rekeys} rekeys; idle {:.1} and {:.1} ms of CPU a second",
                load.lost,
                1000.0 * idle[0],
                1000.0 * idle[1]
            );
            hosts.iter().for_each(|host| drop(host.must(&["down"])));
        }
    }
}
