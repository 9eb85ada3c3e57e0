//! The IKE SAs, and when this host tries again.

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use headroom_ike::SessionId;
use serde::{Deserialize, Serialize};

/// The pause after the first failure; doubled for each next one.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// An IKE SA, for a reader.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionStatus {
    /// The name of the peer's `[[ike]]`.
    pub peer: String,
    /// Whether both sides have proved their identity.
    pub established: bool,
    /// Whether this host began.
    pub initiated: bool,
    /// This host's address and port.
    pub local: SocketAddr,
    /// The peer's.
    pub remote: SocketAddr,
    /// Whether its key exchange resists quantum computers.
    pub post_quantum: bool,
    /// Seconds since it was established.
    pub age_seconds: u64,
    /// How often it was rekeyed.
    pub rekeys: u64,
    /// The number of its CHILD SAs.
    pub children: usize,
}

/// An IKE SA.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) peer: String,
    pub(super) initiated: bool,
    pub(super) established: Option<Instant>,
    pub(super) local: SocketAddr,
    pub(super) remote: SocketAddr,
    pub(super) post_quantum: bool,
    pub(super) rekeys: u64,
}

/// All IKE SAs.
#[derive(Debug, Default)]
pub(super) struct Sessions {
    pub(super) all: BTreeMap<SessionId, Session>,
    /// When the next attempt to reach a peer, or to make a CHILD SA, may begin.
    retries: HashMap<String, (Instant, Duration)>,
}

impl Sessions {
    pub(super) fn of(&self, peer: &str) -> impl Iterator<Item = (SessionId, &Session)> {
        let peer = peer.to_owned();
        self.all.iter().filter(move |(_, one)| one.peer == peer).map(|(id, one)| (*id, one))
    }

    /// Tells whether an attempt may begin now, and if so postpones the next one.
    pub(super) fn may_try(&mut self, what: &str, now: Instant) -> bool {
        match self.retries.get_mut(what) {
            Some((at, _)) if *at > now => false,
            Some((at, pause)) => {
                (*at, *pause) = (now + *pause, (2 * *pause).min(LONGEST_PAUSE));
                true
            }
            None => {
                self.retries.insert(what.to_owned(), (now + FIRST_PAUSE, 2 * FIRST_PAUSE));
                true
            }
        }
    }

    pub(super) fn succeeded(&mut self, what: &str) {
        self.retries.remove(what);
    }

    /// Returns when the next attempt may begin.
    pub(super) fn next_retry(&self) -> Option<Instant> {
        self.retries.values().map(|(at, _)| *at).min()
    }
}
