//! The interface's mtu, the answer "too big" and the packets on the wire agree, for
//! every kind of tunnel, padding and path.

use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use headroom_ipsec::Engine;
use headroom_packet::fragment::{Limits, Reassembler};
use headroom_packet::header::IpHeader;
use headroom_packet::{Ip, Offload, protocol};
use proptest::prelude::*;

use super::device::SocketKind;
use super::testing::{Gateway, Sent, joined};
use crate::config::Config;
use crate::host::{Host, Setup};

const SUITES: [(&str, usize, &str, usize); 5] = [
    ("aes-128-gcm", 20, "", 0),
    ("chacha20-poly1305", 36, "", 0),
    ("aes-256-cbc+hmac-sha512", 32, "hmac-sha512", 64),
    ("aes-128-cbc+hmac-sha1", 16, "hmac-sha1", 20),
    ("aes-192-cbc+hmac-sha256", 24, "hmac-sha256", 32),
];

#[derive(Debug, Clone)]
struct Case {
    /// `esp`, `qesp`, `ah`, `ah+esp`.
    protocol: &'static str,
    transport: bool,
    udp: bool,
    suite: usize,
    outer_v6: bool,
    inner_v6: bool,
    /// As the file has it.
    padding: String,
    path_mtu: usize,
}

impl Case {
    fn outer(&self, host: usize) -> IpAddr {
        let address = if self.outer_v6 {
            format!("fd00::{}", host + 1)
        } else {
            format!("192.0.2.{}", host + 1)
        };
        address.parse().expect("an address")
    }

    fn inner(&self, host: usize) -> IpAddr {
        match (self.transport, self.inner_v6) {
            (true, _) => self.outer(host),
            (false, true) => format!("fd01:{}::1", host + 1).parse().expect("an address"),
            (false, false) => format!("10.{}.0.1", host + 1).parse().expect("an address"),
        }
    }

    fn carries_v6(&self) -> bool {
        if self.transport { self.outer_v6 } else { self.inner_v6 }
    }

    /// The configuration of one end.
    fn text(&self, me: usize) -> String {
        let (suite, key_len, _, mac_len) = SUITES[self.suite];
        let mut text = "name = \"hr0\"\n".to_owned();
        let mut names = [Vec::new(), Vec::new()];
        let protocols: Vec<&str> = match self.protocol {
            "ah+esp" => vec!["esp", "ah"],
            one => vec![one],
        };
        for (direction, from) in [("out", me), ("in", 1 - me)] {
            for protocol in &protocols {
                let name = format!("{direction}-{protocol}");
                let mode = match (self.transport, self.protocol, *protocol) {
                    (false, "ah+esp", "ah") | (true, ..) => "transport",
                    _ => "tunnel",
                };
                let seed = from * 4 + usize::from(*protocol == "ah") + 1;
                let key = |len: usize, more: usize| format!("{:02x}", seed + more).repeat(len);
                text += &format!(
                    "[[sa]]\nname = \"{name}\"\ndirection = \"{direction}\"\nprotocol = \"{protocol}\"\n\
                     mode = \"{mode}\"\nspi = {}\nsource = \"{}\"\ndestination = \"{}\"\n",
                    0x1000 + from,
                    self.outer(from),
                    self.outer(1 - from),
                );
                text += &match *protocol {
                    "ah" => format!("suite = \"hmac-sha256\"\nkey = \"{}\"\n", key(32, 0)),
                    _ if mac_len > 0 => format!(
                        "suite = \"{suite}\"\nkey = \"{}\"\nintegrity_key = \"{}\"\n",
                        key(key_len, 0),
                        key(mac_len, 16)
                    ),
                    _ => format!("suite = \"{suite}\"\nkey = \"{}\"\n", key(key_len, 0)),
                };
                if *protocol != "ah" {
                    if self.udp {
                        text += "udp = { source = 4500, destination = 4500 }\n";
                    }
                    if direction == "out" && !self.transport {
                        text += &format!("padding = {}\n", self.padding);
                    }
                }
                names[usize::from(direction == "in")].push(name);
            }
        }
        text + &format!(
            "[[policy]]\nname = \"all\"\naction = \"protect\"\nlocal = \"{}\"\nremote = \"{}\"\nout = {:?}\nin = {:?}\n",
            self.inner(me),
            self.inner(1 - me),
            names[0],
            names[1]
        )
    }

    /// The two gateways, and the longest packet that the first one's host sends.
    fn gateways(&self) -> (Gateway, Gateway, usize) {
        self.gateways_that([Some(usize::MAX); 2])
    }

