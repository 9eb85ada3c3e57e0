//! What a sync reads of two versions of a file to send only what changed: chunks of both, and the
//! ranges of the old one that the new one has, too.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::panic::resume_unwind;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;

use headroom_transfer_proto::message::{ChunkHash, ChunkKind, ChunkSize};
use tokio::sync::Semaphore;

use super::partial::Partial;
use super::reader::Reader;
use crate::files::chunks;
use crate::files::error::{Error, ErrorKind};

/// Bytes of the old file that a thread copies at once.
const COPIED: usize = 256 << 10;
/// The most threads that copy a range: more would wait for memory.
const COPIERS: usize = 4;
/// Bytes that are worth a thread.
const WORTH_A_THREAD: u64 = 4 << 20;

/// Permits for threads that copy beside the first one of a range. All transfers of the process
/// share them: a server may have thousands.
static HELPERS: LazyLock<Semaphore> = LazyLock::new(|| {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    Semaphore::new(cores - 1)
});

impl Reader {
    /// Describes ranges of the file by their chunks. Each goes to `each` with its offset, in order,
    /// until that returns `false`.
    ///
    /// # Errors
    /// It cannot be read, or is shorter than it was.
    pub fn describe(
        &self,
        ranges: &[Range<u64>],
        size: ChunkSize,
        kind: ChunkKind,
        each: impl FnMut(u64, ChunkHash) -> bool,
    ) -> Result<(), Error> {
        let read = |offset, into: &mut [u8]| self.file().read_exact_at(into, offset);
        chunks::describe(read, ranges, size, kind, each).map_err(|error| self.error(error))
    }
}

impl Partial {
    /// Returns the size in bytes of the current file of that name when it was opened, if its
    /// content may be reused.
    #[must_use]
    pub fn old_size(&self) -> Option<u64> {
        self.old().map(|(_, size)| size)
    }

    /// Describes ranges of the current file of that name, as [`Reader::describe`] does.
    ///
    /// # Errors
    /// There is none, or it cannot be read.
    pub fn describe_old(
        &self,
        ranges: &[Range<u64>],
        size: ChunkSize,
        kind: ChunkKind,
        each: impl FnMut(u64, ChunkHash) -> bool,
    ) -> Result<(), Error> {
        let Some((old, _)) = self.old() else { return Err(self.not_reused(ErrorKind::Missing)) };
        let read = |offset, into: &mut [u8]| old.read_exact_at(into, offset);
        let described = chunks::describe(read, ranges, size, kind, each);
        described.map_err(|error| self.not_reused(kind_of(error)))
    }

    /// Copies `len` bytes at the offset `from` of the current file of that name to the offset `to`,
    /// as [`Self::write_at`] writes them. Returns how many were written.
    ///
    /// # Errors
    /// There is no such file, it cannot be read, or the range is beyond its end; else as those of
    /// `write_at`.
    pub fn copy_old(&self, from: u64, to: u64, len: u64) -> Result<u64, Error> {
        let Some((old, size)) = self.old() else {
            return Err(self.not_reused(ErrorKind::Missing));
        };
        let is_within = from.checked_add(len).is_some_and(|end| end <= size);
        let end = to.checked_add(len).filter(|end| *end <= self.spans().size());
        let Some(end) = end.filter(|_| is_within) else {
            return Err(self.not_reused(ErrorKind::BeyondEnd));
        };
        let spans = self.spans().touched(to..end);
        let (next, written) = (AtomicU64::new(spans.start), AtomicU64::new(0));
        let copy = || -> Result<(), Error> {
            let mut buffer = vec![0; COPIED.min(usize::try_from(len).unwrap_or(COPIED))];
            // neighbours at about the same time, so that a disk reads them in order
            while let Some(span) = Some(next.fetch_add(1, Relaxed)).filter(|it| *it < spans.end) {
                let whole = self.spans().range(span).unwrap_or_default();
                let range = whole.start.max(to)..whole.end.min(end);
                let copied = self.copy_range(old, from + (range.start - to), &range, &mut buffer);
                // the other threads stop, too
                let copied = copied.inspect_err(|_| next.store(spans.end, Relaxed))?;
                written.fetch_add(copied, Relaxed);
            }
            Ok(())
        };
        thread::scope(|scope| {
            // where no permit is left, or no thread can be started, fewer copy
            let permits = (1..copiers(len)).map_while(|_| HELPERS.try_acquire().ok());
            let helpers = permits.filter_map(|permit| {
                let help = move || {
                    let _permit = permit;
                    copy()
                };
                thread::Builder::new().name("copier".to_owned()).spawn_scoped(scope, help).ok()
            });
            let helpers: Vec<_> = helpers.collect();
            let mut copied = copy();
            for helper in helpers {
                copied = match helper.join() {
                    Ok(other) => copied.and(other),
                    Err(panic) => resume_unwind(panic),
                };
            }
            copied
        })?;
        Ok(written.into_inner())
    }

    /// Copies bytes of the old file, from the offset `from` on, to a range. Returns how many were
    /// written.
    fn copy_range(
        &self,
        old: &File,
        from: u64,
        range: &Range<u64>,
        buffer: &mut [u8],
    ) -> Result<u64, Error> {
        let (mut at, mut written) = (range.start, 0);
        while at < range.end {
            let len = buffer.len().min(usize::try_from(range.end - at).unwrap_or(buffer.len()));
            let bytes = &mut buffer[..len];
            old.read_exact_at(bytes, from + (at - range.start))
                .map_err(|error| self.not_reused(kind_of(error)))?;
            written += self.write_at(at, bytes)?;
            at += len as u64;
        }
        Ok(written)
    }

    fn not_reused(&self, kind: ErrorKind) -> Error {
        Error::new(self.path().as_bytes(), "made from its old version", kind)
    }
}

/// Returns the most threads that copy so many bytes.
fn copiers(len: u64) -> usize {
    usize::try_from(len / WORTH_A_THREAD).unwrap_or(COPIERS).min(COPIERS)
}

fn kind_of(error: io::Error) -> ErrorKind {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => ErrorKind::Shorter,
        _ => ErrorKind::of(error),
    }
}
