//! ESP's header and trailer (RFC 4303, section 2), which Q-ESP shares.

use crate::reason::Reason;

/// Octets of the header.
pub const HEADER_LEN: usize = 8;
/// Octets of the pad length and next header fields.
pub(crate) const TRAILER_LEN: usize = 2;

/// SPI and the low half of the sequence number, as ESP has them in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Security parameters index.
    pub spi: u32,
    /// Sequence number, its lower 32 bits.
    pub sequence: u32,
}

impl Header {
    /// Reads the first octets.
    ///
    /// # Errors
    /// [`Reason::Truncated`].
    pub fn read(octets: &[u8]) -> Result<Self, Reason> {
        let Some([a, b, c, d, e, f, g, h]) = octets.first_chunk::<HEADER_LEN>() else {
            return Err(Reason::Truncated);
        };
        let spi = u32::from_be_bytes([*a, *b, *c, *d]);
        Ok(Self { spi, sequence: u32::from_be_bytes([*e, *f, *g, *h]) })
    }

    pub(crate) fn octets(self) -> [u8; HEADER_LEN] {
        let ([a, b, c, d], [e, f, g, h]) = (self.spi.to_be_bytes(), self.sequence.to_be_bytes());
        [a, b, c, d, e, f, g, h]
    }
}

/// Writes padding, its length and the next header: all of `octets`.
pub(crate) fn write_trailer(octets: &mut [u8], next_header: u8) {
    let padding = octets.len() - TRAILER_LEN;
    for (octet, value) in octets[..padding].iter_mut().zip(1..) {
        *octet = value;
    }
    octets[padding] = padding as u8; // below 255: a block is at most 16 octets
    octets[padding + 1] = next_header;
}

/// The next header, and the octets before the padding.
///
/// # Errors
/// [`Reason::BadPadding`] where it is not 1, 2, 3, … (RFC 4303, section 2.4).
#[inline(always)]
pub fn read_trailer(text: &[u8]) -> Result<(u8, usize), Reason> {
    let [rest @ .., padding, next_header] = text else { return Err(Reason::WrongLength) };
    let start = rest.len().checked_sub(usize::from(*padding)).ok_or(Reason::BadPadding)?;
    if rest[start..].iter().zip(1u8..).any(|(octet, value)| *octet != value) {
        return Err(Reason::BadPadding);
    }
    Ok((*next_header, start))
}
