//! How many datagrams may be on their way, and what the server's answers say of
//! them. No I/O and no clock.

use crate::form::Answer;

/// The datagrams of one session, by number.
#[derive(Debug, Clone)]
pub struct Window {
    session: u32,
    size: u64,
    /// The number of the next datagram.
    next: u64,
    /// All below have arrived, or are lost.
    settled: u64,
    newest: Option<Answer>,
}

impl Window {
    /// At most `size` datagrams of this session on their way at once.
    pub fn new(session: u32, size: u64) -> Self {
        Self { session, size, next: 0, settled: 0, newest: None }
    }

    /// The session's number, as every header has it.
    pub fn session(&self) -> u32 {
        self.session
    }

    /// Whether as many more may be sent.
    pub fn has_room(&self, datagrams: u64) -> bool {
        self.on_their_way() + datagrams <= self.size
    }

    /// Datagrams that were sent, and neither arrived nor count as lost.
    pub fn on_their_way(&self) -> u64 {
        self.next - self.settled
    }

    /// The number of the next datagram, which is sent now.
    pub fn number(&mut self) -> u64 {
        let number = self.next;
        self.next += 1;
        number
    }

    /// What a datagram from the server says, if it is news of this session. What
    /// is late, of datagrams that were never sent, or takes back what was said
    /// before, is none.
    pub fn hear(&mut self, datagram: &[u8]) -> Option<Answer> {
        let answer = Answer::read(datagram)?;
        let is_news = self.newest.is_none_or(|newest| {
            answer.counted > newest.counted && answer.highest >= newest.highest
        });
        if answer.session != self.session || answer.highest >= self.next || !is_news {
            return None;
        }
        self.settled = self.settled.max(answer.highest + 1);
        self.newest = Some(answer);
        Some(answer)
    }

    /// Whatever is on its way counts as lost.
    pub fn give_up(&mut self) {
        self.settled = self.next;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(highest: u64, counted: u64) -> Answer {
        Answer { session: 7, highest, counted }
    }

    #[test]
    fn answers_make_room() {
        let mut window = Window::new(7, 4);
        assert_eq!([0; 4].map(|_| window.number()), [0, 1, 2, 3]);
        assert!(!window.has_room(1));
        assert_eq!(window.hear(&answer(1, 2).octets()), Some(answer(1, 2)));
        assert!(window.has_room(2) && !window.has_room(3));
        window.give_up();
        assert_eq!((window.on_their_way(), window.has_room(4)), (0, true));
    }

    #[test]
    fn what_is_late_or_cannot_be_is_not_heard() {
        let mut window = Window::new(7, 8);
        assert_eq!((0..8).map(|_| window.number()).last(), Some(7));
        let elsewhere = Answer { session: 8, ..answer(5, 6) };
        assert_eq!(window.hear(&elsewhere.octets()), None);
        for never_sent in [8, u64::MAX] {
            assert_eq!(window.hear(&answer(never_sent, 3).octets()), None);
        }
        assert!(window.hear(&answer(5, 6).octets()).is_some());
        // overtaken on the way, a second copy, and one that contradicts it
        for stale in [answer(3, 4), answer(5, 6), answer(4, 7), answer(5, 0)] {
            assert_eq!(window.hear(&stale.octets()), None, "{stale:?}");
        }
        assert_eq!(window.on_their_way(), 2);
    }
}
