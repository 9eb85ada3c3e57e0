//! Several CHILD SAs of one configuration at once, for different packets.

use std::net::Ipv4Addr;

use headroom_ike::wire::AddressRange;
use headroom_ipsec::spec::ESP;
use headroom_ipsec::{FlowCache, Headers, OpenScratch, Outer, Reason, Verdict};
use headroom_packet::header::IpHeader;
use headroom_packet::{Ip, protocol, udp};
use proptest::prelude::*;

use super::*;

/// This side's address in the packets of the tests.
const HERE: [u8; 4] = [10, 1, 0, 1];

/// The length of the outer headers of IPv4 and UDP.
const OUTER_LEN: usize = 28;

/// A site between 10.1.0.0/16 and 10.2.0.0/16.
fn site() -> Gateway {
    let mut gateway = Gateway::new(empty());
    let selectors = vec![Selector {
        local: addresses([10, 1, 0, 0], [10, 1, 255, 255]),
        ..to([10, 2, 0, 0], [10, 2, 255, 255])
    }];
    let site = IkeChild { is_shared: false, selectors, ..configured("site") };
    gateway.children.configured.push(site);
    gateway
}

fn addresses(first: [u8; 4], last: [u8; 4]) -> Addresses {
    Addresses::Range(first.into(), last.into())
}

fn to(first: [u8; 4], last: [u8; 4]) -> Selector {
    Selector { remote: addresses(first, last), ..Selector::ANY }
}

/// The networks 10.2.x.0/24 for each x.
fn networks(of: &[u8]) -> Vec<TrafficSelector> {
    of.iter().map(|x| TrafficSelector::network([10, 2, *x, 0].into(), 24)).collect()
}

/// The network 10.2.0.0/16.
fn whole() -> Vec<TrafficSelector> {
    vec![TrafficSelector::network([10, 2, 0, 0].into(), 16)]
}

fn range(first: [u8; 4], last: [u8; 4], protocol: u8) -> TrafficSelector {
    let (first, last) = (Ipv4Addr::from(first), Ipv4Addr::from(last));
    TrafficSelector { protocol, ..TrafficSelector::all_of(AddressRange::V4(first..=last)) }
}

fn inbound(child: u64) -> String {
    format!("site/in-{:08x}", 0x1000 + child)
}

fn outbound(child: u64) -> String {
    format!("site/out-{:08x}-{:08x}", 0xa000 + child, 0x1000 + child)
}

fn packet(source: [u8; 4], destination: [u8; 4]) -> Vec<u8> {
    let fresh = IpHeader {
        source: source.into(),
        destination: destination.into(),
        tos: 0,
        hop_limit: 64,
        protocol: protocol::UDP,
        id: 7,
        dont_fragment: false,
        flow_label: 0,
    };
    let mut packet = vec![0x61; 100];
    let front = fresh.write(udp::HEADER_LEN + 32, &mut packet).expect("room");
    udp::write(5000, 80, 32, &mut packet[front..]).expect("room");
    packet.truncate(front + udp::HEADER_LEN + 32);
    packet
}

impl Gateway {
    /// Installs a CHILD SA for packets to these ends, on which nothing is sent yet.
    fn prepare(&mut self, child: u64, remote: Vec<TrafficSelector>, replaces: Option<u64>) {
        let local = vec![TrafficSelector::network([10, 1, 0, 0].into(), 16)];
        let (of, spis) = (("site", ALICE), (0x1000 + child as u32, 0xa000 + child as u32));
        self.install_between((local, remote), 9, child, of, replaces.map(ChildId), spis);
    }

    fn add(&mut self, child: u64, remote: Vec<TrafficSelector>) {
        self.prepare(child, remote, None);
        self.children.switch(ChildId(child));
    }

    /// Returns the CHILD SA on which a packet to this address leaves.
    fn sent_on(&self, remote: [u8; 4]) -> Option<u64> {
        let packet = packet(HERE, remote);
        let headers = Headers::read(&Ip::parse(&packet).expect("a packet"));
        match self.engine.decide(&headers, &mut FlowCache::default()) {
            Verdict::Protect(_, bundle) => {
                let sa = bundle.associations().next().expect("an association");
                Some(u64::from(sa.spec().spi) - 0xa000)
            }
            Verdict::Bypass(_) => panic!("it leaves in clear"),
            Verdict::Discard(..) => None,
        }
    }

