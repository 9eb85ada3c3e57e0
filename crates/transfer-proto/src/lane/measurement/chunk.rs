//! Packets of a fixed length, for measurements.

use crate::lane::header::OVERHEAD;
use crate::lane::payload::DATA_HEAD;

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
