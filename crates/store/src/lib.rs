//! Object stores (S3 and its kin, Google Cloud Storage, Azure Blob Storage) as blocking calls.
//!
//! A [`Store`] is a bucket, or what is below a prefix of one. Its calls block the calling thread
//! and drive their requests on a tokio runtime that the caller owns: call them from threads of
//! the standard library or from `spawn_blocking`, never from a task, where they would panic. The
//! runtime has to be a multi-threaded one.
//!
//! - Requests are repeated with backoff and jitter; a store that asks for less gets fewer requests
//!   at a time; [`Store::requests`] counts them by kind, because stores charge by kind.
//! - [`Upload`] stores a large object in parts. What another process needs to continue it lies
//!   in the store as a small object, its journal; conditional writes keep two writers apart.
//! - A store's answers are not trusted: lengths, versions, names and pages are checked, and what
//!   an answer can occupy in memory is bounded.
//! - No error and no `Debug` has a credential or a signed URL in it.
//!
//! Names below `.headroom/` are this crate's own: journals in `.headroom/uploads/`, hashes of
//! large objects in `.headroom/records/`.

mod address;
mod backend;
mod client;
mod cloud;
mod error;
mod journal;
mod key;
mod listing;
mod memory;
mod metadata;
mod object;
mod owner;
mod pages;
mod record;
mod requests;
mod slots;
mod store;
mod upload;
mod version;

pub use backend::{Backend, Failure, FailureKind, Head, Listed, Page};
pub use client::Patience;
pub use error::Error;
pub use listing::{ListAll, Listing};
pub use memory::Memory;
pub use metadata::Metadata;
pub use object::{Entry, Object};
pub use record::{Record, SPAN};
pub use requests::Requests;
pub use store::Store;
pub use upload::{Upload, UploadOffer};
pub use version::{Condition, Version};
