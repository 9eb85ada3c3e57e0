//! Gateways on two hosts: what goes through, what is seen on the wire, what
//! happens when one dies.

mod common;

use std::io::{Read, Write};
use std::net::{IpAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use common::{Gateway, Kind, read};
use headroom_gateway::host::Command;
use headroom_testing::{Capture, Host, contains, link, privileged, retried};

const ESP_IN_UDP: Kind = Kind {
    protocol: "esp",
    mode: "tunnel",
    udp: true,
    outer_v6: false,
    inner_v6: false,
    padding: 0,
};
/// Nobody sends this by chance.
const MARKER: &[u8] = b"a marker that must not be read on the wire";
const LONG: Duration = Duration::from_secs(120);

/// Sends `octets` from one host to the other by TCP, and back what arrived.
fn transfer(hosts: &[Host; 2], to: IpAddr, octets: usize) {
    let content: Vec<u8> = MARKER.iter().copied().cycle().take(octets).collect();
    let listener = hosts[1].run(move || TcpListener::bind((to, 0)).expect("a listener"));
    let address = listener.local_addr().expect("its address");
    let expected = content.clone();
    let echo = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a connection");
        stream.set_read_timeout(Some(LONG)).expect("a timeout");
        let mut received = vec![0; octets];
        stream.read_exact(&mut received).expect("all bytes");
        assert!(received == expected, "the bytes are not those that were sent");
        stream.write_all(&received).expect("all bytes back");
    });
    let back = hosts[0].run(move || {
        let mut stream = TcpStream::connect_timeout(&address, LONG).expect("a connection");
        stream.set_read_timeout(Some(LONG)).expect("a timeout");
        let mut reader = stream.try_clone().expect("another handle");
        let expected = content.clone();
        let reading = std::thread::spawn(move || {
            let mut back = vec![0; octets];
            reader.read_exact(&mut back).expect("all bytes back");
            back == expected
        });
        stream.write_all(&content).expect("all bytes");
        reading.join().expect("a reader")
    });
    assert!(back, "what came back is not what was sent");
    echo.join().expect("the other side");
}

/// Sends one datagram from host 0 to host 1, which must arrive unless it must not.
fn datagram(hosts: &[Host; 2], kind: Kind, len: usize, arrives: bool) {
    let [from, to]: [IpAddr; 2] = [0, 1].map(|n| kind.address(n).parse().expect("an address"));
    let octets: Vec<u8> = MARKER.iter().copied().cycle().take(len).collect();
    let receiver = hosts[1].run(move || UdpSocket::bind((to, 0)).expect("a socket"));
    let address = receiver.local_addr().expect("its address");
    let wait = if arrives { LONG } else { Duration::from_millis(300) };
    receiver.set_read_timeout(Some(wait)).expect("a timeout");
    let content = octets.clone();
    hosts[0].run(move || {
        let socket = UdpSocket::bind((from, 0)).expect("a socket");
        // what is prohibited says so at once
        let sent = socket.send_to(&content, address);
        assert!(sent.is_ok() || !arrives, "{sent:?}");
    });
    let mut received = vec![0; 65_536];
    match retried(|| receiver.recv(&mut received)) {
        Ok(len) => assert!(arrives && received[..len] == octets, "{len} bytes arrived"),
        Err(error) => assert!(!arrives, "nothing arrived: {error}"),
    }
}

/// Whether the marker was readable in any of the frames.
fn seen(frames: &[Vec<u8>]) -> bool {
    frames.iter().any(|frame| contains(frame, MARKER))
}

#[test]
fn tcp_moves_bytes_both_ways_whatever_lengths_are_padded_to() {
    if !privileged() {
        return;
    }
    for padding in [16, 64, 256] {
        for (protocol, udp) in [("esp", false), ("esp", true), ("qesp", false)] {
            let kind = Kind { protocol, udp, padding, ..ESP_IN_UDP };
            let hosts = link();
            let gateways =
                [0, 1].map(|me| hosts[me].run(move || Gateway::start(&kind.config(me, 0))));
            let to: IpAddr = kind.address(1).parse().expect("an address");
            transfer(&hosts, to, 300_000);
            datagram(&hosts, kind, 100, true);
            datagram(&hosts, kind, 5000, true);
            let too_big = gateways.each_ref().map(|gateway| gateway.counter("too-big"));
            assert_eq!(too_big, [0, 0], "{kind:?}: the interface's mtu is what passes");
        }
    }
}

