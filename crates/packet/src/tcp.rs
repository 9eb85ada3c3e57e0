//! TCP headers (RFC 9293).

use crate::{Error, be16, be32};

/// The protocol number of TCP.
pub const PROTOCOL: u8 = 6;

const MIN_HEADER_LEN: usize = 20;
const FIN: u8 = 0x01;
const SYN: u8 = 0x02;
const RST: u8 = 0x04;
const ACK: u8 = 0x10;

/// A header, options included, that is known to be whole.
#[derive(Debug, Clone, Copy)]
pub struct Packet<'a>(&'a [u8]);

impl<'a> Packet<'a> {
    /// # Errors
    /// [`Error::Truncated`] where the header is not whole, [`Error::Malformed`]
    /// for a data offset below five words.
    pub fn new(bytes: &'a [u8]) -> Result<Self, Error> {
        if bytes.len() < MIN_HEADER_LEN {
            return Err(Error::Truncated("TCP"));
        }
        let packet = Self(bytes);
        if packet.header_len() < MIN_HEADER_LEN {
            return Err(Error::Malformed("TCP"));
        }
        if bytes.len() < packet.header_len() {
            return Err(Error::Truncated("TCP"));
        }
        Ok(packet)
    }

    /// The source port.
    pub fn source_port(&self) -> u16 {
        be16(self.0, 0)
    }

    /// The destination port.
    pub fn destination_port(&self) -> u16 {
        be16(self.0, 2)
    }

    /// The sequence number.
    pub fn sequence(&self) -> u32 {
        be32(self.0, 4)
    }

    /// Octets of the header, options included (data offset × 4).
    pub fn header_len(&self) -> usize {
        usize::from(self.0[12] >> 4) * 4
    }

    /// SYN flag.
    pub fn syn(&self) -> bool {
        self.0[13] & SYN != 0
    }

    /// ACK flag.
    pub fn ack(&self) -> bool {
        self.0[13] & ACK != 0
    }

    /// FIN flag.
    pub fn fin(&self) -> bool {
        self.0[13] & FIN != 0
    }

    /// RST flag.
    pub fn rst(&self) -> bool {
        self.0[13] & RST != 0
    }

    /// What was captured behind the header.
    pub fn payload(&self) -> &'a [u8] {
        &self.0[self.header_len()..]
    }
}
