//! The messages of the control stream, in CBOR (RFC 8949).
//!
//! A message is an array of its number and a map of its fields, whose keys are numbers. Unknown
//! fields are ignored, so that a later version can add some. Everything is bounded: a message
//! by [`MAX_BYTES`], each list as its field says.

mod attributes;
mod bounded;
mod control;
mod delta;
mod frame;
mod limits;
mod parts;
#[cfg(test)]
mod tests;

pub use attributes::{Acls, Attributes, Keep, Links, Owner, TreeOptions, Xattr};
pub use control::{Message, TICKET_BYTES, VERSION};
pub use delta::{ChunkHash, ChunkKind, ChunkSize};
pub use frame::{Error, MAX_BYTES, body_len};
pub use limits::{
    MAX_ATTRIBUTE_BYTES, MAX_CHUNKS, MAX_COPY, MAX_DESCRIBED, MAX_HOLE, MAX_INLINE, MAX_LANES,
    MAX_LISTED, MAX_OPEN_FILES, MAX_PATTERNS, MAX_SHARES_LISTED, MAX_SOURCES, MAX_SUITES,
    MAX_UNANSWERED, MAX_VALUES, MAX_XATTRS,
};
pub use parts::{
    ANY_UPLOAD, Compress, DataHeader, EntryKind, ErrorCode, Inline, LanesAnswer, LanesOffer,
    Listed, ListedKind, PartsRequest, ShareTerms, StoreRequests, Time, UPLOAD_BYTES, Wanted,
};
