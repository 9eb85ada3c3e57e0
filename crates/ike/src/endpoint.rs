//! All sessions of a host, in both roles: whose message it is, and what strangers may cause.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::config::{Config, Connection};
use crate::contents::Contents;
use crate::cookie::Cookies;
use crate::counters::{Counters, Failures};
use crate::crypto::Random;
use crate::event::{ChildId, Command, Event, NoSuch, Reason, SessionId, Transmit};
use crate::half_open::HalfOpen;
use crate::ids::Ids;
use crate::leases::Leases;
use crate::path::Path;
use crate::peers::Peers;
use crate::proposal::IkeChoice;
use crate::session::{Context, FoundBy, Handover, Phase, Refusal, Session, Task};
use crate::wire::{
    Error as WireError, ExchangeType, Header, Message, NON_ESP_MARKER, Notify, NotifyType, Payload,
};

/// IKE of a host: messages, time and commands go in; messages and events come out.
///
/// ```text
/// handle(datagram, from, to, now)   command(…, now)   poll(now)   connect(…, now)
///         then, until both are empty: transmit() and event(); then sleep until next_deadline()
/// ```
pub struct Endpoint {
    config: Config,
    random: Box<dyn Random + Send>,
    sessions: BTreeMap<SessionId, Session>,
    by_spi: HashMap<u64, SessionId>,
    by_child: HashMap<ChildId, SessionId>,
    /// When something is due, and of which session.
    deadlines: BTreeSet<(Instant, SessionId)>,
    half_open: HalfOpen,
    cookies: Cookies,
    counters: Counters,
    failures: Failures,
    ids: Ids,
    leases: Leases,
    peers: Peers,
    transmits: VecDeque<Transmit>,
    events: VecDeque<Event>,
    /// The time of day since 1970.
    time: Option<Duration>,
    /// Whether first messages are ignored.
    is_closing: bool,
    /// What sessions have to tell each other.
    handovers: VecDeque<Handover>,
}

/// What is known of a session.
#[derive(Clone, Copy, Debug)]
pub struct SessionInfo<'a> {
    /// The algorithms of the IKE SA in use, once they are chosen.
    pub algorithms: Option<&'a IkeChoice>,
    /// The requests that were sent again.
    pub retransmits: u64,
}

impl Endpoint {
    /// Makes an endpoint without sessions.
    #[must_use]
    pub fn new(config: Config, mut random: Box<dyn Random + Send>, now: Instant) -> Self {
        Self {
            cookies: Cookies::new(now, &mut *random),
            config,
            random,
            sessions: BTreeMap::new(),
            by_spi: HashMap::new(),
            by_child: HashMap::new(),
            deadlines: BTreeSet::new(),
            half_open: HalfOpen::default(),
            counters: Counters::default(),
            failures: Failures::default(),
            ids: Ids::default(),
            leases: Leases::default(),
            peers: Peers::default(),
            transmits: VecDeque::new(),
            events: VecDeque::new(),
            time: None,
            is_closing: false,
            handovers: VecDeque::new(),
        }
    }

    /// Sets the time of day, since 1970 in UTC: certificates are checked against it. It may jump, as
    /// that of a host without battery does; an endpoint that was never told refuses certificates.
    pub fn set_time(&mut self, since_epoch: Duration) {
        self.time = Some(since_epoch);
    }

    /// Sets up an IKE SA, and the first CHILD SA of the connection.
    ///
    /// # Errors
    /// There is no such connection, or it has no algorithms.
    pub fn connect(
        &mut self,
        connection: &str,
        local: SocketAddr,
        remote: SocketAddr,
        now: Instant,
    ) -> Result<SessionId, NoSuch> {
        self.connect_for(connection, None, (local, remote), now)
    }

