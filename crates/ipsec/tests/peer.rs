//! Which packets make a peer's address another one, and what is sent after it.

mod common;

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use common::{Shape, key, open, open_with, seal};
use etherparse::PacketBuilder;
use headroom_ipsec::spec::{Action, Direction, Mode, Protection, Secrets, Selector, UdpPorts};
use headroom_ipsec::{Engine, Event, Peer, PolicySpec, Reason, SaSpec};
use headroom_suite::Suite;

const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));
const PEER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 2));

/// An association in UDP; `port` is the peer's.
fn sa(name: &str, direction: Direction, ends: (IpAddr, IpAddr), spi: u32, port: u16) -> SaSpec {
    let suite: Suite = "aes-128-gcm".parse().expect("a suite");
    let secrets = Secrets { suite, key: key(suite.key_len(), spi as u8), mac_key: None };
    let mut sa = SaSpec::new(name, direction, Mode::Tunnel, spi, ends, Protection::Esp(secrets));
    let of_peer = ends.0 == PEER;
    sa.udp = Some(UdpPorts {
        source: if of_peer { port } else { 4500 },
        destination: if of_peer { 4500 } else { port },
    });
    sa
}

fn engine_of(associations: Vec<SaSpec>, previous: Option<&Engine>) -> Engine {
    let named = |direction| {
        let of = associations.iter().filter(|sa| sa.direction == direction);
        of.map(|sa| sa.name.clone()).collect::<Vec<_>>()
    };
    let (mut out, inbound) = (named(Direction::Out), named(Direction::In));
    out.truncate(1);
    let action = Action::Protect { out, inbound };
    let policy = PolicySpec { name: "all".into(), selector: Selector::ANY, action };
    let engine =
        Engine::new(associations, vec![policy], previous, Duration::ZERO).expect("an engine");
    engine.associations().for_each(|sa| sa.sequence().grant(1 << 20));
    engine
}

/// This end: two associations either way with one peer, and one to another port
/// of its address.
fn here(follow: bool, previous: Option<&Engine>) -> Engine {
    let (there, back) = ((HERE, PEER), (PEER, HERE));
    let mut associations = vec![
        sa("out", Direction::Out, there, 0x1000, 4500),
        sa("out-too", Direction::Out, there, 0x1001, 4500),
        sa("out-other", Direction::Out, there, 0x1002, 4600),
        sa("in", Direction::In, back, 0x2000, 4500),
        sa("in-too", Direction::In, back, 0x2001, 4500),
    ];
    associations[3].follow_peer = follow;
    engine_of(associations, previous)
}

/// The peer, that sends by one of its two associations.
fn peer(spi: u32) -> Engine {
    engine_of(vec![sa("out", Direction::Out, (PEER, HERE), spi, 4500)], None)
}

fn packet() -> Vec<u8> {
    let mut bytes = Vec::new();
    PacketBuilder::ipv4([10, 1, 0, 1], [10, 2, 0, 2], 64)
        .udp(5004, 6000)
        .write(&mut bytes, b"payload")
        .expect("etherparse writes to a vector");
    bytes
}

/// What a NAT makes of a packet.
fn nat(mut packet: Vec<u8>, source: [u8; 4], port: u16) -> Vec<u8> {
    packet[12..16].copy_from_slice(&source);
    packet[20..22].copy_from_slice(&port.to_be_bytes());
    packet
}

/// Where an association's packets go.
fn way(engine: &Engine, name: &str) -> String {
    engine.association(name).expect("the association").remote().to_string()
}

