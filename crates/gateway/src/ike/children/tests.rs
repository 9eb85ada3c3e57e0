mod several;

use std::io;
use std::sync::Arc;

use headroom_ike::crypto::ChildSecrets;
use headroom_ike::wire::TrafficSelector;
use headroom_ike::{ChildConfig, HalfSa};
use headroom_ipsec::Engine;
use headroom_ipsec::spec::{Action, Addresses};
use headroom_suite::Key;

use super::*;
use crate::config::{ChildAction, ChildActions};

const ALICE: SessionId = SessionId(1);
const BOB: SessionId = SessionId(2);

/// Two clients of one `[[child]]`, with what the engine has of them.
struct Gateway {
    children: Children,
    engine: Engine,
    now: Instant,
}

impl Gateway {
    fn new(engine: Engine) -> Self {
        let mut children = Children::new(&[], Vec::new());
        children.configured = ["vpn", "lab"].map(configured).to_vec();
        Self { children, engine, now: Instant::now() }
    }

    /// A client at 192.0.2.`host`, which has the address 10.9.0.`host`.
    fn install(&mut self, child: u64, of: (&str, SessionId, u8), spis: (u32, u32)) {
        self.install_behind(of.2, child, of, spis);
    }

    /// A client behind the NAT 192.0.2.`nat`.
    fn install_behind(
        &mut self,
        nat: u8,
        child: u64,
        (name, session, host): (&str, SessionId, u8),
        spis: (u32, u32),
    ) {
        let host_only = |last: u8| vec![TrafficSelector::host([10, 9, 0, last].into())];
        let ends = (host_only(250), host_only(host));
        self.install_between(ends, nat, child, (name, session), None, spis);
        self.children.switch(ChildId(child));
    }

    /// A CHILD SA for packets between two ends, on which nothing is sent yet.
    fn install_between(
        &mut self,
        (local, remote): (Vec<TrafficSelector>, Vec<TrafficSelector>),
        nat: u8,
        child: u64,
        (name, session): (&str, SessionId),
        replaces: Option<ChildId>,
        spis: (u32, u32),
    ) {
        let half = |spi: u32, octet: u8| HalfSa {
            spi,
            secrets: ChildSecrets {
                key: Key::from_bytes(&[octet ^ child as u8; 36]),
                mac_key: Key::empty(),
            },
        };
        let config = ChildConfig {
            name: name.to_owned(),
            local,
            remote,
            mode: headroom_ike::Mode::Tunnel,
            proposals: Vec::new(),
            qesp: None,
            rekey: None,
            per_resource: 0,
        };
        let sa = ChildSa {
            child: ChildId(child),
            session,
            replaces,
            resource: None,
            suite: "aes-256-gcm".parse().expect("a suite"),
            extended_sequence: true,
            mode: headroom_ike::Mode::Tunnel,
            format: PacketFormat::EspInUdp,
            local: config.local.clone(),
            remote: config.remote.clone(),
            config: Arc::new(config),
            inbound: half(spis.0, 0x40),
            outbound: half(spis.1, 0x80),
        };
        let owner = owner_of(session).to_owned();
        self.children.install(sa, (LOCAL.into(), ([192, 0, 2, nat], 4500).into()), owner);
    }

    fn put(&mut self) -> Vec<ChildId> {
        let (children, engine) = (&mut self.children, &mut self.engine);
        let mut made = None;
        let refused = children.put(engine, None, Duration::ZERO, |new| {
            made = Some(new);
            Ok(())
        });
        *engine = made.expect("an engine");
        refused.expect("it is put into force").into_iter().map(|(id, _)| id).collect()
    }

    /// Ends a CHILD SA, as if its last packets had arrived.
    fn remove(&mut self, child: u64) {
        self.children.remove(ChildId(child), self.now);
        self.now += LINGER;
        self.children.expire(self.now);
    }

