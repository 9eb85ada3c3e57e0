//! Keeps a ledger ahead of what is sent: a thread that reserves the next block
//! of sequence numbers before half of the last is used, and notes what was
//! accepted. The datapath never waits for a disk; where the keeper is too slow
//! numbers run out, and packets are dropped and counted (`ledger-behind`).

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use headroom_ipsec::spec::Direction;
use headroom_ipsec::{Engine, Sa};

use super::book::Account;
use super::error::Error;
use super::place::Place;
use super::store::Ledger;

/// How often counters are looked at.
const EVERY: Duration = Duration::from_millis(20);
/// How often what was accepted is written: what a crash lets be replayed.
pub const MARKED_EVERY: Duration = Duration::from_millis(200);
/// How long a block should last.
const LASTS: Duration = Duration::from_secs(2);
/// The fewest numbers of a block: at 5 million packets a second half of them
/// last a tenth of a second, in which two files are to be written.
const LEAST: u64 = 1 << 20;
/// The most. A peer that follows extended numbers by their lower half must not
/// be left more than 2^32 behind after a crash (RFC 4303, appendix A2).
const MOST: u64 = 1 << 28;
/// How long to wait after a disk has refused.
const RETRY: Duration = Duration::from_secs(1);

/// The thread that keeps a ledger.
#[derive(Debug)]
pub struct Keeper {
    books: Arc<Mutex<Books>>,
    stop: Sender<()>,
    thread: Option<JoinHandle<()>>,
}

impl Keeper {
    /// Opens the ledger, has every association of the engine begin behind what
    /// it says, grants each its first block, and starts the thread.
    ///
    /// # Errors
    /// As [`Ledger::open`]; or the thread cannot be started.
    pub fn start(place: &Place, engine: &Engine, new_keys: bool) -> Result<Self, Error> {
        let accounts: Vec<_> =
            engine.associations().map(|sa| (Account::of(sa.spec()), name(sa))).collect();
        let ledger = Ledger::open(place, &accounts, new_keys)?;
        let mut books =
            Books { ledger, associations: Vec::new(), marked: Instant::now(), trouble: None };
        books.take_over(engine, Instant::now())?;
        let books = Arc::new(Mutex::new(books));
        let (stop, stopped) = channel();
        let shared = Arc::clone(&books);
        let thread = std::thread::Builder::new().name("ledger".into()).spawn(move || {
            let mut wait = EVERY;
            while stopped.recv_timeout(wait) == Err(RecvTimeoutError::Timeout) {
                let done = lock(&shared).keep(Instant::now());
                wait = if done { EVERY } else { RETRY };
            }
        });
        let thread = thread.map_err(|cause| Error::Disk {
            doing: "start a thread for",
            path: place.ledger.clone(),
            cause,
        })?;
        Ok(Self { books, stop, thread: Some(thread) })
    }

    /// Prepares an engine that is about to replace the one before: new
    /// associations begin behind what the ledger says of their keys, those that
    /// go on keep their numbers. Call it before a packet goes through the engine.
    ///
    /// # Errors
    /// As [`Ledger::admit`]; nothing has changed then.
    pub fn take_over(&self, engine: &Engine, new_keys: bool) -> Result<(), Error> {
        let mut books = lock(&self.books);
        let accounts: Vec<_> =
            engine.associations().map(|sa| (Account::of(sa.spec()), name(sa))).collect();
        books.ledger.admit(&accounts, new_keys)?;
        books.take_over(engine, Instant::now())
    }

    /// What the disk said when it last refused, if it has not obeyed since.
    pub fn trouble(&self) -> Option<String> {
        lock(&self.books).trouble.clone()
    }

    /// Ends the thread and writes down what was really used. No packet may be
    /// protected or accepted any more.
    ///
    /// # Errors
    /// The disk refused: the blocks stay reserved, and what was accepted since
    /// the last mark is not known to the next start.
    pub fn stop(mut self) -> Result<(), Error> {
        self.end_thread();
        let mut books = lock(&self.books);
        let used: Vec<_> =
            books.associations.iter().map(|kept| (kept.account, kept.used())).collect();
        books.ledger.settle(&used)
    }

    fn end_thread(&mut self) {
        let _ = self.stop.send(());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.end_thread();
    }
}

/// Whoever panicked with it in hand left a ledger that is whole.
fn lock(books: &Mutex<Books>) -> MutexGuard<'_, Books> {
    books.lock().unwrap_or_else(PoisonError::into_inner)
}

fn name(sa: &Arc<Sa>) -> &str {
    &sa.spec().name
}

#[derive(Debug)]
struct Books {
    ledger: Ledger,
    associations: Vec<Kept>,
    marked: Instant,
    trouble: Option<String>,
}

/// An association and how fast it uses numbers.
#[derive(Debug)]
struct Kept {
    account: Account,
    sa: Arc<Sa>,
    block: u64,
    /// When the last block was granted, and the number that was next then.
    granted_at: Instant,
    next_then: u64,
}

