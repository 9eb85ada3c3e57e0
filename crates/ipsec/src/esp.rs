//! ESP's header and trailer (RFC 4303, section 2), which Q-ESP shares.

use crate::reason::Reason;

/// Length of the header in bytes.
pub const HEADER_LEN: usize = 8;
/// Length of the pad length and next header fields in bytes.
pub(crate) const TRAILER_LEN: usize = 2;

/// The fields of an ESP header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Security parameters index.
    pub spi: u32,
    /// Sequence number, low 32 bits.
    pub sequence: u32,
}

impl Header {
    /// Parses the header at the beginning of `octets`.
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

/// Fills `octets` with padding, its length and the next header.
pub(crate) fn write_trailer(octets: &mut [u8], next_header: u8) {
    let padding = octets.len() - TRAILER_LEN;
    for (octet, value) in octets[..padding].iter_mut().zip(1..) {
        *octet = value;
    }
    octets[padding] = padding as u8; // below 255: a block is at most 16 bytes
    octets[padding + 1] = next_header;
}

/// Parses the trailer of a decrypted payload. Returns the next header, and the bytes before the
/// padding.
///
/// # Errors
/// [`Reason::BadPadding`] if the padding is not 1, 2, 3, … (RFC 4303, section 2.4).
#[inline(always)]
pub fn read_trailer(text: &[u8]) -> Result<(u8, usize), Reason> {
    let [rest @ .., padding, next_header] = text else { return Err(Reason::WrongLength) };
    let start = rest.len().checked_sub(usize::from(*padding)).ok_or(Reason::BadPadding)?;
    if rest[start..].iter().zip(1u8..).any(|(octet, value)| *octet != value) {
        return Err(Reason::BadPadding);
    }
    Ok((*next_header, start))
}
