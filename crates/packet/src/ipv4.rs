//! IPv4 headers (RFC 791).

use std::net::Ipv4Addr;

use crate::{Error, be16};

const MIN_HEADER_LEN: usize = 20;

/// A packet whose header, options included, is known to be whole.
#[derive(Debug, Clone, Copy)]
pub struct Packet<'a>(&'a [u8]);

impl<'a> Packet<'a> {
    /// # Errors
    /// [`Error::Truncated`] where the header is not whole, [`Error::Malformed`]
    /// for another version or a header length below five words.
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

    /// Octets of the header, options included (IHL × 4).
    pub fn header_len(&self) -> usize {
        usize::from(self.0[0] & 0x0f) * 4
    }

    /// The Total Length field; 0 in a train too long for it.
    pub fn total_len(&self) -> usize {
        usize::from(be16(self.0, 2))
    }

    /// True for a fragment other than the first.
    pub fn is_later_fragment(&self) -> bool {
        be16(self.0, 6) & 0x1fff != 0
    }

    /// The protocol number of the payload.
    pub fn protocol(&self) -> u8 {
        self.0[9]
    }

    /// The source address.
    pub fn source(&self) -> Ipv4Addr {
        Ipv4Addr::new(self.0[12], self.0[13], self.0[14], self.0[15])
    }

    /// The destination address.
    pub fn destination(&self) -> Ipv4Addr {
        Ipv4Addr::new(self.0[16], self.0[17], self.0[18], self.0[19])
    }

    /// What was captured behind the header.
    pub fn payload(&self) -> &'a [u8] {
        &self.0[self.header_len()..]
    }
}
