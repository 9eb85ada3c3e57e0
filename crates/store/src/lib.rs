//! Object stores (S3 and what is compatible with it, Google Cloud Storage, Azure Blob Storage) as
//! blocking calls.
//!
//! A [`Store`] is a bucket, or what is below a prefix of one. Its calls block the calling thread
//! and drive their requests on a tokio runtime that the caller owns: call them from threads of
//! the standard library or from `spawn_blocking`, never from a task, where they would panic. A
//! task has [`Store::read_object_async`] for many small objects. The runtime has to be a
//! multi-threaded one.
//!
//! - A client retries requests with backoff and jitter, and sends fewer at a time when the store
//!   answers 503 or 429. [`Store::requests`] counts them by kind, because stores charge by kind.
//! - [`Upload`] stores a large object in parts. A small object beside it, its journal, has what
//!   another process needs to resume it. Conditional writes of the journal keep two writers apart.
//!   Several servers can store parts of one upload, each with a journal of its own beside it.
//! - A client does not trust a store's answers: it checks lengths, versions, names and pages, and
//!   bounds the memory that an answer can occupy.
//! - No error and no `Debug` has a credential or a signed URL in it.
//!
//! This crate reserves the names below `.headroom/`: journals in `.headroom/uploads/`, hashes of
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
mod replace;
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
pub use replace::{Expected, Replaced};
pub use requests::Requests;
pub use store::Store;
pub use upload::{Upload, UploadOffer};
pub use version::{Condition, Version};
