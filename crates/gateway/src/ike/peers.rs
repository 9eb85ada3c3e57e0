//! The peers of the configuration: which CHILD SAs should exist, and when to look after them.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The pause after the first failure; doubled for each next one.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// A peer, beside its connection.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) local: SocketAddr,
    pub(super) local_is_fixed: bool,
    pub(super) remote: SocketAddr,
    pub(super) children: Vec<Wanted>,
    pub(super) retry: Retry,
    /// When it is looked after.
    look_at: Option<Instant>,
}

/// A CHILD SA that may exist.
#[derive(Debug)]
pub(super) struct Wanted {
    pub(super) name: String,
    /// Whether this host makes it.
    pub(super) is_wanted: bool,
    pub(super) retry: Retry,
}

/// When the next attempt may begin.
#[derive(Debug, Default)]
pub(super) struct Retry(Option<(Instant, Duration)>);

impl Retry {
    /// Tells whether an attempt may begin now, and if so postpones the next one.
    pub(super) fn may_try(&mut self, now: Instant) -> bool {
        match &mut self.0 {
            Some((at, _)) if *at > now => false,
            Some((at, pause)) => {
                (*at, *pause) = (now + *pause, (2 * *pause).min(LONGEST_PAUSE));
                true
            }
            None => {
                self.0 = Some((now + FIRST_PAUSE, 2 * FIRST_PAUSE));
                true
            }
        }
    }

    pub(super) fn succeeded(&mut self) {
        self.0 = None;
    }

    /// Returns when the next attempt may begin; none: at once.
    pub(super) fn at(&self) -> Option<Instant> {
        self.0.map(|(at, _)| at)
    }
}

/// All peers by name.
#[derive(Debug, Default)]
pub(super) struct Peers {
    all: BTreeMap<Arc<str>, Peer>,
    looks: BTreeSet<(Instant, Arc<str>)>,
}

impl Peers {
    pub(super) fn add(&mut self, name: &str, peer: Peer) {
        self.all.insert(name.into(), peer);
    }

    pub(super) fn get(&mut self, name: &str) -> Option<&mut Peer> {
        self.all.get_mut(name)
    }

    /// Looks after a peer at this time, unless earlier.
    pub(super) fn look(&mut self, name: &str, at: Instant) {
        let Some((key, peer)) = self.all.get_key_value(name) else { return };
        if peer.look_at.is_some_and(|earlier| earlier <= at) {
            return;
        }
        let key = Arc::clone(key);
        if let Some(peer) = self.all.get_mut(name) {
            if let Some(later) = peer.look_at.replace(at) {
                self.looks.remove(&(later, Arc::clone(&key)));
            }
            self.looks.insert((at, key));
        }
    }

    /// Returns the next peer to look after.
    pub(super) fn due(&mut self, now: Instant) -> Option<Arc<str>> {
        let (at, _) = self.looks.first()?;
        if *at > now {
            return None;
        }
        let (_, name) = self.looks.pop_first()?;
        if let Some(peer) = self.all.get_mut(&name) {
            peer.look_at = None;
        }
        Some(name)
    }

    /// Returns when a peer is to be looked after.
    pub(super) fn next_look(&self) -> Option<Instant> {
        self.looks.first().map(|(at, _)| *at)
    }
}

impl Peer {
    pub(super) fn new(
        (local, remote): (SocketAddr, SocketAddr),
        local_is_fixed: bool,
        children: Vec<Wanted>,
    ) -> Self {
        Self { local, remote, local_is_fixed, children, retry: Retry::default(), look_at: None }
    }

    pub(super) fn child(&mut self, name: &str) -> Option<&mut Wanted> {
        self.children.iter_mut().find(|child| child.name == name)
    }
}
