//! What a key may be used for, and how long packets may be. The bounds are those
//! of RFC 9001, section 6.6 and appendix B; epochs end long before them.

use super::{DATA_HEAD, HEADER_LEN};

/// Octets of a tag.
pub const TAG_LEN: usize = 16;
/// Octets that a packet has beside its payload.
pub const OVERHEAD: usize = HEADER_LEN + TAG_LEN;

/// The longest packet, as UDP payload. RFC 9001, appendix B.1, counts packets of
/// this length.
pub const MAX_PACKET: usize = 1 << 11;
/// How many octets of a file each packet carries, in a measurement that fixes it
/// (Tornai et al., "Encryption in a High-Speed Connectionless File Transfer System",
/// 2020, figure 2). Packets are then not fitted to the path, and those of long chunks
/// are longer than [`MAX_PACKET`]: the keys' limits bear twice that length.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Chunk(u16);

impl Chunk {
    /// The shortest, in octets.
    pub const LEAST: u32 = 200;
    /// The longest, in octets.
    pub const MOST: u32 = 4000;

    /// A chunk of so many octets, if there are such.
    #[must_use]
    pub fn new(octets: u32) -> Option<Self> {
        (Self::LEAST..=Self::MOST).contains(&octets).then_some(Self(octets as u16))
    }

    /// Octets of a file.
    #[must_use]
    pub const fn octets(self) -> u32 {
        self.0 as u32
    }

    /// Octets of a packet that carries it, as UDP payload.
    #[must_use]
    pub const fn packet(self) -> usize {
        OVERHEAD + DATA_HEAD + self.0 as usize
    }
}

/// The packet that every path carries (RFC 9000, section 14; BASE_PLPMTU of RFC
/// 8899), as UDP payload.
pub const MIN_MTU: usize = 1200;

/// Packets that AES-GCM may seal with one key, if none is longer than
/// [`MAX_PACKET`] (RFC 9001, appendix B.1.1).
pub const KEY_PACKETS: u64 = 1 << 28;
/// Forged packets that may be tried with one key: ChaCha20-Poly1305's limit, the
/// lowest of our suites' (RFC 9001, section 6.6).
pub const FORGED_PER_KEY: u64 = 1 << 36;

/// Packets of one epoch: then comes the next key.
pub const EPOCH_PACKETS: u64 = 1 << 24;
/// Epochs of a lane's direction: then comes another lane.
pub const EPOCHS: u64 = 1 << 24;

/// Packets of a train: what one system call takes (`UDP_MAX_SEGMENTS` of the older
/// kernels).
pub const TRAIN_PACKETS: usize = 64;

const _: () = assert!(EPOCH_PACKETS * 16 <= KEY_PACKETS, "an epoch ends long before its key");
