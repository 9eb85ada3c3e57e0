//! A name of a listing, from a directory here or a server.

use headroom_transfer::files::{FileType, Metadata};
use headroom_transfer::path::RelPath;
use headroom_transfer::{Error as TransferError, Listed, ListedKind, Time};

use crate::entry::Kind;

/// A name in a directory, as the source describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Found {
    Entry(Kind),
    /// Something that is never copied.
    LeftOut,
}

/// Refuses names that no server sends: names below the directory, or out of order, by which one
/// file could be listed twice.
pub(crate) fn check(last: Option<&RelPath>, found: &Listed) -> Result<(), TransferError> {
    let is_single = found.path.components().count() == 1;
    let is_next = last.is_none_or(|last| last.as_bytes() < found.path.as_bytes());
    match is_single && is_next {
        true => Ok(()),
        false => {
            let reason = format!("its listing has {} in the wrong place", found.path);
            Err(TransferError::Protocol(reason))
        }
    }
}

pub(super) fn of_metadata(metadata: &Metadata, target: impl FnOnce() -> Option<Vec<u8>>) -> Found {
    let &Metadata { file_type, size, mode, mtime, .. } = metadata;
    match file_type {
        FileType::File => Found::Entry(Kind::File { size, mode, mtime, ranges: 0 }),
        FileType::Directory => Found::Entry(Kind::Directory { mode, mtime }),
        FileType::Symlink => of_link(target(), mtime),
        FileType::Pipe | FileType::Socket | FileType::Device => Found::LeftOut,
    }
}

pub(crate) fn of_listed(listed: &Listed) -> Found {
    let &Listed { kind, size, mode, mtime, .. } = listed;
    match kind {
        ListedKind::File => Found::Entry(Kind::File { size, mode, mtime, ranges: 0 }),
        ListedKind::Directory => Found::Entry(Kind::Directory { mode, mtime }),
        ListedKind::Symlink => of_link(listed.target.clone(), mtime),
        ListedKind::Other => Found::LeftOut,
    }
}

fn of_link(target: Option<Vec<u8>>, mtime: Time) -> Found {
    target.map_or(Found::LeftOut, |target| Found::Entry(Kind::Symlink { target, mtime }))
}
