//! Files of this machine: trees that are sent, and the root that is received
//! into. Everything here blocks, and nothing here knows of the network.
//!
//! A sender walks a [`Source`], opens each [`SourceFile`] and reads its
//! [`Reader`] anywhere; [`Reader::is_unchanged`] says at the end whether what was
//! read is one state of the file. A receiver has a [`Root`], which no name and no
//! link leads out of; [`Root::begin`] gives a [`Partial`], which takes octets in
//! any order, resumes what an earlier transfer left, and gets its name when its
//! BLAKE3 hash is the sender's.

mod attributes;
mod beneath;
mod change;
mod cleanup;
mod compare;
mod content;
mod error;
mod exclude;
mod extraneous;
mod metadata;
mod names;
mod partial;
mod progress;
mod ranges;
mod reader;
mod root;
mod source;
mod stream_file;
mod temporary;
#[cfg(test)]
mod tests;
mod unfinished;

pub use attributes::settable;
pub use cleanup::CleanupStats;
pub use compare::{Sent, Status};
pub use error::{Error, ErrorKind, FileType};
pub use exclude::{BadPattern, Excludes};
pub use extraneous::{CompareError, Extraneous, Removal};
pub use headroom_transfer_proto::message::{Attributes, Keep, Links, Time};
pub use metadata::Identity;
pub use metadata::Metadata;
#[cfg(test)]
pub(crate) use metadata::set_mtime_at;
pub use partial::{Offer, Partial, Seal, Stored};
pub(crate) use ranges::Ranges;
pub use reader::{Reader, SourceFile};
pub use root::{Listing, Root};
pub use source::{Found, Kind, Source};
pub use stream_file::StreamFile;
