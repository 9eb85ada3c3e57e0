//! The thread of IKE.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use headroom_ike::crypto::SystemRandom;
use headroom_ike::{
    Auth, ChildConfig, ChildProposal, Command, Config, Connection, Endpoint, Event, IkeProposal,
    Reason, SessionId, Timing, VirtualAddresses,
};
use headroom_ipsec::PolicySpec;

use super::children::{Children, traffic_selector};
use super::sessions::{Session, SessionStatus, Sessions};
use crate::config::IkePeer;
use crate::datapath::{Datapath, IkeDatagram};

/// Datagrams between two looks at timers.
const BATCH: usize = 64;
/// The interval of looks at CHILD SAs that wait for their first packet.
const LISTEN: Duration = Duration::from_millis(20);
/// The longest time between two looks at what should exist and does not.
const LOOK: Duration = Duration::from_secs(1);
/// How long peers may take to confirm that everything is closed.
const CLOSING: Duration = Duration::from_millis(500);

/// IKE, while it runs.
#[derive(Debug)]
pub struct IkeService {
    inbox: SyncSender<IkeDatagram>,
    stop: Arc<AtomicBool>,
    shown: Arc<Mutex<Shown>>,
    thread: Option<JoinHandle<()>>,
}

/// What others may look at.
#[derive(Debug)]
struct Shown {
    sessions: Vec<SessionStatus>,
    policies: Vec<PolicySpec>,
}

impl IkeService {
    /// Starts to negotiate with `peers`. `fixed` are the policies that need no IKE; `log` takes
    /// sentences for the user.
    ///
    /// # Errors
    /// The thread does not start.
    pub fn start(
        peers: Vec<IkePeer>,
        fixed: Vec<PolicySpec>,
        datapath: Arc<Datapath>,
        (inbox, arrivals): (SyncSender<IkeDatagram>, Receiver<IkeDatagram>),
        log: impl Fn(String) + Send + 'static,
    ) -> io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let children = Children::new(&peers, fixed);
        let policies = children.policies();
        let shown = Arc::new(Mutex::new(Shown { sessions: Vec::new(), policies }));
        let (connections, peers): (_, Vec<_>) = peers.into_iter().map(split).unzip();
        let liveness = peers.iter().map(|peer: &Peer| peer.liveness).min();
        let timing = Timing { liveness, ..Timing::default() };
        let config = Config { force_encapsulation: true, timing, ..Config::new(connections) };
        let mut negotiator = Negotiator {
            endpoint: Endpoint::new(config, Box::new(SystemRandom), Instant::now()),
            peers,
            children,
            sessions: Sessions::default(),
            datapath,
            shown: Arc::clone(&shown),
            log: Box::new(log),
        };
        let stopped = Arc::clone(&stop);
        let builder = std::thread::Builder::new().name("headroom-ike".into());
        let thread = builder.spawn(move || negotiator.run(&arrivals, &stopped))?;
        Ok(Self { inbox, stop, shown, thread: Some(thread) })
    }

    /// Returns the IKE SAs.
    #[must_use]
    pub fn sessions(&self) -> Vec<SessionStatus> {
        self.shown.lock().unwrap_or_else(PoisonError::into_inner).sessions.clone()
    }

    /// Returns the policies in force.
    #[must_use]
    pub fn policies(&self) -> Vec<PolicySpec> {
        self.shown.lock().unwrap_or_else(PoisonError::into_inner).policies.clone()
    }

    /// Returns whether the thread has ended.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.thread.as_ref().is_some_and(JoinHandle::is_finished)
    }
}