    /// As [`Self::connect`], but with the CHILD SA of this name as the first.
    ///
    /// # Errors
    /// As [`Self::connect`].
    pub fn connect_for(
        &mut self,
        connection: &str,
        child: Option<&str>,
        (local, remote): (SocketAddr, SocketAddr),
        now: Instant,
    ) -> Result<SessionId, NoSuch> {
        let found = self.config.connections.iter().find(|one| one.name == connection);
        let connection = found.cloned().ok_or(NoSuch("connection"))?;
        let first = |child: &str| connection.children.iter().find(|one| one.name == child).cloned();
        let first = child.map(|child| first(child).ok_or(NoSuch("CHILD configuration")));
        let first = first.transpose()?.or_else(|| connection.children.first().cloned());
        let alone = !self.sessions.values().any(|one| one.is_with(&connection));
        let path = Path { local, remote };
        let session = self.with(path, now, |ctx| Session::initiate(connection, path, alone, ctx));
        let mut session = session.ok_or(NoSuch("proposal"))?;
        session.first_child = first;
        let id = session.id;
        self.put_back(session);
        Ok(id)
    }

    /// Replaces the connections. A session goes on with the new connection of its name, if there is
    /// one; the caller closes sessions and CHILD SAs for which that is wrong.
    pub fn reconfigure(&mut self, connections: Vec<Arc<Connection>>) {
        self.config.connections = connections;
        for id in self.sessions.keys().copied().collect::<Vec<_>>() {
            let Some(mut session) = self.sessions.remove(&id) else { continue };
            if let Some(former) = &session.connection {
                let same = |one: &&Arc<Connection>| one.name == former.name;
                let new = self.config.connections.iter().find(same).cloned();
                session.connection = new.or(session.connection);
            }
            self.put_back(session);
        }
    }

    /// Takes a datagram from a peer, or from anybody. Of a datagram to the NAT port the caller has
    /// recognized by its marker that it is not ESP.
    pub fn handle(&mut self, datagram: &[u8], from: SocketAddr, to: SocketAddr, now: Instant) {
        let marked = to.port() == self.config.nat_port;
        let raw = if marked { datagram.strip_prefix(&NON_ESP_MARKER) } else { Some(datagram) };
        let (Some(raw), path) = (raw, Path { local: to, remote: from }) else { return };
        match Message::parse(raw) {
            Ok(message) => self.dispatch(raw, &message, path, now),
            Err(error) => {
                self.counters.malformed += 1;
                self.reject(raw, &error, path, now);
            }
        }
        self.hand_over(now);
    }

    /// Does what the caller wants.
    ///
    /// # Errors
    /// What it names does not exist.
    pub fn command(&mut self, command: &Command, now: Instant) -> Result<(), NoSuch> {
        let id = match command {
            Command::CreateChild(session, _)
            | Command::Rekey(session)
            | Command::Reauthenticate(session)
            | Command::Close(session)
            | Command::Move(session, ..)
            | Command::Follow(session, _)
            | Command::CheckLiveness(session) => *session,
            Command::RekeyChild(child) | Command::CloseChild(child) | Command::Heard(child) => {
                *self.by_child.get(child).ok_or(NoSuch("CHILD SA"))?
            }
        };
        let mut session = self.sessions.remove(&id).ok_or(NoSuch("session"))?;
        let path = session.path();
        let done = self.with(path, now, |ctx| session.command(command, ctx));
        self.put_back(session);
        self.hand_over(now);
        done
    }

    /// Does what is due.
    pub fn poll(&mut self, now: Instant) {
        let due = self.deadlines.iter().take_while(|(at, _)| *at <= now);
        let due: Vec<_> = due.map(|(_, id)| *id).collect();
        for id in due {
            let Some(mut session) = self.sessions.remove(&id) else { continue };
            let path = session.path();
            self.with(path, now, |ctx| session.poll(ctx));
            self.put_back(session);
        }
        self.hand_over(now);
    }