#[test]
fn everything_goes_through_and_nothing_is_seen() {
    if !privileged() {
        return;
    }
    let esp = Kind { udp: false, ..ESP_IN_UDP };
    let qesp = Kind { protocol: "qesp", ..esp };
    let transport = |kind| Kind { mode: "transport", ..kind };
    for kind in [
        ESP_IN_UDP,
        Kind { outer_v6: true, ..ESP_IN_UDP },
        Kind { inner_v6: true, ..ESP_IN_UDP },
        transport(ESP_IN_UDP),
        esp,
        Kind { outer_v6: true, inner_v6: true, ..esp },
        transport(esp),
        Kind { outer_v6: true, ..transport(esp) },
        Kind { outer_v6: true, ..qesp },
        transport(qesp),
        Kind { protocol: "ah", ..esp },
        Kind { protocol: "ah", ..transport(esp) },
    ] {
        let hosts = link();
        let gateways = [0, 1].map(|me| hosts[me].run(move || Gateway::start(&kind.config(me, 0))));
        let capture = Capture::start(hosts.each_ref());
        let to: IpAddr = kind.address(1).parse().expect("an address");
        transfer(&hosts, to, 300_000);
        datagram(&hosts, kind, 100, true);
        datagram(&hosts, kind, 5000, true);
        let frames = capture.finish();
        assert!(!frames.is_empty());
        assert_eq!(seen(&frames), kind.protocol == "ah", "{kind:?}: AH alone shows what it covers");
        for (gateway, sa) in [(&gateways[0], "out"), (&gateways[1], "in")] {
            assert!(gateway.packets(sa) > 10, "{kind:?}");
        }
        for reason in ["forged", "replay", "malformed", "policy-mismatch", "send-failed"] {
            let counts = [&gateways[0], &gateways[1]].map(|gateway| gateway.counter(reason));
            assert_eq!(counts, [0, 0], "{kind:?}: {reason}");
        }
    }
}

#[test]
fn several_queues_share_the_flows() {
    if !privileged() {
        return;
    }
    let raw = Kind { protocol: "qesp", udp: false, ..ESP_IN_UDP };
    for kind in [ESP_IN_UDP, raw] {
        let hosts = link();
        let gateways = [0, 1].map(|me| {
            let text = kind.config(me, 0).replacen('\n', "\nqueues = 2\n", 1);
            hosts[me].run(move || Gateway::start(&text))
        });
        let to: IpAddr = kind.address(1).parse().expect("an address");
        for _ in 0..8 {
            transfer(&hosts, to, 20_000);
            datagram(&hosts, kind, 1000, true);
        }
        for reason in ["unknown-spi", "forged", "replay", "stale", "send-failed"] {
            let counts = [&gateways[0], &gateways[1]].map(|gateway| gateway.counter(reason));
            assert_eq!(counts, [0, 0], "{kind:?}: {reason}");
        }
    }
}

#[test]
fn a_gateway_that_died_lets_nothing_out_and_nothing_in_in_clear() {
    if !privileged() {
        return;
    }
    for mode in ["tunnel", "transport"] {
        let kind = Kind { mode, udp: false, ..ESP_IN_UDP };
        let hosts = link();
        let [here, there] =
            [0, 1].map(|me| hosts[me].run(move || Gateway::start(&kind.config(me, 0))));
        datagram(&hosts, kind, 100, true);
        // tunnel mode: the other side would be reachable by the link
        if mode == "tunnel" {
            hosts[0].ip("addr add 10.1.0.1/32 dev lo");
            hosts[0].ip("route add 10.2.0.0/24 via 192.0.2.2");
        }
        let setup = hosts[0].run(move || here.die());
        let capture = Capture::start(hosts.each_ref());
        datagram(&hosts, kind, 100, false);
        assert!(!seen(&capture.finish()), "{mode}: it left in clear");
        // without the routes' protection it leaves, and the other side refuses it
        hosts[0].run(move || setup.undo().iter().for_each(|undo| undo.run().expect("undone")));
        let capture = Capture::start(hosts.each_ref());
        datagram(&hosts, kind, 100, false);
        assert!(seen(&capture.finish()), "{mode}: the tunnel was taken down");
        drop(there);
    }
}