    /// Tells whether a packet from this address is accepted that the peer sends on a CHILD SA.
    fn accepts(&self, child: u64, remote: [u8; 4]) -> bool {
        let sa = self.engine.association(&inbound(child)).expect("in the engine");
        let spec = SaSpec { direction: Direction::Out, follow_peer: false, ..sa.spec().copy() };
        let (source, destination) = (spec.source, spec.destination);
        let action = Action::Protect { out: vec![inbound(child)], inbound: Vec::new() };
        let all = PolicySpec { name: "all".to_owned(), selector: Selector::ANY, action };
        let peer = Engine::new(vec![spec], vec![all], None, Duration::ZERO).expect("an engine");
        for numbers in peer.associations().map(|sa| sa.sequence()) {
            numbers.grant(u64::MAX);
            numbers.skip_to(sa.packets() + 1);
        }
        let packet = packet(remote, HERE);
        let headers = Headers::read(&Ip::parse(&packet).expect("a packet"));
        let Verdict::Protect(_, bundle) = peer.decide(&headers, &mut FlowCache::default()) else {
            panic!("the peer does not protect it");
        };
        let mut reservation = bundle.reserve(1, packet.len() as u64).expect("a number");
        let mut sealed = vec![0; 1500];
        let write = |room: &mut [u8]| room.copy_from_slice(&packet);
        let len = bundle.seal(&mut reservation, &headers, packet.len(), &mut sealed, write);
        let body = &mut sealed[OUTER_LEN..len.expect("sealed")];
        let udp = Some((4500, 4500));
        let outer = Outer { source, destination, tos: 0, header: &[], udp };
        match self.engine.open(&outer, ESP, body, &mut OpenScratch::default()) {
            Ok(_) => true,
            Err(Reason::PolicyMismatch) => false,
            Err(reason) => panic!("{reason:?}"),
        }
    }
}

#[test]
fn a_child_sa_for_fewer_packets_leaves_the_others_to_the_older_one() {
    let mut gateway = site();
    gateway.add(1, whole());
    gateway.add(2, networks(&[1]));
    assert_eq!(gateway.put(), []);
    assert_eq!(gateway.sent_on([10, 2, 1, 7]), Some(2));
    assert_eq!(gateway.sent_on([10, 2, 9, 7]), Some(1));
    assert_eq!(gateway.sent_on([10, 3, 0, 7]), None);
    assert!(gateway.accepts(1, [10, 2, 1, 7]), "the peer may send on the older one");
    assert!(gateway.accepts(1, [10, 2, 9, 7]));
    assert!(gateway.accepts(2, [10, 2, 1, 7]));
    assert!(!gateway.accepts(2, [10, 2, 9, 7]));
    gateway.remove(2);
    assert_eq!(gateway.put(), []);
    assert_eq!(gateway.sent_on([10, 2, 1, 7]), Some(1), "the older one covers it");
    assert!(gateway.accepts(1, [10, 2, 1, 7]));
}

#[test]
fn a_child_sa_for_more_packets_takes_all_and_the_older_one_gets_no_more() {
    let mut gateway = site();
    gateway.add(1, networks(&[1]));
    gateway.add(2, whole());
    assert_eq!(gateway.put(), []);
    assert_eq!(gateway.sent_on([10, 2, 1, 7]), Some(2));
    assert_eq!(gateway.sent_on([10, 2, 9, 7]), Some(2));
    assert!(gateway.accepts(1, [10, 2, 1, 7]) && !gateway.accepts(1, [10, 2, 9, 7]));
    assert!(gateway.accepts(2, [10, 2, 1, 7]) && gateway.accepts(2, [10, 2, 9, 7]));
    gateway.remove(2);
    assert_eq!(gateway.put(), []);
    assert_eq!(gateway.sent_on([10, 2, 1, 7]), Some(1));
    assert_eq!(gateway.sent_on([10, 2, 9, 7]), None);
}

