//! Two hosts in memory: a network that loses, duplicates and reorders, packet paths that follow the
//! events, and what must hold all the time.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use headroom_ike::crypto::{IkeKeys, Random, Spis};
use headroom_ike::wire::{Header, Message, TrafficSelector};
use headroom_ike::{
    Assigned, Auth, ChildConfig, ChildId, ChildProposal, ChildSa, Command, Config, Connection,
    Endpoint, Event, Identity, IkeProposal, MessageReport, Mode, PostQuantum, Reason, SessionId,
    Transmit, UsedPpk, VirtualAddresses,
};
use headroom_suite::Key;
use rand::rngs::ChaCha12Rng;
use rand::{Rng, SeedableRng};

pub(crate) const A: usize = 0;
pub(crate) const B: usize = 1;

/// Two hosts and what is between them.
pub(crate) struct World {
    pub(crate) hosts: [Host; 2],
    pub(crate) now: Instant,
    pub(crate) in_flight: Vec<Transmit>,
    /// Packets under way: to whom, their SPI and key.
    packets: Vec<(usize, u32, Vec<u8>)>,
    /// Whether CHILD SAs are removed on purpose: then there may be none to send on.
    pub(crate) may_be_empty: bool,
    /// Whether an IKE SA ends, and packets under way with it.
    pub(crate) closing: bool,
    /// Whether both hosts send a packet after each message that a script delivers.
    pub(crate) traffic: bool,
    /// The most CHILD SAs that a host sends on: the old and the new one.
    pub(crate) most: usize,
    /// Whether a host uses the oldest of those that it may send on, as the gateway does.
    pub(crate) oldest_sends: bool,
    /// All datagrams so far.
    pub(crate) sent: usize,
    /// The ports that they came from.
    pub(crate) ports: BTreeSet<u16>,
    /// All packets that arrived.
    pub(crate) arrived: usize,
    /// A host behind a NAT, and the NAT's address.
    pub(crate) nat: Option<(usize, IpAddr)>,
}

/// A host with its packet path.
pub(crate) struct Host {
    pub(crate) endpoint: Endpoint,
    pub(crate) address: SocketAddr,
    pub(crate) session: Option<SessionId>,
    pub(crate) children: BTreeMap<ChildId, ChildSa>,
    pub(crate) sends_on: Vec<ChildId>,
    pub(crate) post_quantum: Option<bool>,
    pub(crate) established: usize,
    pub(crate) installed: usize,
    pub(crate) rekeyed: usize,
    pub(crate) failed_children: Vec<Reason>,
    pub(crate) closed: Vec<Reason>,
    pub(crate) moved: usize,
    pub(crate) remote_address: Option<SocketAddr>,
    /// Whether ESP goes in UDP since the last move.
    pub(crate) in_udp: bool,
    pub(crate) ready: bool,
    pub(crate) assigned: Assigned,
    pub(crate) ppk: Option<UsedPpk>,
    /// The keys of its IKE SAs, the newest last.
    pub(crate) keys: Vec<(Spis, Box<IkeKeys>)>,
    /// The messages that it sent and took, if they are reported.
    pub(crate) messages: Vec<MessageReport>,
    /// What its random numbers begin with.
    pub(crate) leads: Leads,
    /// The ID of its next request.
    pub(crate) next_request: u32,
}

/// A seeded generator. ML-KEM's numbers are not from it, and nothing depends on them.
pub(crate) struct Seeded {
    random: ChaCha12Rng,
    leads: Leads,
}

/// The first byte of the next nonces and of the next SPIs, so that a test decides which nonce is the
/// lowest and knows an SA by its SPI; 0 leaves them to chance.
#[derive(Clone, Debug, Default)]
pub(crate) struct Leads(Arc<[AtomicU8; 2]>);

impl Leads {
    pub(crate) fn nonce(&self, first: u8) {
        self.0[0].store(first, Ordering::Relaxed);
    }

    pub(crate) fn spi(&self, first: u8) {
        self.0[1].store(first, Ordering::Relaxed);
    }
}

impl Random for Seeded {
    fn fill(&mut self, bytes: &mut [u8]) {
        self.random.fill_bytes(bytes);
        let lead = match bytes.len() {
            32 => &self.leads.0[0],
            4 | 8 => &self.leads.0[1],
            _ => return,
        };
        match lead.load(Ordering::Relaxed) {
            0 => {}
            first => bytes[0] = first,
        }
    }
}

