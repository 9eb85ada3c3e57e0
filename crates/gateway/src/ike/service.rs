//! The thread of IKE.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use headroom_ipsec::{Engine, PeerMoved, PolicySpec};
use headroom_mutex::lock;

use super::key_log::KeyLog;
use super::negotiator::Negotiator;
use super::report::Report;
use super::sessions::{IkeCounters, SessionStatus};
use crate::config::IkePeer;
use crate::datapath::{Datapath, IkeDatagram};

/// Datagrams between two looks at timers.
const BATCH: usize = 64;
/// How long peers may take to confirm that everything is closed.
const CLOSING: Duration = Duration::from_millis(500);

/// IKE, while it runs.
#[derive(Debug)]
pub struct IkeService {
    inbox: SyncSender<IkeDatagram>,
    stop: Arc<AtomicBool>,
    negotiator: Arc<Mutex<Negotiator>>,
    thread: Option<JoinHandle<()>>,
}

impl IkeService {
    /// Starts to negotiate with `peers`. `fixed` are the policies that need no IKE; `key_log` takes
    /// all keys, `report` what others should know.
    ///
    /// # Errors
    /// The thread does not start.
    pub fn start(
        peers: Vec<IkePeer>,
        fixed: Vec<PolicySpec>,
        datapath: Arc<Datapath>,
        (inbox, arrivals): (SyncSender<IkeDatagram>, Receiver<IkeDatagram>),
        key_log: Option<KeyLog>,
        report: impl Fn(Report) + Send + 'static,
    ) -> io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let now = Instant::now();
        let negotiator = Negotiator::new(peers, fixed, datapath, key_log, Box::new(report), now);
        let negotiator = Arc::new(Mutex::new(negotiator));
        let (stopped, shared) = (Arc::clone(&stop), Arc::clone(&negotiator));
        let builder = std::thread::Builder::new().name("headroom-ike".into());
        let thread = builder.spawn(move || run(&shared, &arrivals, &stopped))?;
        Ok(Self { inbox, stop, negotiator, thread: Some(thread) })
    }

    /// Negotiates with other peers from now on, and puts `engine` in force, which was made with the
    /// present one as its predecessor from a file with these `fixed` policies. Peers and children
    /// that stay the same keep their associations; what has changed or is gone is closed.
    ///
    /// # Errors
    /// As [`Datapath::reload`]; then nothing has changed.
    pub fn reload(
        &self,
        peers: Vec<IkePeer>,
        fixed: Vec<PolicySpec>,
        engine: &Engine,
    ) -> io::Result<()> {
        lock(&self.negotiator).reload(peers, fixed, engine, Instant::now())?;
        // its pause may be long
        let _ = self.inbox.try_send(IkeDatagram::wake());
        Ok(())
    }

    /// Closes the CHILD SA of an association that has reached a hard limit.
    pub fn expired(&self, association: &str) {
        lock(&self.negotiator).expired(association, Instant::now());
        let _ = self.inbox.try_send(IkeDatagram::wake());
    }

    /// Tells the IKE SA of a peer where its packets arrive from now. The thread takes it within a second,
    /// together with the others: a NAT that restarts gives all peers behind it other mappings, and each
    /// time a new engine is made.
    pub fn moved(&self, moved: &PeerMoved) {
        lock(&self.negotiator).moved(moved, Instant::now());
    }

    /// Returns the IKE SAs.
    #[must_use]
    pub fn sessions(&self) -> Vec<SessionStatus> {
        lock(&self.negotiator).statuses(Instant::now())
    }

    /// Returns what IKE has counted.
    #[must_use]
    pub fn counters(&self) -> IkeCounters {
        lock(&self.negotiator).counters()
    }

    /// Returns the policies in force.
    #[must_use]
    pub fn policies(&self) -> Vec<PolicySpec> {
        lock(&self.negotiator).policies()
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
        let _ = self.inbox.try_send(IkeDatagram::wake());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The thread holds the lock but for its waits, so that others may look and command.
fn run(negotiator: &Mutex<Negotiator>, arrivals: &Receiver<IkeDatagram>, stop: &AtomicBool) {
    while !stop.load(Ordering::Acquire) {
        let pause = lock(negotiator).work(Instant::now());
        wait(negotiator, arrivals, pause);
    }
    let now = Instant::now();
    lock(negotiator).close_all(now);
    while lock(negotiator).is_busy() && now.elapsed() < CLOSING {
        wait(negotiator, arrivals, CLOSING.saturating_sub(now.elapsed()));
        lock(negotiator).finish(Instant::now());
    }
}

/// Takes datagrams, or waits for one.
fn wait(negotiator: &Mutex<Negotiator>, arrivals: &Receiver<IkeDatagram>, pause: Duration) {
    match arrivals.recv_timeout(pause) {
        Ok(datagram) => {
            let mut negotiator = lock(negotiator);
            negotiator.take(&datagram, Instant::now());
            for datagram in arrivals.try_iter().take(BATCH) {
                negotiator.take(&datagram, Instant::now());
            }
        }
        Err(RecvTimeoutError::Timeout) => {}
        // the datapath, which sends them, lives as long as this
        Err(RecvTimeoutError::Disconnected) => std::thread::sleep(pause),
    }
}
