//! Finds messages that were sent again.

use std::collections::{HashMap, VecDeque};

/// The most messages remembered.
const MAX_MESSAGES: usize = 1 << 14;

/// The messages seen lately.
#[derive(Debug, Default)]
pub(super) struct Repeats {
    /// The frame of each message, by its hash.
    frames: HashMap<[u8; blake3::OUT_LEN], u64>,
    order: VecDeque<[u8; blake3::OUT_LEN]>,
}

impl Repeats {
    /// Returns the frame in which the message was first, or remembers it.
    pub(super) fn find(&mut self, message: &[u8], frame: u64) -> Option<u64> {
        let hash = *blake3::hash(message).as_bytes();
        if let Some(first) = self.frames.get(&hash) {
            return Some(*first);
        }
        if self.order.len() == MAX_MESSAGES
            && let Some(oldest) = self.order.pop_front()
        {
            self.frames.remove(&oldest);
        }
        self.frames.insert(hash, frame);
        self.order.push_back(hash);
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remembers_the_newest_messages_only() {
        let mut repeats = Repeats::default();
        assert_eq!(repeats.find(b"one", 1), None);
        assert_eq!(repeats.find(b"one", 2), Some(1));
        for frame in 0..MAX_MESSAGES as u64 {
            assert_eq!(repeats.find(&frame.to_be_bytes(), frame), None);
        }
        assert_eq!(repeats.find(b"one", 3), None, "it was forgotten");
        assert_eq!((repeats.frames.len(), repeats.order.len()), (MAX_MESSAGES, MAX_MESSAGES));
    }
}
