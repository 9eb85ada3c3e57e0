//! Clients that get their addresses from a gateway's pool, two of them behind one NAT.

use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::common::gateways::{Site, site};
use crate::common::{Ground, part};
use headroom_testing::{privileged, retried};
use serde_json::Value;

/// Longer than anything here takes, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(90);
const GATEWAY: &str = "192.0.2.1";
const KEY: &str = "correct horse battery staple, and more";
const SERVERS: [&str; 2] = ["10.1.0.1", "fd01::1"];
/// The NAT of two clients gives each flow another port.
const NAT: &str = "table ip nat { chain post { type nat hook postrouting priority 100; \
                   oifname eth0 meta l4proto udp masquerade to :40000-40099; }; }\n";

/// A gateway, the NAT before two clients, and three clients.
struct World {
    gateway: Site,
    _nat: Site,
    clients: [Site; 3],
}

impl World {
    fn new(ground: &Ground) -> Self {
        let [gateway, nat] = headroom_testing::link();
        for address in SERVERS {
            gateway.ip(&format!("addr add {address} dev lo"));
        }
        let inside = |number: u8| {
            let (interface, network) = (format!("in{number}"), format!("10.77.{number}"));
            let client = nat.neighbour(&interface);
            nat.ip(&format!("addr add {network}.1/24 dev {interface}"));
            nat.ip(&format!("link set {interface} up"));
            client.ip(&format!("addr add {network}.2/24 dev eth0"));
            client.ip("link set eth0 up");
            client.ip(&format!("route add default via {network}.1"));
            client
        };
        let (first, second) = (inside(1), inside(2));
        nat.run(|| std::fs::write("/proc/sys/net/ipv4/ip_forward", "1")).expect("a router");
        let rules = ground.write("nat.nft", NAT);
        nat.run(move || {
            let done = part("nft").arg("-f").arg(rules).output().expect("nft");
            assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        });
        let third = gateway.neighbour("eth1");
        gateway.ip("addr add 203.0.113.1/24 dev eth1");
        gateway.ip("link set eth1 up");
        third.ip("addr add 203.0.113.2/24 dev eth0");
        third.ip("link set eth0 up");
        third.ip("route add default via 203.0.113.1");
        let named = |name: &str, host| site(ground, name, host);
        Self {
            gateway: named("gateway", gateway),
            _nat: named("nat", nat),
            clients: [named("first", first), named("second", second), named("third", third)],
        }
    }

    /// Returns what the gateway says of the clients: name → addresses.
    fn assigned(&self) -> Vec<(String, Vec<IpAddr>)> {
        let status = self.gateway.status();
        let sessions = status["ike"].as_array().cloned().unwrap_or_default();
        let standing = sessions.iter().filter(|one| one["established"] == true);
        let all = standing.map(|one| {
            (one["identity"].as_str().unwrap_or_default().to_owned(), addresses(&one["assigned"]))
        });
        all.filter(|(_, addresses)| !addresses.is_empty()).collect()
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.gateway.run.join("hr0.log")).expect("a log")
    }
}

fn write(ground: &Ground, name: &str, text: &str) -> PathBuf {
    let file = ground.write(name, text);
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).expect("chmod");
    file
}

fn gateway_file(ground: &Ground, pool: &str, local: &str) -> PathBuf {
    let key = write(ground, "gateway.psk", KEY);
    let text = format!(
        "name = \"hr0\"\n[ike]\nname = \"vpn\"\nlocal = \"{GATEWAY}\"\nremote = \"any\"\npsk_file = {key:?}\n\
         pool = {pool}\ndns = [\"10.1.0.53\"]\nliveness_seconds = 2\n[[child]]\nlocal = {local}\n"
    );
    write(ground, "gateway.toml", &text)
}

