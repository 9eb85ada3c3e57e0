//! Files that are being received.

use std::ops::Range;

use headroom_transfer_proto::message::{Attributes, ChunkHash, ChunkKind, ChunkSize, UPLOAD_BYTES};
use headroom_transfer_proto::path::RelPath;
use headroom_transfer_proto::span::{ChainingValue, Spans, Verification};

use super::error::{Error, ErrorKind};
use super::offer::{Seal, Stored};
use super::progress::KnownSpan;
use super::{disk, store};

/// The most spans of a file that are [remembered](Partial::remember): 1 TiB, and up to 90 MiB of
/// memory. The other side says how large a file is, and spans that are holes cost it nothing.
pub(crate) const MAX_REMEMBERED: u64 = 1 << 20;

/// A partial file. Several threads may write to it at once.
///
/// When this is dropped, received data stays for the next transfer of the same offer; an
/// untouched file is removed.
#[derive(Debug)]
pub enum Partial {
    /// On a disk of this machine, under a temporary name.
    Disk(Box<disk::Partial>),
    /// In an object store.
    Store(store::Partial),
}

impl Partial {
    /// Returns the file's name.
    #[must_use]
    pub fn path(&self) -> &RelPath {
        match self {
            Self::Disk(partial) => partial.path(),
            Self::Store(partial) => partial.path(),
        }
    }

    /// Returns the file's spans.
    #[must_use]
    pub fn spans(&self) -> Spans {
        match self {
            Self::Disk(partial) => partial.spans(),
            Self::Store(partial) => partial.spans(),
        }
    }

    /// Sets how it is verified, before anything of it arrives and if nothing of it is
    /// [`Self::present`]. What goes into a store is always verified by BLAKE3.
    pub fn set_verification(&mut self, verification: Verification) {
        if let Self::Disk(partial) = self {
            partial.set_verification(verification);
        }
    }

    /// Hashes a span that is present: in what an earlier transfer left, or in the current file of
    /// that name, from which it is then copied. `None` if nothing is present.
    ///
    /// The span counts as the sender's unless data for it is written: the caller reports it to the
    /// sender, which sends spans with other values.
    ///
    /// # Errors
    /// The file cannot be read, or the copy cannot be written.
    pub fn present(&mut self, span: u64) -> Result<Option<ChainingValue>, Error> {
        match self {
            Self::Disk(partial) => partial.present(span),
            Self::Store(partial) => Ok(partial.present(span)),
        }
    }