/// The settings of both hosts, to be changed by tests.
pub(crate) fn configs(policy: PostQuantum) -> [Config; 2] {
    let network = |last: u8| vec![TrafficSelector::network(IpAddr::from([10, 0, last, 0]), 24)];
    [(1, 2), (2, 1)].map(|(own, other)| {
        let child = ChildConfig {
            name: "net".to_owned(),
            local: network(own),
            remote: network(other),
            mode: Mode::Tunnel,
            proposals: ChildProposal::default_offer(policy),
            qesp: None,
            rekey: None,
            per_resource: 0,
        };
        let connection = Connection {
            name: "peer".to_owned(),
            local: Identity::from_text(&format!("host-{own}.example")),
            remote: Some(Identity::from_text(&format!("host-{other}.example"))),
            remote_address: None,
            auth: Auth::shared_key(&Key::from_bytes(b"a secret of both")),
            ike: IkeProposal::default_offer(policy),
            ppk: None,
            mobike: false,
            virtual_addresses: VirtualAddresses::None,
            children: vec![Arc::new(child)],
            rekey: None,
            reauthenticate: None,
            liveness: None,
        };
        let mut config = Config::new(vec![connection]);
        config.timing.liveness = None;
        config.export_keys = true;
        // so that no bad luck looks like a dead peer
        config.timing.retransmissions = 1000;
        config
    })
}

impl World {
    pub(crate) fn new(configs: [Config; 2], seed: u64) -> Self {
        let now = Instant::now();
        let mut last = 0;
        let hosts = configs.map(|config| {
            last += 1;
            let leads = Leads::default();
            let random = ChaCha12Rng::seed_from_u64(2 * seed + u64::from(last));
            let random = Seeded { random, leads: leads.clone() };
            Host {
                endpoint: Endpoint::new(config, Box::new(random), now),
                address: SocketAddr::from(([192, 0, 2, last], 500)),
                session: None,
                children: BTreeMap::new(),
                sends_on: Vec::new(),
                post_quantum: None,
                established: 0,
                installed: 0,
                rekeyed: 0,
                failed_children: Vec::new(),
                closed: Vec::new(),
                moved: 0,
                remote_address: None,
                in_udp: false,
                ready: false,
                assigned: Assigned::default(),
                ppk: None,
                keys: Vec::new(),
                messages: Vec::new(),
                leads,
                next_request: 0,
            }
        });
        let (in_flight, packets) = (Vec::new(), Vec::new());
        Self {
            hosts,
            now,
            in_flight,
            packets,
            may_be_empty: false,
            closing: false,
            traffic: false,
            most: 2,
            oldest_sends: false,
            sent: 0,
            ports: BTreeSet::new(),
            arrived: 0,
            nat: None,
        }
    }

    /// Makes two hosts between which an IKE SA and a CHILD SA stand.
    pub(crate) fn established(policy: PostQuantum, seed: u64) -> Self {
        Self::established_with(configs(policy), seed)
    }

    pub(crate) fn established_with(configs: [Config; 2], seed: u64) -> Self {
        let mut world = Self::new(configs, seed);
        world.connect(A);
        world.settle();
        assert!(world.hosts.iter().all(|host| host.ready), "the IKE SA stands");
        world
    }

    /// As [`Self::established_with`], of hosts that always have something to do later.
    pub(crate) fn established_for_now(configs: [Config; 2], seed: u64) -> Self {
        let mut world = Self::new(configs, seed);
        world.connect(A);
        while !world.in_flight.is_empty() {
            world.deliver(0, false);
        }
        assert!(world.hosts.iter().all(|host| host.ready), "the IKE SA stands");
        world
    }

    /// Lets a host do what is due.
    pub(crate) fn poll(&mut self, host: usize) {
        self.hosts[host].endpoint.poll(self.now);
        self.drain();
    }

    pub(crate) fn connect(&mut self, host: usize) {
        let [from, mut to] = [self.hosts[host].address, self.hosts[1 - host].address];
        if let Some((_, outside)) = self.nat.filter(|(inside, _)| *inside != host) {
            to.set_ip(outside);
        }
        let session = self.hosts[host].endpoint.connect("peer", from, to, self.now);
        self.hosts[host].session = Some(session.expect("a connection"));
        self.drain();
    }

