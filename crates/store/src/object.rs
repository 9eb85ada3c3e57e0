//! What is in a store.

use std::time::SystemTime;

use crate::metadata::Metadata;
use crate::version::Version;

/// An object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    /// The last component of its key; in recursive listings the path below the directory.
    pub name: String,
    /// Its bytes.
    pub size: u64,
    /// When it was stored, by the store's clock.
    pub modified: SystemTime,
    /// Its version, unknown in the listings of some servers.
    pub version: Version,
    /// Its user metadata; listings have none.
    pub metadata: Option<Metadata>,
}

/// What a listing has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    /// An object.
    Object(Object),
    /// A directory: a prefix of other keys, or one with a marker.
    Directory(String),
}

impl Entry {
    /// Its name.
    pub fn name(&self) -> &str {
        match self {
            Self::Object(object) => &object.name,
            Self::Directory(name) => name,
        }
    }
}