#[test]
fn child_sas_with_some_packets_in_common_keep_those_that_they_have_alone() {
    let mut gateway = site();
    gateway.add(1, networks(&[1, 2]));
    gateway.add(2, networks(&[2, 3]));
    assert_eq!(gateway.put(), []);
    let sent = [1, 2, 3].map(|x| gateway.sent_on([10, 2, x, 7]));
    assert_eq!(sent, [Some(1), Some(2), Some(2)]);
    let accepted = [1, 2].map(|child| [1, 2, 3].map(|x| gateway.accepts(child, [10, 2, x, 7])));
    assert_eq!(accepted, [[true, true, false], [false, true, true]]);
}

#[test]
fn a_rekey_moves_all_packets_at_once_and_none_stays_on_what_it_replaces() {
    for (remote, rest) in [(whole(), Some(2)), (networks(&[1]), None)] {
        let mut gateway = site();
        gateway.add(1, whole());
        gateway.prepare(2, remote, Some(1));
        assert_eq!(gateway.put(), []);
        assert_eq!(gateway.sent_on([10, 2, 1, 7]), Some(1), "the peer may not have the new one");
        assert_eq!(gateway.sent_on([10, 2, 9, 7]), Some(1));
        assert!(gateway.accepts(2, [10, 2, 1, 7]), "or it sends on it already");
        gateway.children.switch(ChildId(2));
        assert_eq!(gateway.put(), []);
        assert_eq!(gateway.sent_on([10, 2, 1, 7]), Some(2));
        assert_eq!(gateway.sent_on([10, 2, 9, 7]), rest);
        assert!(gateway.accepts(1, [10, 2, 9, 7]), "a late packet");
        gateway.remove(1);
        assert_eq!(gateway.put(), []);
        assert_eq!(gateway.sent_on([10, 2, 1, 7]), Some(2));
        assert_eq!(gateway.sent_on([10, 2, 9, 7]), rest);
    }
}

#[test]
fn what_only_the_new_one_covers_does_not_wait_for_the_end_of_a_rekey() {
    let mut gateway = site();
    gateway.add(1, networks(&[1]));
    gateway.prepare(2, whole(), Some(1));
    assert_eq!(gateway.put(), []);
    assert_eq!(gateway.sent_on([10, 2, 1, 7]), Some(1));
    assert_eq!(gateway.sent_on([10, 2, 9, 7]), Some(2));
}

#[test]
fn a_child_sa_with_packets_of_its_own_is_not_given_up() {
    let mut gateway = site();
    gateway.add(1, whole());
    gateway.add(2, networks(&[1]));
    assert_eq!(gateway.children.twin(ChildId(2)), None);
    gateway.add(3, whole());
    assert_eq!(gateway.children.twin(ChildId(3)), Some(ChildId(1)));
}

#[test]
fn of_what_an_earlier_policy_covers_only_whole_selectors_cannot_be_used() {
    let mut gateway = site();
    let (name, selector) = ("fixed".to_owned(), to([10, 2, 1, 0], [10, 2, 1, 127]));
    gateway.children.fixed = vec![PolicySpec { name, selector, action: Action::Discard }];
    gateway.add(1, vec![range([10, 2, 0, 0], [10, 2, 1, 100], 0)]);
    gateway.add(2, vec![range([10, 2, 1, 0], [10, 2, 5, 255], 0)]);
    assert_eq!(gateway.put(), []);
    gateway.add(3, vec![range([10, 2, 1, 3], [10, 2, 1, 9], 0)]);
    assert_eq!(gateway.put(), [ChildId(3)], "to be closed");
    assert_eq!(gateway.put(), []);
    assert_eq!(gateway.sent_on([10, 2, 0, 7]), Some(1));
    assert_eq!(gateway.sent_on([10, 2, 1, 7]), None);
    assert_eq!(gateway.sent_on([10, 2, 4, 7]), Some(2));
}

/// Returns the outbound and the inbound associations of the first policy that matches.
fn first(policies: &[PolicySpec], remote: [u8; 4], protocol: u8) -> (&[String], &[String]) {
    let remote = IpAddr::from(remote);
    let matches = |policy: &&PolicySpec| match &policy.selector {
        Selector { remote: Addresses::Range(first, last), protocol: own, .. } => {
            *first <= remote && remote <= *last && own.is_none_or(|own| own == protocol)
        }
        _ => false,
    };
    match policies.iter().find(matches).map(|policy| &policy.action) {
        Some(Action::Protect { out, inbound }) => (out.as_slice(), inbound.as_slice()),
        _ => panic!("the configuration covers it"),
    }
}