    pub(crate) fn command(&mut self, host: usize, command: &Command) {
        note(|| format!("host {host}: {command:?}"));
        // what it names may be gone
        let _ = self.hosts[host].endpoint.command(command, self.now);
        self.drain();
    }

    /// Rekeys the CHILD SA that a host sends on.
    pub(crate) fn rekey_child(&mut self, host: usize) {
        if let Some(&child) = self.hosts[host].sends_on.last() {
            self.command(host, &Command::RekeyChild(child));
        }
    }

    /// Asks for a further CHILD SA.
    pub(crate) fn create_child(&mut self, host: usize) {
        self.most = usize::MAX;
        // a responder sends on a new CHILD SA before its initiator has it
        self.closing = true;
        let session = self.hosts[host].session.expect("a session");
        self.command(host, &Command::CreateChild(session, "net".to_owned()));
    }

    pub(crate) fn rekey_ike(&mut self, host: usize) {
        let session = self.hosts[host].session.expect("a session");
        self.command(host, &Command::Rekey(session));
    }

    pub(crate) fn close_child(&mut self, host: usize) {
        if let Some(&child) = self.hosts[host].sends_on.last() {
            self.delete(host, child);
        }
    }

    /// Removes a CHILD SA on purpose.
    pub(crate) fn delete(&mut self, host: usize, child: ChildId) {
        self.may_be_empty = true;
        self.command(host, &Command::CloseChild(child));
    }

    pub(crate) fn close(&mut self, host: usize) {
        self.closing = true;
        let session = self.hosts[host].session.expect("a session");
        self.command(host, &Command::Close(session));
    }

    /// Delivers one datagram; the network keeps it if it is to arrive twice.
    pub(crate) fn deliver(&mut self, at: usize, keep: bool) {
        let datagram =
            if keep { self.in_flight[at].clone() } else { self.in_flight.swap_remove(at) };
        self.hand_over(&datagram);
    }

    /// Hands a datagram to whom it is for.
    pub(crate) fn hand_over(&mut self, datagram: &Transmit) {
        let mut datagram = datagram.clone();
        if let Some((inside, outside)) = self.nat {
            let inside = self.hosts[inside].address.ip();
            if datagram.from.ip() == inside {
                datagram.from.set_ip(outside);
            } else if datagram.to.ip() == outside {
                datagram.to.set_ip(inside);
            }
        }
        let to = self.hosts.iter().position(|host| host.address.ip() == datagram.to.ip());
        let Some(to) = to else { return };
        note(|| format!("arrives: {}", shown(&datagram)));
        let Transmit { from, to: address, datagram } = datagram;
        self.hosts[to].endpoint.handle(&datagram, from, address, self.now);
        self.drain();
    }

    /// Lets a host send a packet on what it sends on; it is under way until [`Self::arrive`].
    pub(crate) fn send_packet(&mut self, host: usize) {
        let sender = &self.hosts[host];
        let used = match self.oldest_sends {
            true => sender.sends_on.iter().min(),
            false => sender.sends_on.last(),
        };
        if let Some(child) = used.and_then(|child| sender.children.get(child)) {
            let key = child.outbound.secrets.key.as_bytes().to_vec();
            self.packets.push((1 - host, child.outbound.spi, key));
        }
    }

    /// Delivers all packets: none may be for a CHILD SA that is not there.
    pub(crate) fn arrive(&mut self) {
        for (to, spi, key) in std::mem::take(&mut self.packets) {
            let receiver = &mut self.hosts[to];
            let child = receiver.children.values().find(|child| child.inbound.spi == spi);
            match child {
                Some(child) => {
                    assert_eq!(child.inbound.secrets.key.as_bytes(), key, "both have the same key");
                    let id = child.child;
                    self.arrived += 1;
                    let _ = receiver.endpoint.command(&Command::Heard(id), self.now);
                    self.drain();
                }
                None => assert!(
                    self.closing || !receiver.ready,
                    "a packet under SPI {spi:#x}, which host {to} does not have"
                ),
            }
        }
    }

