//! Files of unknown length: written from the beginning, and stored at their end.

use std::io::{self, Write};

use super::error::Error;
use super::{disk, store};

/// A file of unknown length. Nothing of it stays if it is dropped before [`Self::finish`].
#[derive(Debug)]
pub enum StreamFile {
    /// On a disk of this machine, under a temporary name.
    Disk(disk::StreamFile),
    /// In an object store.
    Store(store::StreamFile),
}

impl Write for StreamFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Disk(file) => file.write(bytes),
            Self::Store(file) => file.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Disk(file) => file.flush(),
            Self::Store(file) => file.flush(),
        }
    }
}

impl StreamFile {
    /// Makes the error for a failed write.
    #[must_use]
    pub fn error(&self, error: io::Error) -> Error {
        match self {
            Self::Disk(file) => file.error(error),
            Self::Store(file) => file.error(error),
        }
    }

    /// Gives it its name, replacing a file or link of that name, and sets the permissions of the
    /// replaced file, or those of any new file.
    ///
    /// # Errors
    /// The name belongs to something that is not replaced, or it cannot be stored.
    pub fn finish(self, fsync: bool) -> Result<(), Error> {
        match self {
            Self::Disk(file) => file.finish(fsync),
            Self::Store(file) => file.finish(),
        }
    }
}
