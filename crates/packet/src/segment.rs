//! One TCP segment or UDP datagram, or one offloaded train, parsed from the head of a captured
//! frame.

use std::net::{IpAddr, SocketAddr};

use crate::bytes::be16;
use crate::{Error, ethernet, ipv4, ipv6, protocol, tcp, udp};

/// The measured properties of a segment.
#[derive(Debug, Clone, Copy)]
pub struct Segment<'a> {
    /// Source address and port.
    pub source: SocketAddr,
    /// Destination address and port.
    pub destination: SocketAddr,
    /// The TCP header.
    pub tcp: tcp::Packet<'a>,
    /// Bytes of TCP payload in the whole frame, captured or not.
    pub payload_len: usize,
    /// The captured start of the payload.
    pub payload: &'a [u8],
}

impl<'a> Segment<'a> {
    /// Parses the head of an Ethernet frame of `wire_len` bytes.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for anything but unfragmented TCP over IPv4 or IPv6, or the error of
    /// a header.
    pub fn parse(head: &'a [u8], wire_len: usize) -> Result<Self, Error> {
        let (head, wire_len) = behind_ethernet(head, wire_len)?;
        Self::parse_ip(head, wire_len)
    }

    /// Parses the head of an IP packet of `wire_len` bytes, from an interface without Ethernet
    /// headers.
    ///
    /// # Errors
    /// As [`Segment::parse`].
    pub fn parse_ip(head: &'a [u8], wire_len: usize) -> Result<Self, Error> {
        let Behind { source, destination, bytes, len } = Behind::ip(head, wire_len, tcp::PROTOCOL)?;
        let tcp = tcp::Packet::new(bytes)?;
        let payload_len = len.checked_sub(tcp.header_len()).ok_or(Error::Malformed("TCP"))?;
        let captured = tcp.payload();
        Ok(Self {
            source: SocketAddr::new(source, tcp.source_port()),
            destination: SocketAddr::new(destination, tcp.destination_port()),
            tcp,
            payload_len,
            payload: &captured[..captured.len().min(payload_len)],
        })
    }
}

/// The measured properties of a datagram.
#[derive(Debug, Clone, Copy)]
pub struct Datagram<'a> {
    /// Source address and port.
    pub source: SocketAddr,
    /// Destination address and port.
    pub destination: SocketAddr,
    /// Bytes of UDP payload in the whole frame, captured or not.
    pub payload_len: usize,
    /// The captured start of the payload.
    pub payload: &'a [u8],
}

impl<'a> Datagram<'a> {
    /// Parses the head of an Ethernet frame of `wire_len` bytes.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for anything but UDP over IPv4 or IPv6 and for a later fragment, or
    /// the error of a header.
    pub fn parse(head: &'a [u8], wire_len: usize) -> Result<Self, Error> {
        let (head, wire_len) = behind_ethernet(head, wire_len)?;
        Self::parse_ip(head, wire_len)
    }

    /// Parses the head of an IP packet of `wire_len` bytes.
    ///
    /// # Errors
    /// As [`Datagram::parse`].
    pub fn parse_ip(head: &'a [u8], wire_len: usize) -> Result<Self, Error> {
        let Behind { source, destination, bytes, len } = Behind::ip(head, wire_len, protocol::UDP)?;
        let header = bytes.get(..udp::HEADER_LEN).ok_or(Error::Truncated("UDP"))?;
        let payload_len = len.checked_sub(udp::HEADER_LEN).ok_or(Error::Malformed("UDP"))?;
        let captured = &bytes[udp::HEADER_LEN..];
        Ok(Self {
            source: SocketAddr::new(source, be16(header, 0)),
            destination: SocketAddr::new(destination, be16(header, 2)),
            payload_len,
            payload: &captured[..captured.len().min(payload_len)],
        })
    }
}

/// The bytes after an Ethernet header, and their original length.
fn behind_ethernet(head: &[u8], wire_len: usize) -> Result<(&[u8], usize), Error> {
    let frame = ethernet::Frame::new(head)?;
    if !matches!(frame.ethertype(), ethernet::IPV4 | ethernet::IPV6) {
        return Err(Error::Unsupported);
    }
    Ok((frame.payload(), wire_len.saturating_sub(ethernet::HEADER_LEN)))
}

/// The bytes after an IP header.
struct Behind<'a> {
    source: IpAddr,
    destination: IpAddr,
    bytes: &'a [u8],
    /// Their length in the whole packet.
    len: usize,
}

impl<'a> Behind<'a> {
    /// Parses a packet of `wire_len` bytes that carries `protocol`.
    fn ip(head: &'a [u8], wire_len: usize, protocol: u8) -> Result<Self, Error> {
        match head.first().map(|b| b >> 4) {
            Some(4) => {
                let ip = ipv4::Packet::new(head)?;
                if ip.protocol() != protocol || ip.is_later_fragment() {
                    return Err(Error::Unsupported);
                }
                let total = or_else_if_zero(ip.total_len(), wire_len);
                let len = total.checked_sub(ip.header_len()).ok_or(Error::Malformed("IPv4"))?;
                let [source, destination] = [ip.source(), ip.destination()].map(IpAddr::V4);
                Ok(Self { source, destination, bytes: ip.payload(), len })
            }
            Some(6) => {
                let ip = ipv6::Packet::new(head)?;
                if ip.next_header() != protocol {
                    return Err(Error::Unsupported);
                }
                let behind = wire_len.saturating_sub(ipv6::HEADER_LEN);
                let len = or_else_if_zero(ip.payload_len(), behind);
                let [source, destination] = [ip.source(), ip.destination()].map(IpAddr::V6);
                Ok(Self { source, destination, bytes: ip.payload(), len })
            }
            _ => Err(Error::Unsupported),
        }
    }
}