/// Datagrams in flight while a gateway reloads: fewer than any queue on the way holds.
const WINDOW: u32 = 64;

#[test]
fn a_reload_under_load_loses_nothing() {
    if !privileged() {
        return;
    }
    let hosts = link();
    let gateways =
        [0, 1].map(|me| Arc::new(hosts[me].run(move || Gateway::start(&ESP_IN_UDP.config(me, 0)))));
    let to: IpAddr = ESP_IN_UDP.address(1).parse().expect("an address");
    let receiver = hosts[1].run(move || UdpSocket::bind((to, 0)).expect("a socket"));
    let address = receiver.local_addr().expect("its address");
    let expected = Arc::new(AtomicU32::new(0)); // the number behind the last one that arrived
    let arrived = Arc::clone(&expected);
    let counting = std::thread::spawn(move || {
        receiver.set_read_timeout(Some(LONG)).expect("a timeout");
        let mut seen = Vec::new();
        let mut buffer = [0; 64];
        loop {
            let len = retried(|| receiver.recv(&mut buffer)).expect("a datagram");
            let Ok(number) = <[u8; 4]>::try_from(&buffer[..len]) else { return seen };
            let number = u32::from_be_bytes(number);
            seen.push(number);
            arrived.fetch_max(number + 1, Ordering::AcqRel);
        }
    });
    let stop = Arc::new(AtomicBool::new(false));
    let asked = Arc::clone(&stop);
    let sender = hosts[0].run(move || {
        std::thread::spawn(move || {
            let socket = UdpSocket::bind("0.0.0.0:0").expect("a socket");
            let mut number = 0u32;
            let deadline = Instant::now() + LONG;
            while !asked.load(Ordering::Acquire) {
                socket.send_to(&number.to_be_bytes(), address).expect("a datagram");
                number += 1;
                // no queue on the way overflows, however slow this machine is
                while number - expected.load(Ordering::Acquire) > WINDOW {
                    assert!(Instant::now() < deadline, "nothing arrives after {number} datagrams");
                    std::thread::yield_now();
                }
            }
            socket.send_to(b"end", address).expect("the last");
            number
        })
    });
    let deadline = Instant::now() + LONG;
    for round in 0..20 {
        // another port comes with half of them: sockets are opened on the way
        let port = if round % 2 == 0 { "4500" } else { "4501" };
        for (me, gateway) in gateways.iter().enumerate().rev() {
            let gateway = Arc::clone(gateway);
            hosts[me].run(move || {
                let text =
                    ESP_IN_UDP.config(me, 0).replace("source = 4500", &format!("source = {port}"));
                let before = gateway.datapath.engine();
                let (_, engine) = read(&text, Some((&before, gateway.datapath.now())));
                gateway.datapath.reload(engine).expect("a reload");
            });
        }
        let before = gateways[1].packets("in");
        while gateways[1].packets("in") < before + 100 {
            assert!(Instant::now() < deadline, "no packet after reload {round}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    stop.store(true, Ordering::Release);
    let sent = sender.join().expect("a sender");
    let seen = counting.join().expect("a receiver");
    assert!(seen.iter().copied().eq(0..sent), "{} of {sent} arrived", seen.len());
}

#[test]
fn keepalives_are_sent_and_counted() {
    if !privileged() {
        return;
    }
    let hosts = link();
    let gateways =
        [0, 1].map(|me| hosts[me].run(move || Gateway::start(&ESP_IN_UDP.config(me, 0))));
    let deadline = Instant::now() + LONG;
    while gateways.iter().any(|gateway| gateway.counter("keepalive") < 2) {
        assert!(Instant::now() < deadline, "no keepalive came");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A client behind a NAT, and a server: `hosts`. The NAT's address outside is
/// what the server's configuration has, but the port is another.
fn behind_a_nat() -> ([Host; 2], Host) {
    let [nat, server] = link();
    let client = nat.neighbour("inside");
    for (host, device, address) in [(&nat, "inside", "254"), (&client, "eth0", "1")] {
        host.ip(&format!("addr add 192.168.7.{address}/24 dev {device}"));
        host.ip(&format!("link set {device} up"));
    }
    client.ip("route add default via 192.168.7.254");
    nat.run(|| {
        std::fs::write("/proc/sys/net/ipv4/ip_forward", "1").expect("a router");
        let input = "table ip nat { chain leaving { type nat hook postrouting priority 100; \
                     oifname eth0 meta l4proto udp masquerade to :40000-40099; }; }\n";
        let nft = Command { input: input.into(), ..Command::words("nft -f -") };
        nft.run().expect("a NAT");
    });
    ([client, server], nat)
}

#[test]
fn a_peer_behind_a_nat_is_followed_if_that_is_configured() {
    if !privileged() {
        return;
    }
    for follow in [true, false] {
        let (hosts, nat) = behind_a_nat();
        let client = ESP_IN_UDP.config(0, 0).replace("192.0.2.1", "192.168.7.1");
        let mut server = ESP_IN_UDP.config(1, 0);
        if follow {
            server =
                server.replacen("direction = \"in\"", "direction = \"in\"\nfollow_peer = true", 1);
        }
        let [client, server] =
            [(0, client), (1, server)].map(|(n, text)| hosts[n].run(move || Gateway::start(&text)));
        let [from, to]: [IpAddr; 2] =
            [0, 1].map(|n| ESP_IN_UDP.address(n).parse().expect("an address"));
        let sockets = [(0, from), (1, to)].map(|(n, address)| {
            let socket = hosts[n].run(move || UdpSocket::bind((address, 0)).expect("a socket"));
            socket.set_read_timeout(Some(Duration::from_millis(200))).expect("a timeout");
            socket
        });
        let address = sockets[1].local_addr().expect("its address");
        // there and back, again and again while a NAT makes up its mind
        let exchange = |least: usize, patience: Duration| {
            let deadline = Instant::now() + patience;
            let (mut there, mut back) = (0, 0);
            let mut room = [0; 100];
            while (there < least || back < least) && Instant::now() < deadline {
                sockets[0].send_to(MARKER, address).expect("sent");
                let Ok((len, from)) = sockets[1].recv_from(&mut room) else { continue };
                there += 1;
                sockets[1].send_to(&room[..len], from).expect("sent back");
                back += usize::from(sockets[0].recv(&mut room).is_ok());
            }
            (there, back)
        };
        let out = || {
            let engine = server.datapath.engine();
            engine.association("out").expect("the association").remote()
        };
        if !follow {
            let deadline = Instant::now() + LONG;
            let (mut there, mut back) = (0, 0);
            // nothing comes back, for a second at least
            while there == 0 && Instant::now() < deadline {
                (there, back) = exchange(1, Duration::from_secs(1));
            }
            assert!(there > 0 && back == 0, "{there} there, {back} back");
            assert_eq!(out().to_string(), "192.0.2.1:4500");
            continue;
        }
        let (there, back) = exchange(3, LONG);
        assert!(there >= 3 && back >= 3, "{there} there, {back} back");
        let before = out();
        assert!(before.ip().to_string() == "192.0.2.1" && before.port() >= 40_000, "{before}");
        transfer(&hosts, to, 300_000);

        // the NAT has another address, mid-flow
        nat.ip("addr del 192.0.2.1/24 dev eth0");
        nat.ip("addr add 192.0.2.9/24 dev eth0");
        // it forgets the mappings to the former one a moment later
        let deadline = Instant::now() + LONG;
        let moved = || out().ip().to_string() == "192.0.2.9";
        while !moved() && Instant::now() < deadline {
            exchange(1, Duration::from_secs(1));
        }
        let (there, back) = exchange(3, LONG);
        assert!(there >= 3 && back >= 3, "{there} there, {back} back, {} is the peer", out());
        assert!(moved(), "{} is the peer", out());
        transfer(&hosts, to, 300_000);
        for gateway in [&client, &server] {
            assert_eq!(gateway.counter("forged"), 0);
        }
    }
}
