//! AH's header (RFC 4302, section 2), and the fields of the IP header that it covers.

use crate::open_scratch::HeaderBuf;
use crate::reason::Reason;
use crate::sa::Sa;

/// Length of the fields before the check value, in bytes.
pub const FIXED_LEN: usize = 12;

/// The fields of an AH header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// The protocol of the protected data.
    pub next_header: u8,
    /// Length of the header in bytes, with check value and padding.
    pub len: usize,
    /// Security parameters index.
    pub spi: u32,
    /// Sequence number, low 32 bits.
    pub sequence: u32,
}

impl Header {
    /// Parses the header at the beginning of `octets`.
    ///
    /// # Errors
    /// [`Reason::Truncated`], [`Reason::ReservedNotZero`], or
    /// [`Reason::Malformed`] for a length below that of the fixed part.
    pub fn read(octets: &[u8]) -> Result<Self, Reason> {
        let Some([next_header, words, r0, r1, a, b, c, d, e, f, g, h]) =
            octets.first_chunk::<FIXED_LEN>()
        else {
            return Err(Reason::Truncated);
        };
        if (*r0, *r1) != (0, 0) {
            return Err(Reason::ReservedNotZero);
        }
        // "the length of this Authentication Header in 4-byte units, minus 2"
        let len = (usize::from(*words) + 2) * 4;
        if len < FIXED_LEN {
            return Err(Reason::Malformed);
        }
        if len > octets.len() {
            return Err(Reason::Truncated);
        }
        let spi = u32::from_be_bytes([*a, *b, *c, *d]);
        let sequence = u32::from_be_bytes([*e, *f, *g, *h]);
        Ok(Self { next_header: *next_header, len, spi, sequence })
    }

    /// Fills `octets` with the header and a check value of zero.
    pub(crate) fn write(self, octets: &mut [u8]) {
        octets[0] = self.next_header;
        octets[1] = (self.len / 4 - 2) as u8; // a check value has at most 32 bytes
        octets[2..4].fill(0);
        octets[4..8].copy_from_slice(&self.spi.to_be_bytes());
        octets[8..12].copy_from_slice(&self.sequence.to_be_bytes());
        octets[FIXED_LEN..].fill(0);
    }
}

/// Returns the length of a header with a check value of `icv` bytes (RFC 4302, section 2.6: a
/// multiple of 4 over IPv4, of 8 over IPv6).
pub(crate) fn header_len(icv: usize, alignment: usize) -> usize {
    (FIXED_LEN + icv).next_multiple_of(alignment)
}

/// Returns the bytes that the check value covers behind the packet: the high half of an extended
/// sequence number (section 3.3.3.2.2: "implicitly ... included").
pub(crate) fn high_bits(sa: &Sa, number: u64) -> HighBits {
    let len = if sa.spec.extended_sequence { 4 } else { 0 };
    HighBits { octets: ((number >> 32) as u32).to_be_bytes(), len }
}

/// Four bytes or none.
pub(crate) struct HighBits {
    octets: [u8; 4],
    len: usize,
}

impl HighBits {
    pub(crate) fn as_slice(&self) -> &[u8] {
        &self.octets[..self.len]
    }
}

/// Copies an IP header with its extension headers, and zeroes the mutable fields (RFC 4302, section
/// 3.3.3.1 and appendix A).
///
/// # Errors
/// [`Reason::SourceRoute`] if the packet is not at its final destination,
/// [`Reason::HeaderTooLong`], [`Reason::Malformed`].
pub fn zero_mutable_fields(header: &[u8]) -> Result<HeaderBuf, Reason> {
    let mut head = HeaderBuf::default();
    head.hold(header).ok_or(Reason::HeaderTooLong)?;
    let octets = head.as_mut_slice();
    match octets.first().map(|octet| octet >> 4) {
        Some(4) if octets.len() >= 20 => zero_mutable_fields_v4(octets)?,
        Some(6) if octets.len() >= 40 => zero_mutable_fields_v6(octets)?,
        _ => return Err(Reason::Malformed),
    }
    Ok(head)
}

/// Zeroes type of service, flags, fragment offset, time to live, header checksum, and options that
/// appendix A1 does not list as immutable (section 3.3.3.1.1).
fn zero_mutable_fields_v4(header: &mut [u8]) -> Result<(), Reason> {
    header[1] = 0;
    header[6..9].fill(0);
    header[10..12].fill(0);
    let mut at = 20;
    while at < header.len() {
        let kind = header[at];
        let len = match kind {
            0 => break, // end of options: the padding behind it is immutable
            1 => 1,
            _ => usize::from(*header.get(at + 1).ok_or(Reason::Malformed)?),
        };
        let option = header.get_mut(at..at + len).filter(|_| len > usize::from(kind != 1));
        let option = option.ok_or(Reason::Malformed)?;
        match kind {
            // no operation, security, extended security, commercial security,
            // router alert, sender-directed multi-destination delivery
            1 | 130 | 133 | 134 | 148 | 149 => {}
            131 | 137 if !at_end_of_route(option) => return Err(Reason::SourceRoute),
            _ => option.fill(0),
        }
        at += len;
    }
    Ok(())
}

/// Whether the pointer of a source route is beyond its list (RFC 791).
fn at_end_of_route(option: &[u8]) -> bool {
    option.get(2).is_some_and(|pointer| usize::from(*pointer) > option.len())
}

/// Zeroes traffic class, flow label, hop limit, and mutable options of hop-by-hop and destination
/// headers (section 3.3.3.1.2).
fn zero_mutable_fields_v6(header: &mut [u8]) -> Result<(), Reason> {
    const HOP_BY_HOP: u8 = 0;
    const ROUTING: u8 = 43;
    const DESTINATION: u8 = 60;
    let mut next = header[6];
    header[..4].copy_from_slice(&[0x60, 0, 0, 0]);
    header[7] = 0;
    let mut at = 40;
    while at < header.len() {
        let len = (usize::from(*header.get(at + 1).ok_or(Reason::Malformed)?) + 1) * 8;
        let extension = header.get_mut(at..at + len).ok_or(Reason::Malformed)?;
        let kind = std::mem::replace(&mut next, extension[0]);
        match kind {
            HOP_BY_HOP | DESTINATION => zero_mutable_options(&mut extension[2..])?,
            ROUTING if extension[3] > 0 => return Err(Reason::SourceRoute),
            ROUTING => {}
            // AH protects whole datagrams, so no fragment header precedes it; other headers are no
            // extensions
            _ => return Err(Reason::Malformed),
        }
        at += len;
    }
    Ok(())
}

/// Zeroes the data of options whose type has the third bit set: routers may change it (RFC 8200,
/// section 4.2).
fn zero_mutable_options(mut options: &mut [u8]) -> Result<(), Reason> {
    const MAY_CHANGE: u8 = 0x20;
    while let [kind, rest @ ..] = options {
        if *kind == 0 {
            options = rest;
            continue;
        }
        let [len, rest @ ..] = rest else { return Err(Reason::Malformed) };
        let (data, rest) = rest.split_at_mut_checked(usize::from(*len)).ok_or(Reason::Malformed)?;
        if *kind & MAY_CHANGE != 0 {
            data.fill(0);
        }
        options = rest;
    }
    Ok(())
}
