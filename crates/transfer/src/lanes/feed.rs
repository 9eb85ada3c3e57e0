//! Parts of files on their way from who reads them to the engine that sends them.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use headroom_transfer_proto::lane::Piece;

/// Octets of a part: it stays in the processor's cache while it is read, hashed
/// and sealed.
pub(crate) const PART: usize = 256 << 10;
/// Parts of one lane in memory: what bounds it, whatever the file.
const PARTS: usize = 8;

/// A file whose octets can be read again.
pub(crate) trait Source: Send + Sync {
    /// Fills `buffer` with the octets from `offset` on. Where it cannot, it notes that
    /// and leaves zeros: the file's hash tells the receiver.
    fn read(&self, offset: u64, receive_buffer: &mut [u8]);
}

/// Octets of a file, to be sent.
pub(crate) struct Part {
    pub(crate) file: u32,
    pub(crate) offset: u64,
    pub(crate) octets: Vec<u8>,
    pub(crate) source: Arc<dyn Source>,
}

/// The engine takes nothing more, for now or for good.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Closed;

/// Parts that wait for a lane.
#[derive(Default)]
pub(crate) struct Feed {
    state: Mutex<State>,
    free: Condvar,
}

#[derive(Default)]
struct State {
    ready: VecDeque<Part>,
    /// The one used last is used first: it is in the cache.
    free: Vec<Vec<u8>>,
    made: usize,
    closed: bool,
    /// The lane is silent: it takes nothing until it is not.
    paused: bool,
    /// The engine found nothing, and wants to be told of the next part.
    wants_notice: bool,
    /// What was given and is not known to have arrived, when the lane fell silent or
    /// ended.
    left: Vec<Piece>,
}

impl Feed {
    /// Room for a part, of [`PART`] octets; waits until there is some.
    pub(crate) fn buffer(&self) -> Result<Vec<u8>, Closed> {
        let mut state = self.lock();
        loop {
            if state.closed || state.paused {
                return Err(Closed);
            }
            if let Some(buffer) = state.free.pop() {
                return Ok(buffer);
            }
            if state.made < PARTS {
                state.made += 1;
                return Ok(vec![0; PART]);
            }
            state = self.free.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Gives a part to be sent; true if the engine waits for it.
    pub(crate) fn push(&self, part: Part) -> Result<bool, Closed> {
        let mut state = self.lock();
        if state.closed || state.paused {
            state.free.push(part.octets);
            return Err(Closed);
        }
        state.ready.push_back(part);
        Ok(std::mem::take(&mut state.wants_notice))
    }

    /// The next part, for the engine, which is told of the next where there is none.
    pub(crate) fn take(&self) -> Option<Part> {
        let mut state = self.lock();
        let part = state.ready.pop_front();
        state.wants_notice = part.is_none();
        part
    }

    /// A part was sent: its room is for another.
    pub(crate) fn recycle(&self, buffer: Vec<u8>) {
        self.lock().free.push(buffer);
        self.free.notify_one();
    }

    /// Takes nothing more. `left` was taken and is not known to have arrived.
    pub(crate) fn close(&self, left: Vec<Piece>) {
        let mut state = self.lock();
        state.closed = true;
        state.leave(left);
        drop(state);
        self.free.notify_all();
    }

    /// Takes nothing until [`Self::resume`]. `left` was taken and is not known to have
    /// arrived.
    pub(crate) fn pause(&self, left: Vec<Piece>) {
        let mut state = self.lock();
        state.paused = true;
        state.leave(left);
        drop(state);
        self.free.notify_all();
    }

    /// Takes parts again; the engine is told of the first.
    pub(crate) fn resume(&self) {
        let mut state = self.lock();
        (state.paused, state.wants_notice) = (false, true);
    }

    /// What was left when it was paused or closed, once.
    pub(crate) fn undelivered(&self) -> Vec<Piece> {
        std::mem::take(&mut self.lock().left)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Notes what is not known to have arrived: `left`, and all that waits here.
    fn leave(&mut self, left: Vec<Piece>) {
        self.left.extend(left);
        for part in std::mem::take(&mut self.ready) {
            let Part { file, offset, octets, .. } = part;
            self.left.push(Piece { file, offset, len: octets.len() as u64 });
            self.free.push(octets);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Nothing;

    impl Source for Nothing {
        fn read(&self, _offset: u64, _room: &mut [u8]) {}
    }

    #[test]
    fn memory_is_bounded_and_nothing_is_lost_when_it_closes() {
        let feed = Arc::new(Feed::default());
        let part = |n: usize, octets: Vec<u8>| {
            let offset = (n * PART) as u64;
            Part { file: 3, offset, octets, source: Arc::new(Nothing) }
        };
        assert!(feed.take().is_none());
        for n in 0..PARTS {
            let buffer = feed.buffer().expect("it is open");
            assert_eq!(feed.push(part(n, buffer)), Ok(n == 0), "the engine waits for the first");
        }
        let waiting = Arc::clone(&feed);
        let thread = std::thread::spawn(move || waiting.buffer().map(|buffer| buffer.len()));
        let first = feed.take().expect("a part");
        feed.recycle(first.octets);
        assert_eq!(thread.join().expect("no panic"), Ok(PART));
        let waiting = Arc::clone(&feed);
        let thread = std::thread::spawn(move || waiting.buffer().map(|buffer| buffer.len()));
        feed.close(vec![Piece { file: 3, offset: 5, len: 7 }]);
        assert_eq!(thread.join().expect("no panic"), Err(Closed));
        assert_eq!(feed.push(part(9, Vec::new())), Err(Closed));
        let left: u64 = feed.undelivered().iter().map(|piece| piece.len).sum();
        assert_eq!(left, 7 + ((PARTS - 1) * PART) as u64);
        assert!(feed.undelivered().is_empty());
    }

    #[test]
    fn a_paused_feed_loses_neither_pieces_nor_memory() {
        let feed = Feed::default();
        let part = |n: usize, octets: Vec<u8>| {
            let offset = (n * PART) as u64;
            Part { file: 3, offset, octets, source: Arc::new(Nothing) }
        };
        for _ in 0..3 {
            let rooms: Vec<_> = (0..PARTS).map(|_| feed.buffer().expect("room")).collect();
            let mut taken = Vec::new();
            for (n, buffer) in rooms.into_iter().enumerate() {
                if n + 1 < PARTS {
                    feed.push(part(n, buffer)).expect("it is open");
                } else {
                    taken.extend(feed.take());
                    // what is given too late is for another way, its memory is kept
                    feed.pause(vec![Piece { file: 3, offset: 0, len: PART as u64 }]);
                    assert_eq!(feed.push(part(n, buffer)), Err(Closed));
                }
            }
            assert_eq!(feed.buffer(), Err(Closed));
            taken.into_iter().for_each(|part: Part| feed.recycle(part.octets));
            let left: u64 = feed.undelivered().iter().map(|piece| piece.len).sum();
            assert_eq!(left, ((PARTS - 1) * PART) as u64);
            feed.resume();
        }
        let buffer = feed.buffer().expect("room");
        assert_eq!(feed.push(part(0, buffer)), Ok(true), "the engine is told");
    }
}