    /// The associations that packets to this client leave on, by their SPI and destination.
    fn ways_to(&self, host: u8) -> Vec<(u32, IpAddr)> {
        let policies = self.children.policies();
        let to = Addresses::Range([10, 9, 0, host].into(), [10, 9, 0, host].into());
        let ways = policies.iter().filter(|one| one.selector.remote == to);
        let names = ways.flat_map(|policy| match &policy.action {
            Action::Protect { out, .. } => out.clone(),
            Action::Bypass | Action::Discard => Vec::new(),
        });
        let of_name = |name: String| self.engine.association(&name).expect("in the engine").spec();
        names.map(of_name).map(|spec| (spec.spi, spec.destination)).collect()
    }
}

/// Alice authenticates again in session 11.
fn owner_of(session: SessionId) -> &'static str {
    match session.0 {
        1 | 11 => "alice",
        2 => "bob",
        _ => "another",
    }
}

const LOCAL: ([u8; 4], u16) = ([192, 0, 2, 250], 4500);

fn configured(name: &str) -> IkeChild {
    let none = ChildAction::None;
    IkeChild {
        name: name.to_owned(),
        selectors: Vec::new(),
        is_shared: true,
        mode: Mode::Tunnel,
        suites: Vec::new(),
        qesp: None,
        rekey: Duration::from_secs(3600),
        per_queue: 0,
        rekey_limits: Limits::default(),
        life: Limits::default(),
        actions: ChildActions { start: none, close: none, dpd: none },
    }
}

fn empty() -> Engine {
    Engine::new(Vec::new(), Vec::new(), None, Duration::ZERO).expect("an engine")
}

fn at(host: u8) -> IpAddr {
    [192, 0, 2, host].into()
}

#[test]
fn clients_that_choose_the_same_spi_have_an_association_each() {
    let (spi, carol, dave) = (0xc123_4567, SessionId(3), SessionId(4));
    let mut gateway = Gateway::new(empty());
    gateway.install(1, ("vpn", BOB, 2), (0x1001, spi));
    assert_eq!(gateway.put(), []);
    gateway.install(2, ("vpn", ALICE, 1), (0x1002, spi));
    gateway.install_behind(2, 3, ("lab", carol, 3), (0x1003, spi));
    assert_eq!(gateway.put(), []);
    assert_eq!(gateway.ways_to(1), [(spi, at(1))]);
    assert_eq!(gateway.ways_to(2), [(spi, at(2))]);
    assert_eq!(gateway.ways_to(3), [(spi, at(2))]);
    gateway.remove(2);
    assert_eq!(gateway.put(), []);
    assert_eq!(gateway.ways_to(1), []);
    assert_eq!(gateway.ways_to(2), [(spi, at(2))]);
    // gone, and back again before its last packets have arrived
    gateway.children.remove(ChildId(1), gateway.now);
    gateway.install(4, ("vpn", dave, 2), (0x1004, spi));
    assert_eq!(gateway.put(), []);
    gateway.remove(3);
    gateway.install(5, ("vpn", SessionId(5), 5), (0x1005, 0x5555));
    assert_eq!(gateway.put(), []);
    assert_eq!(gateway.ways_to(2), [(spi, at(2))]);
    assert_eq!(gateway.ways_to(3), []);
    assert_eq!(gateway.ways_to(5), [(0x5555, at(5))]);
}