#[test]
fn a_child_sa_whose_selectors_no_packet_matches_is_closed() {
    let mut gateway = site();
    let udp = TrafficSelector {
        protocol: protocol::UDP,
        ..TrafficSelector::network([10, 1, 0, 0].into(), 16)
    };
    let tcp = range([10, 2, 0, 0], [10, 2, 255, 255], 6);
    let ends = (vec![udp], vec![tcp]);
    gateway.install_between(ends, 9, 1, ("site", ALICE), None, (0x1001, 0xa001));
    gateway.add(2, networks(&[1]));
    assert_eq!(gateway.put(), [ChildId(1)], "to be closed");
    assert_eq!(gateway.sent_on([10, 2, 1, 7]), Some(2));
}

#[test]
fn policies_for_what_selectors_have_in_common_are_bounded_and_let_nothing_more_pass() {
    const CHILDREN: u8 = 40;
    let mut gateway = site();
    for at in 0..CHILDREN {
        gateway.add(at.into(), vec![range([10, 2, 0, at], [10, 2, 0, at + 100], 0)]);
    }
    let policies = gateway.children.policies();
    assert_eq!(policies.len(), usize::from(CHILDREN) + 256 + 1);
    assert_eq!(gateway.put(), []);
    for at in 0..CHILDREN + 100 {
        let covers = |child: u8| child <= at && at <= child + 100;
        let of = |name: fn(u64) -> String| -> Vec<String> {
            (0..CHILDREN).filter(|child| covers(*child)).map(|child| name(child.into())).collect()
        };
        let (out, accepted) = first(&policies, [10, 2, 0, at], 17);
        assert!(!out.is_empty(), "10.2.0.{at} is sent");
        assert!(out.iter().all(|one| of(outbound).contains(one)), "{out:?}");
        assert!(accepted.iter().all(|one| of(inbound).contains(one)), "{accepted:?}");
    }
}

/// A selector: its first address, how many follow, and its protocol.
type Span = (u8, u8, u8);

fn spans() -> impl Strategy<Value = Vec<Span>> {
    let protocol = prop_oneof![Just(0_u8), Just(6), Just(17)];
    proptest::collection::vec((0_u8..32, 0_u8..16, protocol), 1..3)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn each_packet_takes_the_newest_that_covers_it_and_comes_on_any_that_does(
        children in proptest::collection::vec((spans(), any::<bool>()), 0..6),
    ) {
        let mut gateway = site();
        for (id, (spans, sends)) in (0..).zip(&children) {
            let remote = spans.iter().map(|(first, more, protocol)| {
                range([10, 2, 0, *first], [10, 2, 0, first + more], *protocol)
            });
            gateway.prepare(id, remote.collect(), None);
            if *sends {
                gateway.children.switch(ChildId(id));
            }
        }
        let policies = gateway.children.policies();
        prop_assert!(gateway.put().is_empty());
        for (at, protocol) in (0_u8..48).flat_map(|at| [1, 6, 17].map(|protocol| (at, protocol))) {
            let covers = |(first, more, own): &Span| {
                *first <= at && at <= first + more && (*own == 0 || *own == protocol)
            };
            let all = (0_u64..).zip(&children).filter(|(_, (spans, _))| spans.iter().any(covers));
            let mut all: Vec<(u64, bool)> = all.map(|(id, (_, sends))| (id, *sends)).collect();
            all.reverse();
            let newest = all.iter().find(|(_, sends)| *sends).or(all.first());
            let (out, accepted) = first(&policies, [10, 2, 0, at], protocol);
            prop_assert_eq!(out.is_empty(), newest.is_none());
            if let Some((newest, _)) = newest {
                prop_assert!(out.contains(&outbound(*newest)), "{} is not in {:?}", newest, out);
            }
            let all_cover = out.iter().all(|one| all.iter().any(|(id, _)| outbound(*id) == *one));
            prop_assert!(all_cover, "{:?}", out);
            let covering: Vec<String> = all.iter().map(|(id, _)| inbound(*id)).collect();
            prop_assert_eq!(accepted, &covering[..]);
        }
    }
}
