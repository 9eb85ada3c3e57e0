//! The servers and clients that the lab measures, from one tree of Debian packages, each pinned by
//! its SHA-256, libc included: the same on every Linux. It is fetched and unpacked without apt,
//! dpkg, maintainer scripts or root, and entered as the root file system of a run.

mod archive;
mod error;
mod fetch;
mod loader;
mod lock;
mod root;
mod tree;
mod unpack;

pub use archive::archive_of_this_machine;
pub use error::{Error, Result};
pub use fetch::Progress;
pub use root::{enter, entered, stays};
pub use tree::Tree;
