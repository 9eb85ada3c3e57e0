//! How what is to be stored compares with what is there.

use headroom_transfer_proto::message::{Attributes, Time};
use headroom_transfer_proto::span::Hash;

use super::error::FileType;

/// An entry of a sender.
#[derive(Debug, Clone, Copy)]
pub enum Sent<'a> {
    /// A directory.
    Directory {
        /// Mode bits.
        mode: u32,
    },
    /// A symbolic link.
    Symlink {
        /// Its target.
        target: &'a [u8],
    },
    /// A file.
    File {
        /// Bytes.
        size: u64,
        /// Permission bits.
        mode: u32,
        /// When it was changed.
        mtime: Time,
        /// Its hash, if files are compared by it and not by size and time.
        hash: Option<Hash>,
        /// Its attributes, if any are kept.
        attributes: Option<&'a Attributes>,
    },
}

/// How what has a name here compares with the sender's entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// Nothing has the name.
    Missing,
    /// It is the same.
    Same,
    /// It has the same content, with other permissions or another time.
    MetadataDiffers,
    /// It has the same type, with other content.
    ContentDiffers,
    /// It has another type.
    TypeDiffers(FileType),
}

/// Whether a file here has the sender's time. Some file systems store only seconds.
pub(super) fn is_time(here: Time, sent: Time) -> bool {
    here.seconds == sent.seconds && (here.nanoseconds == 0 || here.nanoseconds == sent.nanoseconds)
}