    /// Goes to the next deadline, but not beyond `limit`; false if there is none.
    pub(crate) fn advance(&mut self) -> bool {
        // no packet is under way for longer than the time that is allowed for reordering
        self.arrive();
        let next = self.hosts.iter().filter_map(|host| host.endpoint.next_deadline()).min();
        let Some(next) = next else { return false };
        self.now = self.now.max(next);
        for host in &mut self.hosts {
            host.endpoint.poll(self.now);
        }
        self.drain();
        true
    }

    /// Delivers everything in order until nothing is left to do.
    pub(crate) fn settle(&mut self) {
        let limit = self.now + Duration::from_secs(24 * 3600);
        for _ in 0..10_000 {
            while !self.in_flight.is_empty() {
                let datagram = self.in_flight.remove(0);
                self.hand_over(&datagram);
            }
            for host in [A, B] {
                self.send_packet(host);
            }
            self.arrive();
            if self.in_flight.is_empty() && !self.advance() {
                return;
            }
            assert!(self.now < limit, "all exchanges end");
        }
        panic!("all exchanges end");
    }

    /// Takes what both endpoints put out, and checks what must hold.
    fn drain(&mut self) {
        for host in &mut self.hosts {
            while let Some(transmit) = host.endpoint.transmit() {
                assert!(transmit.datagram.len() <= 1236, "{} bytes", transmit.datagram.len());
                self.sent += 1;
                self.ports.insert(transmit.from.port());
                note(|| format!("  sends {}", shown(&transmit)));
                if let Some(header) = header(&transmit).filter(|one| !one.response) {
                    host.next_request = header.message_id + 1;
                }
                self.in_flight.push(transmit);
            }
            while let Some(event) = host.endpoint.event() {
                host.apply(event);
            }
        }
        self.check();
    }

    fn check(&self) {
        if self.hosts.iter().any(|host| !host.closed.is_empty()) {
            return;
        }
        for (at, host) in self.hosts.iter().enumerate() {
            if !host.ready || !self.hosts[1 - at].ready {
                continue;
            }
            assert!(host.sends_on.len() <= self.most, "host {at} sends on {:?}", host.sends_on);
            if !self.closing && !self.may_be_empty {
                assert!(!host.sends_on.is_empty(), "host {at} has nothing to send on");
            }
            let mut used = host.sends_on.clone();
            used.sort();
            used.truncate(if self.oldest_sends { 1 } else { usize::MAX });
            for child in &used {
                let child = &host.children[child];
                let theirs = self.hosts[1 - at].children.values();
                let mut theirs = theirs.filter(|one| one.inbound.spi == child.outbound.spi);
                match theirs.next() {
                    Some(same) => {
                        let keys =
                            [&child.outbound, &same.inbound].map(|one| one.secrets.key.as_bytes());
                        assert_eq!(keys[0], keys[1], "both have the same key");
                        assert_eq!((&child.local, &child.remote), (&same.remote, &same.local));
                    }
                    None => {
                        assert!(self.closing, "host {at} sends on what the other does not have");
                    }
                }
            }
        }
    }

    /// Checks that both ends have the same and nothing else, after all has settled.
    pub(crate) fn check_agreement(&self, children: usize) {
        let [a, b] = &self.hosts;
        let pairs = |host: &Host, mirrored: bool| {
            let pairs = host.children.values().map(|child| {
                let (inbound, outbound) = (child.inbound.spi, child.outbound.spi);
                if mirrored { (outbound, inbound) } else { (inbound, outbound) }
            });
            pairs.collect::<BTreeSet<_>>()
        };
        assert_eq!(pairs(a, false), pairs(b, true), "both ends have the same CHILD SAs");
        assert_eq!(a.children.len(), children, "as many CHILD SAs as there should be");
        for host in &self.hosts {
            assert_eq!(host.sends_on.len(), children.min(1), "one is sent on");
            assert!(host.closed.is_empty() && host.endpoint.sessions() == 1, "the IKE SA stands");
            assert_eq!(host.endpoint.child_spis(), children, "no SPI is kept for nothing");
            assert_eq!(host.endpoint.half_open(), 0);
        }
    }

