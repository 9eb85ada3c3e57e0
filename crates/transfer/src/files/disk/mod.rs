//! Files on this machine's disks.

mod attributes;
mod beneath;
mod change;
mod cleanup;
mod compare;
mod delta;
mod entries;
mod names;
mod partial;
mod reader;
mod root;
mod source;
mod stream_file;
mod unfinished;

pub use attributes::settable;
pub(super) use entries::Entries;
pub use partial::Partial;
pub use reader::{Reader, SourceFile};
pub use root::{Listing, Root};
pub use source::Source;
pub use stream_file::StreamFile;
