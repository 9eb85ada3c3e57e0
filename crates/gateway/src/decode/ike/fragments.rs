//! Puts the fragments of messages together (RFC 7383).

use std::collections::{BTreeMap, HashMap, VecDeque};

use headroom_ike::wire::{Fragment, Header, PayloadType};

/// The most fragments of a message.
const MAX_FRAGMENTS: u16 = 128;
/// The most bytes of a message.
const MAX_MESSAGE: usize = 64 << 10;
/// The most messages that wait for fragments; the oldest is given up for a new one.
const MAX_MESSAGES: usize = 256;

/// What makes a message one.
type Key = (u64, u64, bool, bool, u32);

/// The messages that wait for fragments. Each fragment was verified before it came here.
#[derive(Debug, Default)]
pub(super) struct Fragments {
    waiting: HashMap<Key, Partial>,
    order: VecDeque<Key>,
    /// Messages that were given up.
    given_up: u64,
}

#[derive(Debug)]
struct Partial {
    total: u16,
    first: PayloadType,
    parts: BTreeMap<u16, Vec<u8>>,
}

impl Fragments {
    /// Keeps a fragment; returns the type of the first payload and the payloads, if it was the last
    /// that was missing.
    pub(super) fn add(
        &mut self,
        header: &Header,
        fragment: Fragment,
        first: PayloadType,
        text: Vec<u8>,
    ) -> Option<(PayloadType, Vec<u8>)> {
        let Header { spi_initiator, spi_responder, from_initiator, response, .. } = *header;
        let key = (spi_initiator, spi_responder, from_initiator, response, header.message_id);
        if fragment.total > MAX_FRAGMENTS {
            return None;
        }
        let fresh = || Partial { total: fragment.total, first, parts: BTreeMap::new() };
        if !self.waiting.contains_key(&key) {
            if self.order.len() == MAX_MESSAGES {
                self.order.pop_front().map(|oldest| self.waiting.remove(&oldest));
                self.given_up += 1;
            }
            self.order.push_back(key);
        }
        let partial = self.waiting.entry(key).or_insert_with(fresh);
        // a larger total is a new attempt in shorter fragments (RFC 7383, section 2.6)
        if fragment.total > partial.total {
            *partial = fresh();
        }
        let len: usize = partial.parts.values().map(Vec::len).sum();
        if fragment.total < partial.total || len + text.len() > MAX_MESSAGE {
            return None;
        }
        if fragment.number == 1 {
            partial.first = first;
        }
        partial.parts.entry(fragment.number).or_insert(text);
        if partial.parts.len() < usize::from(partial.total) {
            return None;
        }
        self.order.retain(|other| *other != key);
        let partial = self.waiting.remove(&key)?;
        Some((partial.first, partial.parts.into_values().flatten().collect()))
    }

    /// Returns the number of messages with missing fragments.
    pub(super) fn incomplete(&self) -> u64 {
        self.given_up + self.order.len() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headroom_ike::wire::ExchangeType;

    fn header(message_id: u32) -> Header {
        Header {
            spi_initiator: 1,
            spi_responder: 2,
            exchange: ExchangeType::IkeAuth,
            from_initiator: true,
            response: false,
            message_id,
        }
    }

    fn part(number: u16, total: u16) -> (Fragment, PayloadType, Vec<u8>) {
        let first = if number == 1 { PayloadType::IdInitiator } else { PayloadType::None };
        (Fragment { number, total }, first, vec![number as u8])
    }

    fn add(
        all: &mut Fragments,
        id: u32,
        number: u16,
        total: u16,
    ) -> Option<(PayloadType, Vec<u8>)> {
        let (fragment, first, text) = part(number, total);
        all.add(&header(id), fragment, first, text)
    }

    #[test]
    fn joins_fragments_in_any_order_and_begins_again_with_a_larger_total() {
        let mut all = Fragments::default();
        assert_eq!(add(&mut all, 1, 2, 2), None);
        assert_eq!(add(&mut all, 1, 3, 3), None, "a new attempt");
        assert_eq!(add(&mut all, 1, 1, 2), None, "of the former attempt");
        assert_eq!(add(&mut all, 1, 1, 3), None);
        assert_eq!(all.incomplete(), 1);
        assert_eq!(add(&mut all, 1, 2, 3), Some((PayloadType::IdInitiator, vec![1, 2, 3])));
        assert_eq!(all.incomplete(), 0);
    }

    #[test]
    fn keeps_a_bounded_number_of_messages_and_bytes() {
        let mut all = Fragments::default();
        for id in 0..2 * MAX_MESSAGES as u32 {
            assert_eq!(add(&mut all, id, 1, 2), None);
        }
        assert_eq!((all.waiting.len(), all.order.len()), (MAX_MESSAGES, MAX_MESSAGES));
        assert_eq!(all.incomplete(), 2 * MAX_MESSAGES as u64);
        assert_eq!(add(&mut all, 0, 1, MAX_FRAGMENTS + 1), None);
        for number in 1..=MAX_FRAGMENTS {
            let (fragment, first, _) = part(number, MAX_FRAGMENTS);
            all.add(&header(9), fragment, first, vec![0; MAX_MESSAGE / 4]);
        }
        let kept = |partial: &Partial| partial.parts.values().map(Vec::len).sum::<usize>();
        assert!(all.waiting.values().map(kept).all(|len| len <= MAX_MESSAGE));
    }
}
