//! A complete IP packet of either version: addresses, upper-layer protocol, ports, fragment, and
//! the position of a security header.

use std::net::IpAddr;

use crate::bytes::{be16, be32};
use crate::{Error, ipv4, ipv6, protocol};

/// The most extension headers of one packet.
const MAX_EXTENSIONS: usize = 16;
/// The offset of the protocol field in an IPv4 header.
const V4_PROTOCOL: usize = 9;
/// The offset of the next header field in an IPv6 header.
const V6_NEXT_HEADER: usize = 6;
/// Bytes of the longest datagram's payload.
pub(crate) const MAX_PAYLOAD_LEN: usize = 65_535;

/// The version of an IP packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Version {
    /// RFC 791.
    V4,
    /// RFC 8200.
    V6,
}

impl Version {
    /// Returns the protocol number of such a packet inside another one: 4 or 41.
    #[inline]
    pub fn protocol(self) -> u8 {
        match self {
            Self::V4 => protocol::IPV4,
            Self::V6 => protocol::IPV6,
        }
    }
}

/// The part of a datagram that a packet carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fragment {
    /// Identification: 16 bits in IPv4, 32 in IPv6.
    pub id: u32,
    /// Bytes of the datagram before this part.
    pub offset: usize,
    /// Whether more fragments follow.
    pub more: bool,
}

/// An IPv4 or IPv6 packet with complete headers, including options and extension headers, whose
/// length is that of its length field.
#[derive(Debug, Clone, Copy)]
pub struct Ip<'a> {
    bytes: &'a [u8],
    version: Version,
    upper: u8,
    upper_offset: usize,
    security_offset: usize,
    next_header_offset: usize,
    fragment: Option<Fragment>,
    /// The offset of the field that names the fragment header, and of the fragment header (IPv6).
    fragment_header: Option<(usize, usize)>,
    /// Whether there is a routing header (IPv6).
    routing: bool,
}

impl<'a> Ip<'a> {
    /// Parses a packet; bytes after its length are ignored.
    ///
    /// # Errors
    /// [`Error::Truncated`] if a header or the packet is not complete, [`Error::Malformed`] for a
    /// field that the standard does not allow or more than 16 extension headers,
    /// [`Error::Unsupported`] for another version.
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Error> {
        let total_len = match version(bytes)? {
            Version::V4 => ipv4::Packet::new(bytes)?.total_len(),
            Version::V6 => ipv6::HEADER_LEN + ipv6::Packet::new(bytes)?.payload_len(),
        };
        Self::parse_train(bytes.get(..total_len).ok_or(Error::Truncated("IP"))?)
    }

    /// Parses an offloaded train: the packet ends with `bytes`. Its length field is ignored; it is
    /// 0 or too small in a long train.
    ///
    /// # Errors
    /// As [`Ip::parse`].
    #[inline]
    pub fn parse_train(bytes: &'a [u8]) -> Result<Self, Error> {
        match version(bytes)? {
            Version::V4 => Self::parse_v4(bytes),
            Version::V6 => Self::parse_v6(bytes),
        }
    }

    #[inline(always)]
    fn parse_v4(bytes: &'a [u8]) -> Result<Self, Error> {
        let header = ipv4::Packet::new(bytes)?;
        let field = be16(bytes, 6);
        let offset = usize::from(field & 0x1fff) * 8;
        let more = field & 0x2000 != 0;
        let fragment = Fragment { id: u32::from(be16(bytes, 4)), offset, more };
        Ok(Self {
            bytes,
            version: Version::V4,
            upper: header.protocol(),
            upper_offset: header.header_len(),
            security_offset: header.header_len(),
            next_header_offset: V4_PROTOCOL,
            fragment: (more || offset > 0).then_some(fragment),
            fragment_header: None,
            routing: false,
        })
    }

