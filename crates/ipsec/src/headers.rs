//! The header fields of a packet, read once for a whole train, and the outer header of a protected
//! packet.

use std::net::IpAddr;

use headroom_packet::ip::Ip;
use headroom_packet::protocol;

/// The header fields that policies and encapsulation need.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Headers {
    /// Source address.
    pub source: IpAddr,
    /// Destination address.
    pub destination: IpAddr,
    /// DSCP and ECN.
    pub tos: u8,
    /// Upper-layer protocol, behind all extension headers.
    pub protocol: u8,
    /// Source and destination port, if the packet has them.
    pub ports: Option<(u16, u16)>,
    /// ICMP type and code as `type << 8 | code`.
    pub icmp: Option<u16>,
    /// Whether the packet is a fragment, first or later.
    pub fragment: bool,
    /// Whether routers must not fragment it (always so in IPv6).
    pub dont_fragment: bool,
    /// Offset at which transport mode inserts the IPsec header (RFC 4303 §3.1.1).
    pub security_offset: usize,
    /// Offset of the protocol or next-header field that names the header at `security_offset`.
    pub next_header_offset: usize,
}

/// The outer IP header of a packet that arrived.
#[derive(Debug, Clone, Copy)]
pub struct Outer<'a> {
    /// Its source address.
    pub source: IpAddr,
    /// Its destination address.
    pub destination: IpAddr,
    /// Its DSCP and ECN.
    pub tos: u8,
    /// The header itself, with options and extension headers, up to the IPsec or UDP header; empty
    /// if a UDP socket has removed it.
    pub header: &'a [u8],
    /// Source and destination port, for ESP in UDP.
    pub udp: Option<(u16, u16)>,
}

impl Headers {
    /// Reads the fields of a packet.
    #[inline(always)]
    pub fn read(ip: &Ip<'_>) -> Self {
        let v6 = ip.source().is_ipv6();
        Self {
            source: ip.source(),
            destination: ip.destination(),
            tos: ip.tos(),
            protocol: ip.upper(),
            ports: ip.ports(),
            icmp: icmp(ip),
            fragment: ip.fragment().is_some(),
            dont_fragment: v6 || ip.dont_fragment(),
            security_offset: ip.security_offset(),
            next_header_offset: ip.next_header_offset(),
        }
    }

    /// Returns the fields of a dummy packet (RFC 4303 §2.6: protocol 59, no ports).
    pub(crate) fn dummy(source: IpAddr, destination: IpAddr) -> Self {
        Self {
            source,
            destination,
            tos: 0,
            protocol: protocol::NO_NEXT_HEADER,
            ports: None,
            icmp: None,
            fragment: false,
            dont_fragment: source.is_ipv6(),
            security_offset: 0,
            next_header_offset: 0,
        }
    }
}

#[inline(always)]
fn icmp(ip: &Ip<'_>) -> Option<u16> {
    if ip.is_later_fragment() || !matches!(ip.upper(), protocol::ICMP | protocol::ICMPV6) {
        return None;
    }
    ip.payload().first_chunk().map(|kind_and_code| u16::from_be_bytes(*kind_and_code))
}
