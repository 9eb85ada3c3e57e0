//! Which numbers were used under which key, kept so that none is used twice:
//! not after a crash, not after a restart, not with a copy of the ledger from a
//! backup.
//!
//! AES-GCM and ChaCha20-Poly1305 make their nonce from the sequence number. Two
//! packets with one number under one key give the key stream away (RFC 4106 §2),
//! so a counter that starts anew with keys from a file would be fatal. RFC 4303
//! §3.3.3 asks for the counter to be kept.
//!
//! Numbers are reserved ahead, in blocks: [`Ledger::commit`] returns when both
//! copies of the ledger are durable, and only then may a number of the block be
//! used. After a crash counting goes on behind the block. There are two copies,
//! one beside the configuration and a *witness* elsewhere, each with the number
//! of times it was written. The witness is written first. A copy that was put
//! back from a backup is behind its sister, and both are refused.

mod book;
mod disk;
mod error;
mod keeper;
mod lock;
mod place;
mod store;

pub use book::{Account, Book, Way};
pub use disk::{Disk, RealDisk};
pub use error::Error;
pub use keeper::{Keeper, MARKED_EVERY};
pub use place::{Place, WITNESS_FOLDER};
pub use store::{Ledger, random_id};
