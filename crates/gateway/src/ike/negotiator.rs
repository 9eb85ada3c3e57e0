//! Owns the [`Endpoint`] and what it has negotiated, and does what it wants.

mod connections;
mod events;
mod upkeep;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use std::{fmt, io};

use connections::{connection, is_same, most_specific_first, watched};
use headroom_ike::crypto::SystemRandom;
use headroom_ike::{ChildId, Command, Config, Connection, Endpoint, IkeChoice, SessionId};
use headroom_ipsec::{Engine, PeerMoved, PolicySpec};

use super::children::Children;
use super::failures::FailureLog;
use super::key_log::KeyLog;
use super::peers::Peers;
use super::report::Report;
use super::sessions::{IkeCounters, Session, SessionStatus, Sessions};
use crate::config::IkePeer;
use crate::datapath::{Datapath, IkeDatagram};

/// The interval of looks at CHILD SAs that wait for their first packet.
const LISTEN: Duration = Duration::from_millis(20);
/// The longest time between two looks at what CHILD SAs have carried, and the time that an IKE SA
/// has to bring its first CHILD SA.
const LOOK: Duration = Duration::from_secs(1);

/// The state of the thread of IKE.
pub(super) struct Negotiator {
    endpoint: Endpoint,
    /// As in the endpoint, by name.
    connections: HashMap<String, Arc<Connection>>,
    peers: Peers,
    children: Children,
    sessions: Sessions,
    /// The attempts to connect of the last second.
    connecting: BTreeSet<(Instant, SessionId)>,
    failures: FailureLog,
    /// When it is looked at what CHILD SAs have carried.
    next_wear: Instant,
    /// When it is looked at the ways to peers.
    next_roam: Instant,
    /// When what has changed may be put into the engine, and why the last attempt failed.
    next_apply: Instant,
    unusable: Option<String>,
    /// The session at which the last look at routes ended.
    roamed: Option<SessionId>,
    datapath: Arc<Datapath>,
    /// Where keys are written to, to decrypt captures.
    key_log: Option<KeyLog>,
    report: Box<dyn Fn(Report) + Send>,
    /// The addresses that peers have assigned to this host, as they were reported.
    assigned: BTreeSet<IpAddr>,
    /// The peers for which the pool had no address.
    pool_exhausted: u64,
}

impl fmt::Debug for Negotiator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Negotiator").field("sessions", &self.sessions).finish_non_exhaustive()
    }
}

impl Negotiator {
    pub(super) fn new(
        configured: Vec<IkePeer>,
        fixed: Vec<PolicySpec>,
        datapath: Arc<Datapath>,
        key_log: Option<KeyLog>,
        report: Box<dyn Fn(Report) + Send>,
        now: Instant,
    ) -> Self {
        let children = Children::new(&configured, fixed);
        let mut peers = Peers::default();
        for peer in &configured {
            peers.add(&peer.name, watched(peer));
            peers.look(&peer.name, now);
        }
        let connections: Vec<_> =
            configured.into_iter().map(|peer| Arc::new(connection(peer, None))).collect();
        let named = connections.iter().map(|one| (one.name.clone(), Arc::clone(one))).collect();
        let export_keys = key_log.is_some();
        let mut config =
            Config { force_encapsulation: true, export_keys, ..Config::new(Vec::new()) };
        config.report_messages = true;
        config.connections = most_specific_first(connections);
        datapath.set_traps(peers.trapped());
        Self {
            endpoint: Endpoint::new(config, Box::new(SystemRandom), now),
            connections: named,
            peers,
            children,
            sessions: Sessions::default(),
            connecting: BTreeSet::new(),
            failures: FailureLog::default(),
            next_wear: now,
            next_roam: now,
            next_apply: now,
            unusable: None,
            roamed: None,
            datapath,
            key_log,
            report,
            assigned: BTreeSet::new(),
            pool_exhausted: 0,
        }
    }

