//! The IKE SAs whose initiator is not authenticated yet: whose first message each answers, and how
//! many of them a source has.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};

use crate::event::SessionId;
use crate::path::site;

/// What a first message is recognized by when it comes again: the initiator's SPI and address.
pub(crate) type First = (u64, SocketAddr);

/// Half-open IKE SAs.
#[derive(Debug, Default)]
pub(crate) struct HalfOpen {
    sessions: HashMap<First, SessionId>,
    by_source: HashMap<IpAddr, usize>,
}

impl HalfOpen {
    /// Returns the session that a first message has begun.
    pub(crate) fn get(&self, first: &First) -> Option<SessionId> {
        self.sessions.get(first).copied()
    }

    /// Returns how many there are.
    pub(crate) fn count(&self) -> usize {
        self.sessions.len()
    }

    /// Returns how many a source has begun.
    pub(crate) fn count_of(&self, source: IpAddr) -> usize {
        self.by_source.get(&site(source)).copied().unwrap_or(0)
    }

    pub(crate) fn insert(&mut self, first: First, session: SessionId) {
        if self.sessions.insert(first, session).is_none() {
            *self.by_source.entry(site(first.1.ip())).or_default() += 1;
        }
    }

    pub(crate) fn remove(&mut self, first: &First) {
        if self.sessions.remove(first).is_none() {
            return;
        }
        let source = site(first.1.ip());
        let left = self.count_of(source).saturating_sub(1);
        match left {
            0 => self.by_source.remove(&source),
            _ => self.by_source.insert(source, left),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_the_sessions_of_each_source_and_forgets_sources_without_any() {
        let first = |spi, text: &str| (spi, text.parse::<SocketAddr>().expect("an address"));
        let [one, port, net, other] = [
            first(1, "192.0.2.1:500"),
            first(1, "192.0.2.1:501"),
            first(2, "[2001:db8::1]:500"),
            first(2, "[2001:db8::2]:500"),
        ];
        let mut half_open = HalfOpen::default();
        for (number, one) in [one, port, net, other, other].into_iter().enumerate() {
            half_open.insert(one, SessionId(number as u64));
        }
        let [v4, v6] = [one, net].map(|one| one.1.ip());
        assert_eq!((half_open.count(), half_open.count_of(v4), half_open.count_of(v6)), (4, 2, 2));
        assert_eq!(half_open.get(&other), Some(SessionId(4)));
        half_open.remove(&port);
        half_open.remove(&port);
        assert_eq!((half_open.count_of(v4), half_open.get(&one)), (1, Some(SessionId(0))));
        [one, net, other].iter().for_each(|one| half_open.remove(one));
        assert!(half_open.sessions.is_empty() && half_open.by_source.is_empty());
    }
}
