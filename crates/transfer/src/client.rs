//! The client: put, get, sync, list, and changes of names, over one connection.

mod connection;
mod copy;
mod names;
mod stream;
mod sync;

pub use connection::{Client, TIMEOUT, Trust, below_root};
pub use sync::SyncOptions;
