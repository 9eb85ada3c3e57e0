//! The unencrypted sixteen bytes ahead of every packet.

use std::fmt;

use super::limits::{EPOCH_PACKETS, EPOCHS, TAG_LEN};

/// Bytes of the header.
pub const HEADER_LEN: usize = 16;
/// Bytes of a packet beside its payload.
pub const OVERHEAD: usize = HEADER_LEN + TAG_LEN;

/// 0 0 0 0 1, then the version. The first two bits tell lanes from QUIC (RFC 9443, section 4);
/// QUIC, STUN, ZRTP, DTLS, TURN and RTP do not use 8 to 15.
const FIRST: u8 = 0b0000_1000 | VERSION;
const VERSION: u8 = 1;

mod field {
    use std::ops::Range;

    pub(super) const FIRST: usize = 0;
    pub(super) const RESERVED: usize = 1;
    pub(super) const NUMBER: Range<usize> = 2..8;
    pub(super) const LANE: Range<usize> = 8..16;
}

/// Whether a datagram is a lane's and not QUIC's, by its first byte. The QUIC endpoint must not
/// grease the fixed bit (RFC 9287).
#[inline]
pub fn is_lane(datagram: &[u8]) -> bool {
    datagram.first().is_some_and(|first| first & 0xf8 == FIRST & 0xf8)
}

/// A lane's ID: 64 bits that cannot be predicted, never used twice in a transfer.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct LaneId(pub u64);

impl fmt::Display for LaneId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// A packet number in one direction of a lane. The upper 24 of 48 bits are its epoch, so a
/// number that is never used twice is never used twice with a key.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Number(u64);

impl Number {
    /// One more than the last.
    pub(crate) const END: u64 = EPOCHS * EPOCH_PACKETS;

    /// Makes a packet number; `None` beyond 48 bits.
    pub fn new(number: u64) -> Option<Self> {
        (number < Self::END).then_some(Self(number))
    }

    /// Returns the whole number.
    #[inline]
    pub fn get(self) -> u64 {
        self.0
    }

    /// Returns the epoch, which selects the key.
    #[inline]
    pub fn epoch(self) -> u32 {
        (self.0 / EPOCH_PACKETS) as u32
    }
}

/// The fields of a header.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Header {
    /// The packet's lane.
    pub lane: LaneId,
    /// The packet's number.
    pub number: Number,
}

impl Header {
    /// Reads the header of a packet of this version; authenticates nothing.
    #[inline]
    pub fn parse(packet: &[u8]) -> Option<Self> {
        let header = packet.first_chunk::<HEADER_LEN>()?;
        if header[field::FIRST] != FIRST || header[field::RESERVED] != 0 {
            return None;
        }
        let mut number = [0; 8];
        number[2..].copy_from_slice(&header[field::NUMBER]);
        let mut lane = [0; 8];
        lane.copy_from_slice(&header[field::LANE]);
        Some(Self {
            lane: LaneId(u64::from_be_bytes(lane)),
            number: Number(u64::from_be_bytes(number)),
        })
    }

    /// Returns the header's bytes.
    #[inline]
    pub fn bytes(&self) -> [u8; HEADER_LEN] {
        let mut header = [0; HEADER_LEN];
        header[field::FIRST] = FIRST;
        header[field::NUMBER].copy_from_slice(&self.number.0.to_be_bytes()[2..]);
        header[field::LANE].copy_from_slice(&self.lane.0.to_be_bytes());
        header
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_encoding_is_that_of_the_document() {
        let number = Number::new((3 << 24) + 5).expect("48 bits");
        let header = Header { lane: LaneId(0x0102_0304_0506_0708), number };
        assert_eq!(header.bytes(), [9, 0, 0, 0, 3, 0, 0, 5, 1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(number.epoch(), 3);
        assert_eq!(Number::new(1 << 48), None);
    }

    #[test]
    fn no_packet_of_quic_stun_dtls_or_turn_is_a_lane_s() {
        // RFC 9443, section 4: QUIC has 0x40 or 0x80 set; the others' ranges beside
        for first in (0..=7).chain(16..=255) {
            assert!(!is_lane(&[first]), "{first}");
        }
        assert!(is_lane(&[9]) && !is_lane(&[]));
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(lane: u64, number in 0..1_u64 << 48) {
            let number = Number::new(number).expect("48 bits");
            let header = Header { lane: LaneId(lane), number };
            prop_assert_eq!(Header::parse(&header.bytes()), Some(header));
            prop_assert!(is_lane(&header.bytes()));
        }

        #[test]
        fn only_headers_of_this_version_are_read(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            if let Some(header) = Header::parse(&bytes) {
                prop_assert_eq!(&header.bytes()[..], &bytes[..HEADER_LEN]);
            }
        }
    }
}