    /// The same, each of which clamps TCP's segment size or not.
    fn gateways_that(&self, clamp_mss: [Option<usize>; 2]) -> (Gateway, Gateway, usize) {
        let mut mtu = 0;
        let engines = [0, 1].map(|me| {
            let text = self.text(me);
            let parse = || Config::parse(&text, Path::new("test.toml"));
            let config = parse().unwrap_or_else(|error| panic!("{error}\n{text}"));
            let other = parse().expect("the same again");
            let specs = other.associations.into_iter().map(|one| one.spec).collect();
            let engine = Engine::new(specs, other.policies, None, Duration::ZERO);
            let engine = engine.expect("an engine");
            for sa in engine.associations() {
                sa.sequence().grant(1 << 20);
            }
            let host = Host { mark: 1, has_v6: true, marks_are_valid: true };
            let setup = Setup::plan(&config, &engine, host, |_| self.path_mtu);
            let printed = setup.printed("hr0", 1);
            // in transport mode TCP's segments are what is limited
            let (word, headers) = match (self.transport, self.outer_v6) {
                (false, _) => ("dev hr0 mtu ", 0),
                (true, false) => ("advmss ", 40),
                (true, true) => ("advmss ", 60),
            };
            let behind = printed.split(word).nth(1).expect("a limit");
            let number: String = behind.chars().take_while(char::is_ascii_digit).collect();
            mtu = number.parse::<usize>().expect("a number") + headers;
            engine
        });
        let kind = match (self.udp, self.protocol) {
            (true, _) => SocketKind::Udp(4500),
            (_, "esp") => SocketKind::Ip(50),
            (_, "qesp") => SocketKind::Ip(253),
            _ => SocketKind::Ip(51),
        };
        let ends = [self.outer(0), self.outer(1)];
        let (here, there) = joined(engines, ends, kind, self.path_mtu, clamp_mss);
        (here, there, mtu)
    }

    /// A TCP segment that may not be cut, as an IP packet of `len` bytes.
    fn segment(&self, len: usize) -> Vec<u8> {
        let mut packet = vec![0; len];
        let header = if self.carries_v6() { 40 } else { 20 };
        let fresh = IpHeader {
            source: self.inner(0),
            destination: self.inner(1),
            tos: 0,
            hop_limit: 64,
            protocol: protocol::TCP,
            id: 7,
            dont_fragment: true,
            flow_label: 0,
        };
        fresh.write(len - header, &mut packet).expect("an IP header");
        packet[header + 12] = 5 << 4;
        packet
    }

    /// Takes the packets from one gateway to the other, fragments put together.
    fn carry(&self, here: &Gateway, there: &mut Gateway) {
        let mut reassembler = Reassembler::new(Limits { datagrams: 8, bytes: 1 << 20 });
        for sent in here.wire.sent() {
            let whole = match sent {
                Sent::Packet(packet) => {
                    assert!(packet.len() <= self.path_mtu, "{} bytes on the wire", packet.len());
                    let ip = Ip::parse(&packet).expect("an IP packet");
                    match reassembler.push(&ip, Duration::ZERO).expect("a good fragment") {
                        Some(whole) => Sent::Packet(whole),
                        None if ip.fragment().is_some() => continue,
                        None => Sent::Packet(packet),
                    }
                }
                Sent::Datagrams(port, to, tos, datagrams) => {
                    let around = if self.outer_v6 { 48 } else { 28 };
                    // IPv6's least goes through every path: there the kernel cuts
                    let cut = self.carries_v6() && self.path_mtu < 1280 + 200;
                    let longest = datagrams.iter().map(Vec::len).max().expect("a datagram");
                    assert!(cut || longest + around <= self.path_mtu, "{longest} bytes of payload");
                    Sent::Datagrams(port, to, tos, datagrams)
                }
            };
            here.wire.0.lock().expect("the wire").push_back(whole);
        }
        there.receive_all();
    }
}

/// What a host is told passes (RFC 1191, RFC 4443 section 3.2).
fn told(answer: &[u8]) -> usize {
    if answer[0] >> 4 == 4 {
        assert_eq!((answer[20], answer[21]), (3, 4), "fragmentation needed");
        usize::from(u16::from_be_bytes([answer[26], answer[27]]))
    } else {
        assert_eq!(answer[40], 2, "packet too big");
        u32::from_be_bytes([answer[44], answer[45], answer[46], answer[47]]) as usize
    }
}

