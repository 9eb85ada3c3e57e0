//! Files on this machine's disks.

mod attributes;
pub(super) mod beneath;
mod change;
mod cleanup;
mod compare;
pub(super) mod names;
pub(super) mod partial;
pub(super) mod reader;
pub(super) mod root;
pub(super) mod source;
pub(super) mod stream_file;
mod unfinished;

pub use attributes::settable;
pub use cleanup::CleanupStats;
pub use compare::{Sent, Status};
pub use partial::{Offer, Partial, Seal, Stored};
pub use reader::{Reader, SourceFile};
pub use root::{Listing, Root};
pub use source::{Found, Source, SourceKind};
pub use stream_file::StreamFile;