    /// Returns the first span from `from` on that may be [`Self::present`]. Holes are skipped: an
    /// offer may have more spans than anybody can ask for.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn next_present(&self, from: u64) -> Result<Option<u64>, Error> {
        match self {
            Self::Disk(partial) => partial.next_present(from),
            Self::Store(partial) => Ok(partial.next_present(from)),
        }
    }

    /// Writes bytes at an offset, in any order. Bytes that arrived before are not written again;
    /// returns how many were written. Pieces of 64 KiB and more that follow others are hashed from
    /// `bytes`; smaller ones are read back, but none for a CRC. Waits while too much of the file
    /// waits for a store.
    ///
    /// # Errors
    /// They are beyond the file's end, cannot be written (they may arrive again), or there are too
    /// many separate pieces.
    pub fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<u64, Error> {
        match self {
            Self::Disk(partial) => partial.write_at(offset, bytes),
            Self::Store(partial) => partial.write_at(offset, bytes),
        }
    }

    /// Does what [`Self::write_at`] does with `len` zeros, which use no disk space if the file
    /// system supports holes.
    ///
    /// # Errors
    /// As those of `write_at`.
    pub fn write_zeros(&self, offset: u64, len: u64) -> Result<u64, Error> {
        match self {
            Self::Disk(partial) => partial.write_zeros(offset, len),
            Self::Store(partial) => partial.write_zeros(offset, len),
        }
    }

    /// Returns the size in bytes of the current file of that name when it was opened, if its
    /// content may be reused. Of an object only its spans are ([`Self::present`]).
    #[must_use]
    pub fn old_size(&self) -> Option<u64> {
        match self {
            Self::Disk(partial) => partial.old_size(),
            Self::Store(_) => None,
        }
    }

    /// Describes ranges of the current file of that name, as [`Reader::describe`] does.
    ///
    /// [`Reader::describe`]: super::Reader::describe
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
        match self {
            Self::Disk(partial) => partial.describe_old(ranges, size, kind, each),
            Self::Store(_) => Err(self.not_reused()),
        }
    }

    /// Copies `len` bytes at the offset `from` of the current file of that name to the offset `to`,
    /// as [`Self::write_at`] writes them. Returns how many were written.
    ///
    /// # Errors
    /// There is no such file, it cannot be read, or the range is beyond its end; else as those of
    /// `write_at`.
    pub fn copy_old(&self, from: u64, to: u64, len: u64) -> Result<u64, Error> {
        match self {
            Self::Disk(partial) => partial.copy_old(from, to, len),
            Self::Store(_) => Err(self.not_reused()),
        }
    }

    fn not_reused(&self) -> Error {
        let done = "made from its old version";
        Error::new(self.path().as_bytes(), done, ErrorKind::Missing)
    }

    /// Returns the bytes of complete spans, without those that were [`Self::present`].
    #[must_use]
    pub fn came(&self) -> u64 {
        match self {
            Self::Disk(partial) => partial.came(),
            Self::Store(partial) => partial.came(),
        }
    }

    /// Returns the number of complete spans, including those that were [`Self::present`].
    #[must_use]
    pub fn whole_spans(&self) -> u64 {
        match self {
            Self::Disk(partial) => partial.whole_spans(),
            Self::Store(partial) => partial.whole_spans(),
        }
    }

    /// Keeps the values of spans that arrive from now on, up to 90 bytes of memory for each, for
    /// [`Self::known`]: the caller lets no more than [`MAX_REMEMBERED`] arrive. Returns whether this
    /// is possible: in a store only of a file of which others store parts, and whose values are kept
    /// in any case.
    pub(crate) fn remember(&self) -> bool {
        match self {
            Self::Disk(partial) => {
                partial.remember();
                true
            }
            Self::Store(_) => false,
        }
    }

    /// Makes of spans that arrived and are [remembered](Self::remember) such as are
    /// [`Self::present`]: data for them replaces them, and they do not count as
    /// [having come](Self::came). Incomplete spans are discarded. No other thread writes meanwhile.
    pub(crate) fn reopen(&self) {
        match self {
            Self::Disk(partial) => partial.reopen(),
            // what it remembers are stored parts, which the request that completes it finds
            Self::Store(_) => {}
        }
    }

    /// Returns what is known of a complete span, if spans are [remembered](Self::remember).
    pub(crate) fn known(&self, span: u64) -> Option<KnownSpan> {
        match self {
            Self::Disk(partial) => partial.known(span),
            Self::Store(partial) => partial.known(span),
        }
    }

    /// Returns the number of spans of each part but the last, if the file is stored in parts. On a
    /// disk each span is one.
    pub(crate) fn part_spans(&self) -> Option<u64> {
        match self {
            Self::Disk(_) => Some(1),
            Self::Store(partial) => partial.part_spans(),
        }
    }

    /// Returns the name of its upload in a store, by which others join it; `None` on a disk, and of
    /// a file that is stored in one request.
    pub(crate) fn upload(&self) -> Option<[u8; UPLOAD_BYTES]> {
        match self {
            Self::Disk(_) => None,
            Self::Store(partial) => partial.upload(),
        }
    }

    /// Stores whole parts of a file in whose upload others take part, too
    /// ([`Root::begin_shared`]). All bytes of these spans have arrived or are present, and the
    /// spans have these values.
    ///
    /// [`Root::begin_shared`]: super::Root::begin_shared
    ///
    /// # Errors
    /// A part cannot be stored, or has other values.
    pub(crate) fn store_range(
        &self,
        spans: &Range<u64>,
        values: &[ChainingValue],
    ) -> Result<(), Error> {
        match self {
            Self::Disk(_) => Ok(()),
            Self::Store(partial) => partial.store_range(spans, values),
        }
    }

    /// Leaves the upload to others, with the parts that were stored.
    ///
    /// # Errors
    /// Another server has taken it over, or the store refuses.
    pub(crate) fn leave(&self) -> Result<(), Error> {
        match self {
            Self::Disk(_) => Ok(()),
            Self::Store(partial) => partial.leave(),
        }
    }

    /// Verifies the complete file and renames it, replacing the file or link of that name.
    ///
    /// # Errors
    /// Spans are missing: the data stays. The hash is wrong: the data is removed. The name now
    /// belongs to something that is not replaced, or the disk refuses: the data stays.
    pub fn finish(&self, seal: &Seal) -> Result<Stored, Error> {
        self.finish_with(seal, None)
    }

    /// Does what [`Self::finish`] does, and sets attributes, of which a store keeps none.
    ///
    /// # Errors
    /// As those of [`Self::finish`].
    pub fn finish_with(
        &self,
        seal: &Seal,
        attributes: Option<&Attributes>,
    ) -> Result<Stored, Error> {
        match self {
            Self::Disk(partial) => partial.finish_with(seal, attributes),
            Self::Store(partial) => partial.finish(seal),
        }
    }

    /// Syncs what was written to the disk. What goes into a store is durable when it is finished.
    pub(crate) fn sync(&self) -> Result<(), Error> {
        match self {
            Self::Disk(partial) => partial.sync(),
            Self::Store(_) => Ok(()),
        }
    }

    /// Removes the data.
    ///
    /// # Errors
    /// It cannot be removed.
    pub fn abandon(&self) -> Result<(), Error> {
        match self {
            Self::Disk(partial) => partial.abandon(),
            Self::Store(partial) => partial.abandon(),
        }
    }
}
