//! Memory for chunks of files, and the thread that writes them.

use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use super::sink::Target;
use crate::files::Ranges;

/// Octets of a chunk, at a multiple of it.
pub(super) const CHUNK: u64 = 256 << 10;
/// Rooms of one engine.
pub(super) const POOL_CHUNKS: usize = 256;
/// So long an engine waits for the disk; then it drops what comes until the disk has
/// written something, and its other lanes go on.
const PATIENCE: Duration = Duration::from_millis(50);

/// Rooms for chunks: free, or with a thread that writes what is in them.
pub(super) struct ChunkPool {
    /// The one used last is used first: it is in the cache.
    free: Vec<Vec<u8>>,
    made: usize,
    is_stuck: bool,
    to_write: mpsc::Sender<Job>,
    written: mpsc::Receiver<Vec<u8>>,
}

/// Octets to be written: `ranges` of `octets`, which begin at `start` of the file.
pub(super) struct Job {
    pub(super) target: Arc<dyn Target>,
    pub(super) start: u64,
    pub(super) octets: Vec<u8>,
    pub(super) ranges: Ranges,
}

impl ChunkPool {
    /// Starts the thread, which ends when this is dropped.
    pub(super) fn new() -> std::io::Result<Self> {
        let (to_write, jobs) = mpsc::channel::<Job>();
        let (done, written) = mpsc::channel();
        std::thread::Builder::new().name("lane-writer".to_owned()).spawn(move || {
            for job in jobs {
                let at = |place: u64| usize::try_from(place).unwrap_or(usize::MAX);
                for range in job.ranges.iter() {
                    let octets = &job.octets[at(range.start)..at(range.end)];
                    job.target.write(job.start + range.start, octets);
                }
                // who holds the file sees it closed before its room is used again
                drop(job.target);
                let _ = done.send(job.octets);
            }
        })?;
        Ok(Self { free: Vec::new(), made: 0, is_stuck: false, to_write, written })
    }

    /// How many can be had at once.
    #[inline]
    pub(super) fn available(&self) -> usize {
        self.free.len() + POOL_CHUNKS.saturating_sub(self.made)
    }

    /// A room; there must be one left.
    pub(super) fn take(&mut self) -> Vec<u8> {
        self.collect();
        self.free.pop().unwrap_or_else(|| {
            self.made += 1;
            vec![0; CHUNK as usize]
        })
    }

    /// Waits for one that is with the disk; whether one came.
    pub(super) fn wait(&mut self) -> bool {
        let came = self.written.recv_timeout(PATIENCE).ok();
        self.is_stuck = came.is_none();
        self.free.extend(came);
        !self.is_stuck
    }

    /// Whether the disk was waited for in vain, and has written nothing since.
    pub(super) fn is_stuck(&self) -> bool {
        self.is_stuck
    }

    /// Has this written. Its room comes back when that is done.
    pub(super) fn write(&mut self, job: Job) {
        if let Err(mpsc::SendError(job)) = self.to_write.send(job) {
            self.free.push(job.octets);
        }
    }

    /// Gives a room back of which nothing is to be written.
    pub(super) fn recycle(&mut self, buffer: Vec<u8>) {
        self.free.push(buffer);
    }

    /// Gives the memory of those that are free back to the system.
    pub(super) fn release(&mut self) {
        self.collect();
        self.made = self.made.saturating_sub(self.free.len());
        self.free = Vec::new();
    }

    /// Whether there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.made == 0
    }

    /// Takes back what was written; whether anything was.
    pub(super) fn collect(&mut self) -> bool {
        let before = self.free.len();
        self.free.extend(self.written.try_iter());
        let came = self.free.len() > before;
        self.is_stuck &= !came;
        came
    }
}
