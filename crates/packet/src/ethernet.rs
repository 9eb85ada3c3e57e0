//! Ethernet II frames (IEEE 802.3), untagged.

use std::net::IpAddr;

use crate::bytes::be16;
use crate::{Error, ipv4, ipv6};

/// Bytes of the header.
pub const HEADER_LEN: usize = 14;
/// Bytes of framing on the wire that no socket shows: preamble (8), frame check sequence
/// (4), gap between frames (12).
pub const FRAMING_LEN: usize = 24;
/// EtherType of IPv4.
pub const IPV4: u16 = 0x0800;
/// EtherType of IPv6.
pub const IPV6: u16 = 0x86dd;

/// EtherTypes of a VLAN tag (IEEE 802.1Q, 802.1ad).
const TAGS: [u16; 2] = [0x8100, 0x88a8];
/// Bytes of a VLAN tag.
pub const TAG_LEN: usize = 4;

/// Returns the bytes before the network header: Ethernet header and VLAN tags.
pub fn network_offset(frame: &[u8]) -> usize {
    let mut at = HEADER_LEN;
    while at + TAG_LEN <= frame.len() && TAGS.contains(&be16(frame, at - 2)) {
        at += TAG_LEN;
    }
    at
}

/// A frame with a complete header.
#[derive(Debug, Clone, Copy)]
pub struct Frame<'a>(&'a [u8]);

impl<'a> Frame<'a> {
    /// # Errors
    /// [`Error::Truncated`] below 14 bytes.
    pub fn new(bytes: &'a [u8]) -> Result<Self, Error> {
        if bytes.len() < HEADER_LEN {
            return Err(Error::Truncated("Ethernet"));
        }
        Ok(Self(bytes))
    }

    /// Returns the address of the sender's interface.
    pub fn source(&self) -> [u8; 6] {
        [self.0[6], self.0[7], self.0[8], self.0[9], self.0[10], self.0[11]]
    }

    /// Returns the EtherType.
    pub fn ethertype(&self) -> u16 {
        be16(self.0, 12)
    }

    /// Returns the source address of the IP packet; None for other protocols.
    pub fn ip_source(&self) -> Option<IpAddr> {
        match self.ethertype() {
            IPV4 => ipv4::Packet::new(self.payload()).ok().map(|ip| ip.source().into()),
            IPV6 => ipv6::Packet::new(self.payload()).ok().map(|ip| ip.source().into()),
            _ => None,
        }
    }

    /// Returns the captured bytes after the header.
    pub fn payload(&self) -> &'a [u8] {
        &self.0[HEADER_LEN..]
    }
}
