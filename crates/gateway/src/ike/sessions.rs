//! The IKE SAs.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use headroom_ike::{Assigned, SessionId};
use serde::{Deserialize, Serialize};

/// The most sentences about what one peer does on its IKE SA, in each interval.
const MAX_SENTENCES: u32 = 20;
const INTERVAL: Duration = Duration::from_secs(60);

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
    /// How often a CHILD SA of it was rekeyed.
    #[serde(default)]
    pub child_rekeys: u64,
    /// The number of its CHILD SAs.
    pub children: usize,
    /// Its cipher, pseudorandom function and key exchanges, once they are chosen.
    #[serde(default)]
    pub algorithms: Option<String>,
    /// The requests that were sent again.
    #[serde(default)]
    pub retransmits: u64,
    /// The peer's name, once it has proved it.
    #[serde(default)]
    pub identity: Option<String>,
    /// The addresses that the end that was asked assigned to the end that began.
    #[serde(default)]
    pub assigned: Vec<IpAddr>,
    /// The DNS servers that it named with them. The gateway does not configure them on this host.
    #[serde(default)]
    pub dns: Vec<IpAddr>,
}

/// What IKE counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IkeCounters {
    /// IKE SAs whose initiator is not authenticated yet.
    pub half_open: u64,
    /// Cookies that initiators were asked for.
    pub cookies_sent: u64,
    /// First messages that were ignored because of the limits of IKE SAs.
    pub refused_by_limit: u64,
    /// First messages that were ignored because their source had failed too often.
    pub refused_after_failures: u64,
    /// Peers that did not prove who they are.
    pub authentication_failures: u64,
    /// Requests that were sent again.
    pub retransmits: u64,
    /// Datagrams that are no message of IKE.
    pub malformed: u64,
    /// Peers that proved who they are, and for which the pool had no address.
    #[serde(default)]
    pub pool_exhausted: u64,
}

impl IkeCounters {
    /// Returns the counters with their names.
    pub(crate) fn named(&self) -> [(&'static str, u64); 8] {
        [
            ("half-open", self.half_open),
            ("cookies-sent", self.cookies_sent),
            ("refused-by-limit", self.refused_by_limit),
            ("refused-after-failures", self.refused_after_failures),
            ("authentication-failures", self.authentication_failures),
            ("retransmits", self.retransmits),
            ("malformed", self.malformed),
            ("pool-exhausted", self.pool_exhausted),
        ]
    }
}

/// An IKE SA.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) peer: String,
    pub(super) initiated: bool,
    /// When it began, or was established.
    pub(super) began: Instant,
    pub(super) established: Option<Instant>,
    pub(super) local: SocketAddr,
    pub(super) remote: SocketAddr,
    pub(super) post_quantum: bool,
    pub(super) rekeys: u64,
    pub(super) child_rekeys: u64,
    /// The peer's name.
    pub(super) identity: Option<String>,
    pub(super) assigned: Assigned,
    pub(super) sentences: Sentences,
}

impl Session {
    /// Makes one that this host begins to set up between these addresses.
    pub(super) fn begun(
        peer: String,
        (local, remote): (SocketAddr, SocketAddr),
        now: Instant,
    ) -> Self {
        Self {
            peer,
            initiated: true,
            began: now,
            established: None,
            local,
            remote,
            post_quantum: false,
            rekeys: 0,
            child_rekeys: 0,
            identity: None,
            assigned: Assigned::default(),
            sentences: Sentences::default(),
        }
    }
}

/// What was said about a peer lately. A peer causes a sentence by one message, and the log is read by
/// people.
#[derive(Debug, Default)]
pub(super) struct Sentences {
    since: Option<Instant>,
    said: u32,
}

impl Sentences {
    /// Returns what to say, unless too much was said lately.
    pub(super) fn admit(&mut self, sentence: String, now: Instant) -> Option<String> {
        if self.since.is_none_or(|since| now.duration_since(since) >= INTERVAL) {
            (self.since, self.said) = (Some(now), 0);
        }
        self.said = self.said.saturating_add(1);
        match self.said {
            ..MAX_SENTENCES => Some(sentence),
            MAX_SENTENCES => {
                let seconds = INTERVAL.as_secs();
                Some(format!("{sentence}; more about this peer is left out for {seconds} s"))
            }
            _ => None,
        }
    }
}

/// All IKE SAs.
#[derive(Debug, Default)]
pub(super) struct Sessions {
    all: BTreeMap<SessionId, Session>,
    by_peer: HashMap<String, BTreeSet<SessionId>>,
}

impl Sessions {
    pub(super) fn insert(&mut self, id: SessionId, session: Session) {
        self.by_peer.entry(session.peer.clone()).or_default().insert(id);
        self.all.insert(id, session);
    }

    pub(super) fn remove(&mut self, id: SessionId) -> Option<Session> {
        let session = self.all.remove(&id)?;
        if let Some(of) = self.by_peer.get_mut(&session.peer) {
            of.remove(&id);
            if of.is_empty() {
                self.by_peer.remove(&session.peer);
            }
        }
        Some(session)
    }

    pub(super) fn get(&self, id: SessionId) -> Option<&Session> {
        self.all.get(&id)
    }

    pub(super) fn get_mut(&mut self, id: SessionId) -> Option<&mut Session> {
        self.all.get_mut(&id)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (SessionId, &Session)> {
        self.all.iter().map(|(id, session)| (*id, session))
    }

    pub(super) fn of(&self, peer: &str) -> impl Iterator<Item = (SessionId, &Session)> {
        let ids = self.by_peer.get(peer).into_iter().flatten();
        ids.filter_map(|id| Some((*id, self.all.get(id)?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_peer_does_not_fill_the_log() {
        let (start, mut sentences) = (Instant::now(), Sentences::default());
        let mut say = |at| sentences.admit("`vpn` is elsewhere".to_owned(), at);
        let said: Vec<String> = (0..1000).filter_map(|_| say(start)).collect();
        assert_eq!(said.len(), MAX_SENTENCES as usize);
        assert_eq!(said[0], "`vpn` is elsewhere");
        assert!(said[19].ends_with("more about this peer is left out for 60 s"), "{}", said[19]);
        assert_eq!(say(start + INTERVAL / 2), None);
        assert_eq!(say(start + INTERVAL).as_deref(), Some("`vpn` is elsewhere"));
    }
}
