//! IPv6 headers (RFC 8200), without extension headers.

use std::net::Ipv6Addr;

use crate::Error;
use crate::bytes::be16;

/// Bytes of the fixed header.
pub const HEADER_LEN: usize = 40;
/// Bytes of a fragment header (RFC 8200, section 4.5).
pub(crate) const FRAGMENT_HEADER_LEN: usize = 8;

/// A packet with a complete fixed header.
#[derive(Debug, Clone, Copy)]
pub struct Packet<'a>(&'a [u8]);

impl<'a> Packet<'a> {
    /// # Errors
    /// [`Error::Truncated`] below 40 bytes, [`Error::Malformed`] for another version.
    pub fn new(bytes: &'a [u8]) -> Result<Self, Error> {
        if bytes.len() < HEADER_LEN {
            return Err(Error::Truncated("IPv6"));
        }
        if bytes[0] >> 4 != 6 {
            return Err(Error::Malformed("IPv6"));
        }
        Ok(Self(bytes))
    }

    /// Bytes that are known to begin with a fixed header.
    #[inline]
    pub(crate) fn trusted(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// Returns the Payload Length field; 0 in a jumbogram or a train too long for it.
    pub fn payload_len(&self) -> usize {
        usize::from(be16(self.0, 4))
    }

    /// Returns the Next Header field.
    pub fn next_header(&self) -> u8 {
        self.0[6]
    }

    /// Returns the source address.
    #[inline]
    pub fn source(&self) -> Ipv6Addr {
        address(self.0, 8)
    }

    /// Returns the destination address.
    #[inline]
    pub fn destination(&self) -> Ipv6Addr {
        address(self.0, 24)
    }

    /// Returns the captured bytes after the header.
    #[inline]
    pub fn payload(&self) -> &'a [u8] {
        &self.0[HEADER_LEN..]
    }
}

fn address(bytes: &[u8], at: usize) -> Ipv6Addr {
    let mut octets = [0; 16];
    octets.copy_from_slice(&bytes[at..at + 16]);
    Ipv6Addr::from(octets)
}
