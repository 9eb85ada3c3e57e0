//! A pool of buffers for chunks of files, and the thread that writes them.

use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use super::sink::Target;
use crate::files::Ranges;

/// Bytes of a chunk, aligned to its size.
pub(super) const CHUNK: u64 = 256 << 10;
/// Buffers of one engine.
pub(super) const POOL_CHUNKS: usize = 256;
/// How long an engine waits for the disk; then it drops packets until the disk has written
/// something, so that its other lanes continue.
const PATIENCE: Duration = Duration::from_millis(50);

/// Buffers for chunks: free, or with the thread that writes them.
pub(super) struct ChunkPool {
    /// Last in, first out: the latest is in the cache.
    free: Vec<Vec<u8>>,
    made: usize,
    is_stuck: bool,
    to_write: mpsc::Sender<Job>,
    written: mpsc::Receiver<Vec<u8>>,
}

/// Data to write: `ranges` of `bytes`, which begin at `start` in the file.
pub(super) struct Job {
    pub(super) target: Arc<dyn Target>,
    pub(super) start: u64,
    pub(super) bytes: Vec<u8>,
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
                    let bytes = &job.bytes[at(range.start)..at(range.end)];
                    job.target.write(job.start + range.start, bytes);
                }
                // the file is released before its buffer is used again
                drop(job.target);
                let _ = done.send(job.bytes);
            }
        })?;
        Ok(Self { free: Vec::new(), made: 0, is_stuck: false, to_write, written })
    }

    /// Returns how many buffers are available.
    #[inline]
    pub(super) fn available(&self) -> usize {
        self.free.len() + POOL_CHUNKS.saturating_sub(self.made)
    }

    /// Takes a buffer; there must be one available.
    pub(super) fn take(&mut self) -> Vec<u8> {
        self.collect();
        self.free.pop().unwrap_or_else(|| {
            self.made += 1;
            vec![0; CHUNK as usize]
        })
    }

    /// Waits for a buffer from the disk; returns whether one arrived.
    pub(super) fn wait(&mut self) -> bool {
        let came = self.written.recv_timeout(PATIENCE).ok();
        self.is_stuck = came.is_none();
        self.free.extend(came);
        !self.is_stuck
    }

    /// Whether waiting for the disk timed out, and it has written nothing since.
    pub(super) fn is_stuck(&self) -> bool {
        self.is_stuck
    }

    /// Queues data to write. Its buffer returns when that is done.
    pub(super) fn write(&mut self, job: Job) {
        if let Err(mpsc::SendError(job)) = self.to_write.send(job) {
            self.free.push(job.bytes);
        }
    }

    /// Returns a buffer without writing it.
    pub(super) fn recycle(&mut self, buffer: Vec<u8>) {
        self.free.push(buffer);
    }

    /// Returns the memory of free buffers to the system.
    pub(super) fn release(&mut self) {
        self.collect();
        self.made = self.made.saturating_sub(self.free.len());
        self.free = Vec::new();
    }

    /// Whether there are no buffers.
    pub(super) fn is_empty(&self) -> bool {
        self.made == 0
    }

    /// Takes back written buffers; returns whether there were any.
    pub(super) fn collect(&mut self) -> bool {
        let before = self.free.len();
        self.free.extend(self.written.try_iter());
        let came = self.free.len() > before;
        self.is_stuck &= !came;
        came
    }
}