    fn parse_v6(bytes: &'a [u8]) -> Result<Self, Error> {
        let mut ip = Self {
            bytes,
            version: Version::V6,
            upper: ipv6::Packet::new(bytes)?.next_header(),
            upper_offset: ipv6::HEADER_LEN,
            security_offset: ipv6::HEADER_LEN,
            next_header_offset: V6_NEXT_HEADER,
            fragment: None,
            fragment_header: None,
            routing: false,
        };
        // The skipped headers are those of RFC 4301, section 4.4.1.1: AH and ESP count as
        // upper-layer protocols.
        let (mut extensions, mut field) = (0, V6_NEXT_HEADER);
        while protocol::is_extension(ip.upper) {
            if extensions == MAX_EXTENSIONS {
                return Err(Error::Malformed("IPv6 extension"));
            }
            // Allowed only directly after the IPv6 header (RFC 8200, section 4.1).
            if ip.upper == protocol::HOP_BY_HOP && extensions > 0 {
                return Err(Error::Malformed("IPv6 hop-by-hop"));
            }
            extensions += 1;
            field = ip.step(field)?;
            if ip.is_later_fragment() {
                break;
            }
        }
        Ok(ip)
    }

    /// Skips the extension header at `upper_offset`, which the byte `field` names, and returns the
    /// offset of the byte that names the next one.
    fn step(&mut self, field: usize) -> Result<usize, Error> {
        let (kind, at) = (self.upper, self.upper_offset);
        let header = self.bytes.get(at..at + 8).ok_or(Error::Truncated("IPv6 extension"))?;
        let len = match kind {
            protocol::FRAGMENT => ipv6::FRAGMENT_HEADER_LEN,
            _ => (usize::from(header[1]) + 1) * 8,
        };
        if self.bytes.len() < at + len {
            return Err(Error::Truncated("IPv6 extension"));
        }
        match kind {
            protocol::FRAGMENT if self.fragment_header.is_some() => {
                return Err(Error::Malformed("IPv6 fragment"));
            }
            protocol::FRAGMENT => {
                let word = be16(header, 2);
                let (offset, more) = (usize::from(word & 0xfff8), word & 1 != 0);
                self.fragment_header = Some((field, at));
                // A fragment header of an unfragmented datagram (RFC 6946).
                if more || offset > 0 {
                    self.fragment = Some(Fragment { id: be32(header, 4), offset, more });
                }
            }
            protocol::ROUTING => self.routing = true,
            _ => {}
        }
        self.upper = header[0];
        self.upper_offset = at + len;
        // Destination options before a routing header stay before it.
        if kind != protocol::DESTINATION_OPTIONS {
            self.security_offset = self.upper_offset;
            self.next_header_offset = at;
        }
        Ok(at)
    }

    /// Returns the bytes of the packet, including headers.
    #[inline]
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Returns the IP version.
    #[inline]
    pub fn version(&self) -> Version {
        self.version
    }

    /// Returns the source address.
    #[inline]
    pub fn source(&self) -> IpAddr {
        match self.version {
            Version::V4 => ipv4::Packet::trusted(self.bytes).source().into(),
            Version::V6 => ipv6::Packet::trusted(self.bytes).source().into(),
        }
    }