#[test]
fn what_is_sent_follows_the_newest_packet() {
    let (here, peer) = (here(true, None), peer(0x2000));
    let next = || seal(&peer, &packet()).expect("sealed");
    assert_eq!(way(&here, "out"), "192.0.2.2:4500");
    assert_eq!(open(&here, &next()).as_ref(), Ok(&packet()));
    assert_eq!(here.tick(Duration::from_secs(1)), [], "it is where it is configured");

    // another port
    let moved = open_with(&here, &nat(next(), [192, 0, 2, 2], 40_001), |opened, _| opened.moved);
    assert_eq!(moved, Ok(true));
    for name in ["out", "out-too"] {
        assert_eq!(way(&here, name), "192.0.2.2:40001");
    }
    assert_eq!(way(&here, "out-other"), "192.0.2.2:4600", "another path");
    let sealed = seal(&here, &packet()).expect("sealed");
    assert_eq!((&sealed[16..20], &sealed[22..24]), (&[192, 0, 2, 2][..], &[0x9c, 0x41][..]));
    let moved = open_with(&here, &nat(next(), [192, 0, 2, 2], 40_001), |opened, _| opened.moved);
    assert_eq!(moved, Ok(false), "it is there already");

    // another address
    assert!(open(&here, &nat(next(), [198, 51, 100, 7], 4500)).is_ok());
    assert_eq!(way(&here, "out"), "198.51.100.7:4500");
    let sealed = seal(&here, &packet()).expect("sealed");
    assert_eq!((&sealed[16..20], &sealed[22..24]), (&[198, 51, 100, 7][..], &[0x11, 0x94][..]));
    let [Event::PeerMoved(moved)] = &here.tick(Duration::from_secs(2))[..] else {
        panic!("an event")
    };
    let to: SocketAddr = "198.51.100.7:4500".parse().expect("an address");
    assert_eq!((moved.configured, moved.now, moved.changes), ((PEER, 4500).into(), to, 2));
}

#[test]
fn nothing_else_moves_it() {
    let (here, peer) = (here(true, None), peer(0x2000));
    let [first, second, third, fourth, fifth] =
        [(); 5].map(|()| seal(&peer, &packet()).expect("sealed"));
    let elsewhere = |packet: &Vec<u8>| nat(packet.clone(), [203, 0, 113, 66], 666);
    let stays = || assert_eq!(way(&here, "out"), "192.0.2.2:4500");
    assert!(open(&here, &first).is_ok() && open(&here, &third).is_ok());
    // a replay
    assert_eq!(open(&here, &elsewhere(&third)), Err(Reason::Replay));
    stays();
    // in the window, and held back until after the newest
    assert!(open(&here, &elsewhere(&second)).is_ok());
    stays();
    // forged, with a number that would be the newest
    let mut forged = elsewhere(&fourth);
    *forged.last_mut().expect("octets") ^= 1;
    assert_eq!(open(&here, &forged), Err(Reason::Forged));
    let mut far = elsewhere(&fourth);
    far[32] ^= 0x40; // of the sequence number
    assert_eq!(open(&here, &far), Err(Reason::Forged));
    stays();
    // authentic, from where no peer can be
    for [a, b, c, d] in [[192, 0, 2, 1], [224, 0, 0, 1], [255, 255, 255, 255], [0, 0, 0, 0]] {
        let sealed = seal(&peer, &packet()).expect("sealed");
        assert!(open(&here, &nat(sealed, [a, b, c, d], 4500)).is_ok());
        stays();
    }
    let late = [elsewhere(&fourth), elsewhere(&fifth)].map(|packet| open(&here, &packet).is_ok());
    assert_eq!(late, [true, true]);
    stays();
    assert_eq!(here.association("in").and_then(|sa| sa.peer()).map(Peer::changes), Some(0));
}

#[test]
fn who_is_not_to_follow_does_not() {
    let follows_not = here(false, None);
    let moved = nat(seal(&peer(0x2000), &packet()).expect("sealed"), [198, 51, 100, 7], 40_001);
    assert_eq!(open_with(&follows_not, &moved, |opened, _| opened.moved), Ok(false));
    assert_eq!(way(&follows_not, "out"), "192.0.2.2:4500");
    assert!(follows_not.association("in").expect("it").peer().is_none());
    // of two that hear one peer, only one is told to follow
    let one = here(true, None);
    let moved = nat(seal(&peer(0x2001), &packet()).expect("sealed"), [198, 51, 100, 7], 40_001);
    assert!(open(&one, &moved).is_ok());
    assert_eq!(way(&one, "out"), "192.0.2.2:4500");
}