fn or_else_if_zero(field: usize, fallback: usize) -> usize {
    if field == 0 { fallback } else { field }
}

#[cfg(test)]
mod tests {
    use super::*;
    use etherparse::PacketBuilder;
    use proptest::prelude::*;

    fn frame(v6: bool, payload: &[u8]) -> Vec<u8> {
        let ethernet = PacketBuilder::ethernet2([2; 6], [4; 6]);
        let ip = if v6 {
            ethernet.ipv6([0xfd; 16], [0xfc; 16], 64)
        } else {
            ethernet.ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64)
        };
        let mut bytes = Vec::new();
        ip.tcp(40000, 21, 7, 65535)
            .syn()
            .write(&mut bytes, payload)
            .expect("etherparse writes to a vector");
        bytes
    }

    #[test]
    fn parses_packets_of_etherparse() {
        for v6 in [false, true] {
            let bytes = frame(v6, b"hello");
            let segment = Segment::parse(&bytes, bytes.len()).expect("a good frame");
            assert_eq!(segment.source.port(), 40000);
            assert_eq!(segment.destination.port(), 21);
            assert_eq!(segment.source.is_ipv6(), v6);
            assert_eq!((segment.payload_len, segment.payload), (5, &b"hello"[..]));
            assert!(segment.tcp.syn() && !segment.tcp.ack());
            assert_eq!(segment.tcp.sequence(), 7);
            let source = ethernet::Frame::new(&bytes).map(|frame| frame.ip_source());
            assert_eq!(source, Ok(Some(segment.source.ip())));
            let behind = &bytes[ethernet::HEADER_LEN..];
            let inner = Segment::parse_ip(behind, behind.len()).expect("the packet in it");
            assert_eq!((inner.source, inner.payload), (segment.source, segment.payload));
        }
    }

    #[test]
    fn a_datagram_is_read_and_is_no_segment() {
        for v6 in [false, true] {
            let ethernet = PacketBuilder::ethernet2([2; 6], [4; 6]);
            let ip = if v6 {
                ethernet.ipv6([0xfd; 16], [0xfc; 16], 64)
            } else {
                ethernet.ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64)
            };
            let mut bytes = Vec::new();
            ip.udp(4860, 50_000).write(&mut bytes, b"hello").expect("written");
            let datagram = Datagram::parse(&bytes, bytes.len()).expect("a good frame");
            assert_eq!((datagram.source.port(), datagram.destination.port()), (4860, 50_000));
            assert_eq!((datagram.payload_len, datagram.payload), (5, &b"hello"[..]));
            assert!(Segment::parse(&bytes, bytes.len()).is_err());
            for cut in 0..bytes.len() - 5 {
                assert!(Datagram::parse(&bytes[..cut], bytes.len()).is_err(), "{cut}");
            }
            let segment = frame(v6, b"hello");
            assert!(Datagram::parse(&segment, segment.len()).is_err());
        }
    }

    #[test]
    fn padding_of_a_short_ethernet_frame_is_not_payload() {
        let mut bytes = frame(false, b"");
        bytes.resize(60, 0);
        assert_eq!(Segment::parse(&bytes, 60).map(|s| s.payload_len), Ok(0));
    }

    #[test]
    fn length_of_a_train_longer_than_the_field_comes_from_the_frame() {
        let mut bytes = frame(true, b"");
        bytes[18..20].fill(0); // Payload Length
        let wire_len = ethernet::HEADER_LEN + ipv6::HEADER_LEN + 20 + 100_000;
        assert_eq!(Segment::parse(&bytes, wire_len).map(|s| s.payload_len), Ok(100_000));
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..120), v6: bool, wire_len in 0usize..200_000) {
            let _ = Segment::parse(&bytes, wire_len);
            let _ = Segment::parse_ip(&bytes, wire_len);
            let _ = Datagram::parse(&bytes, wire_len);
            let _ = Datagram::parse_ip(&bytes, wire_len);
            // the same bytes again behind a plausible beginning, to get past the first checks
            if bytes.len() > 14 {
                bytes[12..15].copy_from_slice(if v6 { &[0x86, 0xdd, 0x60] } else { &[0x08, 0x00, 0x45] });
                let _ = Segment::parse(&bytes, wire_len);
                let _ = Datagram::parse(&bytes, wire_len);
            }
        }

        #[test]
        fn every_cut_of_a_good_frame_is_an_error_or_the_same_segment(cut in 0usize..74, v6: bool) {
            let bytes = frame(v6, b"");
            let whole = bytes.len();
            if let Ok(segment) = Segment::parse(&bytes[..cut.min(whole)], whole) {
                prop_assert!(cut >= whole);
                prop_assert_eq!(segment.payload_len, 0);
            }
        }
    }
}