    /// Lets sessions be replaced by others.
    fn hand_over(&mut self, now: Instant) {
        while let Some(handover) = self.handovers.pop_front() {
            let (Handover::Begin(id) | Handover::Complete(id) | Handover::Fail(id)) = handover;
            let Some(mut session) = self.sessions.remove(&id) else { continue };
            let (path, is_closing) = (session.path(), self.is_closing);
            let successor = self.with(path, now, |ctx| match handover {
                Handover::Begin(_) if is_closing => None,
                Handover::Begin(_) => session.begin_successor(ctx),
                Handover::Complete(_) => {
                    session.replaced_by_successor(ctx);
                    None
                }
                Handover::Fail(_) => {
                    session.successor_failed(ctx);
                    None
                }
            });
            self.put_back(session);
            successor.into_iter().for_each(|successor| self.put_back(successor));
        }
    }

    /// Closes all sessions, and begins none with a peer from now on: one that hears the end of its
    /// IKE SA may ask for the next at once, and would keep it when this endpoint is gone.
    pub fn close_all(&mut self, now: Instant) {
        self.is_closing = true;
        let all: Vec<_> = self.sessions.keys().copied().collect();
        for session in all {
            let _ = self.command(&Command::Close(session), now);
        }
    }

    /// Returns when [`Self::poll`] has something to do.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Instant> {
        self.deadlines.first().map(|(at, _)| *at)
    }

    /// Returns the next datagram to send.
    pub fn transmit(&mut self) -> Option<Transmit> {
        self.transmits.pop_front()
    }

    /// Returns the next event.
    pub fn event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Returns what was counted.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Returns what is known of a session.
    #[must_use]
    pub fn session(&self, id: SessionId) -> Option<SessionInfo<'_>> {
        let session = self.sessions.get(&id)?;
        Some(SessionInfo { algorithms: session.algorithms(), retransmits: session.retransmits })
    }

    /// Returns the number of IKE SAs whose initiator is not authenticated yet.
    #[must_use]
    pub fn half_open(&self) -> usize {
        self.half_open.count()
    }

    /// Returns the number of sessions, with those that end.
    #[must_use]
    pub fn sessions(&self) -> usize {
        self.sessions.len()
    }

    /// Returns the number of SPIs of CHILD SAs, and of those that exchanges are to make.
    #[must_use]
    pub fn child_spis(&self) -> usize {
        self.ids.reserved()
    }

    fn dispatch(&mut self, raw: &[u8], message: &Message<'_>, path: Path, now: Instant) {
        let header = &message.header;
        let local_spi =
            if header.from_initiator { header.spi_responder } else { header.spi_initiator };
        if local_spi == 0 {
            return self.first_message(raw, message, path, now);
        }
        let Some(&id) = self.by_spi.get(&local_spi) else { return };
        let Some(mut session) = self.sessions.remove(&id) else { return };
        let was_connecting = session.phase == Phase::Connecting;
        self.with(path, now, |ctx| session.handle(local_spi, raw, message, ctx));
        let established = was_connecting && session.phase == Phase::Established;
        let restarted = established && session.initial_contact && session.is_responder();
        self.put_back(session);
        if established {
            self.contact_is_made(id);
        }
        if restarted {
            self.forget_own(id, now);
        }
        for (ousted, reason) in self.peers.take_ousted() {
            self.end(ousted, &reason, now);
        }
    }

    /// Takes a message that could be the first of an initiator.
    fn first_message(&mut self, raw: &[u8], message: &Message<'_>, path: Path, now: Instant) {
        let header = &message.header;
        let is_first = header.exchange == ExchangeType::IkeSaInit
            && header.from_initiator
            && !header.response
            && header.message_id == 0;
        let Ok(contents) = Contents::gather(message.payloads.clone()) else { return };
        let (true, Some(nonce)) = (is_first, contents.nonce) else { return };
        if self.is_closing {
            return;
        }
        let key = (header.spi_initiator, path.remote);
        if let Some(id) = self.half_open.get(&key) {
            let Some(session) = self.sessions.remove(&id) else { return };
            self.with(path, now, |ctx| session.repeat_init(raw, ctx));
            self.put_back(session);
            return;
        }
        if self.failures.refuses(path.remote.ip(), now) {
            self.counters.refused_after_failures += 1;
            return;
        }
        if self.half_open.count() >= self.config.limits.cookie_threshold {
            let spi = header.spi_initiator;
            let cookie = contents.notify(NotifyType::Cookie).map_or(&[][..], |one| one.data);
            if !self.cookies.check(cookie, nonce, path.remote, spi) {
                let how = (now, &mut *self.random as &mut dyn Random);
                let data = self.cookies.make(nonce, path.remote, spi, how);
                self.counters.cookies_sent += 1;
                let refusal = Refusal { notify_type: NotifyType::Cookie, data };
                return self.refuse(header, &refusal, path, now);
            }
        }
        // behind the cookies, so that nobody fills what another source may have
        let limits = &self.config.limits;
        if self.half_open.count() >= limits.half_open
            || self.half_open.count_of(path.remote.ip()) >= limits.half_open_of_source
            || self.sessions.len() >= limits.sessions
        {
            self.counters.refused_by_limit += 1;
            return;
        }
        match self.with(path, now, |ctx| Session::respond_init(raw, message, &contents, ctx)) {
            Ok(mut session) => {
                self.half_open.insert(key, session.id);
                session.half_open = Some(key);
                self.put_back(session);
            }
            Err(refusal) => self.refuse(header, &refusal, path, now),
        }
    }

    /// Answers what cannot be read, where the RFC wants it: only first messages, of which nothing
    /// is kept.
    fn reject(&mut self, raw: &[u8], error: &WireError, path: Path, now: Instant) {
        let Some(header) = Header::of_any_version(raw) else { return };
        if header.response || header.spi_responder != 0 || !header.from_initiator {
            return;
        }
        let refusal = match error {
            // RFC 7296 §2.5
            WireError::MajorVersion(major) if *major > 2 => {
                Refusal::new(NotifyType::InvalidMajorVersion)
            }
            WireError::UnknownCritical(payload_type)
                if header.exchange == ExchangeType::IkeSaInit =>
            {
                let notify_type = NotifyType::UnsupportedCriticalPayload;
                Refusal { notify_type, data: vec![*payload_type] }
            }
            _ => return,
        };
        self.refuse(&header, &refusal, path, now);
    }

    fn refuse(&mut self, request: &Header, refusal: &Refusal, path: Path, now: Instant) {
        let notify = Notify::new(refusal.notify_type, &refusal.data);
        let payloads = vec![Payload::Notify(notify)];
        let response = Message { header: request.respond(), payloads }.emit();
        self.with(path, now, |ctx| ctx.transmit(path, vec![response]));
    }

    /// Sessions that are still being set up with the same peer are no longer the only ones.
    fn contact_is_made(&mut self, id: SessionId) {
        let Some(connection) = self.sessions.get(&id).and_then(|one| one.connection.clone()) else {
            return;
        };
        let others = self.sessions.values_mut().filter(|one| one.id != id && !one.is_responder());
        for other in others.filter(|one| one.phase == Phase::Connecting && one.is_with(&connection))
        {
            other.initial_contact = false;
        }
    }

    /// A peer that started again has no session any more that we began (RFC 7296 §2.4), but for one
    /// that we began while it began its own. [`Peers`] knows those that it began.
    fn forget_own(&mut self, id: SessionId, now: Instant) {
        let Some(this) = self.sessions.get(&id) else { return };
        let same = |one: &&Session| {
            let is_older = one.established_at.is_some_and(|at| at < this.created_at);
            !one.is_responder() && is_older && one.is_with_peer_of(this)
        };
        let others: Vec<_> = self.sessions.values().filter(same).map(|one| one.id).collect();
        for other in others {
            self.end(other, &Reason::Restarted, now);
        }
    }

    fn end(&mut self, id: SessionId, reason: &Reason, now: Instant) {
        let Some(mut session) = self.sessions.remove(&id) else { return };
        let path = session.path();
        self.with(path, now, |ctx| session.close(reason.clone(), ctx));
        self.put_back(session);
    }

    /// Keeps a session that was taken out, unless nothing is left of it, and what finds it.
    fn put_back(&mut self, mut session: Session) {
        if self.config.export_keys {
            session.export_keys(&mut self.events);
        }
        self.handovers.extend(session.hand_over());
        let is_over = session.is_over();
        let found_by = match is_over {
            true => FoundBy::default(),
            false => FoundBy::of(&session, &self.config),
        };
        let id = session.id;
        let before = std::mem::replace(&mut session.found_by, found_by);
        let found_by = &session.found_by;
        for spi in before.spis.iter().filter(|spi| !found_by.spis.contains(spi)) {
            self.by_spi.remove(spi);
        }
        self.by_spi.extend(found_by.spis.iter().map(|spi| (*spi, id)));
        for child in before.children.iter().filter(|child| !found_by.children.contains(child)) {
            self.by_child.remove(child);
        }
        self.by_child.extend(found_by.children.iter().map(|child| (*child, id)));
        if before.deadline != found_by.deadline {
            if let Some(at) = before.deadline {
                self.deadlines.remove(&(at, id));
            }
            self.deadlines.extend(found_by.deadline.map(|at| (at, id)));
        }
        if let Some(key) = session.half_open.filter(|_| !session.is_half_open()) {
            self.half_open.remove(&key);
            session.half_open = None;
        }
        if !is_over {
            self.sessions.insert(id, session);
        }
    }

    fn with<T>(&mut self, path: Path, now: Instant, act: impl FnOnce(&mut Context<'_>) -> T) -> T {
        act(&mut Context {
            config: &self.config,
            now,
            time: self.time,
            random: &mut *self.random,
            ids: &mut self.ids,
            leases: &mut self.leases,
            peers: &mut self.peers,
            counters: &mut self.counters,
            failures: &mut self.failures,
            transmits: &mut self.transmits,
            events: &mut self.events,
            path,
        })
    }
}

