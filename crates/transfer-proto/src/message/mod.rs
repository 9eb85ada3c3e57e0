//! The messages of the control stream, in CBOR (RFC 8949).
//!
//! A message is an array of its number and a map of its fields, whose keys are numbers. Unknown
//! fields are ignored, so that a later version can add some. Everything is bounded: a message
//! by [`MOST_BYTES`], each list as its field says.

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
pub use frame::{Error, MOST_BYTES, body_len};
pub use limits::{
    MOST_ATTRIBUTE_BYTES, MOST_CHUNKS, MOST_COPY, MOST_DESCRIBED, MOST_HOLE, MOST_INLINE,
    MOST_LANES, MOST_LISTED, MOST_OPEN_FILES, MOST_PATTERNS, MOST_SHARES_LISTED, MOST_SOURCES,
    MOST_SUITES, MOST_UNANSWERED, MOST_VALUES, MOST_XATTRS,
};
pub use parts::{
    Compress, DataHeader, EntryKind, ErrorCode, Inline, LanesAnswer, LanesOffer, Listed,
    ListedKind, ShareTerms, StoreRequests, Time, Wanted,
};
