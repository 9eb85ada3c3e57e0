//! The peers of the configuration: which CHILD SAs should exist, and when to look after them.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::failures::RefusalLog;
use crate::config::{ChildAction, ChildActions, IkeChild};

/// The pause after the first failure; doubled for each next one.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// A peer, beside its connection.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) local: SocketAddr,
    pub(super) local_is_fixed: bool,
    /// None: it begins, from any address.
    pub(super) remote: Option<SocketAddr>,
    /// Whether it assigns an address to this host, without which there is no child.
    pub(super) assigns: bool,
    pub(super) children: Vec<Wanted>,
    pub(super) retry: Retry,
    pub(super) refusals: RefusalLog,
    /// When it is looked after.
    look_at: Option<Instant>,
}

/// A CHILD SA that may exist.
#[derive(Debug)]
pub(super) struct Wanted {
    pub(super) name: String,
    pub(super) actions: ChildActions,
    /// What is done now, while it does not exist.
    pub(super) action: ChildAction,
    /// Whether a packet has asked for it.
    pub(super) is_asked: bool,
    pub(super) retry: Retry,
}

impl Wanted {
    pub(super) fn new(child: &IkeChild) -> Self {
        Self {
            name: child.name.clone(),
            actions: child.actions,
            action: child.actions.start,
            is_asked: false,
            retry: Retry::default(),
        }
    }

    /// Tells whether this host makes it.
    pub(super) fn is_wanted(&self) -> bool {
        self.action == ChildAction::Start || self.is_asked
    }
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
    /// The peers of children.
    owners: HashMap<String, Arc<str>>,
    looks: BTreeSet<(Instant, Arc<str>)>,
}

impl Peers {
    pub(super) fn add(&mut self, name: &str, peer: Peer) {
        let name: Arc<str> = name.into();
        let children = peer.children.iter().map(|child| child.name.clone());
        self.owners.extend(children.map(|child| (child, Arc::clone(&name))));
        self.all.insert(name, peer);
    }

    /// Returns the name of the peer of a child.
    pub(super) fn owner(&self, child: &str) -> Option<Arc<str>> {
        self.owners.get(child).cloned()
    }

    /// Returns the children whose first packet brings them up.
    pub(super) fn trapped(&self) -> HashSet<String> {
        let children = self.all.values().flat_map(|peer| &peer.children);
        let trapped = children.filter(|child| child.action == ChildAction::Trap);
        trapped.map(|child| child.name.clone()).collect()
    }

    pub(super) fn get(&mut self, name: &str) -> Option<&mut Peer> {
        self.all.get_mut(name)
    }

    pub(super) fn names(&self) -> Vec<Arc<str>> {
        self.all.keys().cloned().collect()
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
        (local, remote): (SocketAddr, Option<SocketAddr>),
        local_is_fixed: bool,
        assigns: bool,
        children: Vec<Wanted>,
    ) -> Self {
        let (retry, refusals) = (Retry::default(), RefusalLog::default());
        Self { local, remote, local_is_fixed, assigns, children, retry, refusals, look_at: None }
    }

    /// Takes over what happened to the children that stay the same.
    pub(super) fn take_over(&mut self, former: &mut Self) {
        for child in &mut self.children {
            let same = former.child(&child.name).filter(|one| one.actions == child.actions);
            if let Some(former) = same {
                (child.action, child.is_asked) = (former.action, former.is_asked);
            }
        }
    }

    pub(super) fn child(&mut self, name: &str) -> Option<&mut Wanted> {
        self.children.iter_mut().find(|child| child.name == name)
    }
}
