//! Hands parts of files from the thread that reads them to the engine that sends them.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use headroom_mutex::lock;
use headroom_transfer_proto::lane::Piece;

/// Bytes of a part: it stays in the processor's cache while it is read, hashed and sealed.
pub(crate) const PART: usize = 256 << 10;
/// Parts of one lane in memory, which bounds it for any file.
const PARTS: usize = 8;

/// A file that can be read again.
pub(crate) trait Source: Send + Sync {
    /// Fills `buffer` from `offset` on. On failure it leaves zeros: the file's hash tells the
    /// receiver.
    fn read(&self, offset: u64, receive_buffer: &mut [u8]);
}

/// A part of a file to send.
pub(crate) struct Part {
    pub(crate) file: u32,
    pub(crate) offset: u64,
    pub(crate) bytes: Vec<u8>,
    pub(crate) source: Arc<dyn Source>,
}

/// The lane accepts nothing, for now or forever.
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
    /// Last in, first out: the latest is in the cache.
    free: Vec<Vec<u8>>,
    made: usize,
    closed: bool,
    /// Whether the lane is silent, and accepts nothing for now.
    paused: bool,
    /// Whether the engine found nothing, and needs a notice of the next part.
    wants_notice: bool,
    /// Data that was not acknowledged when the lane fell silent or ended.
    left: Vec<Piece>,
}

impl Feed {
    /// Returns a buffer of [`PART`] bytes; blocks until there is one.
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

    /// Queues a part; returns whether the engine needs a notice.
    pub(crate) fn push(&self, part: Part) -> Result<bool, Closed> {
        let mut state = self.lock();
        if state.closed || state.paused {
            state.free.push(part.bytes);
            return Err(Closed);
        }
        state.ready.push_back(part);
        Ok(std::mem::take(&mut state.wants_notice))
    }

    /// Takes the next part, for the engine; if there is none, it will get a notice.
    pub(crate) fn take(&self) -> Option<Part> {
        let mut state = self.lock();
        let part = state.ready.pop_front();
        state.wants_notice = part.is_none();
        part
    }

    /// Recycles the buffer of a part that was sent.
    pub(crate) fn recycle(&self, buffer: Vec<u8>) {
        self.lock().free.push(buffer);
        self.free.notify_one();
    }

    /// Closes the feed. `left` was taken and is not acknowledged.
    pub(crate) fn close(&self, left: Vec<Piece>) {
        let mut state = self.lock();
        state.closed = true;
        state.leave(left);
        drop(state);
        self.free.notify_all();
    }

    /// Pauses until [`Self::resume`]. `left` was taken and is not acknowledged.
    pub(crate) fn pause(&self, left: Vec<Piece>) {
        let mut state = self.lock();
        state.paused = true;
        state.leave(left);
        drop(state);
        self.free.notify_all();
    }

    /// Accepts parts again; the engine gets a notice of the first.
    pub(crate) fn resume(&self) {
        let mut state = self.lock();
        (state.paused, state.wants_notice) = (false, true);
    }

    /// Returns what was left when it was paused or closed, once.
    pub(crate) fn undelivered(&self) -> Vec<Piece> {
        std::mem::take(&mut self.lock().left)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

impl State {
    /// Notes what is not acknowledged: `left`, and everything that waits here.
    fn leave(&mut self, left: Vec<Piece>) {
        self.left.extend(left);
        for part in std::mem::take(&mut self.ready) {
            let Part { file, offset, bytes, .. } = part;
            self.left.push(Piece { file, offset, len: bytes.len() as u64 });
            self.free.push(bytes);
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
        let part = |n: usize, bytes: Vec<u8>| {
            let offset = (n * PART) as u64;
            Part { file: 3, offset, bytes, source: Arc::new(Nothing) }
        };
        assert!(feed.take().is_none());
        for n in 0..PARTS {
            let buffer = feed.buffer().expect("it is open");
            assert_eq!(feed.push(part(n, buffer)), Ok(n == 0), "the engine waits for the first");
        }
        let waiting = Arc::clone(&feed);
        let thread = std::thread::spawn(move || waiting.buffer().map(|buffer| buffer.len()));
        let first = feed.take().expect("a part");
        feed.recycle(first.bytes);
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
        let part = |n: usize, bytes: Vec<u8>| {
            let offset = (n * PART) as u64;
            Part { file: 3, offset, bytes, source: Arc::new(Nothing) }
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
            taken.into_iter().for_each(|part: Part| feed.recycle(part.bytes));
            let left: u64 = feed.undelivered().iter().map(|piece| piece.len).sum();
            assert_eq!(left, ((PARTS - 1) * PART) as u64);
            feed.resume();
        }
        let buffer = feed.buffer().expect("room");
        assert_eq!(feed.push(part(0, buffer)), Ok(true), "the engine is told");
    }
}
