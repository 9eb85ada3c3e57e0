//! What is sealed opens to the same packet, in every shape, and nothing else does.

mod common;

use common::{Kind, Shape, ends, open, open_with, seal};
use etherparse::PacketBuilder;
use headroom_ipsec::spec::Mode;
use headroom_ipsec::{OpenScratch, Reason};
use headroom_suite::{Mac, Suite};
use proptest::prelude::*;

const MACS: [Mac; 5] =
    [Mac::HmacMd5, Mac::HmacSha1, Mac::HmacSha256, Mac::HmacSha384, Mac::HmacSha512];

/// A UDP packet between addresses, the ends' own or others.
fn packet(v6: bool, own: bool, payload: &[u8]) -> Vec<u8> {
    let (source, destination) = match (own, v6) {
        (true, v6) => ends(v6),
        (false, true) => ("fd01::1".parse().expect("one"), "fd02::2".parse().expect("one")),
        (false, false) => ("10.1.0.1".parse().expect("one"), "10.2.0.2".parse().expect("one")),
    };
    let mut bytes = Vec::new();
    match (source, destination) {
        (std::net::IpAddr::V4(source), std::net::IpAddr::V4(destination)) => {
            PacketBuilder::ipv4(source.octets(), destination.octets(), 61)
        }
        (std::net::IpAddr::V6(source), std::net::IpAddr::V6(destination)) => {
            PacketBuilder::ipv6(source.octets(), destination.octets(), 61)
        }
        _ => unreachable!("one family"),
    }
    .udp(5004, 6000)
    .write(&mut bytes, payload)
    .expect("etherparse writes to a vector");
    bytes
}

fn shapes() -> impl Strategy<Value = Shape> {
    let kind = prop_oneof![Just(Kind::Esp), Just(Kind::Ah), Just(Kind::AhEsp), Just(Kind::QEsp)];
    let suite = proptest::sample::select(&Suite::ALL);
    (kind, any::<bool>(), suite, 0..5usize, any::<bool>(), any::<bool>(), any::<bool>())
        .prop_map(|(kind, tunnel, suite, mac, outer_v6, extended, udp)| Shape {
            kind,
            mode: if tunnel { Mode::Tunnel } else { Mode::Transport },
            suite,
            mac: MACS[mac],
            outer_v6,
            extended,
            udp: udp && kind == Kind::Esp,
        })
        .prop_filter("Q-ESP encrypts", |shape| shape.kind != Kind::QEsp || shape.suite.encrypts())
}

