//! A thousand peers of one host.

use std::collections::{BTreeSet, HashMap};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use headroom_ike::crypto::SystemRandom;
use headroom_ike::{
    ChildId, Command, Config, Connection, Endpoint, Event, Identity, PostQuantum, SessionId,
    VirtualAddresses,
};

use crate::world::configs;

const PEERS: u16 = 1000;
const HUB: [u8; 4] = [192, 0, 2, 1];

fn address(peer: u16) -> SocketAddr {
    let [high, low] = peer.to_be_bytes();
    SocketAddr::from(([10, 9, high, low], 500))
}

/// One host of a thousand connections, or the thousand peers that share an endpoint.
struct Side {
    endpoint: Endpoint,
    sessions: BTreeSet<SessionId>,
    /// Those that stand, with the children that they replace.
    children: HashMap<ChildId, Option<ChildId>>,
    rekeyed: usize,
    closed: usize,
}

impl Side {
    fn new(is_hub: bool, now: Instant) -> Self {
        let [base, _] = configs(PostQuantum::Off);
        let base = base.connections[0].clone();
        let connection = |peer: u16| {
            let [hub, other] =
                ["hub".to_owned(), format!("peer-{peer}")].map(|name| Identity::from_text(&name));
            let (local, remote) = if is_hub { (hub, other) } else { (other, hub) };
            let auth = headroom_ike::Auth::shared_key(&headroom_suite::Key::from_bytes(
                format!("the secret of {peer}").as_bytes(),
            ));
            let child = base.children[0].clone();
            let child = match is_hub {
                true => child,
                false => Arc::new(headroom_ike::ChildConfig {
                    name: child.name.clone(),
                    local: child.remote.clone(),
                    remote: child.local.clone(),
                    mode: child.mode,
                    proposals: child.proposals.clone(),
                    qesp: None,
                    rekey: None,
                    per_resource: 0,
                }),
            };
            let ike = base.ike.clone();
            let (name, children) = (format!("peer-{peer}"), vec![child]);
            let (remote, remote_address) = (Some(remote), None);
            let virtual_addresses = VirtualAddresses::None;
            Connection {
                ppk: None,
                mobike: false,
                name,
                local,
                remote,
                remote_address,
                auth,
                ike,
                virtual_addresses,
                children,
                rekey: None,
                reauthenticate: None,
                liveness: None,
            }
        };
        let mut config = Config::new((0..PEERS).map(connection).collect());
        config.timing.liveness = None;
        let (sessions, children) = (BTreeSet::new(), HashMap::new());
        let endpoint = Endpoint::new(config, Box::new(SystemRandom), now);
        Self { endpoint, sessions, children, rekeyed: 0, closed: 0 }
    }

    fn follow(&mut self) {
        while let Some(event) = self.endpoint.event() {
            match event {
                Event::Established { session, .. } => {
                    self.sessions.insert(session);
                }
                Event::Install(child) => {
                    self.rekeyed += usize::from(child.replaces.is_some());
                    self.children.insert(child.child, child.replaces);
                }
                Event::Remove(child) => {
                    self.children.remove(&child);
                }
                Event::Closed { session, .. } => {
                    self.sessions.remove(&session);
                    self.closed += 1;
                }
                _ => {}
            }
        }
    }
}

/// Hands over what both sides send, until nothing is under way, and lets time pass until nothing
/// is due within the next `time`.
fn settle(sides: &mut [Side; 2], now: &mut Instant, time: Duration) {
    let end = *now + time;
    loop {
        let mut is_silent = true;
        for from in 0..2 {
            while let Some(sent) = sides[from].endpoint.transmit() {
                is_silent = false;
                sides[1 - from].endpoint.handle(&sent.datagram, sent.from, sent.to, *now);
            }
        }
        sides.iter_mut().for_each(Side::follow);
        if !is_silent {
            continue;
        }
        let next = sides.iter().filter_map(|side| side.endpoint.next_deadline()).min();
        let Some(next) = next.filter(|at| *at <= end) else { break };
        *now = (*now).max(next);
        sides.iter_mut().for_each(|side| side.endpoint.poll(*now));
    }
}

#[test]
fn a_thousand_peers_connect_rekey_and_leave() {
    let mut now = Instant::now();
    let mut sides = [true, false].map(|is_hub| Side::new(is_hub, now));
    let hub = SocketAddr::from((Ipv4Addr::from(HUB), 500));
    for peer in 0..PEERS {
        let name = format!("peer-{peer}");
        sides[1].endpoint.connect(&name, address(peer), hub, now).expect("a connection");
        settle(&mut sides, &mut now, Duration::ZERO);
    }
    settle(&mut sides, &mut now, Duration::from_secs(60));
    for side in &sides {
        assert_eq!(side.sessions.len(), usize::from(PEERS));
        assert_eq!(side.children.len(), usize::from(PEERS));
        assert_eq!(side.endpoint.next_deadline(), None, "nothing is due");
        assert_eq!(side.endpoint.half_open(), 0);
    }
    let children: Vec<ChildId> = sides[0].children.keys().copied().collect();
    for child in children {
        let command = Command::RekeyChild(child);
        sides[0].endpoint.command(&command, now).expect("a CHILD SA");
    }
    settle(&mut sides, &mut now, Duration::from_secs(60));
    for side in &sides {
        assert_eq!(side.rekeyed, usize::from(PEERS));
        assert_eq!(side.children.len(), usize::from(PEERS), "what was replaced is gone");
    }
    let sessions: Vec<SessionId> = sides[0].sessions.iter().copied().collect();
    for session in sessions {
        sides[0].endpoint.command(&Command::Close(session), now).expect("a session");
    }
    settle(&mut sides, &mut now, Duration::from_secs(600));
    for side in &sides {
        assert_eq!((side.closed, side.children.len()), (usize::from(PEERS), 0));
        assert_eq!((side.endpoint.sessions(), side.endpoint.next_deadline()), (0, None));
    }
}

#[test]
fn an_endpoint_that_ends_begins_nothing_with_a_peer_that_asks_again() {
    let mut now = Instant::now();
    let mut sides = [true, false].map(|is_hub| Side::new(is_hub, now));
    let hub = SocketAddr::from((Ipv4Addr::from(HUB), 500));
    let connect = |side: &mut Side, now| {
        side.endpoint.connect("peer-0", address(0), hub, now).expect("a connection");
    };
    connect(&mut sides[1], now);
    settle(&mut sides, &mut now, Duration::from_secs(1));
    assert_eq!(sides[1].children.len(), 1);

    sides[0].endpoint.close_all(now);
    connect(&mut sides[1], now);
    settle(&mut sides, &mut now, Duration::from_secs(600));
    for side in &sides {
        assert_eq!((side.endpoint.sessions(), side.children.len()), (0, 0));
    }
}
