//! Packets of a fixed length, for measurements.

use crate::lane::header::OVERHEAD;
use crate::lane::payload::DATA_HEAD;

/// Bytes of a file that each packet carries, in a measurement that fixes it (Tornai et al.,
/// "Encryption in a High-Speed Connectionless File Transfer System", 2020, figure 2). Packets
/// then ignore the path's MTU, and long ones exceed [`MAX_PACKET`](crate::lane::MAX_PACKET):
/// the keys' limits allow twice that length.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Chunk(u16);

impl Chunk {
    /// The fewest bytes.
    pub const MIN: u32 = 200;
    /// The most bytes.
    pub const MAX: u32 = 4000;

    /// Makes a chunk of this size; `None` if it is out of range.
    #[must_use]
    pub fn new(bytes: u32) -> Option<Self> {
        (Self::MIN..=Self::MAX).contains(&bytes).then_some(Self(bytes as u16))
    }

    /// Returns the bytes of a file in each packet.
    #[must_use]
    pub const fn bytes(self) -> u32 {
        self.0 as u32
    }

    /// Returns the bytes of each packet, as UDP payload.
    #[must_use]
    pub const fn packet(self) -> usize {
        OVERHEAD + DATA_HEAD + self.0 as usize
    }
}
