//! Ethernet II frames (IEEE 802.3), untagged.

use std::net::IpAddr;

use crate::{Error, be16, ipv4, ipv6};

/// Octets of the header.
pub const HEADER_LEN: usize = 14;
/// EtherType of IPv4.
pub const IPV4: u16 = 0x0800;
/// EtherType of IPv6.
pub const IPV6: u16 = 0x86dd;

/// A frame whose header is known to be whole.
#[derive(Debug, Clone, Copy)]
pub struct Frame<'a>(&'a [u8]);

impl<'a> Frame<'a> {
    /// # Errors
    /// [`Error::Truncated`] below 14 octets.
    pub fn new(bytes: &'a [u8]) -> Result<Self, Error> {
        if bytes.len() < HEADER_LEN {
            return Err(Error::Truncated("Ethernet"));
        }
        Ok(Self(bytes))
    }

    /// The EtherType.
    pub fn ethertype(&self) -> u16 {
        be16(self.0, 12)
    }

    /// Where the IP packet in it comes from; none for anything but IP.
    pub fn ip_source(&self) -> Option<IpAddr> {
        match self.ethertype() {
            IPV4 => ipv4::Packet::new(self.payload()).ok().map(|ip| ip.source().into()),
            IPV6 => ipv6::Packet::new(self.payload()).ok().map(|ip| ip.source().into()),
            _ => None,
        }
    }

    /// What was captured behind the header.
    pub fn payload(&self) -> &'a [u8] {
        &self.0[HEADER_LEN..]
    }
}
