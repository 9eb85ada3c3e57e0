//! Two gateways and a wire in memory.

use std::sync::Arc;
use std::time::Duration;

use headroom_ipsec::{Mode, Protocol, SaSpec};
use headroom_packet::fragment::{Limits, Reassembler};
use headroom_packet::offload::TrainKind;
use headroom_packet::{Ip, Offload, header};

use super::housekeeping::send_keepalives;
use super::testing::{Between, PATH_MTU, Sent, datagram, pair};
use super::tracer::{Decision, Entry, Record};
use headroom_ipsec::spec::{Direction, UdpPorts};

const ESP_IN_UDP: Between =
    Between { mode: Mode::Tunnel, protocol: Protocol::Esp, udp: true, follow: false };

const LIMITS: Limits = Limits { datagrams: 8, bytes: 1 << 20 };

/// All that works between the two addresses, IPv4.
fn all() -> impl Iterator<Item = Between> {
    let protocols = [
        (Protocol::Esp, false),
        (Protocol::Esp, true),
        (Protocol::Ah, false),
        (Protocol::QEsp(253), false),
    ];
    let modes = [Mode::Tunnel, Mode::Transport];
    modes.into_iter().flat_map(move |mode| {
        protocols.map(|(protocol, udp)| Between { mode, protocol, udp, follow: false })
    })
}

#[test]
fn a_packet_goes_in_and_the_same_packet_comes_out() {
    for between in all() {
        let (mut here, mut there) = pair(between);
        let packet = datagram(0xb8, true, 1000);
        here.tun.send(Offload::default(), &packet);
        here.send_all();
        there.receive_all();
        let mut received = there.tun.received();
        assert_eq!((received.len(), there.drops()), (1, vec![]), "{between:?}");
        let (offload, mut octets) = received.remove(0);
        assert_eq!(offload, Offload::default());
        if between.udp && between.mode == Mode::Transport {
            // the socket took the header: ID and checksum are new
            assert_eq!(octets[12..], packet[12..]);
            octets[4..12].copy_from_slice(&packet[4..12]);
        }
        assert_eq!(octets, packet, "{between:?}");
    }
}

/// A VPN through a VPN: what is inside is none of the gateway's business.
#[test]
fn ipsec_of_somebody_else_passes_a_tunnel_as_any_other_packet() {
    for between in all().filter(|between| between.mode == Mode::Tunnel) {
        for protocol in [50, 51, 253] {
            let (mut here, mut there) = pair(between);
            let mut packet = datagram(0, true, 200);
            packet[9] = protocol;
            header::refresh_checksum(&mut packet).expect("a header");
            here.tun.send(Offload::default(), &packet);
            here.send_all();
            there.receive_all();
            let received = there.tun.received();
            let passed: Vec<_> = received.iter().map(|(_, packet)| &packet[..]).collect();
            assert_eq!(passed, [&packet[..]], "{between:?} {protocol}: {:?}", there.drops());
        }
    }
}

#[test]
fn a_train_of_datagrams_leaves_as_one_and_arrives_as_one() {
    let (mut here, mut there) = pair(ESP_IN_UDP);
    let mut train = datagram(0, true, 20 * 1000 + 7);
    // as the kernel leaves it: the checksum is unfinished
    let offload = Offload {
        checksum: Some((20, 6)),
        kind: TrainKind::Udp,
        segment_len: 1000,
        header_len: 28,
    };
    let payload = train[28..].to_vec();
    here.tun.send(offload, &train);
    here.send_all();
    let sent = here.wire.sent();
    assert!(matches!(&sent[..], [Sent::Datagrams(4500, _, 0, train)] if train.len() == 21));
    here.wire.0.lock().expect("the wire").extend(sent);
    there.receive_all();
    let received = there.tun.received();
    assert_eq!(received.len(), 1, "joined again");
    assert_eq!((received[0].0.kind, received[0].0.segment_len), (TrainKind::Udp, 1000));
    assert_eq!(received[0].1[28..], payload);
    train.truncate(20);
    assert_eq!(received[0].1[12..20], train[12..20]);
}

