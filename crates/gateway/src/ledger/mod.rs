//! The ledger remembers which sequence numbers were used with which key, so that none is used
//! twice: not after a crash, not after a restart, not with a copy of the ledger from a backup.
//!
//! AES-GCM and ChaCha20-Poly1305 make their nonce from the sequence number. Two
//! packets with one number under one key give the key stream away (RFC 4106 §2),
//! so a counter that starts anew with keys from a file would be fatal. RFC 4303
//! §3.3.3 asks for the counter to be kept.
//!
//! Numbers are reserved ahead, in blocks: [`Ledger::commit`] returns when both
//! copies of the ledger are durable, and only then may a number of the block be
//! used. After a crash, counting continues behind the block. There are two copies, one beside the
//! configuration and a second one elsewhere, each with the number of times it was written. The
//! second copy is written first. A copy that was restored from a backup is older than the other,
//! and both are refused.

mod disk;
mod error;
mod lock;
mod paths;
mod state;
mod store;
mod writer;

pub use disk::{Disk, RealDisk};
pub use error::Error;
pub use lock::try_lock;
pub use paths::{COPY_FOLDER, LedgerPaths};
pub use state::{KeyId, LedgerState};
pub use store::{Ledger, random_id};
pub use writer::{LedgerWriter, WINDOW_SAVE_INTERVAL};
