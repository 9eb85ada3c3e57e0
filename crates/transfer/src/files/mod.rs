//! Trees to send, and the root to receive into: on this machine's disks (`disk`), or in an object
//! store (`store`). Everything here blocks, and nothing here knows the transfer's protocol.
//!
//! A sender walks a [`Source`], opens each [`SourceFile`] and reads its [`Reader`] at any
//! offset; [`Reader::is_unchanged`] says at the end whether the file is still the same. A
//! receiver has a [`Root`], which no name and no link can leave; [`Root::begin`] returns a
//! [`Partial`], which accepts bytes in any order, resumes an earlier transfer, and gets its
//! name when its BLAKE3 hash is the sender's.

mod chunks;
mod cleanup;
mod compare;
mod content;
mod disk;
mod entries;
mod error;
mod exclude;
mod extraneous;
mod found;
mod metadata;
mod offer;
mod partial;
mod progress;
mod ranges;
mod reader;
mod remaining;
mod removing;
pub(crate) mod requests;
mod root;
mod source;
mod store;
mod stream_file;
mod temporary;
#[cfg(test)]
mod tests;

pub use cleanup::CleanupStats;
pub use compare::{Sent, Status};
pub use disk::settable;
pub use error::{Error, ErrorKind, FileType};
pub use exclude::{BadPattern, Excludes};
pub use extraneous::{CompareError, Extraneous, Removal};
pub use found::{Found, SourceKind};
pub use headroom_transfer_proto::message::{Attributes, Keep, Links, Time};
pub use metadata::Identity;
pub use metadata::Metadata;
#[cfg(test)]
pub(crate) use metadata::set_mtime_at;
pub(crate) use offer::PartialRole;
pub use offer::{Offer, Seal, Stored};
pub(crate) use partial::MAX_REMEMBERED;
pub use partial::Partial;
pub(crate) use progress::KnownSpan;
pub(crate) use ranges::Ranges;
pub use reader::{Reader, SourceFile};
pub(crate) use remaining::Remaining;
pub use root::{Listing, Root};
pub use source::Source;
pub use store::{Requests, StoreOptions};
pub use stream_file::StreamFile;
