//! Files on this machine's disks.

mod attributes;
mod beneath;
mod change;
mod cleanup;
mod compare;
mod delta;
mod entries;
mod last_directory;
mod locked;
mod names;
mod open;
mod partial;
mod reader;
mod replace;
mod root;
mod small;
mod source;
mod space;
mod stream_file;
mod unfinished;

pub use attributes::settable;
pub(super) use entries::Entries;
pub(super) use partial::Partial;
pub(super) use reader::{Reader, SourceFile};
pub(super) use root::{Listing, Root};
pub(super) use source::Source;
pub(super) use stream_file::StreamFile;
