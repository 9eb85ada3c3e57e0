//! What a store has to be able to do, one request a call.

use std::fmt;
use std::ops::Range;
use std::time::SystemTime;

use async_trait::async_trait;
use bytes::Bytes;

use crate::metadata::Metadata;
use crate::version::{Condition, Version};

/// A store's requests, without repetition, counts and limits, which [`Store`](crate::Store) adds
/// to any of them. Keys are whole, with the prefix of the store; one that ends in `/` is the
/// marker of a directory.
#[async_trait]
pub trait Backend: fmt::Debug + Send + Sync + 'static {
    /// Lists one page of one level: objects whose keys begin with `prefix` and have no `/` after
    /// it, and the prefixes of the others up to that `/`. `page` is what the page before said.
    async fn list(&self, prefix: &str, page: Option<&str>) -> Result<Page, Failure>;

    /// Asks for size, version and metadata.
    async fn head(&self, key: &str) -> Result<Head, Failure>;

    /// Reads at most a range, and says what it is part of.
    async fn get(
        &self,
        key: &str,
        range: Range<u64>,
        version: Option<&Version>,
    ) -> Result<(Head, Bytes), Failure>;

    /// Stores an object.
    async fn put(
        &self,
        key: &str,
        content: Bytes,
        metadata: &Metadata,
        condition: &Condition,
    ) -> Result<Version, Failure>;

    /// Copies an object with its metadata.
    async fn copy(&self, from: &str, to: &str, replace: bool) -> Result<(), Failure>;

    /// Deletes an object, which need not be there.
    async fn delete(&self, key: &str) -> Result<(), Failure>;

    /// Begins an upload, and returns its name.
    async fn create_upload(&self, key: &str, metadata: &Metadata) -> Result<String, Failure>;

    /// Stores a part, counted from 0, and returns what completion needs to name it.
    async fn put_part(
        &self,
        key: &str,
        upload: &str,
        part: u32,
        content: Bytes,
    ) -> Result<String, Failure>;

    /// Makes an object of all parts. `metadata` is that of the beginning, once more.
    async fn complete_upload(
        &self,
        key: &str,
        upload: &str,
        parts: Vec<String>,
        metadata: &Metadata,
        condition: &Condition,
    ) -> Result<Version, Failure>;

    /// Gives an upload up.
    async fn abort_upload(&self, key: &str, upload: &str) -> Result<(), Failure>;

    /// Says whether it is known to honour the [`Condition`] of a write. Otherwise a client tries
    /// that before the first upload in parts.
    fn honours_conditions(&self) -> bool {
        true
    }

    /// Says whether it can hold markers of directories.
    fn keeps_directories(&self) -> bool {
        true
    }
}

/// What a store answers about an object.
#[derive(Clone, Debug)]
pub struct Head {
    /// Bytes of the whole object.
    pub size: u64,
    /// When it was stored.
    pub modified: SystemTime,
    /// Its version.
    pub version: Version,
    /// Its user metadata.
    pub metadata: Metadata,
}

/// A page of a listing.
#[derive(Clone, Debug, Default)]
pub struct Page {
    /// The objects.
    pub objects: Vec<Listed>,
    /// The prefixes below which there are more, each with its `/`.
    pub prefixes: Vec<String>,
    /// What asks for the next page, if there is one.
    pub next: Option<String>,
}

/// An object of a listing.
#[derive(Clone, Debug)]
pub struct Listed {
    /// Its whole key.
    pub key: String,
    /// Its bytes.
    pub size: u64,
    /// When it was stored.
    pub modified: SystemTime,
    /// Its version, if the listing says it.
    pub version: Version,
}

/// Why a request failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The kind, by which it is repeated or not.
    pub kind: FailureKind,
    /// What was found, without credentials and URLs.
    pub text: String,
}

/// Kinds of failures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureKind {
    /// The object, the upload or the bucket is not there.
    NotFound,
    /// A condition was not met.
    Changed,
    /// Another write was in the way. It is repeated.
    Conflict,
    /// The store refuses.
    Refused,
    /// The store asks for fewer requests (503, 429). It is repeated.
    Slow,
    /// An error of the store or of the network. It is repeated.
    Passing,
    /// The store has no such operation.
    Unsupported,
    /// The request or its answer makes no sense.
    Invalid,
}

impl Failure {
    /// Makes a failure.
    pub fn new(kind: FailureKind, text: impl Into<String>) -> Self {
        Self { kind, text: text.into() }
    }
}

impl FailureKind {
    /// Says whether the request is made again.
    pub fn is_passing(self) -> bool {
        matches!(self, Self::Conflict | Self::Slow | Self::Passing)
    }
}
