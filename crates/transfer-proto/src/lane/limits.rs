//! Limits of keys and packet lengths. The bounds are those of RFC 9001, section 6.6 and
//! appendix B; epochs end long before them.

/// Bytes of a tag.
pub const TAG_LEN: usize = 16;

/// The longest packet, as UDP payload. RFC 9001, appendix B.1, counts packets of
/// this length.
pub const MAX_PACKET: usize = 1 << 11;
/// The packet length that every path carries (RFC 9000, section 14; BASE_PLPMTU of RFC 8899),
/// as UDP payload.
pub const MIN_MTU: usize = 1200;

/// Packets that AES-GCM may seal with one key, if none is longer than
/// [`MAX_PACKET`] (RFC 9001, appendix B.1.1).
pub const KEY_PACKETS: u64 = 1 << 28;
/// Failed decryptions allowed for one key: ChaCha20-Poly1305's limit, the lowest of our suites'
/// (RFC 9001, section 6.6).
pub const FORGED_PER_KEY: u64 = 1 << 36;

/// Packets of one epoch, which has one key.
pub const EPOCH_PACKETS: u64 = 1 << 24;
/// Epochs of one direction of a lane. After them another lane is needed.
pub const EPOCHS: u64 = 1 << 24;

/// Packets of a train: what one system call accepts (`UDP_MAX_SEGMENTS` of older kernels).
pub const TRAIN_PACKETS: usize = 64;

const _: () = assert!(EPOCH_PACKETS * 16 <= KEY_PACKETS, "an epoch ends long before its key");
