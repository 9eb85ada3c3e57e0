//! Follows the events of the [`Endpoint`], and begins what should exist and does not.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use std::{fmt, io};

use headroom_ike::crypto::{Method, SystemRandom};
use headroom_ike::{
    ChildConfig, ChildId, ChildProposal, Command, Config, Connection, Endpoint, Event, IkeChoice,
    IkeProposal, Reason, SessionId, VirtualAddresses,
};
use headroom_ipsec::{Engine, PolicySpec};
use headroom_suite::Suite;

use super::children::{Children, traffic_selectors};
use super::failures::FailureLog;
use super::key_log::KeyLog;
use super::peers::{Peer, Peers, Wanted};
use super::report::Report;
use super::sessions::{IkeCounters, Sentences, Session, SessionStatus, Sessions};
use super::trace;
use crate::config::{ChildAction, IkeChild, IkePeer};
use crate::datapath::{Datapath, IkeDatagram};

/// The interval of looks at CHILD SAs that wait for their first packet.
const LISTEN: Duration = Duration::from_millis(20);
/// The longest time between two looks at what CHILD SAs have carried, and the time that an IKE SA
/// has to bring its first CHILD SA.
const LOOK: Duration = Duration::from_secs(1);
/// The most attempts to connect that are younger than [`LOOK`]: peers that answer are not kept
/// waiting for so long that their messages are sent again.
const MAX_CONNECTING: usize = 64;
/// The most routes that are looked at in one [`LOOK`].
const ROAMERS: usize = 64;
/// When a peer is looked after again whose attempt would be one too many.
const LATER: Duration = Duration::from_millis(20);

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
            Ok(refused) => self.refuse(refused),
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
        if self.children.take_change() {
            match self.children.apply(&self.datapath, None) {
                Ok(refused) => self.refuse(refused),
                Err(error) => self.say(format!("what was negotiated cannot be used: {error}")),
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

    /// Begins what should exist and does not.
    fn maintain(&mut self, now: Instant) {
        self.children.expire(now);
        for id in self.children.heard(&self.datapath) {
            let _ = self.endpoint.command(&Command::Heard(id), now);
        }
        if self.next_wear <= now {
            self.next_wear = now + LISTEN;
            for id in self.children.worn(&self.datapath, now) {
                let _ = self.endpoint.command(&Command::RekeyChild(id), now);
            }
        }
        if self.next_roam <= now {
            self.next_roam = now + LOOK;
            self.roam(now);
        }
        if let Some(line) = self.failures.line(now) {
            self.say(line);
        }
        for child in self.datapath.waiting() {
            self.asked(&child, now);
        }
        while let Some(name) = self.peers.due(now) {
            if let Some(at) = self.look_after(&name, now) {
                self.peers.look(&name, at);
            }
        }
    }

    /// Goes on from another address where the way to a peer begins at another one now. Looks at some
    /// sessions, next time at others.
    fn roam(&mut self, now: Instant) {
        let mine = |one: &Session| one.initiated && one.established.is_some();
        let rest = self.sessions.iter().filter(|(id, one)| Some(*id) > self.roamed && mine(one));
        let batch: Vec<_> = rest
            .take(ROAMERS)
            .map(|(id, one)| (id, one.peer.clone(), one.local, one.remote))
            .collect();
        self.roamed = batch.last().filter(|_| batch.len() == ROAMERS).map(|(id, ..)| *id);
        for (id, peer, local, remote) in batch {
            let may = self.peers.get(&peer).is_some_and(|peer| !peer.local_is_fixed);
            // without a route there is nothing to go on from
            let source = self.datapath.source_towards(remote.ip());
            let Some(source) = source.ok().filter(|source| may && *source != local.ip()) else {
                continue;
            };
            let to = SocketAddr::new(source, local.port());
            let _ = self.endpoint.command(&Command::Move(id, to, remote), now);
        }
    }

    /// Sends the packets that wait for a child. Returns whether it stands.
    fn send_waiting(&self, child: &str) -> bool {
        let stands = self.children.exists(child);
        if stands && let Err(error) = self.datapath.send_waiting(child) {
            self.say(format!("packets that waited for `{child}` are lost: {error}"));
        }
        stands
    }

    /// Sets up what packets wait for, and sends them when it stands.
    fn asked(&mut self, child: &str, now: Instant) {
        if self.send_waiting(child) {
            return;
        }
        let Some(peer) = self.peers.owner(child) else {
            return self.datapath.drop_waiting(child);
        };
        let wanted = self.peers.get(&peer).and_then(|peer| peer.child(child));
        match wanted {
            Some(wanted) if wanted.is_wanted() => {}
            Some(wanted) => {
                wanted.is_asked = true;
                self.peers.look(&peer, now);
            }
            None => self.datapath.drop_waiting(child),
        }
    }

    /// The children of a peer could not be set up: those that packets asked for are given up until
    /// the next packet.
    fn give_up(&mut self, peer: &str) {
        let Some(peer) = self.peers.get(peer) else { return };
        for child in peer.children.iter_mut().filter(|child| child.is_asked) {
            child.is_asked = false;
            self.datapath.drop_waiting(&child.name);
        }
    }

    /// A CHILD SA is gone: does what is configured for that, if there is no other.
    fn lost(&mut self, child: &str, session: SessionId, action: impl Fn(&Wanted) -> ChildAction) {
        if self.children.exists(child) {
            return;
        }
        let owner = self.sessions.get(session).map(|one| one.peer.clone());
        if let Some(wanted) = owner.and_then(|peer| self.peers.get(&peer)?.child(child)) {
            wanted.is_asked = false;
            wanted.action = action(wanted);
            self.datapath.set_traps(self.peers.trapped());
        }
    }

    /// Begins what a peer lacks. Returns when to look after it again, should nothing happen.
    fn look_after(&mut self, name: &str, now: Instant) -> Option<Instant> {
        let peer = self.peers.get(name)?;
        let is_missing =
            |child: &&mut Wanted| child.is_wanted() && !self.children.exists(&child.name);
        let missing = peer.children.iter_mut().filter(is_missing);
        let missing: Vec<&mut Wanted> = missing.collect();
        if missing.is_empty() {
            return None;
        }
        // one that stands before one that is being set up
        let of_peer = || self.sessions.of(name);
        let session = of_peer().find(|(_, one)| one.established.is_some()).or(of_peer().next());
        let Some((id, session)) = session else {
            let first = missing.first().map(|child| child.name.clone());
            return self.connect(name, first.as_deref(), now);
        };
        // the IKE SA itself brings the first
        let ready = session.established? + LOOK;
        if ready > now {
            return Some(ready);
        }
        let mut next = now + LOOK;
        for child in missing {
            if child.retry.may_try(now) {
                let create = Command::CreateChild(id, child.name.clone());
                let _ = self.endpoint.command(&create, now);
            }
            next = next.min(child.retry.at().unwrap_or(next));
        }
        Some(next)
    }

    /// Begins to set up an IKE SA with this CHILD SA. Returns when to look after the peer again.
    fn connect(&mut self, name: &str, child: Option<&str>, now: Instant) -> Option<Instant> {
        while self.connecting.first().is_some_and(|(at, _)| now.duration_since(*at) >= LOOK) {
            self.connecting.pop_first();
        }
        if self.connecting.len() >= MAX_CONNECTING {
            return Some(now + LATER);
        }
        let peer = self.peers.get(name)?;
        if !peer.retry.may_try(now) {
            return peer.retry.at();
        }
        let (mut local, remote) = (peer.local, peer.remote?);
        if !peer.local_is_fixed {
            // the address of when the configuration was read may be gone
            let source = self.datapath.source_towards(remote.ip());
            local.set_ip(source.unwrap_or(local.ip()));
        }
        let id = self.endpoint.connect_for(name, child, (local, remote), now).ok()?;
        self.connecting.insert((now, id));
        self.sessions.insert(id, Session::begun(name.to_owned(), (local, remote), now));
        None
    }

    fn happened(&mut self, event: Event, now: Instant) {
        self.datapath.trace_ike(|| trace::record(&event, &self.sessions, &self.children));
        match event {
            // only for those who follow it
            Event::Message { .. } => {}
            Event::Established {
                session: id,
                connection,
                remote,
                local_address,
                remote_address,
                post_quantum,
                assigned,
                ..
            } => {
                let session = Session {
                    peer: connection,
                    initiated: self.sessions.get(id).is_some_and(|one| one.initiated),
                    began: now,
                    established: Some(now),
                    local: local_address,
                    remote: remote_address,
                    post_quantum,
                    rekeys: 0,
                    child_rekeys: 0,
                    identity: Some(remote.to_string()),
                    assigned,
                    sentences: Sentences::default(),
                };
                self.established(id, session, now);
            }
            Event::Reauthenticating { session, successor, local_address, remote_address } => {
                let Some(peer) = self.sessions.get(session).map(|one| one.peer.clone()) else {
                    return;
                };
                self.sessions
                    .insert(successor, Session::begun(peer, (local_address, remote_address), now));
            }
            Event::Rekeyed { session, post_quantum } => {
                if let Some(one) = self.sessions.get_mut(session) {
                    (one.rekeys, one.post_quantum) = (one.rekeys + 1, post_quantum);
                }
            }
            Event::Install(sa) => {
                let Some(session) = self.sessions.get_mut(sa.session) else { return };
                session.child_rekeys += u64::from(sa.replaces.is_some());
                let session = &*session;
                let made = self.peers.get(&session.peer);
                if let Some(child) = made.and_then(|peer| peer.child(&sa.config.name)) {
                    child.retry.succeeded();
                    child.is_asked = false;
                }
                // both ends made one at the same time: the end that began gives up the older one
                let twin = self.children.in_force(&sa.config.name, sa.session);
                let twin = twin.filter(|_| {
                    sa.replaces.is_none() && sa.resource.is_none() && session.initiated
                });
                let owner = session.identity.clone().unwrap_or_default();
                self.children.install(*sa, (session.local, session.remote), owner);
                if let Some(older) = twin {
                    let _ = self.endpoint.command(&Command::CloseChild(older), now);
                }
                let added = self.children.newest();
                let written = self.key_log.as_mut().map(|log| log.add_children(added));
                self.report_unwritten(written);
            }
            Event::Switch(child) => self.children.switch(child),
            Event::StopSending(child) => self.children.stop_sending(child),
            Event::Remove(child) => {
                let origin = self.children.origin(child);
                self.children.remove(child, now);
                let Some(origin) = origin else { return };
                let session = origin.session;
                if origin.was_in_force {
                    self.lost(&origin.child, session, |child| child.actions.close);
                }
                if let Some(session) = self.sessions.get(session) {
                    self.peers.look(&session.peer, now);
                }
            }
            Event::ChildFailed { session, name, reason } => {
                self.child_failed(session, name.as_deref(), &reason, now);
            }
            Event::Moved { session, local_address, remote_address, .. } => {
                let addresses = (local_address, remote_address);
                if let Some(one) = self.sessions.get_mut(session) {
                    let peer = &one.peer;
                    let moved = match one.local == local_address {
                        true => format!("`{peer}` is now at {remote_address}"),
                        false => format!("`{peer}` is now reached from {local_address}"),
                    };
                    (one.local, one.remote) = addresses;
                    self.say_of(session, moved, now);
                }
                self.children.move_to(session, addresses, &self.datapath);
            }
            Event::Keys { spis, keys, .. } => {
                let written = self.key_log.as_mut().map(|log| log.add_ike(spis, &keys));
                self.report_unwritten(written);
            }
            Event::Closed { session, remote_address, reason } => {
                self.closed(session, remote_address, reason, now);
            }
        }
    }

    fn closed(&mut self, id: SessionId, from: SocketAddr, reason: Reason, now: Instant) {
        let closed = self.sessions.remove(id);
        self.report_assigned();
        let is_timeout = matches!(reason, Reason::Timeout(_));
        if let Some(session) = &closed {
            self.say(format!("IKE with `{}` is closed: {reason}", session.peer));
        } else if let Some(line) = self.failures.note(from, reason, now) {
            self.say(line);
        }
        if let Some(session) = closed {
            self.connecting.remove(&(session.began, id));
            if session.established.is_none() {
                self.give_up(&session.peer);
            }
            if is_timeout && let Some(peer) = self.peers.get(&session.peer) {
                let lost = peer.children.iter_mut().filter(|one| !self.children.exists(&one.name));
                lost.for_each(|child| child.action = child.actions.dpd);
                self.datapath.set_traps(self.peers.trapped());
            }
            self.peers.look(&session.peer, now);
        }
    }

    fn established(&mut self, id: SessionId, session: Session, now: Instant) {
        if let Some(begun) = self.sessions.remove(id) {
            self.connecting.remove(&(begun.began, id));
        }
        let (name, local, remote) = (session.peer.clone(), session.local, session.remote);
        let (initiated, peer) = (session.initiated, name.as_str());
        let quantum = if session.post_quantum { "post-quantum" } else { "NOT post-quantum" };
        let assigned: Vec<String> =
            session.assigned.addresses.iter().map(IpAddr::to_string).collect();
        let assigned = match (assigned.is_empty(), initiated, &session.identity) {
            (true, ..) | (_, false, None) => String::new(),
            (false, true, _) => format!("; this host has {}", assigned.join(" and ")),
            (false, false, Some(name)) => format!("; {name} has {}", assigned.join(" and ")),
        };
        let has_address = !session.assigned.addresses.is_empty();
        self.say(format!("IKE with `{peer}` at {remote} is established ({quantum}){assigned}"));
        self.sessions.insert(id, session);
        self.report_assigned();
        if let Some(peer) = self.peers.get(peer)
            && (has_address || !peer.assigns)
        {
            peer.retry.succeeded();
        }
        self.peers.look(peer, now + LOOK);
        // both hosts began: the one with the lower address gives up what it began
        let stands = |one: &Session| one.established.is_some();
        let has_other =
            self.sessions.of(peer).any(|(other, one)| other != id && !one.initiated && stands(one));
        let mine = self.sessions.of(peer).filter(|(_, one)| one.initiated && stands(one));
        let mine: Vec<SessionId> = mine.map(|(id, _)| id).collect();
        let both = if initiated { has_other } else { !mine.is_empty() };
        if both && (local.ip(), local.port()) < (remote.ip(), remote.port()) {
            for mine in mine {
                let _ = self.endpoint.command(&Command::Close(mine), now);
            }
        }
    }

    /// Reports the addresses that peers have assigned to this host, if they are others.
    fn report_assigned(&mut self) {
        let mine = self.sessions.iter().filter(|(_, one)| one.initiated);
        let assigned = mine.flat_map(|(_, one)| one.assigned.addresses.iter().copied()).collect();
        if assigned != self.assigned {
            self.assigned = assigned;
            (self.report)(Report::Assigned(self.assigned.clone()));
        }
    }

    /// A CHILD SA was not made.
    fn child_failed(&mut self, id: SessionId, child: Option<&str>, reason: &Reason, now: Instant) {
        let session = self.sessions.get(id);
        let peer = session.map_or_else(|| "a peer".to_owned(), |one| one.peer.clone());
        let who = session.and_then(|one| one.identity.as_ref().map(|name| (name, one.remote)));
        let sentence = match (reason, who) {
            (Reason::PoolExhausted | Reason::AddressNotRequested, Some((name, remote))) => {
                format!("`{peer}`: {name} at {remote} gets no address: {reason}")
            }
            _ => {
                let child = child.unwrap_or("a CHILD SA");
                format!("IKE with `{peer}`: `{child}` was not made: {reason}")
            }
        };
        self.say_of(id, sentence, now);
        self.pool_exhausted += u64::from(*reason == Reason::PoolExhausted);
        // an address comes with an IKE SA only
        let has_address =
            self.sessions.get(id).is_some_and(|one| !one.assigned.addresses.is_empty());
        if self.peers.get(&peer).is_some_and(|peer| peer.assigns) && !has_address {
            let _ = self.endpoint.command(&Command::Close(id), now);
        }
        self.give_up(&peer);
        self.peers.look(&peer, now);
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

/// A responder takes the first connection that fits: one that any peer fits is the last.
fn most_specific_first(mut connections: Vec<Arc<Connection>>) -> Vec<Arc<Connection>> {
    connections.sort_by_key(|one| (one.remote.is_none(), one.remote_address.is_none()));
    connections
}

/// Returns what is watched of a peer.
fn watched(peer: &IkePeer) -> Peer {
    let children = peer.children.iter().map(Wanted::new).collect();
    let assigns = matches!(peer.virtual_addresses, VirtualAddresses::Request { .. });
    Peer::new((peer.local, peer.remote), peer.local_is_fixed, assigns, children)
}

/// Makes the connection of a peer, with the children of the former one that stay the same.
fn connection(peer: IkePeer, former: Option<&Connection>) -> Connection {
    let child = |child: &IkeChild| {
        let new = ChildConfig {
            name: child.name.clone(),
            local: traffic_selectors(child.selectors.iter().map(|one| &one.local)),
            remote: traffic_selectors(child.selectors.iter().map(|one| &one.remote)),
            mode: match child.mode {
                headroom_ipsec::Mode::Transport => headroom_ike::Mode::Transport,
                headroom_ipsec::Mode::Tunnel => headroom_ike::Mode::Tunnel,
            },
            proposals: child_proposals(&peer, &child.suites),
            qesp: child.qesp,
            rekey: Some(child.rekey),
            per_resource: child.per_queue,
        };
        let same = former.and_then(|former| {
            former.children.iter().find(|one| is_same_child(one, &new)).map(Arc::clone)
        });
        same.unwrap_or_else(|| Arc::new(new))
    };
    let ike = ike_proposals(&peer);
    let children = peer.children.iter().map(child).collect();
    Connection {
        ppk: peer.ppk,
        mobike: true,
        children,
        name: peer.name,
        local: peer.local_id,
        remote: peer.remote_id,
        remote_address: peer.remote.map(|remote| remote.ip()),
        auth: peer.auth,
        ike,
        virtual_addresses: peer.virtual_addresses,
        rekey: Some(peer.rekey),
        reauthenticate: peer.reauthenticate,
        liveness: Some(peer.liveness),
    }
}

/// Returns what is offered for an IKE SA.
fn ike_proposals(peer: &IkePeer) -> Vec<IkeProposal> {
    let mut offers = IkeProposal::default_offer(peer.post_quantum);
    for offer in &mut offers {
        if !peer.suites.is_empty() {
            offer.suites.clone_from(&peer.suites);
        }
        offer.key_exchanges.extend(peer.modp2048.then_some(Method::Modp2048));
    }
    offers
}

/// Returns what is offered for a CHILD SA.
fn child_proposals(peer: &IkePeer, suites: &[Suite]) -> Vec<ChildProposal> {
    let mut offers = ChildProposal::default_offer(peer.post_quantum);
    for offer in &mut offers {
        if !suites.is_empty() {
            offer.suites = suites.to_vec();
        }
        offer.key_exchanges.extend(peer.modp2048.then_some(Method::Modp2048));
    }
    offers
}

/// Tells whether an IKE SA may go on with another connection. Children are compared one by one.
fn is_same(one: &Connection, other: &Connection) -> bool {
    let ppk = |of: &Connection| {
        let ppk = of.ppk.as_ref();
        ppk.map(|ppk| (ppk.id.clone(), ppk.key.fingerprint(), ppk.is_required, ppk.exchange))
    };
    one.auth.is_same(&other.auth)
        && ppk(one) == ppk(other)
        && (&one.local, &one.remote, one.remote_address)
            == (&other.local, &other.remote, other.remote_address)
        && (&one.ike, &one.virtual_addresses, one.rekey, one.reauthenticate)
            == (&other.ike, &other.virtual_addresses, other.rekey, other.reauthenticate)
}

fn is_same_child(one: &ChildConfig, other: &ChildConfig) -> bool {
    (&one.name, &one.local, &one.remote, one.mode)
        == (&other.name, &other.local, &other.remote, other.mode)
        && (&one.proposals, one.qesp, one.rekey, one.per_resource)
            == (&other.proposals, other.qesp, other.rekey, other.per_resource)
}
