//! What a sync reads of two versions of a file to send only what changed: chunks of both, and the
//! ranges of the old one that the new one has, too.

use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use headroom_transfer_proto::message::{ChunkHash, ChunkKind, ChunkSize};

use super::partial::Partial;
use super::reader::Reader;
use crate::files::chunks;
use crate::files::error::{Error, ErrorKind};

/// Bytes of the old file that are copied at once.
const COPIED: usize = 256 << 10;

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
        if !is_within || to.checked_add(len).is_none() {
            return Err(self.not_reused(ErrorKind::BeyondEnd));
        }
        let piece = |left: u64| COPIED.min(usize::try_from(left).unwrap_or(COPIED));
        let mut buffer = vec![0; piece(len)];
        let (mut done, mut written) = (0, 0);
        while done < len {
            let bytes = &mut buffer[..piece(len - done)];
            old.read_exact_at(bytes, from + done)
                .map_err(|error| self.not_reused(kind_of(error)))?;
            written += self.write_at(to + done, bytes)?;
            done += bytes.len() as u64;
        }
        Ok(written)
    }

    fn not_reused(&self, kind: ErrorKind) -> Error {
        Error::new(self.path().as_bytes(), "made from its old version", kind)
    }
}

fn kind_of(error: io::Error) -> ErrorKind {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => ErrorKind::Shorter,
        _ => ErrorKind::of(error),
    }
}
