//! The client: put, get, sync, list, share links, and changes of names, over one connection.
//! Programs that divide a tree among several connections name its parts (`put_listed` and its
//! like).

mod connection;
mod copy;
mod listed;
mod names;
mod shares;
mod stream;
mod sync;

pub use connection::{Client, TIMEOUT, Trust, below_root};
pub use shares::{ShareOptions, SharedLink};
pub use sync::SyncOptions;
