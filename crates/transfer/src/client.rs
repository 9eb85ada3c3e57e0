//! The client: put, get, sync, list, share links, and changes of names, over one connection.

mod connection;
mod copy;
mod names;
mod shares;
mod stream;
mod sync;

pub use connection::{Client, TIMEOUT, Trust, below_root};
pub use shares::{ShareOptions, SharedLink};
pub use sync::SyncOptions;