#[test]
fn packets_of_one_length_and_class_share_a_train() {
    let (mut here, mut there) = pair(ESP_IN_UDP);
    for (tos, len) in [(0, 100), (0, 100), (0, 60), (0, 100), (0xb8, 100), (0xb8, 100), (1, 100)] {
        here.tun.send(Offload::default(), &datagram(tos, true, len));
    }
    here.send_all();
    let sent = here.wire.sent();
    let shapes: Vec<(u8, usize)> = sent
        .iter()
        .map(|sent| match sent {
            Sent::Datagrams(_, _, tos, datagrams) => (*tos, datagrams.len()),
            Sent::Packet(_) => panic!("not in UDP"),
        })
        .collect();
    // a shorter one ends a train, another DSCP begins one
    assert_eq!(shapes, [(0, 3), (0, 1), (0xb8, 2), (1, 1)]);
    here.wire.0.lock().expect("the wire").extend(sent);
    there.receive_all();
    let engine = there.shared.engine.load();
    assert_eq!(engine.association("in").map(|sa| sa.packets()), Some(7));
}

fn of_packet(entry: Entry) -> Record {
    match entry {
        Entry::Packet(record) => record,
        Entry::Ike(record) => panic!("{record:?}"),
    }
}

#[test]
fn what_is_replayed_forged_or_no_esp_is_counted_by_its_name() {
    let (mut here, mut there) = pair(ESP_IN_UDP);
    let trace = there.shared.tracer.subscribe();
    here.tun.send(Offload::default(), &datagram(0, true, 100));
    here.send_all();
    let sent = here.wire.sent();
    let [Sent::Datagrams(port, to, tos, datagrams)] = &sent[..] else { panic!("one train") };
    let good = datagrams[0].clone();
    let mut forged = good.clone();
    *forged.last_mut().expect("octets") ^= 1;
    let mut unknown = good.clone();
    unknown[3] ^= 0x80;
    let marked = [&[0; 4][..], &good].concat();
    let all =
        [forged, good.clone(), good, unknown, marked, vec![0xff], vec![1, 2], vec![], vec![0xfe]];
    for octets in all.into_iter().filter(|octets| !octets.is_empty()) {
        let one = Sent::Datagrams(*port, *to, *tos, vec![octets]);
        here.wire.0.lock().expect("the wire").push_back(one);
    }
    there.receive_all();
    assert_eq!(there.tun.received().len(), 1);
    let mut drops = there.drops();
    drops.sort_unstable();
    let expected = [
        ("forged", 1),
        ("keepalive", 1),
        ("non-esp", 1),
        ("replay", 1),
        ("truncated", 2),
        ("unknown-spi", 1),
    ];
    assert_eq!(drops, expected);
    let records: Vec<_> =
        std::iter::from_fn(|| trace.next(Duration::ZERO).ok().flatten()).map(of_packet).collect();
    let reasons: Vec<_> = records.iter().filter_map(|record| record.reason).collect();
    assert_eq!(reasons, ["forged", "replay", "unknown-spi", "non-esp", "truncated", "truncated"]);
    let opened = records.iter().find(|record| record.decision == Decision::Protect);
    let opened = opened.expect("the good one");
    assert_eq!(
        (opened.direction, opened.ports, opened.sequence),
        (Direction::In, Some((5004, 5005)), Some(1))
    );
    assert_eq!(
        (opened.policy.as_deref(), &opened.associations[..]),
        (Some("all"), &["in".into()][..])
    );
}

#[test]
fn what_a_policy_leaves_in_clear_goes_past_the_tunnel() {
    let (mut here, _) = pair(ESP_IN_UDP);
    let mut packet = datagram(0, true, 64);
    packet[9] = 47;
    header::refresh_checksum(&mut packet).expect("a header");
    here.tun.send(Offload::default(), &packet);
    here.send_all();
    assert!(matches!(&here.wire.sent()[..], [Sent::Packet(sent)] if *sent == packet));
}

