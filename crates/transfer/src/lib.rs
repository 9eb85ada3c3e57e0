//! Moves files between hosts: always encrypted, verified and resumable.
//!
//! A [`Server`] serves a directory to clients that its [`trust::AccessPolicy`] accepts. A
//! [`Client`] that trusts the server's key puts, gets, lists and syncs; an [`Observer`]
//! receives events. An interrupted transfer resumes when it is asked for again.
//!
//! ```
//! use std::sync::Arc;
//! use std::sync::atomic::{AtomicU64, Ordering};
//!
//! use headroom_transfer::client::{Client, Trust};
//! use headroom_transfer::server::{Options, Server};
//! use headroom_transfer::trust::{Access, AccessPolicy, AuthorizedKeys, KnownHosts};
//! use headroom_transfer::{Event, Host, Identity, Observer, block_on};
//!
//! /// Counts bytes. It is called from several threads.
//! #[derive(Default)]
//! struct Progress(AtomicU64);
//!
//! impl Observer for Progress {
//!     fn event(&self, event: Event<'_>) {
//!         match event {
//!             Event::Moved { bytes } => drop(self.0.fetch_add(bytes, Ordering::Relaxed)),
//!             Event::Failed { reason, .. } => eprintln!("{reason}"),
//!             _ => {}
//!         }
//!     }
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let folder = tempfile::tempdir()?;
//! let file = folder.path().join("report");
//! let content = vec![7; 3_000_000];
//! std::fs::write(&file, &content)?;
//! std::fs::create_dir(folder.path().join("served"))?;
//!
//! // both sides have a key; the server authorizes the client's
//! let server_identity = Identity::create(&folder.path().join("server-identity"))?;
//! let identity = Identity::create(&folder.path().join("identity"))?;
//! let mut keys = AuthorizedKeys::default();
//! keys.insert(identity.public(), Access::default());
//!
//! block_on(async {
//!     let policy = AccessPolicy { keys, ..AccessPolicy::default() };
//!     let options = Options::new(folder.path().join("served"), "127.0.0.1:0".parse()?, policy);
//!     let server = Server::bind(&server_identity, options)?;
//!     let (serving, address) = (server.clone(), server.address()?);
//!
//!     let host = Host::new(&address.ip().to_string(), address.port());
//!     let mut hosts = KnownHosts::read(&folder.path().join("known_hosts"))?;
//!     hosts.add(&host.known_as(), server_identity.public())?;
//!     let trust = Trust { hosts: &hosts, authority: None, fingerprint: None };
//!
//!     let moving = async {
//!         let mut client = Client::connect(&host, &identity, trust).await?;
//!         let progress = Arc::new(Progress::default());
//!         let put = client.put(&[file], b"reports/", false, progress.clone()).await?;
//!         assert_eq!((put.stored, put.failed), (1, 0));
//!         assert_eq!(progress.0.load(Ordering::Relaxed), 3_000_000);
//!
//!         let from = [b"reports/report".to_vec()];
//!         client.get(&from, &folder.path().join("copy"), false, progress).await?;
//!         client.close().await;
//!         server.close().await;
//!         Ok::<_, Box<dyn std::error::Error>>(())
//!     };
//!     // the server serves until it is closed
//!     let ((), moved) = tokio::join!(serving.serve(), moving);
//!     moved
//! })??;
//! assert_eq!(std::fs::read(folder.path().join("copy"))?, content);
//! # Ok(())
//! # }
//! ```

mod access;
mod admission;
mod claims;
pub mod client;
mod connection;
mod control;
mod delivery;
mod error;
mod failure;
pub mod files;
pub mod identity;
mod idle_socket;
mod key;
mod lanes;
mod mux;
mod owners;
mod path_policy;
mod proof;
mod quic;
mod rate;
mod remote_path;
mod retry;
pub mod server;
pub mod spread;
pub mod ssh;
mod streams;
#[cfg(test)]
mod tests;
pub mod trust;

mod flow_control;

pub use client::{Client, SyncOptions};
pub use delivery::{Delta, DividedFile, Event, FileVersion, Observer, StoredWhole, Summary};
pub use error::Error;
pub use files::{BadPattern, Excludes};
pub use headroom_transfer_proto::lane::{Chunk, Cipher};
pub use headroom_transfer_proto::message::{
    Compress, ErrorCode, Keep, Links, Listed, ListedKind, ShareTerms, Time, TreeOptions,
};
pub use headroom_transfer_proto::path;
pub use headroom_transfer_proto::rate::Priority;
pub use headroom_transfer_proto::span::Verification;
pub use identity::Identity;
pub use key::{Fingerprint, ParseError as KeyError, PublicKey};
pub use lanes::LaneOptions;
pub use mux::{MuxConnection, Outgoing};
pub use remote_path::{
    DEFAULT_PORT, Host, MAX_SERVERS, ParseError as RemotePathError, RemotePath, SpreadPath,
};
pub use retry::{Retry, with_retries};
pub use server::Server;

/// Threads that may wait for the disk at once: one for each transfer, and one for each piece
/// that is written or read. They are created on demand. With fewer than there are transfers,
/// all could wait for each other.
const DISK_THREADS: usize = 1 << 14;

/// Runs a future to its end, on threads for network and disk.
///
/// # Errors
/// The system cannot create threads.
pub fn block_on<F: Future>(work: F) -> std::io::Result<F::Output> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = builder.enable_all().max_blocking_threads(DISK_THREADS).build()?;
    let output = runtime.block_on(work);
    // threads that block on the disk are not waited for
    runtime.shutdown_background();
    Ok(output)
}