/// Tells all peers, and ends.
impl Drop for IkeService {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        // wakes the thread; one that has more datagrams than it can take is awake
        let nowhere = SocketAddr::from(([0; 4], 0));
        let wake = IkeDatagram { from: nowhere, to: (nowhere.ip(), 0), bytes: Vec::new() };
        let _ = self.inbox.try_send(wake);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// What the service needs of a peer beside its connection.
struct Peer {
    name: String,
    local: SocketAddr,
    remote: SocketAddr,
    initiate: bool,
    liveness: Duration,
    children: Vec<String>,
}

fn split(peer: IkePeer) -> (Connection, Peer) {
    let child = |child: &crate::config::IkeChild| ChildConfig {
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
    let connection = Connection {
        name: peer.name.clone(),
        local: peer.local_id,
        remote: Some(peer.remote_id),
        remote_address: Some(peer.remote.ip()),
        auth: Auth::shared_key(&peer.secret),
        ike: IkeProposal::default_offer(peer.post_quantum),
        virtual_addresses: VirtualAddresses::None,
        children: peer.children.iter().map(child).map(Arc::new).collect(),
        rekey: Some(peer.rekey),
    };
    let children = peer.children.into_iter().map(|child| child.name).collect();
    let IkePeer { name, local, remote, initiate, liveness, .. } = peer;
    (connection, Peer { name, local, remote, initiate, liveness, children })
}

/// The state of the thread.
struct Negotiator {
    endpoint: Endpoint,
    peers: Vec<Peer>,
    children: Children,
    sessions: Sessions,
    datapath: Arc<Datapath>,
    shown: Arc<Mutex<Shown>>,
    log: Box<dyn Fn(String) + Send>,
}

impl Negotiator {
    fn run(&mut self, arrivals: &Receiver<IkeDatagram>, stop: &AtomicBool) {
        while !stop.load(Ordering::Acquire) {
            self.maintain(Instant::now());
            self.settle();
            self.wait(arrivals, self.pause());
        }
        let now = Instant::now();
        let sessions: Vec<_> = self.sessions.all.keys().copied().collect();
        for session in sessions {
            let _ = self.endpoint.command(&Command::Close(session), now);
        }
        self.settle();
        while self.endpoint.sessions() > 0 && now.elapsed() < CLOSING {
            self.wait(arrivals, LISTEN);
            self.settle();
        }
    }

    /// Returns the time until something is due.
    fn pause(&self) -> Duration {
        let deadlines = [self.endpoint.next_deadline(), self.sessions.next_retry()];
        let now = Instant::now();
        let next =
            deadlines.into_iter().flatten().map(|at| at.saturating_duration_since(now)).min();
        let longest = if self.children.any_waits() { LISTEN } else { LOOK };
        next.unwrap_or(longest).clamp(Duration::from_millis(1), longest)
    }

    /// Takes datagrams, or waits for one.
    fn wait(&mut self, arrivals: &Receiver<IkeDatagram>, pause: Duration) {
        match arrivals.recv_timeout(pause) {
            Ok(datagram) => {
                self.take(&datagram);
                arrivals.try_iter().take(BATCH).for_each(|datagram| self.take(&datagram));
            }
            Err(RecvTimeoutError::Timeout) => {}
            // the datapath, which sends them, lives as long as this
            Err(RecvTimeoutError::Disconnected) => std::thread::sleep(pause),
        }
        self.endpoint.poll(Instant::now());
    }

    fn take(&mut self, datagram: &IkeDatagram) {
        let to = SocketAddr::from(datagram.to);
        self.endpoint.handle(&datagram.bytes, datagram.from, to, Instant::now());
    }

    /// Begins what should exist and does not.
    fn maintain(&mut self, now: Instant) {
        self.children.expire(now);
        for id in self.children.heard(&self.datapath) {
            let _ = self.endpoint.command(&Command::Heard(id), now);
        }
        for id in self.children.worn(&self.datapath, now) {
            let _ = self.endpoint.command(&Command::RekeyChild(id), now);
        }
        for peer in self.peers.iter().filter(|peer| peer.initiate) {
            let Some((id, session)) = self.sessions.of(&peer.name).next() else {
                if self.sessions.may_try(&peer.name, now) {
                    connect(&mut self.endpoint, &mut self.sessions, peer, now);
                }
                continue;
            };
            // the IKE SA itself brings the first
            let is_ready = session.established.is_some_and(|at| now - at > LOOK);
            for name in peer.children.iter().filter(|_| is_ready) {
                let exists = self.children.count(|child| child.child == *name) > 0;
                if !exists && self.sessions.may_try(&format!("{}/{name}", peer.name), now) {
                    let _ = self.endpoint.command(&Command::CreateChild(id, name.clone()), now);
                }
            }
        }
    }

    /// Does what the endpoint wants: first the engine, then the messages that tell of it.
    fn settle(&mut self) {
        while let Some(event) = self.endpoint.event() {
            self.happened(event, Instant::now());
        }
        if self.children.take_change() {
            if let Err(error) = self.children.apply(&self.datapath) {
                (self.log)(format!("what was negotiated cannot be used: {error}"));
            }
            self.shown().policies = self.children.policies();
        }
        while let Some(transmit) = self.endpoint.transmit() {
            // what is lost is sent again
            let _ = self.datapath.send_ike(transmit.from, transmit.to, &transmit.datagram);
        }
        self.show();
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
                self.established(
                    session,
                    &connection,
                    (local_address, remote_address),
                    post_quantum,
                    now,
                );
            }
            Event::Rekeyed { session, post_quantum } => {
                if let Some(one) = self.sessions.all.get_mut(&session) {
                    (one.rekeys, one.post_quantum) = (one.rekeys + 1, post_quantum);
                }
            }
            Event::Install(sa) => {
                let Some(session) = self.sessions.all.get(&sa.session) else { return };
                let made = format!("{}/{}", session.peer, sa.config.name);
                self.children.install(*sa, (session.local, session.remote));
                self.sessions.succeeded(&made);
            }
            Event::Switch(child) => self.children.switch(child),
            Event::StopSending(child) => self.children.stop_sending(child),
            Event::Remove(child) => self.children.remove(child, now),
            Event::ChildFailed { session, name, reason } => {
                let peer = self.sessions.all.get(&session).map_or("a peer", |one| &one.peer);
                let name = name.as_deref().unwrap_or("a CHILD SA");
                (self.log)(format!("IKE with `{peer}`: `{name}` was not made: {reason}"));
            }
            Event::Moved { session, local_address, remote_address } => {
                if let Some(one) = self.sessions.all.get_mut(&session) {
                    (self.log)(format!(
                        "IKE with `{}`: the peer is now at {remote_address}",
                        one.peer
                    ));
                    (one.local, one.remote) = (local_address, remote_address);
                }
            }
            // not asked for
            Event::Keys { .. } => {}
            Event::Closed { session, reason } => {
                let closed = self.sessions.all.remove(&session);
                let peer = closed.as_ref().map_or("a stranger", |one| one.peer.as_str());
                if closed.is_some()
                    || matches!(reason, Reason::Authentication(_) | Reason::Identity(_))
                {
                    (self.log)(format!("IKE with `{peer}` is closed: {reason}"));
                }
            }
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
        let initiated = self.sessions.all.get(&id).is_some_and(|one| one.initiated);
        let session = Session {
            peer: peer.to_owned(),
            initiated,
            established: Some(now),
            local,
            remote,
            post_quantum,
            rekeys: 0,
        };
        self.sessions.all.insert(id, session);
        self.sessions.succeeded(peer);
        let quantum = if post_quantum { "post-quantum" } else { "NOT post-quantum" };
        (self.log)(format!("IKE with `{peer}` at {remote} is established ({quantum})"));
        // both hosts began: the one with the lower address gives up what it began
        let stands = |one: &Session| one.established.is_some();
        let has_other =
            self.sessions.of(peer).any(|(other, one)| other != id && !one.initiated && stands(one));
        let others = |sessions: &Sessions| -> Vec<SessionId> {
            let mine = sessions.of(peer).filter(|(_, one)| one.initiated && stands(one));
            mine.map(|(id, _)| id).collect()
        };
        let both = if initiated { has_other } else { !others(&self.sessions).is_empty() };
        if both && (local.ip(), local.port()) < (remote.ip(), remote.port()) {
            for mine in others(&self.sessions) {
                let _ = self.endpoint.command(&Command::Close(mine), now);
            }
        }
    }

    fn show(&self) {
        let now = Instant::now();
        let status = |(id, one): (&SessionId, &Session)| SessionStatus {
            peer: one.peer.clone(),
            established: one.established.is_some(),
            initiated: one.initiated,
            local: one.local,
            remote: one.remote,
            post_quantum: one.post_quantum,
            age_seconds: one.established.map_or(0, |at| (now - at).as_secs()),
            rekeys: one.rekeys,
            children: self.children.count(|child| child.session == *id),
        };
        let sessions = self.sessions.all.iter().map(status).collect();
        self.shown().sessions = sessions;
    }

    fn shown(&self) -> MutexGuard<'_, Shown> {
        self.shown.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn connect(endpoint: &mut Endpoint, sessions: &mut Sessions, peer: &Peer, now: Instant) {
    let Ok(id) = endpoint.connect(&peer.name, peer.local, peer.remote, now) else { return };
    let session = Session {
        peer: peer.name.clone(),
        initiated: true,
        established: None,
        local: peer.local,
        remote: peer.remote,
        post_quantum: false,
        rekeys: 0,
    };
    sessions.all.insert(id, session);
}