#[test]
fn the_interfaces_own_chatter_and_what_is_no_packet_are_dropped() {
    let (mut here, _) = pair(ESP_IN_UDP);
    // a router solicitation (RFC 4861, section 4.1)
    let mut solicitation = vec![0x60, 0, 0, 0, 0, 8, 58, 255];
    solicitation.extend("fe80::1".parse::<std::net::Ipv6Addr>().expect("an address").octets());
    solicitation.extend("ff02::2".parse::<std::net::Ipv6Addr>().expect("an address").octets());
    solicitation.extend([133, 0, 0, 0, 0, 0, 0, 0]);
    here.tun.send(Offload::default(), &solicitation);
    here.tun.send(Offload::default(), &[0x45; 12]);
    here.tun.send(Offload::default(), &[]);
    here.send_all();
    assert!(here.wire.sent().is_empty());
    let mut drops = here.drops();
    drops.sort_unstable();
    assert_eq!(drops, [("malformed", 2), ("own-traffic", 1)]);
}

#[test]
fn no_number_is_used_that_is_not_granted() {
    let (mut here, _) = pair(ESP_IN_UDP);
    let engine = here.shared.engine.load_full();
    let sa = engine.association("out").expect("the association");
    sa.sequence().skip_to(u64::from(u32::MAX));
    for _ in 0..3 {
        here.tun.send(Offload::default(), &datagram(0, true, 64));
    }
    here.send_all();
    assert_eq!(here.wire.sent().len(), 1, "the last that was granted");
    assert_eq!(here.drops(), [("ledger-behind", 2)]);
}

/// What the wire has, given to the other side, which puts fragments together.
fn carry(here: &super::testing::Gateway, there: &mut super::testing::Gateway) -> usize {
    let mut reassembler = Reassembler::new(LIMITS);
    let mut cut = 0;
    for sent in here.wire.sent() {
        let whole = match sent {
            Sent::Packet(packet) => {
                assert!(packet.len() <= PATH_MTU);
                let ip = Ip::parse(&packet).expect("an IP packet");
                cut += usize::from(ip.fragment().is_some());
                match reassembler.push(&ip, Duration::ZERO).expect("a fragment") {
                    Some(whole) => Sent::Packet(whole),
                    None if ip.fragment().is_some() => continue,
                    None => Sent::Packet(packet),
                }
            }
            datagrams @ Sent::Datagrams(..) => datagrams,
        };
        here.wire.0.lock().expect("the wire").push_back(whole);
    }
    there.receive_all();
    cut
}

#[test]
fn a_tunnel_cuts_what_is_inside_where_it_may() {
    for protocol in [Protocol::Esp, Protocol::QEsp(253), Protocol::Ah] {
        let (mut here, mut there) = pair(Between { protocol, udp: false, ..ESP_IN_UDP });
        let packet = datagram(0, false, 4000);
        here.tun.send(Offload::default(), &packet);
        here.send_all();
        assert_eq!(carry(&here, &mut there), 0, "no outer fragment");
        let received = there.tun.received();
        assert_eq!(received.len(), 3);
        let mut reassembler = Reassembler::new(LIMITS);
        let whole = received.iter().find_map(|(_, piece)| {
            let ip = Ip::parse(piece).expect("a fragment");
            reassembler.push(&ip, Duration::ZERO).expect("a fragment")
        });
        assert_eq!(whole.as_deref(), Some(&packet[..]));
    }
}

#[test]
fn a_sender_that_forbids_cutting_is_told_what_passes() {
    for udp in [false, true] {
        let (mut here, mut there) = pair(Between { udp, ..ESP_IN_UDP });
        here.tun.send(Offload::default(), &datagram(0, true, 1472));
        here.send_all();
        assert!(here.wire.sent().is_empty());
        assert_eq!(here.drops(), [("too-big", 1)]);
        let (_, answer) = here.tun.received().remove(0);
        let passes = usize::from(u16::from_be_bytes([answer[26], answer[27]]));
        assert_eq!((&answer[16..20], answer[20], answer[21]), (&[192, 0, 2, 1][..], 3, 4));
        // a packet of exactly that length passes, one of a byte more does not
        here.tun.send(Offload::default(), &datagram(0, true, passes - 28));
        here.tun.send(Offload::default(), &datagram(0, true, passes - 27));
        here.send_all();
        assert_eq!(carry(&here, &mut there), 0);
        assert_eq!(there.tun.received().len(), 1);
        assert_eq!(here.drops(), [("too-big", 2)]);
    }
}