    /// Takes another configuration, and puts `engine` in force with what was negotiated.
    pub(super) fn reload(
        &mut self,
        configured: Vec<IkePeer>,
        fixed: Vec<PolicySpec>,
        engine: &Engine,
        now: Instant,
    ) -> io::Result<()> {
        self.settle();
        let mut peers = Peers::default();
        let mut children = Vec::new();
        let (mut connections, mut changed) = (HashMap::new(), HashSet::new());
        let mut in_order = Vec::with_capacity(configured.len());
        for peer in configured {
            let mut watched = watched(&peer);
            let former = self.connections.get(&peer.name);
            if let Some(before) = self.peers.get(&peer.name) {
                watched.take_over(before);
            }
            children.extend(peer.children.iter().cloned());
            let moved = self.peers.get(&peer.name).is_some_and(|one| {
                let is_elsewhere = watched.local_is_fixed && one.local != watched.local;
                is_elsewhere || one.remote != watched.remote
            });
            let new = Arc::new(connection(peer, former.map(Arc::as_ref)));
            if moved || former.is_some_and(|former| !is_same(former, &new)) {
                changed.insert(new.name.clone());
            }
            peers.add(&new.name, watched);
            in_order.push(Arc::clone(&new));
            connections.insert(new.name.clone(), new);
        }
        let (sessions, before) = (&self.sessions, &self.connections);
        let is_kept = |session: SessionId, child: &str| {
            let peer = sessions.get(session).map_or("", |one| &one.peer);
            let of = |all: &HashMap<String, Arc<Connection>>| {
                let children = &all.get(peer)?.children;
                children.iter().find(|one| one.name == child).cloned()
            };
            let same = of(before).zip(of(&connections)).is_some_and(|(a, b)| Arc::ptr_eq(&a, &b));
            same && !changed.contains(peer)
        };
        let closed: Vec<ChildId> = self.children.kept(|session, name| !is_kept(session, name));
        let former = self.children.reconfigure(children, fixed, is_kept);
        self.children.take_change();
        match self.children.apply(&self.datapath, Some(engine)) {
            Ok(refused) => {
                self.unusable = None;
                self.refuse(refused);
            }
            Err(error) => {
                self.children.restore(former);
                return Err(error);
            }
        }
        let is_closed = |peer: &str| !connections.contains_key(peer) || changed.contains(peer);
        let sessions = self.sessions.iter().filter(|(_, one)| is_closed(&one.peer));
        let sessions: Vec<SessionId> = sessions.map(|(id, _)| id).collect();
        for child in closed {
            let _ = self.endpoint.command(&Command::CloseChild(child), now);
        }
        for session in sessions {
            let _ = self.endpoint.command(&Command::Close(session), now);
        }
        self.endpoint.reconfigure(most_specific_first(in_order));
        (self.connections, self.peers) = (connections, peers);
        for name in self.peers.names() {
            self.peers.look(&name, now);
        }
        self.datapath.set_traps(self.peers.trapped());
        self.settle();
        Ok(())
    }

    /// Closes the CHILD SA of an association that has reached a hard limit. What is configured for the
    /// end of it follows.
    pub(super) fn expired(&mut self, association: &str, now: Instant) {
        if let Some(child) = self.children.of_association(association) {
            let _ = self.endpoint.command(&Command::CloseChild(child), now);
            self.settle();
        }
    }

    /// ESP of an IKE SA arrives from another address. What follows from it is put into force with the
    /// next [`Self::work`]: many peers may move at once.
    pub(super) fn moved(&mut self, moved: &PeerMoved, now: Instant) {
        let id = SessionId(moved.group);
        // it may have moved meanwhile, which is newer
        let is_current = self.sessions.get(id).is_some_and(|one| one.remote == moved.configured);
        if is_current {
            let _ = self.endpoint.command(&Command::Follow(id, moved.now), now);
        }
    }

    /// Takes a datagram of a peer.
    pub(super) fn take(&mut self, datagram: &IkeDatagram, now: Instant) {
        let to = SocketAddr::from(datagram.to);
        self.endpoint.handle(&datagram.bytes, datagram.from, to, now);
    }

    /// Does what is due. Returns the time until something else is.
    pub(super) fn work(&mut self, now: Instant) -> Duration {
        // for certificates, again and again: a clock may be set late
        if let Ok(since_epoch) = SystemTime::now().duration_since(UNIX_EPOCH) {
            self.endpoint.set_time(since_epoch);
        }
        self.endpoint.poll(now);
        self.maintain(now);
        self.settle();
        let deadlines =
            [self.endpoint.next_deadline(), self.peers.next_look(), self.children.next_expiry()];
        let now = Instant::now();
        let next =
            deadlines.into_iter().flatten().map(|at| at.saturating_duration_since(now)).min();
        let listens = self.children.any_waits() || self.children.any_is_limited();
        let longest = if listens { LISTEN } else { LOOK };
        next.unwrap_or(longest).clamp(Duration::from_millis(1), longest)
    }

    fn say(&self, sentence: String) {
        (self.report)(Report::Message(sentence));
    }

