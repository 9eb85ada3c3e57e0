//! Whose sessions are whose, so that those end which their peer has forgotten.

use std::collections::HashMap;

use crate::event::{Reason, SessionId};
use crate::identity::Identity;

/// The most sessions of one peer: a user may have several devices. Who is one peer takes neither all
/// addresses nor all places for IKE SAs.
const MAX_OF_PEER: usize = 4;

/// The sessions that peers have begun.
#[derive(Debug, Default)]
pub(crate) struct Peers {
    by_session: HashMap<SessionId, Peer>,
    by_peer: HashMap<Peer, Vec<SessionId>>,
    /// The sessions that have to end, and why.
    ousted: Vec<(SessionId, Reason)>,
}

/// A peer: the name that it has proved, in the way of this connection. Who has the same name in another
/// connection is somebody else: there the secret may be one of many, who call themselves what they like.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
struct Peer {
    connection: String,
    name: Identity,
}

impl Peers {
    /// Adds a session. Returns those of the same peer that have to end for it: all, if the peer says
    /// that it has no other (RFC 7296 §2.4), or else the oldest, if they are too many.
    pub(crate) fn admit(
        &mut self,
        session: SessionId,
        connection: &str,
        name: &Identity,
        is_alone: bool,
    ) -> Vec<SessionId> {
        let peer = Peer { connection: connection.to_owned(), name: name.folded() };
        let sessions = self.by_peer.entry(peer.clone()).or_default();
        let (number, reason) = match is_alone {
            true => (sessions.len(), Reason::Restarted),
            false => {
                let too_many = (sessions.len() + 1).saturating_sub(MAX_OF_PEER);
                (too_many, Reason::Limit("IKE SAs of one peer"))
            }
        };
        let ousted: Vec<_> = sessions.drain(..number).collect();
        sessions.push(session);
        self.by_session.insert(session, peer);
        for one in &ousted {
            self.by_session.remove(one);
        }
        self.ousted.extend(ousted.iter().map(|one| (*one, reason.clone())));
        ousted
    }

    /// Forgets a session.
    pub(crate) fn remove(&mut self, session: SessionId) {
        let Some(peer) = self.by_session.remove(&session) else { return };
        let Some(sessions) = self.by_peer.get_mut(&peer) else { return };
        sessions.retain(|one| *one != session);
        if sessions.is_empty() {
            self.by_peer.remove(&peer);
        }
    }

    /// Returns the sessions that have to end, once.
    pub(crate) fn take_ousted(&mut self) -> Vec<(SessionId, Reason)> {
        std::mem::take(&mut self.ousted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_that_is_alone_ousts_its_own_sessions_and_nobody_elses() {
        let mut peers = Peers::default();
        let mut admit = |number, connection: &str, name: &str, is_alone| {
            let name = Identity::from_text(name);
            let ousted = peers.admit(SessionId(number), connection, &name, is_alone);
            let announced = peers.take_ousted();
            let expected: Vec<_> = ousted.iter().map(|one| (*one, Reason::Restarted)).collect();
            assert_eq!(announced, expected);
            ousted.into_iter().map(|one| one.0).collect::<Vec<_>>()
        };
        assert!(admit(1, "pool", "anna", true).is_empty());
        assert!(admit(2, "pool", "anna", false).is_empty());
        assert!(admit(3, "pool", "bert", true).is_empty());
        assert!(admit(4, "site", "anna", true).is_empty());
        assert_eq!(admit(5, "pool", "Anna", true), [1, 2]);
        assert_eq!(admit(6, "pool", "anna", true), [5]);
        for number in 1..7 {
            peers.remove(SessionId(number));
        }
        assert!(peers.by_peer.is_empty() && peers.by_session.is_empty());
    }

    #[test]
    fn a_peer_has_a_few_sessions_and_the_oldest_give_way() {
        let mut peers = Peers::default();
        let mut admit = |number| {
            let (session, name) = (SessionId(number), Identity::from_text("anna"));
            peers.admit(session, "pool", &name, false)
        };
        for number in 1..=4 {
            assert!(admit(number).is_empty());
        }
        assert_eq!((admit(5), admit(6)), (vec![SessionId(1)], vec![SessionId(2)]));
        let reason = || Reason::Limit("IKE SAs of one peer");
        let expected = [1, 2].map(|number| (SessionId(number), reason()));
        assert_eq!(peers.take_ousted(), expected);
        peers.remove(SessionId(4));
        let name = Identity::from_text("anna");
        assert!(peers.admit(SessionId(7), "pool", &name, false).is_empty(), "there is room again");
        assert_eq!(peers.by_session.len(), 4);
    }
}
