//! Keeps a ledger ahead of the datapath: a thread reserves the next block of sequence numbers
//! before half of the last is used, and records the highest number accepted. The datapath never
//! waits for a disk. If the thread is too slow, numbers run out, and packets are dropped and
//! counted (`ledger-behind`).

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use headroom_ipsec::spec::Direction;
use headroom_ipsec::{Engine, Sa};
use headroom_mutex::lock;

use super::error::Error;
use super::paths::LedgerPaths;
use super::state::KeyId;
use super::store::Ledger;

/// How often the thread reads the counters.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// How often the highest number accepted is written. After a crash, packets of this time can be
/// replayed.
pub const WINDOW_SAVE_INTERVAL: Duration = Duration::from_millis(200);
/// How long a block should last at the current rate.
const BLOCK_DURATION: Duration = Duration::from_secs(2);
/// The fewest numbers of a block: at 5 million packets a second, half of them last 0.1 s, in which
/// two files must be written.
const MIN_BLOCK: u64 = 1 << 20;
/// The most numbers of a block. A peer infers the upper half of extended numbers, so a crash must
/// not skip 2^32 of them (RFC 4303, appendix A2).
const MAX_BLOCK: u64 = 1 << 28;
/// How long the thread waits after the disk has refused a write.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// The thread that writes a ledger.
#[derive(Debug)]
pub struct LedgerWriter {
    state: Arc<Mutex<WriterState>>,
    stop: Sender<()>,
    thread: Option<JoinHandle<()>>,
}

impl LedgerWriter {
    /// Opens the ledger, lets every association of the engine begin behind its recorded number,
    /// grants each its first block, and starts the thread.
    ///
    /// # Errors
    /// As [`Ledger::open`]; or the thread cannot be started.
    pub fn start(paths: &LedgerPaths, engine: &Engine, new_keys: bool) -> Result<Self, Error> {
        let key_ids: Vec<_> =
            engine.associations().map(|sa| (KeyId::of(sa.spec()), name(sa))).collect();
        let ledger = Ledger::open(paths, &key_ids, new_keys)?;
        let mut state = WriterState {
            ledger,
            associations: Vec::new(),
            windows_saved_at: Instant::now(),
            last_error: None,
        };
        state.adopt(engine, Instant::now())?;
        let state = Arc::new(Mutex::new(state));
        let (stop, stopped) = channel();
        let shared = Arc::clone(&state);
        let thread = std::thread::Builder::new().name("ledger".into()).spawn(move || {
            let mut wait = POLL_INTERVAL;
            while stopped.recv_timeout(wait) == Err(RecvTimeoutError::Timeout) {
                let done = lock(&shared).poll(Instant::now());
                wait = if done { POLL_INTERVAL } else { RETRY_DELAY };
            }
        });
        let thread = thread.map_err(|cause| Error::Disk {
            doing: "start a thread for",
            path: paths.ledger.clone(),
            cause,
        })?;
        Ok(Self { state, stop, thread: Some(thread) })
    }

    /// Prepares an engine that is about to replace the present one. New associations begin behind
    /// the numbers recorded for their keys; those that continue keep their numbers. To be called
    /// before a packet passes the engine.
    ///
    /// # Errors
    /// As [`Ledger::add_keys`]; nothing has changed then.
    pub fn adopt(&self, engine: &Engine, new_keys: bool) -> Result<(), Error> {
        let mut state = lock(&self.state);
        let key_ids: Vec<_> = of_files(engine).map(|sa| (KeyId::of(sa.spec()), name(sa))).collect();
        state.ledger.add_keys(&key_ids, new_keys)?;
        state.adopt(engine, Instant::now())
    }

    /// Returns the error of the last write, if it failed.
    pub fn last_error(&self) -> Option<String> {
        lock(&self.state).last_error.clone()
    }

    /// Ends the thread and records the numbers that were used. No packet may be protected or
    /// accepted any more.
    ///
    /// # Errors
    /// The disk refused: the blocks stay reserved, and the next start does not know what was
    /// accepted since the last write.
    pub fn stop(mut self) -> Result<(), Error> {
        self.end_thread();
        let mut state = lock(&self.state);
        let used: Vec<_> =
            state.associations.iter().map(|tracked| (tracked.key_id, tracked.used())).collect();
        state.ledger.release_unused(&used)
    }

