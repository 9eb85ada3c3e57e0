//! Local files: trees to send, and the root to receive into. Everything here blocks, and
//! nothing here knows the network.
//!
//! A sender walks a [`Source`], opens each [`SourceFile`] and reads its [`Reader`] at any
//! offset; [`Reader::is_unchanged`] says at the end whether the file is still the same. A
//! receiver has a [`Root`], which no name and no link can leave; [`Root::begin`] returns a
//! [`Partial`], which accepts bytes in any order, resumes an earlier transfer, and gets its
//! name when its BLAKE3 hash is the sender's.

mod content;
mod disk;
mod error;
mod exclude;
mod extraneous;
mod metadata;
mod progress;
mod ranges;
mod temporary;
#[cfg(test)]
mod tests;

pub use disk::{
    CleanupStats, Found, Listing, Offer, Partial, Reader, Root, Seal, Sent, Source, SourceFile,
    SourceKind, Status, Stored, StreamFile, settable,
};
pub use error::{Error, ErrorKind, FileType};
pub use exclude::{BadPattern, Excludes};
pub use extraneous::{CompareError, Extraneous, Removal};
pub use headroom_transfer_proto::message::{Attributes, Keep, Links, Time};
pub use metadata::Identity;
pub use metadata::Metadata;
#[cfg(test)]
pub(crate) use metadata::set_mtime_at;
pub(crate) use ranges::Ranges;
