//! The names in a directory that is compared with another tree, or removed.

use headroom_transfer_proto::path::RelPath;

use super::error::Error;
use super::root::Root;
use super::{disk, store};

/// The names in a directory, in byte order.
#[derive(Debug)]
pub(super) enum Entries {
    Disk(disk::Entries),
    Store(Box<store::Entries>),
}

impl Entries {
    /// Opens a directory below a root; `None` is the root itself.
    pub(super) fn open(root: &Root, path: Option<RelPath>) -> Result<Self, Error> {
        Ok(match root {
            Root::Disk(root) => Self::Disk(disk::Entries::open(root, path)?),
            Root::Store(root) => Self::Store(Box::new(store::Entries::open(root, path)?)),
        })
    }

    /// Returns the path of the next name, and whether it is a directory.
    pub(super) fn next(&mut self) -> Result<Option<(RelPath, bool)>, Error> {
        match self {
            Self::Disk(entries) => entries.next(),
            Self::Store(entries) => entries.next(),
        }
    }

    /// Frees what can be opened again, until the next name is wanted.
    pub(super) fn rest(&mut self) {
        if let Self::Disk(entries) = self {
            entries.rest();
        }
    }

    /// Returns how many names are in memory.
    pub(super) fn held(&self) -> usize {
        match self {
            Self::Disk(entries) => entries.held(),
            Self::Store(entries) => entries.held(),
        }
    }
}