    fn end_thread(&mut self) {
        let _ = self.stop.send(());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Returns the associations with keys from a file. Keys that were negotiated are fresh, and no name in
/// a file has a slash.
fn of_files(engine: &Engine) -> impl Iterator<Item = &Arc<Sa>> {
    engine.associations().filter(|sa| !sa.spec().name.contains('/'))
}

impl Drop for LedgerWriter {
    fn drop(&mut self) {
        self.end_thread();
    }
}

fn name(sa: &Arc<Sa>) -> &str {
    &sa.spec().name
}

#[derive(Debug)]
struct WriterState {
    ledger: Ledger,
    associations: Vec<TrackedSa>,
    windows_saved_at: Instant,
    last_error: Option<String>,
}

/// An association, and how fast it uses numbers.
#[derive(Debug)]
struct TrackedSa {
    key_id: KeyId,
    sa: Arc<Sa>,
    block: u64,
    /// When the last block was granted, and the number that was next then.
    granted_at: Instant,
    next_then: u64,
}

impl TrackedSa {
    /// Returns the highest number sent or accepted.
    fn used(&self) -> u64 {
        match self.sa.spec().direction {
            Direction::Out => self.sa.sequence().next() - 1,
            Direction::In => self.sa.highest_accepted(),
        }
    }

    /// Returns the size of the next block, from the rate at which the last one was used.
    fn next_block(&self, now: Instant) -> u64 {
        let used = self.sa.sequence().next() - self.next_then;
        let took = (now - self.granted_at).as_secs_f64().max(1e-3);
        ((used as f64 / took * BLOCK_DURATION.as_secs_f64()) as u64).clamp(MIN_BLOCK, MAX_BLOCK)
    }

    /// Returns the highest number that the association may use.
    fn last(&self) -> u64 {
        if self.sa.spec().extended_sequence { u64::MAX } else { u64::from(u32::MAX) }
    }

    /// Returns the size of the block to reserve, if less than half of the last is left.
    fn due(&self, now: Instant) -> Option<u64> {
        let sequence = self.sa.sequence();
        if sequence.granted() >= self.last() {
            return None;
        }
        let left = (sequence.granted() + 1).saturating_sub(sequence.next());
        (left < self.block / 2).then(|| self.next_block(now))
    }
}

impl WriterState {
    /// Reads all counters once, and writes what changed. Returns false if the disk refused.
    fn poll(&mut self, now: Instant) -> bool {
        let due: Vec<(usize, u64)> = self
            .associations
            .iter()
            .enumerate()
            .filter(|(_, tracked)| tracked.sa.spec().direction == Direction::Out)
            .filter_map(|(index, tracked)| Some((index, tracked.due(now)?)))
            .collect();
        let windows = if now - self.windows_saved_at >= WINDOW_SAVE_INTERVAL {
            self.changed_windows()
        } else {
            Vec::new()
        };
        if due.is_empty() && windows.is_empty() {
            return true;
        }
        let granted = self.reserve(&due, &windows, now);
        if let Err(error) = &granted {
            self.last_error = Some(error.to_string());
        } else {
            self.last_error = None;
        }
        granted.is_ok()
    }

    /// Returns the highest number accepted of each association, where it is beyond the recorded one.
    fn changed_windows(&self) -> Vec<(KeyId, u64)> {
        let inbound =
            self.associations.iter().filter(|tracked| tracked.sa.spec().direction == Direction::In);
        let windows = inbound.map(|tracked| (tracked.key_id, tracked.used()));
        windows.filter(|(key_id, mark)| self.ledger.number(*key_id) < Some(*mark)).collect()
    }

    /// Reserves blocks of the given sizes for associations, given by index, then grants them.
    fn reserve(
        &mut self,
        blocks: &[(usize, u64)],
        windows: &[(KeyId, u64)],
        now: Instant,
    ) -> Result<(), Error> {
        let reserved = blocks.iter().map(|(index, block)| {
            let tracked = &self.associations[*index];
            let to = tracked.sa.sequence().next().saturating_add(*block).min(tracked.last());
            (tracked.key_id, to)
        });
        let all: Vec<_> = reserved.chain(windows.iter().copied()).collect();
        self.ledger.commit(&all)?;
        if !windows.is_empty() {
            self.windows_saved_at = now;
        }
        for ((index, block), (_, to)) in blocks.iter().zip(&all) {
            let tracked = &mut self.associations[*index];
            tracked.sa.sequence().grant(*to);
            tracked.block = *block;
            tracked.granted_at = now;
            tracked.next_then = tracked.sa.sequence().next();
        }
        Ok(())
    }

    fn adopt(&mut self, engine: &Engine, now: Instant) -> Result<(), Error> {
        // The numbers that the previous engine accepted, by key.
        let windows = self.changed_windows();
        let associations: Vec<TrackedSa> = of_files(engine)
            .map(|sa| TrackedSa {
                key_id: KeyId::of(sa.spec()),
                sa: Arc::clone(sa),
                block: MIN_BLOCK,
                granted_at: now,
                next_then: sa.sequence().next(),
            })
            .collect();
        let before = std::mem::replace(&mut self.associations, associations);
        let taken = self.begin(&windows, now);
        if taken.is_err() {
            self.associations = before;
        }
        taken
    }

    fn begin(&mut self, windows: &[(KeyId, u64)], now: Instant) -> Result<(), Error> {
        self.ledger.commit(windows)?;
        let mut blocks = Vec::new();
        for (index, tracked) in self.associations.iter().enumerate() {
            let number = self.ledger.number(tracked.key_id).unwrap_or(0);
            match tracked.sa.spec().direction {
                Direction::In => tracked.sa.accepted_up_to(number),
                // An SA that continues still has the rest of its block.
                Direction::Out if tracked.sa.sequence().granted() > 0 => {}
                Direction::Out => {
                    tracked.sa.sequence().skip_to(number.saturating_add(1));
                    blocks.push((index, MIN_BLOCK));
                }
            }
        }
        self.reserve(&blocks, &[], now)
    }
}

#[cfg(test)]
mod tests;