fn tunnels() -> impl Strategy<Value = Case> {
    let protocol = proptest::sample::select(&["esp", "esp", "qesp", "ah", "ah+esp"][..]);
    let padding = prop_oneof![
        Just("\"none\"".to_owned()),
        Just("\"mtu\"".to_owned()),
        (2..=9000u16).prop_map(|of| of.to_string()),
        proptest::sample::select(&[16u16, 64, 256][..]).prop_map(|of| of.to_string()),
    ];
    let flags = (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>());
    (protocol, flags, 0..SUITES.len(), padding, prop_oneof![700..1600usize, 700..9000usize])
        .prop_map(|(protocol, (transport, udp, outer_v6, inner_v6), suite, padding, path)| Case {
            protocol,
            transport,
            udp: udp && protocol == "esp",
            suite,
            outer_v6,
            inner_v6,
            padding,
            path_mtu: if outer_v6 { path.max(1280) } else { path },
        })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

    #[test]
    fn what_the_interface_lets_through_passes_and_so_does_what_an_answer_names(
        tunnel in tunnels(),
        shorter in prop_oneof![0..300usize, 0..9000usize],
        longer in prop_oneof![1..40usize, 1..2000usize],
    ) {
        let (mut here, mut there, mtu) = tunnel.gateways();
        let shortest = 64;
        for len in [mtu, mtu.saturating_sub(shorter).max(shortest)] {
            here.tun.send(Offload::default(), &tunnel.segment(len));
            here.send_all();
            prop_assert_eq!(here.drops(), vec![], "{} of {} bytes", len, mtu);
            tunnel.carry(&here, &mut there);
            let arrived = there.tun.received();
            prop_assert_eq!(arrived.len(), 1, "{} of {} bytes: {:?}", len, mtu, there.drops());
            prop_assert_eq!(arrived[0].1.len(), len);
        }

        here.tun.send(Offload::default(), &tunnel.segment(mtu + longer));
        here.send_all();
        let (_, answer) = here.tun.received().pop().expect("an answer");
        let passes = told(&answer);
        prop_assert!((mtu..mtu + longer).contains(&passes), "told {} where {} pass", passes, mtu);
        here.tun.send(Offload::default(), &tunnel.segment(passes));
        here.send_all();
        tunnel.carry(&here, &mut there);
        prop_assert_eq!(there.tun.received().len(), 1, "{} bytes as told", passes);
    }
}

/// The largest segment that a TCP SYN with one option announces.
fn announced(packet: &[u8], v6: bool) -> u16 {
    let at = if v6 { 62 } else { 42 };
    u16::from_be_bytes([packet[at], packet[at + 1]])
}

#[test]
fn a_connection_through_a_tunnel_announces_what_passes_both_ways() {
    for (protocol, udp, inner_v6, path_mtu) in [
        ("esp", true, false, 1500),
        ("esp", false, true, 1500),
        ("qesp", false, false, 1400),
        ("ah", false, false, 1000),
        ("esp", false, true, 1000),
    ] {
        let tunnel = Case {
            protocol,
            transport: false,
            udp,
            suite: 0,
            outer_v6: false,
            inner_v6,
            padding: "64".into(),
            path_mtu,
        };
        let header = if inner_v6 { 40 } else { 20 };
        let syn = |size: u16, flags: u8| {
            let mut packet = tunnel.segment(header + 24);
            packet[header + 12] = 6 << 4;
            packet[header + 13] = flags;
            packet[header + 20..header + 22].copy_from_slice(&[2, 4]);
            packet[header + 22..].copy_from_slice(&size.to_be_bytes());
            packet
        };
        // one end alone does it for both ways: the peer may be another program
        const PATH: Option<usize> = Some(usize::MAX);
        let all = [[PATH, PATH], [PATH, None], [None, PATH], [None, None], [Some(1290), None]];
        for clamps in all {
            let (mut here, mut there, mtu) = tunnel.gateways_that(clamps);
            let limit = clamps.iter().flatten().min();
            let most = limit.map_or(9000, |limit| (mtu.min(*limit) - header - 20) as u16);
            let mut pass = |packet: &[u8]| {
                here.tun.send(Offload::default(), packet);
                here.send_all();
                tunnel.carry(&here, &mut there);
                announced(&there.tun.received().remove(0).1, inner_v6)
            };
            for flags in [2, 2 | 16] {
                assert_eq!(pass(&syn(9000, flags)), most, "{clamps:?} {tunnel:?}");
                assert_eq!(pass(&syn(500, flags)), 500);
            }
            assert_eq!(pass(&syn(9000, 16)), 9000, "no SYN");
        }
    }
}