    /// Checks that both ends have so many CHILD SAs, each used by both.
    pub(crate) fn check_children(&self, count: usize) {
        let [a, b] = &self.hosts;
        assert_eq!([a.children.len(), b.children.len()], [count; 2], "as many as there should be");
        for child in a.children.values() {
            let mut same = b.children.values().filter(|one| one.inbound.spi == child.outbound.spi);
            let same = same.next().expect("the other end has it");
            assert_eq!(same.outbound.spi, child.inbound.spi);
            let keys = [&same.inbound, &child.outbound].map(|half| half.secrets.key.as_bytes());
            assert_eq!(keys[0], keys[1], "both have the same key");
            assert!(a.sends_on.contains(&child.child) && b.sends_on.contains(&same.child));
        }
    }

    /// Checks that nothing is left.
    pub(crate) fn check_closed(&self) {
        for host in &self.hosts {
            assert_eq!(host.closed.len(), 1, "{:?}", host.closed);
            assert!(host.children.is_empty() && host.sends_on.is_empty());
            assert_eq!(host.endpoint.sessions(), 0, "nothing is kept");
            assert_eq!(host.endpoint.child_spis(), 0, "no SPI is kept");
        }
    }
}

impl Host {
    /// Forgets everything, as after a power failure.
    pub(crate) fn restart(&mut self, endpoint: Endpoint) {
        self.endpoint = endpoint;
        self.session = None;
        self.children.clear();
        self.sends_on.clear();
        self.ready = false;
    }

    fn apply(&mut self, event: Event) {
        note(|| format!("  {} {}", self.address, about(&event)));
        match event {
            Event::Established { session, post_quantum, assigned, ppk, .. } => {
                self.established += 1;
                self.ppk = ppk;
                self.assigned = assigned;
                self.session = Some(session);
                self.post_quantum = Some(post_quantum);
            }
            Event::Rekeyed { post_quantum, .. } => {
                self.post_quantum = Some(post_quantum);
                self.rekeyed += 1;
            }
            Event::Install(child) => {
                let spis: HashMap<_, _> =
                    self.children.values().map(|one| (one.inbound.spi, one.child)).collect();
                assert!(!spis.contains_key(&child.inbound.spi), "an SPI twice");
                assert!(self.children.insert(child.child, *child).is_none());
                self.installed += 1;
            }
            Event::Switch(child) => {
                assert!(self.children.contains_key(&child) && !self.sends_on.contains(&child));
                self.sends_on.push(child);
                self.ready = true;
            }
            Event::StopSending(child) => {
                assert!(self.sends_on.contains(&child), "{child:?}");
                self.sends_on.retain(|one| *one != child);
            }
            Event::Remove(child) => {
                assert!(!self.sends_on.contains(&child), "nothing is sent on what is removed");
                assert!(self.children.remove(&child).is_some(), "{child:?} is removed once");
            }
            Event::ChildFailed { reason, .. } => self.failed_children.push(reason),
            Event::Moved { remote_address, in_udp, .. } => {
                (self.remote_address, self.in_udp) = (Some(remote_address), in_udp);
                self.moved += 1;
            }
            Event::Reauthenticating { .. } => {}
            Event::Keys { spis, keys, .. } => self.keys.push((spis, keys)),
            Event::Message { message, .. } => self.messages.push(message),
            Event::Closed { session, reason, .. } => {
                let mut left = self.children.values();
                assert!(left.all(|one| one.session != session), "CHILD SAs go first");
                self.closed.push(reason);
            }
        }
    }
}

/// Prints what happens if `IKE_TRACE` is set, to understand a seed.
fn note(text: impl FnOnce() -> String) {
    if std::env::var_os("IKE_TRACE").is_some() {
        println!("{}", text());
    }
}

/// Returns the header of an IKE message.
pub(crate) fn header(transmit: &Transmit) -> Option<Header> {
    let message = transmit.datagram.strip_prefix(&[0; 4]).unwrap_or(&transmit.datagram);
    Message::parse(message).ok().map(|message| message.header)
}

fn shown(transmit: &Transmit) -> String {
    let Some(header) = header(transmit) else { return "?".to_owned() };
    let kind = if header.response { "response" } else { "request" };
    let (id, spi) = (header.message_id, header.spi_initiator >> 48);
    format!("{} {kind} {id} of {spi:04x} to {}", header.exchange, transmit.to)
}

fn about(event: &Event) -> String {
    match event {
        Event::Install(child) => format!(
            "Install({:?}, in {:x}, out {:x}, for {:?})",
            child.child, child.inbound.spi, child.outbound.spi, child.replaces
        ),
        event => format!("{event:?}"),
    }
}