#[test]
fn a_dummy_is_as_good_as_a_packet() {
    let (here, peer) = (here(true, None), peer(0x2000));
    let bundle = &peer.policies()[0].bundles()[0];
    let mut sealed = vec![0; 2000];
    let mut reservation = bundle.reserve(1, 100).expect("numbers");
    let len = bundle.seal_dummy(&mut reservation, 100, &mut sealed).expect("a dummy");
    sealed.truncate(len);
    assert_eq!(open(&here, &nat(sealed, [198, 51, 100, 7], 9)), Err(Reason::Dummy));
    assert_eq!(way(&here, "out"), "198.51.100.7:9");
}

#[test]
fn a_reload_remembers_where_it_is_while_it_is_followed() {
    let first = here(true, None);
    let moved = nat(seal(&peer(0x2000), &packet()).expect("sealed"), [198, 51, 100, 7], 40_001);
    assert!(open(&first, &moved).is_ok());
    let second = here(true, Some(&first));
    assert_eq!(way(&second, "out"), "198.51.100.7:40001");
    let third = here(false, Some(&second));
    assert_eq!(way(&third, "out"), "192.0.2.2:4500");
    assert_eq!(way(&here(true, Some(&third)), "out"), "192.0.2.2:4500");
}

#[test]
fn a_peer_at_the_former_address_of_another_is_not_followed_with_it() {
    let (there, back) = ((HERE, PEER), (PEER, HERE));
    let mut associations = vec![
        sa("out", Direction::Out, there, 0x1000, 4500),
        sa("in", Direction::In, back, 0x2000, 4500),
        sa("out-next", Direction::Out, there, 0x1001, 4500),
        sa("in-next", Direction::In, back, 0x2001, 4500),
    ];
    for (spec, group) in associations.iter_mut().zip([1, 1, 2, 2]) {
        spec.peer_group = group;
        spec.follow_peer = spec.direction == Direction::In;
    }
    let copies = associations.iter().map(SaSpec::copy).collect();
    let first = engine_of(associations, None);
    let moved = nat(seal(&peer(0x2000), &packet()).expect("sealed"), [198, 51, 100, 7], 40_001);
    assert!(open(&first, &moved).is_ok());
    for engine in [&first, &engine_of(copies, Some(&first))] {
        assert_eq!(way(engine, "out"), "198.51.100.7:40001");
        assert_eq!(way(engine, "out-next"), "192.0.2.2:4500");
    }
    let [Event::PeerMoved(moved)] = &first.tick(Duration::from_secs(1))[..] else {
        panic!("an event")
    };
    assert_eq!(moved.group, 1);
}

#[test]
fn in_transport_mode_and_without_udp_no_peer_is_followed() {
    let refused = |change: fn(&mut SaSpec)| {
        let mut spec = sa("in", Direction::In, (PEER, HERE), 0x2000, 4500);
        spec.follow_peer = true;
        change(&mut spec);
        Engine::new(vec![spec], Vec::new(), None, Duration::ZERO).map(drop).expect_err("refused")
    };
    assert!(refused(|spec| spec.mode = Mode::Transport).message.contains("tunnel mode"));
    assert!(
        refused(|spec| spec.direction = Direction::Out).message.contains("inbound associations")
    );
    assert!(refused(|spec| spec.udp = None).message.contains("ESP in UDP"));
}

#[test]
fn of_ipv6_too() {
    let address = |text: &str| text.parse::<IpAddr>().expect("an address");
    let shape =
        Shape { outer_v6: true, udp: true, ..Shape::esp("aes-128-gcm".parse().expect("a suite")) };
    let (from, to) = common::ends(true);
    let mut inbound = shape.associations(Direction::In).remove(0);
    inbound.follow_peer = true;
    let mut out = sa("out", Direction::Out, (to, from), 0x3000, 4500);
    out.udp = Some(UdpPorts { source: 4500, destination: 4500 });
    let here = engine_of(vec![inbound, out], None);
    let mut sealed = seal(&shape.sender(), &packet()).expect("sealed");
    let IpAddr::V6(new) = address("2001:db8::9") else { panic!("IPv6") };
    sealed[8..24].copy_from_slice(&new.octets());
    assert!(open(&here, &sealed).is_ok());
    assert_eq!(way(&here, "out"), "[2001:db8::9]:4500");
}