impl Session {
    fn is_with(&self, connection: &Arc<Connection>) -> bool {
        let same = self.connection.as_ref().is_some_and(|one| Arc::ptr_eq(one, connection));
        same && self.phase != Phase::Closed
    }

    /// Tells whether both are with the same peer of the same connection.
    fn is_with_peer_of(&self, other: &Self) -> bool {
        let both = |one: &Self| one.connection.clone().zip(one.remote.clone());
        both(self).zip(both(other)).is_some_and(|((connection, name), (other, its_name))| {
            connection.name == other.name && name.matches(&its_name)
        })
    }

    fn command(&mut self, command: &Command, ctx: &mut Context<'_>) -> Result<(), NoSuch> {
        match command {
            Command::Close(_) => {
                self.request_close(ctx);
                return Ok(());
            }
            Command::Heard(child) => {
                self.heard(*child, ctx);
                return Ok(());
            }
            _ if self.phase != Phase::Established => return Err(NoSuch("established session")),
            Command::CreateChild(_, name) => {
                let children = self.connection.iter().flat_map(|one| &one.children);
                let config = children.into_iter().find(|one| one.name == *name).cloned();
                self.queue(Task::CreateChild(config.ok_or(NoSuch("CHILD configuration"))?));
            }
            Command::RekeyChild(child) => self.queue(Task::RekeyChild(*child)),
            Command::CloseChild(child) => self.close_child(*child, ctx),
            Command::Rekey(_) => self.queue(Task::RekeyIke),
            Command::Reauthenticate(_) if !self.can_reauthenticate() => {
                return Err(NoSuch("IKE SA of ours that is not being replaced"));
            }
            Command::Reauthenticate(_) => self.request_reauthentication(),
            Command::Move(..) if !self.can_move() => {
                return Err(NoSuch("session of an initiator with MOBIKE"));
            }
            Command::Move(_, local, remote) => {
                self.move_to(Path { local: *local, remote: *remote }, ctx);
            }
            Command::Follow(_, remote) => self.esp_moved(*remote, ctx),
            Command::CheckLiveness(_) => self.queue(Task::Liveness),
        }
        self.run_tasks(ctx);
        Ok(())
    }
}
