//! Files to send, and their content.

use std::ops::Range;

use headroom_transfer_proto::message::{ChunkHash, ChunkKind, ChunkSize};
use headroom_transfer_proto::path::RelPath;
use headroom_transfer_proto::span::{ChainingValue, Hash, Spans, Verification};

use super::error::Error;
use super::metadata::Metadata;
use super::{disk, store};

/// A file that was found, and is not open yet.
#[derive(Debug, Clone)]
pub enum SourceFile {
    /// On a disk of this machine.
    Disk(disk::SourceFile),
    /// In an object store.
    Store(Box<store::SourceFile>),
}

impl SourceFile {
    /// Returns the name under which it is sent.
    #[must_use]
    pub fn path(&self) -> &RelPath {
        match self {
            Self::Disk(file) => file.path(),
            Self::Store(file) => file.path(),
        }
    }

    /// Whether reading it waits for another machine.
    #[must_use]
    pub fn is_remote(&self) -> bool {
        matches!(self, Self::Store(_))
    }

    /// Returns its metadata when it was found.
    #[must_use]
    pub fn metadata(&self) -> &Metadata {
        match self {
            Self::Disk(file) => file.metadata(),
            Self::Store(file) => file.metadata(),
        }
    }

    /// Opens the file.
    ///
    /// # Errors
    /// It cannot be read, or has changed.
    pub fn open(&self) -> Result<Reader, Error> {
        Ok(match self {
            Self::Disk(file) => Reader::Disk(file.open()?),
            Self::Store(file) => Reader::Store(Box::new(file.open()?)),
        })
    }

    /// Opens the file, even if its content has changed since.
    ///
    /// # Errors
    /// It cannot be read, is another file, or is shorter than it was.
    pub fn open_changed(&self) -> Result<Reader, Error> {
        Ok(match self {
            Self::Disk(file) => Reader::Disk(file.open_changed()?),
            // what is read is the content that was found, or an error
            Self::Store(file) => Reader::Store(Box::new(file.open()?)),
        })
    }

    /// Opens the file that a walk has found just now, as [`Self::open`] or, if it is `changing`, as
    /// [`Self::open_changed`], with fewer look-ups.
    ///
    /// # Errors
    /// Those of these methods.
    pub fn open_found(&self, changing: bool) -> Result<Reader, Error> {
        Ok(match self {
            Self::Disk(file) => Reader::Disk(file.open_found(changing)?),
            Self::Store(file) => Reader::Store(Box::new(file.open()?)),
        })
    }
}

/// A file that is being sent. Several threads may read it at once.
#[derive(Debug)]
pub enum Reader {
    /// On a disk of this machine.
    Disk(disk::Reader),
    /// In an object store.
    Store(Box<store::Reader>),
}

impl Reader {
    /// Sets how its spans are verified. Those of an object always are by BLAKE3.
    #[must_use]
    pub fn verified_by(self, verification: Verification) -> Self {
        match self {
            Self::Disk(reader) => Self::Disk(reader.verified_by(verification)),
            Self::Store(reader) => Self::Store(reader),
        }
    }

    /// Returns its size in bytes when it was found.
    #[must_use]
    pub fn size(&self) -> u64 {
        match self {
            Self::Disk(reader) => reader.size(),
            Self::Store(reader) => reader.size(),
        }
    }

    /// Returns its spans.
    #[must_use]
    pub fn spans(&self) -> Spans {
        match self {
            Self::Disk(reader) => reader.spans(),
            Self::Store(reader) => Spans::new(reader.size()),
        }
    }

    /// Returns the name under which it is sent.
    #[must_use]
    pub fn path(&self) -> &RelPath {
        match self {
            Self::Disk(reader) => reader.source().path(),
            Self::Store(reader) => reader.source().path(),
        }
    }

    /// Reads until `buffer` is full or the file ends; returns how many bytes.
    ///
    /// # Errors
    /// It cannot be read, or is shorter than it was.
    pub fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize, Error> {
        match self {
            Self::Disk(reader) => reader.read_at(offset, buffer),
            Self::Store(reader) => reader.read_at(offset, buffer),
        }
    }

    /// Reads the whole file, whatever size it reports, but no more than `most` bytes.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn read_to_end(&self, most: usize) -> Result<Vec<u8>, Error> {
        match self {
            Self::Disk(reader) => reader.read_to_end(most),
            Self::Store(reader) => reader.read_to_end(most),
        }
    }

    /// Finds the next range of data at `from` or later; `None` up to the end.
    ///
    /// # Errors
    /// The file system refuses.
    pub fn next_data(&self, from: u64) -> Result<Option<Range<u64>>, Error> {
        match self {
            Self::Disk(reader) => reader.next_data(from),
            // objects have no holes
            Self::Store(reader) => Ok((from < reader.size()).then(|| from..reader.size())),
        }
    }

    /// Hashes a span; `None` if the file has no such span.
    ///
    /// # Errors
    /// It cannot be read, or is shorter than it was.
    pub fn span_value(&self, span: u64) -> Result<Option<ChainingValue>, Error> {
        match self {
            Self::Disk(reader) => reader.span_value(span),
            Self::Store(reader) => reader.span_value(span),
        }
    }

    /// Hashes the whole file.
    ///
    /// # Errors
    /// It cannot be read, or is shorter than it was.
    pub fn hash(&self) -> Result<Hash, Error> {
        match self {
            Self::Disk(reader) => reader.hash(),
            Self::Store(reader) => reader.hash(),
        }
    }

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
        match self {
            Self::Disk(reader) => reader.describe(ranges, size, kind, each),
            Self::Store(reader) => reader.describe(ranges, size, kind, each),
        }
    }

    /// Whether the file is still as it was found: size, modification time and change time, and no
    /// fewer links. So this also notices that another file replaced it, or that it was removed, but
    /// not that a directory of its path or a link to it now leads elsewhere. An object is as it was
    /// found, as [`Self::is_unchanged`] explains.
    ///
    /// # Errors
    /// The file system refuses.
    pub fn is_as_found(&self) -> Result<bool, Error> {
        match self {
            Self::Disk(reader) => reader.is_as_found(),
            Self::Store(_) => Ok(true),
        }
    }

    /// Whether the file is still as it was found, and its path still leads to it. Of an object
    /// every byte that was read is of the version that was found, whatever became of it since.
    ///
    /// # Errors
    /// The file system refuses.
    pub fn is_unchanged(&self) -> Result<bool, Error> {
        match self {
            Self::Disk(reader) => reader.is_unchanged(),
            Self::Store(_) => Ok(true),
        }
    }
}