#[test]
fn transport_mode_cuts_what_is_outside() {
    for between in all().filter(|between| between.mode == Mode::Transport && !between.udp) {
        let (mut here, mut there) = pair(between);
        let packet = datagram(0, true, 4000);
        here.tun.send(Offload::default(), &packet);
        here.send_all();
        assert_eq!(carry(&here, &mut there), 3);
        let (_, mut whole) = there.tun.received().remove(0);
        whole[6] |= 0x40; // DF was taken from the fragments
        whole[10..12].copy_from_slice(&packet[10..12]);
        assert_eq!(whole, packet, "{between:?}");
    }
}

#[test]
fn answers_are_limited() {
    let (mut here, _) = pair(ESP_IN_UDP);
    for _ in 0..1000 {
        here.tun.send(Offload::default(), &datagram(0, true, 1472));
    }
    here.send_all();
    assert_eq!(here.drops(), [("too-big", 1000)]);
    let answers = here.tun.received().len();
    assert!((1..1000).contains(&answers), "{answers}");
}

#[test]
fn what_leaves_and_keepalives_follow_a_peer_that_moves() {
    for follow in [false, true] {
        let (mut here, mut there) = pair(Between { follow, ..ESP_IN_UDP });
        let trace = there.shared.tracer.subscribe();
        here.tun.send(Offload::default(), &datagram(0, true, 100));
        here.send_all();
        let [Sent::Datagrams(_, to, tos, datagrams)] = &here.wire.sent()[..] else {
            panic!("one train")
        };
        // a NAT gives it another port
        let translated = Sent::Datagrams(40_001, *to, *tos, datagrams.clone());
        here.wire.0.lock().expect("the wire").push_back(translated);
        there.receive_all();
        assert_eq!(there.tun.received().len(), 1);
        let record = of_packet(trace.next(Duration::ZERO).expect("it runs").expect("a record"));
        let moved = follow.then(|| "192.0.2.1:40001".parse().expect("an address"));
        assert_eq!(record.moved_to, moved);

        let expected = moved.unwrap_or_else(|| "192.0.2.1:4500".parse().expect("an address"));
        for len in [100, 3000] {
            there.tun.send(Offload::default(), &datagram(0, false, len));
        }
        there.send_all();
        send_keepalives(&there.shared, &mut there.wire.clone());
        let sent = there.wire.sent();
        assert!(sent.len() > 2, "a packet, the pieces of one, a keepalive");
        for sent in sent {
            assert!(matches!(sent, Sent::Datagrams(4500, to, ..) if to == expected), "{sent:?}");
        }
    }
}

#[test]
fn each_path_gets_one_keepalive() {
    let (here, _there) = pair(ESP_IN_UDP);
    let former = here.shared.engine.load_full();
    let out = former.association("out").expect("it").spec();
    let another = |spi: u32, destination: u16| {
        let udp = Some(UdpPorts { source: 4500, destination });
        let addresses = (out.source, out.destination);
        SaSpec { name: format!("out-{spi}"), spi, ..out.between(addresses, udp) }
    };
    let added = vec![another(0x2000, 4500), another(0x2001, 4600), another(0x2002, 4600)];
    let made = former.update(|_| true, added, Vec::new(), Duration::ZERO);
    here.shared.engine.store(Arc::new(made.expect("an engine").0));
    send_keepalives(&here.shared, &mut here.wire.clone());
    let port_of = |sent: Sent| match sent {
        Sent::Datagrams(4500, to, _, datagrams) if datagrams == [[0xff_u8]] => to.port(),
        other => panic!("{other:?}"),
    };
    let mut ports: Vec<u16> = here.wire.sent().into_iter().map(port_of).collect();
    ports.sort_unstable();
    assert_eq!(ports, [4500, 4600]);
}