fn client_file(ground: &Ground, number: usize, remote: &str) -> PathBuf {
    let key = write(ground, &format!("client-{number}.psk"), KEY);
    let text = format!(
        "name = \"hr0\"\n[ike]\nremote = \"{GATEWAY}\"\nlocal_id = \"client-{number}.test\"\npsk_file = {key:?}\n\
         address = \"request\"\n[[child]]\nremote = {remote}\n"
    );
    write(ground, &format!("client-{number}.toml"), &text)
}

fn addresses(list: &Value) -> Vec<IpAddr> {
    let list = list.as_array().into_iter().flatten();
    list.map(|one| one.as_str().and_then(|one| one.parse().ok()).expect("an address")).collect()
}

/// Returns the addresses that a client has.
fn own(client: &Site) -> Vec<IpAddr> {
    addresses(&client.status()["ike"][0]["assigned"])
}

fn until(what: &str, mut done: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !done() {
        assert!(Instant::now() < end, "{what}: not within {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn socket(host: &Site, address: IpAddr, port: u16) -> Option<UdpSocket> {
    let socket = host.run(move || UdpSocket::bind((address, port)).ok())?;
    socket.set_read_timeout(Some(Duration::from_secs(1))).expect("a timeout");
    Some(socket)
}

/// Sends a datagram from one socket to the other. Returns whether it arrived from there.
fn arrives(from: &UdpSocket, to: &UdpSocket) -> bool {
    let [source, destination] = [from, to].map(|one| one.local_addr().expect("an address"));
    let mut buffer = [0; 100];
    let got = from
        .send_to(b"from me", destination)
        .and_then(|_| retried(|| to.recv_from(&mut buffer)))
        .map(|(length, at): (usize, SocketAddr)| at == source && buffer[..length] == *b"from me");
    got.unwrap_or_else(|error| {
        let kinds = [ErrorKind::WouldBlock, ErrorKind::TimedOut, ErrorKind::PermissionDenied];
        assert!(kinds.contains(&error.kind()), "{error}");
        false
    })
}

fn bring_up(gateway: &Site, clients: &[Site], gateway_file: &Path, files: &[PathBuf]) {
    gateway.up(gateway_file);
    for (client, file) in clients.iter().zip(files) {
        client.up(file);
    }
}

#[test]
fn clients_have_addresses_of_one_pool_and_pass_packets_both_ways() {
    if !privileged() {
        return;
    }
    let ground = Ground::new("ike-pool");
    let world = World::new(&ground);
    let both = "[\"10.1.0.0/16\", \"fd01::/64\"]";
    let gateway = gateway_file(&ground, "[\"10.9.0.0/29\", \"fd09::/64\"]", both);
    let files = [1, 2, 3].map(|number| client_file(&ground, number, both));
    bring_up(&world.gateway, &world.clients, &gateway, &files);

    until("all have an address of each IP version", || {
        world.clients.iter().all(|client| own(client).len() == 2)
    });
    let mut all: Vec<IpAddr> = world.clients.iter().flat_map(own).collect();
    all.sort();
    all.dedup();
    assert_eq!(all.len(), 6, "each has its own: {all:?}");
    for (number, client) in world.clients.iter().enumerate() {
        let name = format!("client-{}.test", number + 1);
        assert!(world.assigned().contains(&(name, own(client))), "{:?}", world.assigned());
        for (address, server) in own(client).into_iter().zip(SERVERS) {
            let server: IpAddr = server.parse().expect("an address");
            let port = 5000 + number as u16;
            let server = socket(&world.gateway, server, port).expect("its address");
            let mut bound = None;
            until("the address is on the interface", || {
                bound = socket(client, address, port);
                bound.is_some()
            });
            let client = bound.expect("bound");
            until("packets pass", || arrives(&client, &server));
            until("packets come back", || arrives(&server, &client));
        }
    }
    let status = world.gateway.status();
    let sessions = status["ike"].as_array().expect("sessions");
    let ports =
        sessions.iter().filter_map(|one| one["remote"].as_str()?.strip_prefix("192.0.2.2:"));
    assert_eq!(ports.collect::<std::collections::BTreeSet<_>>().len(), 2, "of one NAT: {status}");
    let status = world.gateway.must(&["status"]);
    assert!(status.contains("client-2.test has 10.9.0."), "{status}");
    let metrics = world.gateway.must(&["status", "--prometheus"]);
    let assigned = "headroom_tunnel_ike_assigned_addresses{tunnel=\"hr0\",peer=\"vpn\"} 6";
    assert!(metrics.contains(assigned), "{metrics}");
    let shown = world.clients[0].must(&["status"]);
    assert!(shown.contains("not configured here: 10.1.0.53"), "{shown}");

    // one that says goodbye takes nobody else with it, and its address goes with its interface
    let [first, second, _] = &world.clients;
    first.must(&["down"]);
    until("it is gone", || world.assigned().len() == 2);
    let address = own(second)[0];
    let server = socket(&world.gateway, SERVERS[0].parse().expect("an address"), 6000);
    let [client, server] = [socket(second, address, 6000), server].map(Option::unwrap);
    until("others go on", || arrives(&client, &server) && arrives(&server, &client));
    for site in [second, &world.clients[2], &world.gateway] {
        site.must(&["down"]);
    }
}

#[test]
fn an_address_that_is_given_back_is_assigned_to_who_waits_for_one() {
    if !privileged() {
        return;
    }
    let ground = Ground::new("ike-pool-end");
    let world = World::new(&ground);
    let gateway = gateway_file(&ground, "\"10.9.0.5-10.9.0.6\"", "\"10.1.0.0/16\"");
    let files = [1, 2, 3].map(|number| client_file(&ground, number, "\"10.1.0.0/16\""));
    let [first, second, third] = &world.clients;
    bring_up(&world.gateway, &world.clients[..2], &gateway, &files[..2]);
    until("two have one", || world.assigned().len() == 2);
    third.up(&files[2]);
    until("the third is told that there is none", || {
        world.log().contains("client-3.test at ") && world.log().contains("gets no address")
    });
    assert_eq!(world.assigned().len(), 2);
    let counted = world.gateway.status()["ike_counters"]["pool_exhausted"].as_u64();
    assert!(counted >= Some(1), "{counted:?}");
    let log = std::fs::read_to_string(third.run.join("hr0.log")).expect("a log");
    assert!(log.contains("INTERNAL_ADDRESS_FAILURE"), "{log}");

    let free = own(first)[0];
    first.must(&["down"]);
    until("it has the one that is free", || own(third) == [free]);
    let server = socket(&world.gateway, SERVERS[0].parse().expect("an address"), 5000);
    let server = server.expect("its address");
    let mut bound = None;
    until("the address is on the interface", || {
        bound = socket(third, free, 5000);
        bound.is_some()
    });
    let client = bound.expect("bound");
    until("packets pass", || arrives(&client, &server) && arrives(&server, &client));
    for site in [second, third, &world.gateway] {
        site.must(&["down"]);
    }
}

#[test]
fn keygen_makes_a_gateway_and_clients_that_get_addresses() {
    if !privileged() {
        return;
    }
    let ground = Ground::new("ike-pool-keygen");
    let world = World::new(&ground);
    let folder = ground.path("keys");
    let out = folder.to_str().expect("a path");
    let words = [
        "keygen",
        GATEWAY,
        "any",
        "--local-net",
        "10.1.0.0/16",
        "--pool",
        "10.9.0.0/24",
        "--ike=certificates",
        "--client",
        "alice",
        "--client",
        "bob",
        "--out",
        out,
    ];
    world.gateway.must(&words);
    world.gateway.up(&folder.join("gateway.toml"));
    for (client, name) in world.clients.iter().zip(["alice", "bob"]) {
        client.up(&folder.join(format!("{name}.toml")));
    }
    until("two clients have addresses", || {
        world.clients[..2].iter().all(|client| own(client).len() == 1)
    });
    let mut names: Vec<String> = world.assigned().into_iter().map(|(name, _)| name).collect();
    names.sort();
    assert_eq!(names, ["alice.hr0", "bob.hr0"]);
}