#[test]
fn a_session_shares_the_address_that_its_packets_come_from_with_no_other() {
    let mut gateway = Gateway::new(empty());
    gateway.install_behind(9, 1, ("vpn", ALICE, 1), (0x1001, 0xaaaa));
    // the NAT gives Bob the mapping that was Alice's; both rekey
    gateway.install_behind(9, 2, ("vpn", BOB, 2), (0x1002, 0xbbbb));
    gateway.install_behind(9, 3, ("vpn", ALICE, 1), (0x1003, 0xcccc));
    gateway.install_behind(9, 4, ("vpn", BOB, 2), (0x1004, 0xdddd));
    assert_eq!(gateway.put(), []);
    let followed = |name: &str| {
        let sa = gateway.engine.association(name).expect("in the engine");
        std::ptr::from_ref(sa.peer().expect("it is followed"))
    };
    let [alice, bob] = ["vpn/in-00001001", "vpn/in-00001002"].map(followed);
    assert_ne!(alice, bob);
    assert_eq!([alice; 2], ["vpn/in-00001003", "vpn/out-0000cccc-00001003"].map(followed));
    assert_eq!([bob; 2], ["vpn/in-00001004", "vpn/out-0000dddd-00001004"].map(followed));
}

#[test]
fn an_address_is_that_of_the_newest_session_that_has_it() {
    let mut gateway = Gateway::new(empty());
    gateway.install(1, ("vpn", ALICE, 9), (0x1001, 0xaaaa));
    gateway.install(2, ("vpn", BOB, 9), (0x1002, 0xbbbb));
    let inbound = |gateway: &Gateway| -> Vec<String> {
        let policies = gateway.children.policies();
        let named = policies.iter().flat_map(|policy| match &policy.action {
            Action::Protect { inbound, .. } => inbound.clone(),
            Action::Bypass | Action::Discard => Vec::new(),
        });
        named.collect()
    };
    let is_bobs = |gateway: &mut Gateway, spi: u32| {
        assert_eq!(gateway.put(), []);
        assert_eq!(gateway.ways_to(9), [(spi, at(9))]);
        assert_eq!(inbound(gateway), ["vpn/in-00001002"]);
    };
    is_bobs(&mut gateway, 0xbbbb);
    // Alice rekeys
    gateway.install(3, ("vpn", ALICE, 9), (0x1003, 0xcccc));
    is_bobs(&mut gateway, 0xbbbb);
    gateway.children.remove(ChildId(1), gateway.now);
    is_bobs(&mut gateway, 0xbbbb);
    // Bob's ends
    gateway.remove(2);
    assert_eq!(gateway.put(), []);
    assert_eq!(inbound(&gateway), ["vpn/in-00001003"]);
}

#[test]
fn a_peer_that_authenticates_again_uses_both_ike_sas_until_the_old_one_is_gone() {
    let mut gateway = Gateway::new(empty());
    gateway.install(1, ("vpn", ALICE, 9), (0x1001, 0xaaaa));
    gateway.install(2, ("vpn", SessionId(11), 9), (0x1002, 0xbbbb));
    assert_eq!(gateway.put(), []);
    let old_then_new = [(0xaaaa, at(9)), (0xbbbb, at(9))];
    assert_eq!(gateway.ways_to(9), old_then_new, "the oldest sends");
    gateway.children.stop_sending(ChildId(1));
    assert_eq!(gateway.put(), []);
    assert_eq!(gateway.ways_to(9), [(0xbbbb, at(9))]);
    let policies = gateway.children.policies();
    let accepts = |policy: &PolicySpec| match &policy.action {
        Action::Protect { inbound, .. } => inbound.len() == 2,
        Action::Bypass | Action::Discard => false,
    };
    assert!(policies.iter().any(accepts), "packets on the old one still arrive");
    gateway.remove(1);
    assert_eq!(gateway.put(), []);
    assert_eq!(gateway.ways_to(9), [(0xbbbb, at(9))]);
}

