//! Moves files between hosts: encrypted always, verified always, resumable always.

mod claims;
pub mod client;
mod control;
mod delivery;
mod door;
mod error;
pub mod files;
pub mod identity;
mod key;
mod lanes;
mod named;
mod place;
mod proof;
mod rate;
pub mod server;
mod session;
pub mod ssh;
#[cfg(test)]
mod tests;
pub mod trust;

pub use client::{Client, SyncOptions};
pub use delivery::{Event, Observer, Summary};
pub use error::Error;
pub use files::{BadPattern, Excludes};
pub use headroom_transfer_proto::message::{Compress, Listed, ListedKind, Time};
pub use headroom_transfer_proto::path;
pub use identity::Identity;
pub use key::{Fingerprint, ParseError as KeyError, PublicKey};
pub use place::{DEFAULT_PORT, Host, ParseError as PlaceError, Place};
pub use server::Server;

/// Runs something to its end, on threads for network and disk.
///
/// # Errors
/// The system gives no threads.
pub fn block_on<F: Future>(work: F) -> std::io::Result<F::Output> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let output = runtime.block_on(work);
    // what blocks on the disk and is of no use any more is not waited for
    runtime.shutdown_background();
    Ok(output)
}
