//! Follows the events of the [`Endpoint`], and begins what should exist and does not.

use std::collections::BTreeSet;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use headroom_ike::crypto::SystemRandom;
use headroom_ike::{
    Auth, ChildConfig, ChildId, ChildProposal, Command, Config, Connection, Endpoint, Event,
    IkeProposal, Reason, SessionId, Timing, VirtualAddresses,
};
use headroom_ipsec::PolicySpec;

use super::children::{Children, traffic_selector};
use super::peers::{Peer, Peers, Retry, Wanted};
use super::sessions::{Session, SessionStatus, Sessions};
use crate::config::{IkeChild, IkePeer};
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
    peers: Peers,
    children: Children,
    sessions: Sessions,
    /// The attempts to connect of the last second.
    connecting: BTreeSet<(Instant, SessionId)>,
    /// When it is looked at what CHILD SAs have carried.
    next_wear: Instant,
    /// The session at which the last look at routes ended.
    roamed: Option<SessionId>,
    datapath: Arc<Datapath>,
    log: Box<dyn Fn(String) + Send>,
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
        log: Box<dyn Fn(String) + Send>,
        now: Instant,
    ) -> Self {
        let children = Children::new(&configured, fixed);
        let liveness = configured.iter().map(|peer| peer.liveness).min();
        let timing = Timing { liveness, ..Timing::default() };
        let mut peers = Peers::default();
        for peer in &configured {
            peers.add(&peer.name, watched(peer));
            peers.look(&peer.name, now);
        }
        let connections = configured.into_iter().map(connection).collect();
        let config = Config { force_encapsulation: true, timing, ..Config::new(connections) };
        Self {
            endpoint: Endpoint::new(config, Box::new(SystemRandom), now),
            peers,
            children,
            sessions: Sessions::default(),
            connecting: BTreeSet::new(),
            next_wear: now,
            roamed: None,
            datapath,
            log,
        }
    }

    /// Takes a datagram of a peer.
    pub(super) fn take(&mut self, datagram: &IkeDatagram, now: Instant) {
        let to = SocketAddr::from(datagram.to);
        self.endpoint.handle(&datagram.bytes, datagram.from, to, now);
    }

    /// Does what is due. Returns the time until something else is.
    pub(super) fn work(&mut self, now: Instant) -> Duration {
        self.endpoint.poll(now);
        self.maintain(now);
        self.settle();
        let deadlines =
            [self.endpoint.next_deadline(), self.peers.next_look(), self.children.next_expiry()];
        let now = Instant::now();
        let next =
            deadlines.into_iter().flatten().map(|at| at.saturating_duration_since(now)).min();
        let longest = if self.children.any_waits() { LISTEN } else { LOOK };
        next.unwrap_or(longest).clamp(Duration::from_millis(1), longest)
    }

    /// Begins to close all IKE SAs.
    pub(super) fn close_all(&mut self, now: Instant) {
        let sessions: Vec<_> = self.sessions.iter().map(|(id, _)| id).collect();
        for session in sessions {
            let _ = self.endpoint.command(&Command::Close(session), now);
        }
        self.settle();
    }

    /// Goes on to close.
    pub(super) fn finish(&mut self, now: Instant) {
        self.endpoint.poll(now);
        self.settle();
    }

    /// Tells whether anything is left to close.
    pub(super) fn is_busy(&self) -> bool {
        self.endpoint.sessions() > 0
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
            children: children.get(&id).copied().unwrap_or(0),
        };
        self.sessions.iter().map(status).collect()
    }

    /// Does what the endpoint wants: first the engine, then the messages that tell of it.
    fn settle(&mut self) {
        while let Some(event) = self.endpoint.event() {
            self.happened(event, Instant::now());
        }
        if self.children.take_change() {
            match self.children.apply(&self.datapath) {
                Ok(refused) => self.refuse(refused),
                Err(error) => (self.log)(format!("what was negotiated cannot be used: {error}")),
            }
        }
        while let Some(transmit) = self.endpoint.transmit() {
            // what is lost is sent again
            let _ = self.datapath.send_ike(transmit.from, transmit.to, &transmit.datagram);
        }
    }

    /// Closes CHILD SAs that the engine did not take.
    fn refuse(&mut self, refused: Vec<(ChildId, String)>) {
        for (child, why) in refused {
            (self.log)(format!("a CHILD SA is closed, for its {why}"));
            let _ = self.endpoint.command(&Command::CloseChild(child), Instant::now());
        }
    }

    /// Begins what should exist and does not.
    fn maintain(&mut self, now: Instant) {
        self.children.expire(now);
        for id in self.children.heard(&self.datapath) {
            let _ = self.endpoint.command(&Command::Heard(id), now);
        }
        if self.next_wear <= now {
            self.next_wear = now + LOOK;
            for id in self.children.worn(&self.datapath, now) {
                let _ = self.endpoint.command(&Command::RekeyChild(id), now);
            }
            self.roam(now);
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

    /// Begins what a peer lacks. Returns when to look after it again, should nothing happen.
    fn look_after(&mut self, name: &str, now: Instant) -> Option<Instant> {
        let peer = self.peers.get(name)?;
        let is_missing =
            |child: &&mut Wanted| child.is_wanted && !self.children.exists(&child.name);
        let missing = peer.children.iter_mut().filter(is_missing);
        let missing: Vec<&mut Wanted> = missing.collect();
        if missing.is_empty() {
            return None;
        }
        // one that stands before one that is being set up
        let of_peer = || self.sessions.of(name);
        let session = of_peer().find(|(_, one)| one.established.is_some()).or(of_peer().next());
        let Some((id, session)) = session else {
            return self.connect(name, now);
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

    /// Begins to set up an IKE SA. Returns when to look after the peer again.
    fn connect(&mut self, name: &str, now: Instant) -> Option<Instant> {
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
        let (local, remote) = (peer.local, peer.remote);
        let id = self.endpoint.connect(name, local, remote, now).ok()?;
        let session = Session {
            peer: name.to_owned(),
            initiated: true,
            began: now,
            established: None,
            local,
            remote,
            post_quantum: false,
            rekeys: 0,
        };
        self.connecting.insert((now, id));
        self.sessions.insert(id, session);
        None
    }

    fn happened(&mut self, event: Event, now: Instant) {
        match event {
            Event::Established {
                session,
                connection,
                local_address,
                remote_address,
                post_quantum,
                ..
            } => {
                let addresses = (local_address, remote_address);
                self.established(session, &connection, addresses, post_quantum, now);
            }
            Event::Rekeyed { session, post_quantum } => {
                if let Some(one) = self.sessions.get_mut(session) {
                    (one.rekeys, one.post_quantum) = (one.rekeys + 1, post_quantum);
                }
            }
            Event::Install(sa) => {
                let Some(session) = self.sessions.get(sa.session) else { return };
                let made = self.peers.get(&session.peer);
                if let Some(child) = made.and_then(|peer| peer.child(&sa.config.name)) {
                    child.retry.succeeded();
                }
                self.children.install(*sa, (session.local, session.remote));
            }
            Event::Switch(child) => self.children.switch(child),
            Event::StopSending(child) => self.children.stop_sending(child),
            Event::Remove(child) => {
                let session = self.children.session_of(child);
                self.children.remove(child, now);
                if let Some(session) = session.and_then(|id| self.sessions.get(id)) {
                    self.peers.look(&session.peer, now);
                }
            }
            Event::ChildFailed { session, name, reason } => {
                let session = self.sessions.get(session);
                let peer = session.map_or("a peer", |one| &one.peer);
                let name = name.as_deref().unwrap_or("a CHILD SA");
                (self.log)(format!("IKE with `{peer}`: `{name}` was not made: {reason}"));
                self.peers.look(peer, now);
            }
            Event::Moved { session, local_address, remote_address, .. } => {
                let addresses = (local_address, remote_address);
                if let Some(one) = self.sessions.get_mut(session) {
                    let peer = &one.peer;
                    (self.log)(match one.local == local_address {
                        true => format!("`{peer}` is now at {remote_address}"),
                        false => format!("`{peer}` is now reached from {local_address}"),
                    });
                    (one.local, one.remote) = addresses;
                }
                self.children.move_to(session, addresses, &self.datapath);
            }
            // not asked for
            Event::Keys { .. } => {}
            Event::Closed { session, reason } => self.closed(session, &reason, now),
        }
    }

    fn closed(&mut self, id: SessionId, reason: &Reason, now: Instant) {
        let closed = self.sessions.remove(id);
        let peer = closed.as_ref().map_or("a stranger", |one| one.peer.as_str());
        if closed.is_some() || matches!(reason, Reason::Authentication(_) | Reason::Identity(_)) {
            (self.log)(format!("IKE with `{peer}` is closed: {reason}"));
        }
        if let Some(session) = closed {
            self.connecting.remove(&(session.began, id));
            self.peers.look(&session.peer, now);
        }
    }

    fn established(
        &mut self,
        id: SessionId,
        peer: &str,
        (local, remote): (SocketAddr, SocketAddr),
        post_quantum: bool,
        now: Instant,
    ) {
        let begun = self.sessions.remove(id);
        let initiated = begun.as_ref().is_some_and(|one| one.initiated);
        if let Some(begun) = begun {
            self.connecting.remove(&(begun.began, id));
        }
        let session = Session {
            peer: peer.to_owned(),
            initiated,
            began: now,
            established: Some(now),
            local,
            remote,
            post_quantum,
            rekeys: 0,
        };
        self.sessions.insert(id, session);
        if let Some(peer) = self.peers.get(peer) {
            peer.retry.succeeded();
        }
        self.peers.look(peer, now + LOOK);
        let quantum = if post_quantum { "post-quantum" } else { "NOT post-quantum" };
        (self.log)(format!("IKE with `{peer}` at {remote} is established ({quantum})"));
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
}

/// Returns what is watched of a peer.
fn watched(peer: &IkePeer) -> Peer {
    let wanted = |child: &IkeChild| Wanted {
        name: child.name.clone(),
        is_wanted: peer.initiate,
        retry: Retry::default(),
    };
    let children = peer.children.iter().map(wanted).collect();
    Peer::new((peer.local, peer.remote), peer.local_is_fixed, children)
}

fn connection(peer: IkePeer) -> Connection {
    let child = |child: &IkeChild| ChildConfig {
        name: child.name.clone(),
        local: traffic_selector(&child.selector.local).into_iter().collect(),
        remote: traffic_selector(&child.selector.remote).into_iter().collect(),
        mode: match child.mode {
            headroom_ipsec::Mode::Transport => headroom_ike::Mode::Transport,
            headroom_ipsec::Mode::Tunnel => headroom_ike::Mode::Tunnel,
        },
        proposals: ChildProposal::default_offer(peer.post_quantum),
        qesp: None,
        rekey: Some(child.rekey),
    };
    Connection {
        ppk: None,
        mobike: true,
        virtual_addresses: VirtualAddresses::None,
        children: peer.children.iter().map(child).map(Arc::new).collect(),
        name: peer.name,
        local: peer.local_id,
        remote: Some(peer.remote_id),
        remote_address: Some(peer.remote.ip()),
        auth: Auth::shared_key(&peer.secret),
        ike: IkeProposal::default_offer(peer.post_quantum),
        rekey: Some(peer.rekey),
    }
}
