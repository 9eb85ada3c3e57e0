//! What a sender offers, and what becomes of it.

use headroom_transfer_proto::message::{Time, UPLOAD_BYTES};
use headroom_transfer_proto::span::Hash;

/// A file as its sender offers it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Offer {
    /// Its size in bytes.
    pub size: u64,
    /// Its modification time at the sender.
    pub mtime: Time,
    /// Bytes that are not holes, if known; at most `size`. They must fit on the disk.
    pub data: u64,
    /// Whether content of the current file of that name may be reused.
    pub reuse: bool,
}

/// What a transfer does with a partial file that others write, too
/// ([`Root::begin_shared`](super::Root::begin_shared)). In a store the partial file is an upload,
/// and has a name; on a disk there is one for each offer, and names are ignored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PartialRole {
    /// It begins the partial file with all that earlier transfers have left, and writes ranges.
    /// None of them is at work any more.
    Begin,
    /// It writes ranges of the partial file with this name.
    Join([u8; UPLOAD_BYTES]),
    /// It writes ranges of the partial file that is there, or begins one.
    JoinOrBegin,
    /// It writes what is missing of the partial file with this name, and gives the file its name.
    /// Others stop.
    TakeOver([u8; UPLOAD_BYTES]),
    /// As [`Self::TakeOver`] of the partial file that is there; if there is none, it begins the
    /// whole file.
    TakeOverAny,
}

impl PartialRole {
    /// Whether it gives the file its name.
    pub(crate) fn finishes(self) -> bool {
        matches!(self, Self::TakeOver(_) | Self::TakeOverAny)
    }
}

/// What a complete file must be and get.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seal {
    /// Its hash, as its [`Verification`](headroom_transfer_proto::span::Verification) gives it.
    pub root: Hash,
    /// Permission bits; others than `0o777` are not set.
    pub mode: u32,
    /// Its modification time.
    pub mtime: Time,
    /// Whether to sync file and directory to the disk.
    pub fsync: bool,
}

/// A stored file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stored {
    /// Whether something else had the name.
    pub replaced: bool,
}