    /// Says what a peer has done, but not all of it if that is much.
    fn say_of(&mut self, session: SessionId, sentence: String, now: Instant) {
        let sentence = match self.sessions.get_mut(session) {
            Some(session) => session.sentences.admit(sentence, now),
            None => Some(sentence),
        };
        sentence.into_iter().for_each(|sentence| self.say(sentence));
    }

    fn report_unwritten(&self, written: Option<io::Result<()>>) {
        if let Some(Err(error)) = written {
            self.say(format!("cannot write the log of keys: {error}"));
        }
    }

    /// Begins to close all IKE SAs.
    pub(super) fn close_all(&mut self, now: Instant) {
        self.endpoint.close_all(now);
        self.settle();
    }

    /// Goes on to close.
    pub(super) fn finish(&mut self, now: Instant) {
        self.endpoint.poll(now);
        self.settle();
    }

    /// Tells whether a peer has not confirmed yet that its IKE SA is closed. The endpoint keeps one that
    /// is closed, to answer messages that are sent again.
    pub(super) fn is_busy(&self) -> bool {
        self.sessions.iter().next().is_some()
    }

    pub(super) fn policies(&self) -> Vec<PolicySpec> {
        self.children.policies()
    }

    pub(super) fn statuses(&self, now: Instant) -> Vec<SessionStatus> {
        let children = self.children.counts();
        let status = |(id, one): (SessionId, &Session)| SessionStatus {
            peer: one.peer.clone(),
            established: one.established.is_some(),
            initiated: one.initiated,
            local: one.local,
            remote: one.remote,
            post_quantum: one.post_quantum,
            age_seconds: one.established.map_or(0, |at| (now - at).as_secs()),
            rekeys: one.rekeys,
            child_rekeys: one.child_rekeys,
            children: children.get(&id).copied().unwrap_or(0),
            algorithms: self.endpoint.session(id).and_then(|one| one.algorithms).map(described),
            retransmits: self.endpoint.session(id).map_or(0, |one| one.retransmits),
            identity: one.identity.clone(),
            assigned: one.assigned.addresses.clone(),
            dns: one.assigned.dns.clone(),
        };
        self.sessions.iter().map(status).collect()
    }

    pub(super) fn counters(&self) -> IkeCounters {
        let counters = self.endpoint.counters();
        IkeCounters {
            half_open: self.endpoint.half_open() as u64,
            cookies_sent: counters.cookies_sent,
            refused_by_limit: counters.refused_by_limit,
            refused_after_failures: counters.refused_after_failures,
            authentication_failures: counters.authentication_failures,
            retransmits: counters.retransmits,
            malformed: counters.malformed,
            pool_exhausted: self.pool_exhausted,
        }
    }

    /// Does what the endpoint wants: first the engine, then the messages that tell of it.
    fn settle(&mut self) {
        while let Some(event) = self.endpoint.event() {
            self.happened(event, Instant::now());
        }
        let now = Instant::now();
        if self.next_apply <= now && self.children.take_change() {
            match self.children.apply(&self.datapath, None) {
                Ok(refused) => {
                    self.unusable = None;
                    self.refuse(refused);
                }
                Err(error) => {
                    self.next_apply = now + LOOK;
                    let unusable = format!("what was negotiated cannot be used: {error}");
                    if self.unusable.as_ref() != Some(&unusable) {
                        self.say(unusable.clone());
                    }
                    self.unusable = Some(unusable);
                }
            }
            // at once, before those that come now
            for child in self.datapath.waiting() {
                self.send_waiting(&child);
            }
        }
        while let Some(transmit) = self.endpoint.transmit() {
            // what is lost is sent again
            let _ = self.datapath.send_ike(transmit.from, transmit.to, &transmit.datagram);
        }
    }

    /// Closes CHILD SAs that the engine did not take.
    fn refuse(&mut self, refused: Vec<(ChildId, String)>) {
        let now = Instant::now();
        for (child, why) in refused {
            let sentence = format!("a CHILD SA is closed, for its {why}");
            match self.children.origin(child) {
                Some(origin) => self.say_of(origin.session, sentence, now),
                None => self.say(sentence),
            }
            let _ = self.endpoint.command(&Command::CloseChild(child), now);
        }
    }
}

/// Returns algorithms as the status shows them.
fn described(choice: &IkeChoice) -> String {
    let mut text = format!("{} {} {}", choice.suite, choice.prf, choice.key_exchange);
    for additional in &choice.additional {
        text += &format!("+{additional}");
    }
    text
}
