//! How much a message may hold.

/// Files up to this size travel within their `Message::Entry`.
pub const MAX_INLINE: usize = 64 << 10;
/// The most chaining values in one `Message::Have`.
pub const MAX_VALUES: usize = 16 << 10;
/// The most sources of one `Message::Get`.
pub const MAX_SOURCES: usize = 1024;
/// The most names in one `Message::Listing`.
pub const MAX_LISTED: usize = 1024;
/// The most lanes of one transfer.
pub const MAX_LANES: usize = 8;
/// The most suites in one `LanesOffer`.
pub const MAX_SUITES: usize = 16;
/// The most files offered without content that may wait for their end at once.
pub const MAX_OPEN_FILES: usize = 64;
/// The most entries that may wait for their answers at once.
pub const MAX_UNANSWERED: usize = 4096;
/// The most bytes of one `Message::Hole`.
pub const MAX_HOLE: u64 = 64 << 20;
/// The most ranges of one `Message::Describe`.
pub const MAX_DESCRIBED: usize = 4096;
/// The most chunks of one `Message::Described`.
pub const MAX_CHUNKS: usize = 16 << 10;
/// The most bytes of one `Message::Copy`.
pub const MAX_COPY: u64 = 64 << 20;
/// The most patterns of one `Message::Sync`.
pub const MAX_PATTERNS: usize = 256;
/// The most extended attributes of one entry.
pub const MAX_XATTRS: usize = 64;
/// The most bytes of all attributes of one entry, names and values.
pub const MAX_ATTRIBUTE_BYTES: usize = 16 << 10;
/// The most shares in one `Message::SharesListed`.
pub const MAX_SHARES_LISTED: usize = 64;