#[test]
fn a_peer_may_have_a_child_sa_for_each_selector() {
    let mut gateway = Gateway::new(empty());
    let site = IkeChild { is_shared: false, ..configured("site") };
    gateway.children.configured.push(site);
    gateway.install_behind(9, 1, ("site", ALICE, 1), (0x1001, 0xaaaa));
    gateway.install_behind(9, 2, ("site", ALICE, 2), (0x1002, 0xbbbb));
    assert_eq!(gateway.put(), []);
    assert_eq!(gateway.ways_to(1), [(0xaaaa, at(9))]);
    assert_eq!(gateway.ways_to(2), [(0xbbbb, at(9))]);
    assert_eq!(gateway.children.twin(ChildId(2)), None);
    // one is made again
    gateway.install_behind(9, 3, ("site", ALICE, 1), (0x1003, 0xcccc));
    assert_eq!(gateway.children.twin(ChildId(3)), Some(ChildId(1)));
    assert_eq!(gateway.put(), []);
    assert_eq!(gateway.ways_to(1), [(0xaaaa, at(9)), (0xcccc, at(9))], "the oldest sends");
    assert_eq!(gateway.ways_to(2), [(0xbbbb, at(9))]);
    gateway.remove(1);
    assert_eq!(gateway.put(), []);
    assert_eq!(gateway.ways_to(1), [(0xcccc, at(9))]);
    assert_eq!(gateway.ways_to(2), [(0xbbbb, at(9))]);
}

/// An engine with an association of a file, which has the inbound SPI 0x1001.
fn with_a_fixed_one() -> Engine {
    let suite = "aes-256-gcm".parse().expect("a suite");
    let secrets = Secrets { suite, key: Key::from_bytes(&[9; 36]), mac_key: None };
    let (direction, protection) = (Direction::In, Protection::Esp(secrets));
    let between = (at(77), IpAddr::from(LOCAL.0));
    let spec = SaSpec::new("fixed", direction, Mode::Tunnel, 0x1001, between, protection);
    Engine::new(vec![spec], Vec::new(), None, Duration::ZERO).expect("an engine")
}

#[test]
fn what_cannot_be_used_of_one_client_does_not_stop_the_others() {
    let mut gateway = Gateway::new(with_a_fixed_one());
    gateway.install(1, ("vpn", ALICE, 1), (0x1001, 0xaaaa));
    gateway.install(2, ("vpn", BOB, 2), (0x1002, 0xbbbb));
    assert_eq!(gateway.put(), [ChildId(1)], "to be closed");
    assert_eq!(gateway.ways_to(1), []);
    assert_eq!(gateway.ways_to(2), [(0xbbbb, at(2))]);
    gateway.remove(1);
    gateway.install(3, ("vpn", SessionId(3), 3), (0x1003, 0xcccc));
    assert_eq!(gateway.put(), []);
    assert_eq!(gateway.ways_to(3), [(0xcccc, at(3))]);
}

#[test]
fn what_the_kernel_refuses_is_put_into_force_later() {
    let mut gateway = Gateway::new(with_a_fixed_one());
    gateway.install(1, ("vpn", ALICE, 1), (0x1001, 0xaaaa));
    gateway.install(2, ("vpn", BOB, 2), (0x1002, 0xbbbb));
    assert!(gateway.children.take_change() && !gateway.children.take_change());
    let no_socket = |_| Err(io::Error::other("no socket"));
    let refused = gateway.children.put(&gateway.engine, None, Duration::ZERO, no_socket);
    assert_eq!(refused.expect_err("the kernel's error").to_string(), "no socket");
    assert!(gateway.children.take_change(), "it is tried again, whatever happens meanwhile");
    gateway.install(3, ("vpn", SessionId(3), 3), (0x1003, 0xcccc));
    assert_eq!(gateway.put(), [ChildId(1)]);
    assert_eq!(gateway.ways_to(2), [(0xbbbb, at(2))]);
    assert_eq!(gateway.ways_to(3), [(0xcccc, at(3))]);
    gateway.remove(2);
    let refused = gateway.children.put(&gateway.engine, None, Duration::ZERO, no_socket);
    assert!(refused.is_err());
    gateway.remove(3);
    assert_eq!(gateway.put(), []);
    let left: Vec<&str> = gateway.engine.associations().map(|sa| sa.spec().name.as_str()).collect();
    assert_eq!(left, ["fixed"]);
}
