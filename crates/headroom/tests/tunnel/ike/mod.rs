//! `headroom tunnel` with keys negotiated by IKEv2, between two hosts of the test's own.

mod authentication;
mod many;
mod observing;
mod outages;
mod rekeying;
mod settings;

use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::common::Ground;
use crate::common::gateways::{Site, link, listen};
use headroom_testing::{contains, privileged, retried};
use serde_json::Value;

/// Longer than anything here takes, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(180);
/// How long a packet is awaited that may be lost.
const ATTEMPT: Duration = Duration::from_secs(2);
const ADDRESSES: [&str; 2] = ["192.0.2.1", "192.0.2.2"];
const NETWORKS: [&str; 2] = ["10.1.0.0/16", "10.2.0.0/16"];
const INNER: [&str; 2] = ["10.1.0.1", "10.2.0.1"];
const PORTS: [&str; 2] = ["10.1.0.1:5000", "10.2.0.1:5000"];
const SECRET: &[u8] = b"nobody on the way reads this";
const KEY: &str = "correct horse battery staple, and more";

/// Two hosts, each with an address behind its gateway.
fn hosts(ground: &Ground) -> [Site; 2] {
    let hosts = link(ground);
    for (host, inner) in hosts.iter().zip(INNER) {
        host.ip("link set lo up");
        host.ip(&format!("addr add {inner}/32 dev lo"));
    }
    hosts
}

/// Writes the configurations of both ends, with `more` lines in `[ike]` and in `[[child]]`.
fn configure(ground: &Ground, keys: [&str; 2], more: [&str; 2]) -> [PathBuf; 2] {
    [0, 1].map(|end| {
        let [ike, child] = more;
        let other = 1 - end;
        let key = ground.write(&format!("key-{end}"), keys[end]);
        let file = ground.write(
            &format!("end-{end}.toml"),
            &format!(
                "name = \"hr0\"\n[ike]\nremote = \"{}\"\npsk_file = {key:?}\n{ike}\n[[child]]\nlocal = \"{}\"\n\
                 remote = \"{}\"\n{child}\n",
                ADDRESSES[other], NETWORKS[end], NETWORKS[other]
            ),
        );
        for path in [&key, &file] {
            let mode = std::fs::Permissions::from_mode(0o600);
            std::fs::set_permissions(path, mode).expect("chmod");
        }
        file
    })
}

/// Sends `payload` from the first host to the second and back. Returns whether it came back.
fn echo(sockets: &[UdpSocket; 2], payload: &[u8]) -> bool {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let sent = [payload, &number.to_be_bytes()].concat();
    let recv = |socket: &UdpSocket| -> std::io::Result<SocketAddr> {
        let mut room = [0; 2000];
        loop {
            let (len, from) = retried(|| socket.recv_from(&mut room))?;
            // one that was given up may come yet, after the wait for a key
            if room[..len] == *sent {
                return Ok(from);
            }
        }
    };
    let answered = sockets[0]
        .send_to(&sent, PORTS[1])
        .and_then(|_| recv(&sockets[1]))
        .and_then(|from| sockets[1].send_to(&sent, from))
        .and_then(|_| recv(&sockets[0]));
    if let Err(error) = &answered {
        assert!(matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut), "{error}");
    }
    answered.is_ok()
}

fn until(what: &str, mut done: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !done() {
        assert!(Instant::now() < end, "{what}: not within {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn session(host: &Site) -> Value {
    host.status()["ike"][0].clone()
}

fn is_established(host: &Site) -> bool {
    session(host)["established"] == true
}

/// What both gateways dropped, and what they have.
fn dropped(hosts: &[Site; 2]) -> String {
    let of = |host: &Site| {
        let status = host.status();
        let names = |of: &str| status[of].clone();
        let packets: Vec<String> = status["associations"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|one| format!("{} {}", one["name"], one["packets"]))
            .collect();
        format!("{} {} {packets:?}", names("drops"), names("policies"))
    };
    hosts.iter().map(of).collect::<Vec<_>>().join("\n")
}

fn sockets(hosts: &[Site; 2]) -> [UdpSocket; 2] {
    [0, 1].map(|end| {
        let socket = hosts[end].socket(PORTS[end]);
        socket.set_read_timeout(Some(ATTEMPT)).expect("a timeout");
        socket
    })
}

#[test]
fn a_few_lines_on_each_side_bring_up_a_tunnel() {
    if !privileged() {
        return;
    }
    let ground = Ground::new("ike");
    let hosts = hosts(&ground);
    let files = configure(&ground, [KEY, KEY], ["", ""]);
    let rules = hosts[0].ip("rule");
    let sockets = sockets(&hosts);
    let capture = listen(&hosts);
    for (host, file) in hosts.iter().zip(&files) {
        host.up(file);
    }
    until("keys are negotiated", || hosts.iter().all(is_established));
    until("packets pass", || echo(&sockets, SECRET));
    let frames = capture.finish();
    assert!(!frames.iter().any(|frame| contains(frame, SECRET)), "it is on the wire in clear");

    let status = hosts[0].status();
    assert_eq!(status["ike"][0]["post_quantum"], true, "{status}");
    let associations = status["associations"].as_array().expect("associations");
    assert!(associations.iter().all(|one| one["suite"] == "aes-256-gcm"), "{status}");
    let shown = hosts[0].must(&["status", "hr0"]);
    assert!(shown.contains("post-quantum"), "{shown}");
    assert!(!ground.path("hr0.ledger").exists(), "fresh keys need no ledger");

    for host in &hosts {
        host.must(&["down"]);
        assert_eq!(host.ip("rule"), rules, "what the tunnel changed is undone");
    }
}