    /// Returns the bytes of the source and destination addresses.
    pub fn addresses(&self) -> &'a [u8] {
        match self.version {
            Version::V4 => &self.bytes[12..20],
            Version::V6 => &self.bytes[8..40],
        }
    }

    /// Returns the destination address.
    #[inline]
    pub fn destination(&self) -> IpAddr {
        match self.version {
            Version::V4 => ipv4::Packet::trusted(self.bytes).destination().into(),
            Version::V6 => ipv6::Packet::trusted(self.bytes).destination().into(),
        }
    }

    /// Checks for an IPv6 routing header, with which a checksum may cover another address than the
    /// destination field (RFC 8200, section 8.1).
    pub(crate) fn has_routing_header(&self) -> bool {
        self.routing
    }

    /// Returns Type of Service (IPv4) or Traffic Class (IPv6): DSCP and ECN.
    #[inline]
    pub fn tos(&self) -> u8 {
        match self.version {
            Version::V4 => self.bytes[1],
            Version::V6 => (be16(self.bytes, 0) >> 4) as u8,
        }
    }

    /// Returns Time to Live or Hop Limit.
    pub fn hop_limit(&self) -> u8 {
        match self.version {
            Version::V4 => self.bytes[8],
            Version::V6 => self.bytes[7],
        }
    }

    /// Returns the Flow Label; 0 in IPv4.
    pub fn flow_label(&self) -> u32 {
        match self.version {
            Version::V4 => 0,
            Version::V6 => be32(self.bytes, 0) & 0x000f_ffff,
        }
    }

    /// Returns the length of the packet, including headers.
    #[inline]
    pub fn total_len(&self) -> usize {
        self.bytes.len()
    }

    /// Returns the protocol after all extension headers. AH, ESP, "no next header" and unknown
    /// protocols count as upper-layer protocols. In a later fragment it is the protocol that the
    /// fragment header names, which may be an extension header.
    #[inline]
    pub fn upper(&self) -> u8 {
        self.upper
    }

    /// Returns the offset of [`upper`](Self::upper) in the packet.
    #[inline]
    pub fn upper_offset(&self) -> usize {
        self.upper_offset
    }

    /// Returns the bytes after all extension headers.
    #[inline]
    pub fn payload(&self) -> &'a [u8] {
        &self.bytes[self.upper_offset..]
    }

    /// Returns source and destination port of TCP, UDP, UDP-Lite, DCCP and SCTP; None in a later
    /// fragment or if the packet ends before them.
    #[inline]
    pub fn ports(&self) -> Option<(u16, u16)> {
        if !protocol::has_ports(self.upper) || self.is_later_fragment() {
            return None;
        }
        let ports = self.payload().get(..4)?;
        Some((be16(ports, 0), be16(ports, 2)))
    }

    /// Returns the part of a datagram that this packet carries; None for a whole datagram, also
    /// with a fragment header (RFC 6946).
    #[inline]
    pub fn fragment(&self) -> Option<Fragment> {
        self.fragment
    }

    /// Returns the offset of the field that names the IPv6 fragment header, and of the fragment
    /// header.
    pub(crate) fn fragment_header(&self) -> Option<(usize, usize)> {
        self.fragment_header
    }

    /// Checks whether the packet is a later fragment, without a transport header.
    #[inline]
    pub fn is_later_fragment(&self) -> bool {
        self.fragment.is_some_and(|fragment| fragment.offset > 0)
    }

    /// Returns the offset of a security header in transport mode: after the options of IPv4; after
    /// the hop-by-hop, routing and fragment headers of IPv6 and before the destination options for
    /// the last node (RFC 4302 and 4303, section 3.1.1).
    #[inline]
    pub fn security_offset(&self) -> usize {
        self.security_offset
    }

    /// Returns the offset of the field that names the header at
    /// [`security_offset`](Self::security_offset).
    #[inline]
    pub fn next_header_offset(&self) -> usize {
        self.next_header_offset
    }

    /// Checks whether routers must not fragment the packet: with DF set, and in IPv6.
    #[inline]
    pub fn dont_fragment(&self) -> bool {
        match self.version {
            Version::V4 => self.bytes[6] & 0x40 != 0,
            Version::V6 => true,
        }
    }
}

fn version(bytes: &[u8]) -> Result<Version, Error> {
    match bytes.first().map(|byte| byte >> 4) {
        Some(4) => Ok(Version::V4),
        Some(6) => Ok(Version::V6),
        Some(_) => Err(Error::Unsupported),
        None => Err(Error::Truncated("IP")),
    }
}

#[cfg(test)]
mod tests;
