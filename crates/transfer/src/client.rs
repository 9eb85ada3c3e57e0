//! The client: put, get, sync, list, share links, and changes of names, over one connection.
//! Programs that divide a tree among several connections name its parts (`put_listed` and its
//! like).

mod connection;
mod copy;
mod listed;
mod names;
mod parts;
mod ranges;
mod rest;
mod shares;
mod stream;
mod sync;

pub use connection::{Client, TIMEOUT, Trust, addresses, below_root};
pub(crate) use copy::{here, make_directories, names_contents, names_directory, remove_if_failed};
pub use parts::SentRange;
pub use shares::{ShareOptions, SharedLink};
pub use sync::SyncOptions;
