//! Trees in an object store.
//!
//! The object of a file has the file's path as its key. A directory is a prefix of keys; one that
//! was made, perhaps empty, also has a marker: an empty object whose key ends with `/`. Modes and
//! times are metadata of objects and markers, and a symbolic link is an empty object with its
//! target there (`tags`). Objects of other programs are files of mode 0644 with the store's time.
//!
//! A large file is received into an unnamed file on a disk, the spool, and its parts are stored as
//! they become whole (`parts`), so that the spool holds a window of it.

mod ahead;
mod budget;
mod compare;
mod directories;
mod entries;
mod error;
mod known;
mod listing;
mod names;
mod partial;
mod parts;
mod reader;
mod root;
mod sorted;
mod source;
mod spool;
mod stream_file;
mod tags;
#[cfg(test)]
mod tests;
mod threads;
mod whole;
mod windows;

pub(super) use entries::Entries;
pub use headroom_store::Requests;
pub(super) use known::Making;
pub(super) use listing::Listing;
pub(super) use partial::Partial;
pub(super) use reader::{Reader, SourceFile};
pub(super) use root::Root;
pub use root::StoreOptions;
pub(super) use source::Source;
pub(super) use stream_file::StreamFile;
pub(super) use threads::Running;
