//! Policies, lifetimes, numbers, reloads, padding: what the engine decides beside
//! the packets' form.

mod common;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use common::{Kind, Shape, ends, key, open, open_with, seal};
use etherparse::PacketBuilder;
use headroom_ipsec::spec::{
    Action, Addresses, Direction, DontFragment, Dscp, Limits, Mode, Padding, Ports, Protection,
    Secrets, Selector,
};
use headroom_ipsec::{
    Engine, Event, FlowCache, Headers, PolicySpec, Reason, SaSpec, SpecError, Stage, Verdict,
};
use headroom_packet::ip::Ip;
use headroom_suite::Suite;
use proptest::prelude::*;

const GCM: &str = "aes-128-gcm";

fn shape() -> Shape {
    Shape::esp(GCM.parse().expect("a suite"))
}

fn udp(source: [u8; 4], destination: [u8; 4], ports: (u16, u16), payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    PacketBuilder::ipv4(source, destination, 64)
        .udp(ports.0, ports.1)
        .write(&mut bytes, payload)
        .expect("etherparse writes to a vector");
    bytes
}

fn inner() -> Vec<u8> {
    udp([10, 1, 0, 1], [10, 2, 0, 2], (5004, 6000), b"payload")
}

fn address(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

fn net(text: &str) -> Addresses {
    let (first, last) = text.split_once('-').expect("a range");
    Addresses::Range(address(first), address(last))
}

fn policy(name: &str, selector: Selector, action: Action) -> PolicySpec {
    PolicySpec { name: name.into(), selector, action }
}

fn decided(engine: &Engine, packet: &[u8]) -> String {
    let headers = Headers::read(&Ip::parse(packet).expect("a packet"));
    let mut cache = FlowCache::default();
    let mut say = || match engine.decide(&headers, &mut cache) {
        Verdict::Protect(policy, _) => format!("protect {}", policy.name),
        Verdict::Bypass(policy) => format!("bypass {}", policy.name),
        Verdict::Discard(policy, reason) => {
            format!("{reason} {}", policy.map_or("-", |policy| policy.name.as_str()))
        }
    };
    let first = say();
    assert_eq!(first, say(), "the cache says the same");
    first
}

#[test]
fn the_first_policy_that_matches_decides() {
    let web = Selector {
        remote: net("10.2.0.0-10.2.255.255"),
        protocol: Some(17),
        remote_port: Ports::Range(6000..=6010),
        ..Selector::ANY
    };
    let rest = Selector { remote: net("10.2.0.0-10.2.255.255"), ..Selector::ANY };
    let opaque =
        Selector { remote: net("10.3.0.0-10.3.0.9"), remote_port: Ports::Opaque, ..Selector::ANY };
    let ping = Selector { protocol: Some(1), icmp: Some(8 << 8..=8 << 8 | 255), ..Selector::ANY };
    let out = Action::Protect { out: vec!["esp".into()], inbound: Vec::new() };
    let engine = Engine::new(
        shape().associations(Direction::Out),
        vec![
            policy("web", web, out),
            policy("rest", rest, Action::Bypass),
            policy("opaque", opaque, Action::Bypass),
            policy("ping", ping, Action::Discard),
        ],
        None,
        Duration::ZERO,
    )
    .expect("an engine");
    let to = |destination, port| udp([10, 1, 0, 1], destination, (5004, port), b"x");
    assert_eq!(decided(&engine, &to([10, 2, 9, 9], 6010)), "protect web");
    assert_eq!(decided(&engine, &to([10, 2, 9, 9], 6011)), "bypass rest");
    assert_eq!(decided(&engine, &to([10, 3, 0, 5], 6000)), "no-policy -");
    // a later fragment shows no ports
    let mut fragment = to([10, 3, 0, 5], 6000);
    fragment[7] = 1;
    headroom_packet::header::refresh_checksum(&mut fragment).expect("a header");
    assert_eq!(decided(&engine, &fragment), "bypass opaque");
    let mut echo = Vec::new();
    PacketBuilder::ipv4([10, 1, 0, 1], [10, 9, 0, 1], 64)
        .icmpv4_echo_request(1, 2)
        .write(&mut echo, b"x")
        .expect("etherparse writes to a vector");
    assert_eq!(decided(&engine, &echo), "discarded ping");
    echo[20] = 0; // an answer
    assert_eq!(decided(&engine, &echo), "no-policy -");
}

#[test]
fn a_policy_that_never_decides_is_refused() {
    let narrow = Selector { remote: net("10.2.0.0-10.2.0.9"), protocol: Some(6), ..Selector::ANY };
    let wide = Selector { remote: net("10.2.0.0-10.2.255.255"), ..Selector::ANY };
    let engine = |first: &Selector, second: &Selector| {
        let policies = vec![
            policy("first", first.clone(), Action::Bypass),
            policy("second", second.clone(), Action::Discard),
        ];
        Engine::new(Vec::new(), policies, None, Duration::ZERO).map(drop)
    };
    assert_eq!(engine(&narrow, &wide), Ok(()));
    let error = engine(&wide, &narrow).expect_err("shadowed");
    assert!(error.to_string().contains("`first` before it"), "{error}");
    assert!(engine(&wide, &wide).is_err());
}

#[test]
fn what_arrives_must_be_allowed_by_the_policy_of_its_association() {
    let sender = shape().sender();
    let sealed = || seal(&sender, &inner()).expect("sealed");
    let selector = |remote| Selector { remote, ..Selector::ANY };
    let receiver = |policies| {
        let inbound = shape().associations(Direction::In);
        Engine::new(inbound, policies, None, Duration::ZERO).expect("an engine")
    };
    let protect = || Action::Protect { out: Vec::new(), inbound: vec!["esp".into()] };
    // seen from the receiver 10.1.0.1 is remote
    let good = receiver(vec![policy("a", selector(net("10.1.0.0-10.1.0.9")), protect())]);
    assert!(open(&good, &sealed()).is_ok());
    let elsewhere = receiver(vec![policy("a", selector(net("10.1.0.2-10.1.0.9")), protect())]);
    assert_eq!(open(&elsewhere, &sealed()), Err(Reason::PolicyMismatch));
    let udp_only = Selector { protocol: Some(17), ..Selector::ANY };
    let forbidden = receiver(vec![
        policy("no", udp_only, Action::Discard),
        policy("a", Selector::ANY, protect()),
    ]);
    assert_eq!(open(&forbidden, &sealed()), Err(Reason::PolicyMismatch));
    let unnamed = receiver(vec![policy("a", Selector::ANY, Action::Bypass)]);
    assert_eq!(open(&unnamed, &sealed()), Err(Reason::PolicyMismatch));
    let esp = unnamed.association("esp").expect("it is there");
    assert_eq!(esp.failures().get(Reason::PolicyMismatch), 1);
}

#[test]
fn ah_over_esp_is_demanded_where_the_policy_names_both() {
    let both = Shape { kind: Kind::AhEsp, ..shape() };
    let (esp_only, receiver) = (shape().sender(), both.receiver());
    let sealed = seal(&esp_only, &inner()).expect("sealed");
    assert_eq!(open(&receiver, &sealed), Err(Reason::PolicyMismatch));
    let sealed = seal(&both.sender(), &inner()).expect("sealed");
    assert!(open(&both.receiver(), &sealed).is_ok());
}

#[test]
fn one_association_for_each_class_of_traffic() {
    let mut fast = shape().associations(Direction::Out).remove(0);
    fast.classes = 1 << 46;
    let mut slow = shape().associations(Direction::Out).remove(0);
    (slow.name, slow.spi, slow.classes) = ("slow".into(), 0x1001, !(1 << 46 | 1 << 10));
    let action = Action::Protect { out: vec!["esp".into(), "slow".into()], inbound: Vec::new() };
    let engine = common::engine(vec![fast, slow], action);
    for (dscp, spi) in [(46u8, Some(0x1000u32)), (0, Some(0x1001)), (10, None)] {
        let mut packet = inner();
        headroom_packet::header::set_tos(&mut packet, dscp << 2).expect("a packet");
        let sealed = seal(&engine, &packet);
        match spi {
            Some(spi) => assert_eq!(sealed.expect("sealed")[20..24], spi.to_be_bytes()),
            None => assert_eq!(sealed, Err(Reason::NoAssociation)),
        }
    }
}

#[test]
fn a_queue_uses_the_association_of_its_own_and_else_that_of_all() {
    let associations = |queues: &[Option<u32>]| -> Vec<SaSpec> {
        let made = queues.iter().zip(0..).map(|(queue, number)| {
            let mut one = shape().associations(Direction::Out).remove(0);
            (one.name, one.spi, one.queue) = (format!("{number}"), 0x1000 + number, *queue);
            one
        });
        made.collect()
    };
    let packet = inner();
    let headers = Headers::read(&Ip::parse(&packet).expect("a packet"));
    let chosen = |queues: &[Option<u32>], queue: u32| {
        let out = (0..queues.len()).map(|number| number.to_string()).collect();
        let action = Action::Protect { out, inbound: Vec::new() };
        let policies = vec![policy("all", Selector::ANY, action)];
        let engine = Engine::new(associations(queues), policies, None, Duration::ZERO);
        let engine = engine.expect("an engine");
        match engine.decide(&headers, &mut FlowCache::of_queue(queue)) {
            Verdict::Protect(_, bundle) => {
                bundle.associations().next().map(|sa| sa.spec().spi - 0x1000)
            }
            _ => None,
        }
    };
    let group = [None, Some(0), Some(1), Some(1)];
    assert_eq!([0, 1, 2].map(|queue| chosen(&group, queue)), [Some(1), Some(2), Some(0)]);
    // the one for all is being replaced or gone
    assert_eq!(chosen(&[Some(1), Some(0)], 2), Some(0));
    assert_eq!(chosen(&[None], 7), Some(0));
}

#[test]
fn no_number_is_given_away_that_was_not_granted() {
    let associations = shape().associations(Direction::Out);
    let action = Action::Protect { out: vec!["esp".into()], inbound: Vec::new() };
    let policies = vec![policy("all", Selector::ANY, action)];
    let engine = Engine::new(associations, policies, None, Duration::ZERO).expect("an engine");
    let sequence = engine.association("esp").expect("it is there").sequence();
    assert_eq!(seal(&engine, &inner()), Err(Reason::LedgerBehind));
    sequence.skip_to(100);
    sequence.grant(101);
    for number in [100u32, 101] {
        assert_eq!(seal(&engine, &inner()).expect("sealed")[24..28], number.to_be_bytes());
    }
    assert_eq!(seal(&engine, &inner()), Err(Reason::LedgerBehind));
    // nothing that was granted or given away is taken back
    sequence.grant(50);
    sequence.skip_to(1);
    assert_eq!((sequence.granted(), sequence.next()), (101, 102));
}

#[test]
fn numbers_end_and_do_not_begin_again() {
    for (extended, last) in [(false, u64::from(u32::MAX)), (true, u64::MAX - 1)] {
        let engine = Shape { extended, ..shape() }.sender();
        engine.association("esp").expect("it is there").sequence().skip_to(last);
        assert!(seal(&engine, &inner()).is_ok());
        assert_eq!(seal(&engine, &inner()), Err(Reason::SequenceExhausted));
        assert_eq!(seal(&engine, &inner()), Err(Reason::SequenceExhausted));
    }
}

#[test]
fn a_reload_goes_on_with_numbers_windows_and_counters() {
    let both = || {
        let mut all = shape().associations(Direction::Out);
        let mut inbound = shape().associations(Direction::In).remove(0);
        inbound.name = "in".into();
        all.push(inbound);
        all
    };
    let policies = || {
        let action = Action::Protect { out: vec!["esp".into()], inbound: vec!["in".into()] };
        vec![policy("all", Selector::ANY, action)]
    };
    let old = Engine::new(both(), policies(), None, Duration::ZERO).expect("an engine");
    old.association("esp").expect("it is there").sequence().grant(1000);
    let sealed: Vec<_> = (0..5).map(|_| seal(&old, &inner()).expect("sealed")).collect();
    assert!(open(&old, &sealed[0]).is_ok());
    assert!(open(&old, &sealed[3]).is_ok());

    let mut changed = both();
    changed[1].window = 64;
    let new = Engine::new(changed, policies(), Some(&old), Duration::ZERO).expect("an engine");
    assert_eq!(seal(&new, &inner()).expect("sealed")[24..28], 6u32.to_be_bytes());
    // packets on their way through the old one take no number twice
    assert_eq!(seal(&old, &inner()).expect("sealed")[24..28], 7u32.to_be_bytes());
    assert_eq!(open(&new, &sealed[3]), Err(Reason::Replay));
    assert!(open(&new, &sealed[2]).is_ok());
    assert_eq!(new.association("in").expect("it is there").packets(), 3);
    assert_eq!(new.counters().get(Reason::Replay), 1);

    // another key is another association
    let mut other = both();
    other[0].protection = Protection::Esp(Secrets {
        suite: GCM.parse().expect("a suite"),
        key: key(20, 77),
        mac_key: None,
    });
    let other = Engine::new(other, policies(), Some(&new), Duration::ZERO).expect("an engine");
    assert_eq!(other.association("esp").expect("it is there").sequence().next(), 1);
}

#[test]
fn an_update_replaces_associations_and_keeps_the_others() {
    let with_key = |direction, name: &str, spi, seed| {
        let mut spec = shape().associations(direction).remove(0);
        (spec.name, spec.spi) = (name.into(), spi);
        let suite = GCM.parse().expect("a suite");
        let secrets = Secrets { suite, key: key(20, seed), mac_key: None };
        spec.protection = Protection::Esp(secrets);
        spec
    };
    let protect = |out: &str, inbound: &[&str]| {
        let inbound = inbound.iter().map(ToString::to_string).collect();
        let action = Action::Protect { out: vec![out.into()], inbound };
        vec![policy("all", Selector::ANY, action)]
    };
    let first = vec![
        with_key(Direction::Out, "out-1", 0x1000, 1),
        with_key(Direction::In, "in-1", 0x1000, 1),
    ];
    let old = Engine::new(first, protect("out-1", &["in-1"]), None, Duration::ZERO);
    let old = old.expect("an engine");
    old.association("out-1").expect("it is there").sequence().grant(1000);
    let sealed: Vec<_> = (0..2).map(|_| seal(&old, &inner()).expect("sealed")).collect();
    assert!(open(&old, &sealed[0]).is_ok());

    // a rekey: both inbound associations are in force, the new one seals
    let second = vec![
        with_key(Direction::Out, "out-2", 0x2000, 2),
        with_key(Direction::In, "in-2", 0x2000, 2),
    ];
    let policies = protect("out-2", &["in-1", "in-2"]);
    let (both, covered) =
        old.update(|_| true, second, policies, Duration::ZERO).expect("an engine");
    assert!(covered.is_empty());
    both.association("out-2").expect("it is there").sequence().grant(1000);
    assert_eq!(open(&both, &sealed[0]), Err(Reason::Replay));
    assert!(open(&both, &sealed[1]).is_ok());
    assert_eq!(both.association("in-1").expect("it is there").packets(), 2);
    let renewed = seal(&both, &inner()).expect("sealed");
    assert_eq!(renewed[20..28], [0, 0, 0x20, 0, 0, 0, 0, 1]);
    assert!(open(&both, &renewed).is_ok());

    // the peer deleted the former pair
    let former = |spec: &SaSpec| spec.spi == 0x1000;
    let policies = protect("out-2", &["in-2"]);
    let new = both.update(|spec| !former(spec), vec![], policies, Duration::ZERO);
    let (new, _) = new.expect("an engine");
    assert_eq!(new.associations().count(), 2);
    assert_eq!(open(&new, &sealed[1]), Err(Reason::UnknownSpi));
    assert_eq!(open(&new, &renewed), Err(Reason::Replay));
    assert_eq!(seal(&new, &inner()).expect("sealed")[24..28], 2u32.to_be_bytes());
    assert_eq!(new.policies()[0].hits(), 4);

    let unknown = new.update(|_| true, vec![], protect("out-1", &[]), Duration::ZERO);
    let message = unknown.expect_err("it was removed").to_string();
    assert!(message.contains("no association `out-1`"), "{message}");
    let twice = vec![with_key(Direction::In, "in-2", 0x3000, 3)];
    let error = new.update(|_| true, twice, protect("out-2", &["in-2"]), Duration::ZERO);
    assert!(error.expect_err("the name is taken").to_string().contains("name"));
}

#[test]
fn lifetimes_end_in_packets_bytes_and_seconds() {
    let limited = |hard, soft| {
        let mut sa = shape().associations(Direction::Out).remove(0);
        sa.lifetime.hard = hard;
        sa.lifetime.soft = soft;
        common::engine(vec![sa], Action::Protect { out: vec!["esp".into()], inbound: Vec::new() })
    };
    let packets = |most| Limits { packets: Some(most), ..Limits::default() };
    let engine = limited(packets(3), packets(2));
    assert_eq!(engine.tick(Duration::ZERO), []);
    for sealed in 1..=3 {
        assert!(seal(&engine, &inner()).is_ok());
        let reached = |stage| vec![Event::Lifetime { sa: "esp".into(), stage }];
        let want = match sealed {
            1 => vec![],
            2 => reached(Stage::Soft),
            _ => reached(Stage::Expired),
        };
        assert_eq!(engine.tick(Duration::ZERO), want);
    }
    assert_eq!(seal(&engine, &inner()), Err(Reason::Expired));

    let octets = inner().len() as u64;
    let engine =
        limited(Limits { bytes: Some(2 * octets), ..Limits::default() }, Limits::default());
    assert!(seal(&engine, &inner()).is_ok() && seal(&engine, &inner()).is_ok());
    assert_eq!(seal(&engine, &inner()), Err(Reason::Expired), "before any tick");

    let engine = limited(Limits { seconds: Some(10), ..Limits::default() }, Limits::default());
    assert_eq!(engine.tick(Duration::from_secs(9)), []);
    assert!(seal(&engine, &inner()).is_ok());
    assert_eq!(engine.tick(Duration::from_secs(10)).len(), 1);
    assert_eq!(seal(&engine, &inner()), Err(Reason::Expired));
}

#[test]
fn transport_mode_protects_whole_datagrams_only() {
    let shape = Shape { mode: Mode::Transport, ..shape() };
    let mut fragment = udp([192, 0, 2, 1], [192, 0, 2, 2], (1, 2), b"x");
    fragment[6] = 0x20;
    headroom_packet::header::refresh_checksum(&mut fragment).expect("a header");
    assert_eq!(seal(&shape.sender(), &fragment), Err(Reason::FragmentInTransport));
    // and only between its own addresses
    assert_eq!(seal(&shape.sender(), &inner()), Err(Reason::NoAssociation));
}

#[test]
fn padding_hides_lengths_and_dummies_are_dropped_by_name() {
    let receiver = shape().receiver();
    for (padding, want) in [(Padding::Multiple(256), 256 + 54), (Padding::Outer(1000), 1000)] {
        let mut sa = shape().associations(Direction::Out).remove(0);
        sa.padding = padding;
        let action = Action::Protect { out: vec!["esp".into()], inbound: Vec::new() };
        let sender = common::engine(vec![sa], action);
        // the two loops share a key and so numbers
        sender.association("esp").expect("it is there").sequence().skip_to(want as u64);
        let mut lengths = std::collections::BTreeSet::new();
        for payload in [0, 1, 100, 200] {
            let packet = udp([10, 1, 0, 1], [10, 2, 0, 2], (1, 2), &vec![7; payload]);
            let sealed = seal(&sender, &packet).expect("sealed");
            lengths.insert(sealed.len());
            assert_eq!(open(&receiver, &sealed), Ok(packet));
        }
        assert_eq!(lengths.len(), 1, "{lengths:?}");
        assert!(lengths.iter().all(|len| len.abs_diff(want) <= 16), "{lengths:?} for {want}");
    }

    for mode in [Mode::Tunnel, Mode::Transport] {
        for kind in [Kind::Esp, Kind::QEsp] {
            let shape = Shape { kind, mode, ..shape() };
            let sender = shape.sender();
            let policy = &sender.policies()[0];
            let bundle = &policy.bundles()[0];
            let mut reservation = bundle.reserve(1, 0).expect("numbers");
            let mut out = vec![0; 2000];
            let len = bundle.seal_dummy(&mut reservation, 500, &mut out).expect("sealed");
            assert!(len > 500);
            assert_eq!(open(&shape.receiver(), &out[..len]), Err(Reason::Dummy));
            if kind == Kind::QEsp {
                assert_eq!(out[20..28], [0, 0, 0, 0, 59, 0, 0, 0]);
            }
        }
    }
}

#[test]
fn dscp_ecn_and_df_of_the_outer_header() {
    let mut sa = shape().associations(Direction::Out).remove(0);
    sa.dscp = Dscp::Map(BTreeMap::from([(46, 8)]));
    sa.dont_fragment = DontFragment::Clear;
    let action = Action::Protect { out: vec!["esp".into()], inbound: Vec::new() };
    let sender = common::engine(vec![sa], action);
    let mut packet = inner();
    headroom_packet::header::set_tos(&mut packet, 46 << 2 | 0b10).expect("a packet");
    let mut sealed = seal(&sender, &packet).expect("sealed");
    assert_eq!((sealed[1], sealed[6] & 0x40), (8 << 2 | 0b10, 0));
    assert_ne!(sealed[4..6], [0, 0], "an ID of 0 is filled in by the kernel");
    // a router marks congestion
    headroom_packet::header::set_tos(&mut sealed, 8 << 2 | 0b11).expect("a packet");
    let opened = open(&shape().receiver(), &sealed).expect("opened");
    assert_eq!(opened[1], 46 << 2 | 0b11);
    assert!(Ip::parse(&opened).is_ok());
    // one that does not understand the mark is dropped
    let mut sealed = seal(&sender, &inner()).expect("sealed");
    headroom_packet::header::set_tos(&mut sealed, 0b11).expect("a packet");
    assert_eq!(open(&shape().receiver(), &sealed), Err(Reason::EcnDropped));
}

#[test]
fn q_esp_that_lies_about_its_ports_is_dropped_by_name() {
    // a peer that has the keys, and shows a router other ports than it uses
    let shape = Shape { kind: Kind::QEsp, ..shape() };
    let sender = shape.sender();
    let honest = inner();
    let mut headers = Headers::read(&Ip::parse(&honest).expect("a packet"));
    headers.ports = Some((5004, 443));
    let bundle = &sender.policies()[0].bundles()[0];
    let mut reservation = bundle.reserve(1, 0).expect("numbers");
    let mut out = vec![0; 2000];
    let write = |room: &mut [u8]| room.copy_from_slice(&honest);
    let len =
        bundle.seal(&mut reservation, &headers, honest.len(), &mut out, write).expect("sealed");
    let receiver = shape.receiver();
    assert_eq!(open(&receiver, &out[..len]), Err(Reason::PortsMismatch));
    // authenticated, so it counts as a packet of its association, and as one that failed
    let sa = receiver.associations().next().expect("one");
    assert_eq!((sa.packets(), sa.failures().get(Reason::PortsMismatch)), (1, 1));

    let mut reserved = seal(&sender, &honest).expect("sealed");
    reserved[26] = 1;
    assert_eq!(open(&shape.receiver(), &reserved), Err(Reason::ReservedNotZero));
}

#[test]
fn dscp_may_be_re_marked_on_the_way() {
    for kind in [Kind::Esp, Kind::QEsp, Kind::Ah, Kind::AhEsp] {
        let shape = Shape { kind, ..shape() };
        let mut sealed = seal(&shape.sender(), &inner()).expect("sealed");
        headroom_packet::header::set_tos(&mut sealed, 46 << 2).expect("a packet");
        let left = headroom_packet::header::decrement_hop_limit(&mut sealed).expect("a packet");
        assert_eq!(left, Some(63));
        assert_eq!(open(&shape.receiver(), &sealed), Ok(inner()), "{kind:?}");
    }
}

#[test]
fn wrong_spi_protocol_and_encapsulation_have_names() {
    let sealed = seal(&shape().sender(), &inner()).expect("sealed");
    let receiver = shape().receiver();
    let mut other = sealed.clone();
    other[20] ^= 1;
    assert_eq!(open(&receiver, &other), Err(Reason::UnknownSpi));
    let in_udp = Shape { udp: true, ..shape() };
    assert_eq!(open(&in_udp.receiver(), &sealed), Err(Reason::WrongEncapsulation));
    let sealed = seal(&in_udp.sender(), &inner()).expect("sealed");
    assert_eq!(open(&receiver, &sealed), Err(Reason::WrongEncapsulation));
    open_with(&in_udp.receiver(), &sealed, |opened, _| assert_eq!(opened.sequence, 1))
        .expect("opened");
}

/// Associations without policies.
fn alone(associations: Vec<SaSpec>) -> Result<Engine, SpecError> {
    Engine::new(associations, Vec::new(), None, Duration::ZERO)
}

#[test]
fn associations_that_make_no_sense_are_refused_with_a_sentence() {
    let refuse = |change: &dyn Fn(&mut SaSpec), shape: Shape, direction, words: &str| {
        let mut sa = shape.associations(direction).remove(0);
        change(&mut sa);
        let error: SpecError = alone(vec![sa]).expect_err(words);
        assert!(error.to_string().contains(words), "{error}");
    };
    let (tunnel, qesp) = (shape(), Shape { kind: Kind::QEsp, ..shape() });
    let null: Suite = "null+hmac-sha256".parse().expect("a suite");
    refuse(&|sa| sa.spi = 255, tunnel, Direction::Out, "below 256");
    refuse(&|sa| sa.source = ends(true).0, tunnel, Direction::Out, "different families");
    refuse(&|sa| sa.window = 63, tunnel, Direction::In, "64 to 8192");
    refuse(&|sa| sa.window = 0, qesp, Direction::In, "64 to 8192");
    let transport = Shape { mode: Mode::Transport, ..tunnel };
    refuse(&|sa| sa.padding = Padding::Multiple(64), transport, Direction::Out, "tunnel mode");
    refuse(&|_| (), Shape { suite: null, ..qesp }, Direction::Out, "mandatory");
    let ports = headroom_ipsec::spec::UdpPorts { source: 4500, destination: 4500 };
    refuse(&|sa| sa.udp = Some(ports), qesp, Direction::Out, "routers");
    let ah = Shape { kind: Kind::Ah, ..tunnel };
    refuse(&|sa| sa.udp = Some(ports), ah, Direction::Out, "NAT");
    let twice = [tunnel.associations(Direction::In), tunnel.associations(Direction::In)].together();
    assert!(alone(twice).is_err());
}

/// Associations cannot be copied, for their keys cannot.
trait Together {
    fn together(self) -> Vec<SaSpec>;
}

impl Together for [Vec<SaSpec>; 2] {
    fn together(self) -> Vec<SaSpec> {
        self.into_iter().flatten().collect()
    }
}

proptest! {
    #[test]
    fn the_longest_packet_that_fits_fits_and_the_next_does_not(
        suite in proptest::sample::select(&Suite::ALL),
        kind in prop_oneof![Just(Kind::Esp), Just(Kind::AhEsp), Just(Kind::QEsp), Just(Kind::Ah)],
        tunnel: bool,
        outer_v6: bool,
        path in 600..9000usize,
    ) {
        prop_assume!(kind != Kind::QEsp || suite.encrypts());
        let mode = if tunnel { Mode::Tunnel } else { Mode::Transport };
        let sender = Shape { kind, mode, outer_v6, suite, ..shape() }.sender();
        let bundle = &sender.policies()[0].bundles()[0];
        let front = if outer_v6 { 40 } else { 20 };
        let longest = bundle.inner_mtu(path, front);
        prop_assert!(bundle.sealed_len(longest, front) <= path);
        prop_assert!(bundle.sealed_len(longest + 1, front) > path);
    }

    #[test]
    fn padding_never_makes_a_packet_too_long_for_its_path(
        suite in proptest::sample::select(&Suite::ALL),
        kind in prop_oneof![Just(Kind::Esp), Just(Kind::AhEsp), Just(Kind::QEsp)],
        outer_v6: bool,
        padding in prop_oneof![
            (2..=9000u16).prop_map(Padding::Multiple),
            (576..=9000u16).prop_map(Padding::Outer),
        ],
        path in 600..9000usize,
        shorter in prop_oneof![0..40usize, 0..9000usize],
    ) {
        prop_assume!(kind != Kind::QEsp || suite.encrypts());
        let shape = Shape { kind, outer_v6, suite, ..shape() };
        let mut associations = shape.associations(Direction::Out);
        associations[0].padding = padding;
        let out = associations.iter().map(|sa| sa.name.clone()).collect();
        let sender = common::engine(associations, Action::Protect { out, inbound: Vec::new() });
        let bundle = &sender.policies()[0].bundles()[0];

        let longest = bundle.inner_mtu(path, 0);
        let len = longest - shorter.min(longest - 28);
        let packet = udp([10, 1, 0, 1], [10, 2, 0, 2], (1, 2), &vec![7; len - 28]);
        let headers = Headers::read(&Ip::parse(&packet).expect("a packet"));
        let mut reservation = bundle.reserve(1, len as u64).expect("numbers");
        let mut out = vec![0; path];
        let write = |room: &mut [u8]| room.copy_from_slice(&packet);
        let sealed = bundle.seal(&mut reservation, &headers, len, &mut out, write);
        let total = sealed.map_err(|reason| TestCaseError::fail(format!("{reason} at {len}")))?;
        let wanted = match padding {
            Padding::Multiple(of) => len.next_multiple_of(of.into()),
            Padding::Outer(outer) => bundle.inner_mtu(path.min(outer.into()), 0),
            Padding::None => unreachable!("always padded here"),
        };
        let wanted = bundle.sealed_len(wanted.clamp(len, longest), 0);
        prop_assert_eq!(total, wanted, "as much as was asked for, or as the path takes");
        out.truncate(total);
        prop_assert_eq!(open(&shape.receiver(), &out), Ok(packet));
    }
}