impl Kept {
    /// The highest number sent or accepted.
    fn used(&self) -> u64 {
        match self.sa.spec().direction {
            Direction::Out => self.sa.sequence().next() - 1,
            Direction::In => self.sa.highest_accepted(),
        }
    }

    /// The numbers that the next block should have, seen how long the last one
    /// took.
    fn next_block(&self, now: Instant) -> u64 {
        let used = self.sa.sequence().next() - self.next_then;
        let took = (now - self.granted_at).as_secs_f64().max(1e-3);
        ((used as f64 / took * LASTS.as_secs_f64()) as u64).clamp(LEAST, MOST)
    }

    /// The highest number that there is.
    fn last(&self) -> u64 {
        if self.sa.spec().extended_sequence { u64::MAX } else { u64::from(u32::MAX) }
    }

    /// The block to be reserved, where less than half of the last is left.
    fn due(&self, now: Instant) -> Option<u64> {
        let sequence = self.sa.sequence();
        if sequence.granted() >= self.last() {
            return None;
        }
        let left = (sequence.granted() + 1).saturating_sub(sequence.next());
        (left < self.block / 2).then(|| self.next_block(now))
    }
}

impl Books {
    /// One look at all counters. False: the disk refused.
    fn keep(&mut self, now: Instant) -> bool {
        let due: Vec<(usize, u64)> = self
            .associations
            .iter()
            .enumerate()
            .filter(|(_, kept)| kept.sa.spec().direction == Direction::Out)
            .filter_map(|(index, kept)| Some((index, kept.due(now)?)))
            .collect();
        let marks = if now - self.marked >= MARKED_EVERY { self.moved_marks() } else { Vec::new() };
        if due.is_empty() && marks.is_empty() {
            return true;
        }
        let granted = self.reserve(&due, &marks, now);
        if let Err(error) = &granted {
            self.trouble = Some(error.to_string());
        } else {
            self.trouble = None;
        }
        granted.is_ok()
    }

    /// What was accepted beyond what the ledger says.
    fn moved_marks(&self) -> Vec<(Account, u64)> {
        let inbound =
            self.associations.iter().filter(|kept| kept.sa.spec().direction == Direction::In);
        let marks = inbound.map(|kept| (kept.account, kept.used()));
        marks.filter(|(account, mark)| self.ledger.number(*account) < Some(*mark)).collect()
    }

    /// Reserves blocks of the given length for associations by place, then
    /// grants them.
    fn reserve(
        &mut self,
        blocks: &[(usize, u64)],
        marks: &[(Account, u64)],
        now: Instant,
    ) -> Result<(), Error> {
        let reserved = blocks.iter().map(|(index, block)| {
            let kept = &self.associations[*index];
            let to = kept.sa.sequence().next().saturating_add(*block).min(kept.last());
            (kept.account, to)
        });
        let all: Vec<_> = reserved.chain(marks.iter().copied()).collect();
        self.ledger.commit(&all)?;
        if !marks.is_empty() {
            self.marked = now;
        }
        for ((index, block), (_, to)) in blocks.iter().zip(&all) {
            let kept = &mut self.associations[*index];
            kept.sa.sequence().grant(*to);
            kept.block = *block;
            kept.granted_at = now;
            kept.next_then = kept.sa.sequence().next();
        }
        Ok(())
    }

    fn take_over(&mut self, engine: &Engine, now: Instant) -> Result<(), Error> {
        // what the engine before has accepted, under whatever name
        let marks = self.moved_marks();
        let associations: Vec<Kept> = engine
            .associations()
            .map(|sa| Kept {
                account: Account::of(sa.spec()),
                sa: Arc::clone(sa),
                block: LEAST,
                granted_at: now,
                next_then: sa.sequence().next(),
            })
            .collect();
        let before = std::mem::replace(&mut self.associations, associations);
        let taken = self.begin(&marks, now);
        if taken.is_err() {
            self.associations = before;
        }
        taken
    }

    fn begin(&mut self, marks: &[(Account, u64)], now: Instant) -> Result<(), Error> {
        self.ledger.commit(marks)?;
        let mut blocks = Vec::new();
        for (index, kept) in self.associations.iter().enumerate() {
            let number = self.ledger.number(kept.account).unwrap_or(0);
            match kept.sa.spec().direction {
                Direction::In => kept.sa.accepted_up_to(number),
                // one that goes on has its block, of which the rest is its own
                Direction::Out if kept.sa.sequence().granted() > 0 => {}
                Direction::Out => {
                    kept.sa.sequence().skip_to(number.saturating_add(1));
                    blocks.push((index, LEAST));
                }
            }
        }
        self.reserve(&blocks, &[], now)
    }
}

#[cfg(test)]
mod tests;
