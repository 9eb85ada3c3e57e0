//! IPv4 headers (RFC 791).

use std::net::Ipv4Addr;

use crate::Error;
use crate::bytes::be16;

/// Bytes of the header without options.
pub const MIN_HEADER_LEN: usize = 20;
/// Bytes of the longest options.
pub(crate) const MAX_OPTIONS_LEN: usize = 40;

/// Kinds of options (RFC 791, section 3.1).
mod option {
    pub(super) const END: u8 = 0;
    pub(super) const NO_OPERATION: u8 = 1;
    /// Flag: the option is copied to every fragment.
    pub(super) const COPIED: u8 = 0x80;
}

/// A packet with a complete header, including options.
#[derive(Debug, Clone, Copy)]
pub struct Packet<'a>(&'a [u8]);

impl<'a> Packet<'a> {
    /// # Errors
    /// [`Error::Truncated`] if the header is not complete, [`Error::Malformed`] for another version
    /// or a header length below 5 words.
    pub fn new(bytes: &'a [u8]) -> Result<Self, Error> {
        if bytes.len() < MIN_HEADER_LEN {
            return Err(Error::Truncated("IPv4"));
        }
        let packet = Self(bytes);
        if bytes[0] >> 4 != 4 || packet.header_len() < MIN_HEADER_LEN {
            return Err(Error::Malformed("IPv4"));
        }
        if bytes.len() < packet.header_len() {
            return Err(Error::Truncated("IPv4"));
        }
        Ok(packet)
    }

    /// Bytes that are known to begin with a complete header.
    #[inline]
    pub(crate) fn trusted(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// Returns the length of the header with options (IHL × 4).
    #[inline]
    pub fn header_len(&self) -> usize {
        usize::from(self.0[0] & 0x0f) * 4
    }

    /// Returns the Total Length field; 0 in a train too long for it.
    #[inline]
    pub fn total_len(&self) -> usize {
        usize::from(be16(self.0, 2))
    }

    /// Checks whether the packet is a later fragment.
    #[inline]
    pub fn is_later_fragment(&self) -> bool {
        be16(self.0, 6) & 0x1fff != 0
    }

    /// Returns the protocol number of the payload.
    #[inline]
    pub fn protocol(&self) -> u8 {
        self.0[9]
    }

    /// Returns the source address.
    #[inline]
    pub fn source(&self) -> Ipv4Addr {
        Ipv4Addr::new(self.0[12], self.0[13], self.0[14], self.0[15])
    }

    /// Returns the destination address.
    #[inline]
    pub fn destination(&self) -> Ipv4Addr {
        Ipv4Addr::new(self.0[16], self.0[17], self.0[18], self.0[19])
    }

    /// Returns the options with padding.
    pub fn options(&self) -> &'a [u8] {
        &self.0[MIN_HEADER_LEN..self.header_len()]
    }

    /// Writes the options that later fragments also carry to the start of `out`, padded to whole
    /// words, and returns their length.
    pub(crate) fn copied_options(&self, out: &mut [u8; MAX_OPTIONS_LEN]) -> usize {
        let (mut options, mut len) = (self.options(), 0);
        loop {
            let option_len = match *options {
                [] | [option::END, ..] => break,
                [option::NO_OPERATION, ..] => 1,
                [_, len, ..] if len >= 2 => usize::from(len),
                _ => break,
            };
            let Some((first, rest)) = options.split_at_checked(option_len) else { break };
            if first[0] & option::COPIED != 0 {
                out[len..len + first.len()].copy_from_slice(first);
                len += first.len();
            }
            options = rest;
        }
        let padded = len.next_multiple_of(4);
        out[len..padded].fill(option::END);
        padded
    }

    /// Returns the captured bytes after the header.
    #[inline]
    pub fn payload(&self) -> &'a [u8] {
        &self.0[self.header_len()..]
    }
}
