//! Protocol numbers (IANA "Assigned Internet Protocol Numbers").

/// IPv6 hop-by-hop options.
pub const HOP_BY_HOP: u8 = 0;
/// ICMP for IPv4.
pub const ICMP: u8 = 1;
/// IPv4 in IP.
pub const IPV4: u8 = 4;
/// TCP.
pub const TCP: u8 = 6;
/// UDP.
pub const UDP: u8 = 17;
/// DCCP.
pub const DCCP: u8 = 33;
/// IPv6 in IP.
pub const IPV6: u8 = 41;
/// IPv6 routing header.
pub const ROUTING: u8 = 43;
/// IPv6 fragment header.
pub const FRAGMENT: u8 = 44;
/// Encapsulating Security Payload.
pub const ESP: u8 = 50;
/// Authentication Header.
pub const AH: u8 = 51;
/// ICMP for IPv6.
pub const ICMPV6: u8 = 58;
/// No next header.
pub const NO_NEXT_HEADER: u8 = 59;
/// IPv6 destination options.
pub const DESTINATION_OPTIONS: u8 = 60;
/// SCTP.
pub const SCTP: u8 = 132;
/// UDP-Lite.
pub const UDP_LITE: u8 = 136;

/// IPv6 extension headers before an upper-layer protocol, as in RFC 4301, section 4.4.1.1.
pub fn is_extension(number: u8) -> bool {
    matches!(number, HOP_BY_HOP | ROUTING | FRAGMENT | DESTINATION_OPTIONS)
}

/// Protocols whose header begins with a source and a destination port.
pub(crate) fn has_ports(number: u8) -> bool {
    matches!(number, TCP | UDP | DCCP | SCTP | UDP_LITE)
}