/// What may differ after transport mode in UDP, where the socket took the header.
fn comparable(mut packet: Vec<u8>, shape: &Shape) -> Vec<u8> {
    if shape.mode == Mode::Transport && !shape.outer_v6 {
        packet[4..9].fill(0); // ID, DF, hop limit
        packet[10..12].fill(0);
    } else if shape.mode == Mode::Transport {
        packet[7] = 0;
    }
    packet
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, ..ProptestConfig::default() })]

    #[test]
    fn what_is_sealed_opens_to_itself(shape in shapes(), inner_v6: bool, payload in proptest::collection::vec(any::<u8>(), 0..200)) {
        let own = shape.mode == Mode::Transport;
        let packet = packet(if own { shape.outer_v6 } else { inner_v6 }, own, &payload);
        let (sender, receiver) = (shape.sender(), shape.receiver());
        for _ in 0..3 {
            let sealed = seal(&sender, &packet).expect("sealed");
            let opened = open(&receiver, &sealed).expect("opened");
            prop_assert_eq!(comparable(opened, &shape), comparable(packet.clone(), &shape));
            prop_assert_eq!(open(&receiver, &sealed), Err(Reason::Replay));
        }
    }

    #[test]
    fn nothing_that_was_changed_or_cut_opens(shape in shapes(), at in any::<prop::sample::Index>(), bit in 0..8u8, cut in any::<prop::sample::Index>()) {
        let own = shape.mode == Mode::Transport;
        let packet = packet(shape.outer_v6, own, b"some payload that is worth changing");
        let sealed = seal(&shape.sender(), &packet).expect("sealed");
        let receiver = shape.receiver();
        let header = if shape.outer_v6 { 40 } else { 20 };
        // a UDP header is not covered
        let header = header + if shape.udp { 8 } else { 0 };
        let mut changed = sealed.clone();
        let place = header + at.index(changed.len() - header);
        changed[place] ^= 1 << bit;
        prop_assert!(open(&receiver, &changed).is_err(), "bit {} of byte {}", bit, place);
        let cut = header + cut.index(sealed.len() - header);
        let mut short = sealed[..cut].to_vec();
        headroom_packet::header::set_total_len(&mut short, cut).expect("a length");
        prop_assert!(open(&receiver, &short).is_err(), "cut to {}", cut);
        prop_assert!(open(&receiver, &sealed).is_ok(), "the original still opens");
    }

    #[test]
    fn no_octets_make_it_panic(shape in shapes(), mut octets in proptest::collection::vec(any::<u8>(), 0..160)) {
        let receiver = shape.receiver();
        let protocol = match shape.kind { Kind::Esp => 50, Kind::Ah | Kind::AhEsp => 51, Kind::QEsp => 253 };
        let (source, destination) = ends(shape.outer_v6);
        let header = packet(shape.outer_v6, true, b"");
        let header = &header[..if shape.outer_v6 { 40 } else { 20 }];
        for header in [header, &[]] {
            let outer = headroom_ipsec::Outer { source, destination, tos: 0, header, udp: shape.udp.then_some((4500, 4500)) };
            let _ = receiver.open(&outer, protocol, &mut octets, &mut OpenScratch::default());
            // the same behind an SPI that is known
            for at in [0, 4, 8] {
                if octets.len() >= at + 4 {
                    octets[at..at + 4].copy_from_slice(&if protocol == 51 { 0x2000u32 } else { 0x1000 }.to_be_bytes());
                }
                let _ = receiver.open(&outer, protocol, &mut octets, &mut OpenScratch::default());
            }
        }
    }
}

#[test]
fn q_esp_shows_ports_and_protocol_where_a_router_looks_for_them() {
    for mode in [Mode::Tunnel, Mode::Transport] {
        let suite = "aes-128-gcm".parse().expect("a suite");
        let shape = Shape { kind: Kind::QEsp, mode, ..Shape::esp(suite) };
        let sealed =
            seal(&shape.sender(), &packet(false, mode == Mode::Transport, b"x")).expect("sealed");
        assert_eq!(sealed[9], 253);
        // docs/qesp.md: nft @th,16,16 5004 is the destination port, @th,32,8 the protocol
        assert_eq!(
            sealed[20..28],
            [5004u16.to_be_bytes(), 6000u16.to_be_bytes(), [17, 0], [0, 0]].concat()
        );
        open_with(&shape.receiver(), &sealed, |opened, _| assert_eq!(opened.sequence, 1))
            .expect("opened");
    }
}

#[test]
fn a_nat_is_told_from_a_forgery_where_addresses_are_covered() {
    let suite = "aes-128-gcm".parse().expect("a suite");
    for (kind, want) in [(Kind::QEsp, Reason::AddressChanged), (Kind::Ah, Reason::AddressChanged)] {
        let shape = Shape { kind, ..Shape::esp(suite) };
        let mut sealed = seal(&shape.sender(), &packet(false, false, b"x")).expect("sealed");
        sealed[12] ^= 1;
        headroom_packet::header::refresh_checksum(&mut sealed).expect("a header");
        let receiver = shape.receiver();
        assert_eq!(open(&receiver, &sealed), Err(want));
        assert_eq!(receiver.counters().get(want), 1);
    }
    // ESP does not cover them
    let shape = Shape::esp(suite);
    let mut sealed = seal(&shape.sender(), &packet(false, false, b"x")).expect("sealed");
    sealed[12] ^= 1;
    assert!(open(&shape.receiver(), &sealed).is_ok());
}
