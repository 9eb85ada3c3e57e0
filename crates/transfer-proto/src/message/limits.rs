//! How much a message may hold.

/// Files up to this size travel within their `Message::Entry`.
pub const MOST_INLINE: usize = 64 << 10;
/// The most chaining values in one `Message::Have`.
pub const MOST_VALUES: usize = 16 << 10;
/// The most sources of one `Message::Get`.
pub const MOST_SOURCES: usize = 1024;
/// The most names in one `Message::Listing`.
pub const MOST_LISTED: usize = 1024;
/// The most lanes of one transfer.
pub const MOST_LANES: usize = 8;
/// The most suites in one `LanesOffer`.
pub const MOST_SUITES: usize = 16;
/// The most files offered without content that may wait for their end at once.
pub const MOST_OPEN_FILES: usize = 64;
/// The most entries that may wait for their answers at once.
pub const MOST_UNANSWERED: usize = 4096;
/// The most bytes of one `Message::Hole`.
pub const MOST_HOLE: u64 = 64 << 20;
/// The most ranges of one `Message::Describe`.
pub const MOST_DESCRIBED: usize = 4096;
/// The most chunks of one `Message::Described`.
pub const MOST_CHUNKS: usize = 16 << 10;
/// The most bytes of one `Message::Copy`.
pub const MOST_COPY: u64 = 64 << 20;
/// The most patterns of one `Message::Sync`.
pub const MOST_PATTERNS: usize = 256;
/// The most extended attributes of one entry.
pub const MOST_XATTRS: usize = 64;
/// The most bytes of all attributes of one entry, names and values.
pub const MOST_ATTRIBUTE_BYTES: usize = 16 << 10;
/// The most shares in one `Message::SharesListed`.
pub const MOST_SHARES_LISTED: usize = 64;
