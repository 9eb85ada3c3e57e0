//! Lowers the maximum segment size in a TCP SYN (RFC 9293, section 3.7.1), for paths that lose
//! "packet too big" messages.

use crate::bytes::{be16, put16};
use crate::checksum::fold;
use crate::{Ip, Version, ipv4, ipv6, protocol, tcp};

/// Kinds of options (RFC 9293, section 3.1; RFC 5925, section 2.2).
mod option {
    pub(super) const END: u8 = 0;
    pub(super) const NO_OPERATION: u8 = 1;
    pub(super) const MAXIMUM_SEGMENT_SIZE: u8 = 2;
    pub(super) const AUTHENTICATION: u8 = 29;
}

/// Byte of a TCP header with the flags, and the flag of a connection's first segment.
const FLAGS: usize = 13;
const SYN: u8 = 0x02;
/// The smallest segment size that is set, however short the path MTU is.
const MIN: usize = 64;

/// Checks whether `transport`, the bytes after an IP header, may be a TCP SYN. False positives are
/// possible: [`clamp`] checks in full.
#[inline]
pub fn may_be_syn(transport: &[u8]) -> bool {
    transport.get(FLAGS).is_some_and(|flags| flags & SYN != 0)
}

/// Returns the largest segment that leaves a packet within `mtu` bytes.
pub fn of_mtu(version: Version, mtu: usize) -> u16 {
    let header = match version {
        Version::V4 => ipv4::MIN_HEADER_LEN,
        Version::V6 => ipv6::HEADER_LEN,
    };
    let size = mtu.saturating_sub(header + tcp::MIN_HEADER_LEN).max(MIN);
    u16::try_from(size).unwrap_or(u16::MAX)
}

/// Lowers the segment size of a SYN to `most`, updates the checksum (RFC 1624), and returns whether
/// it changed. Leaves packets unchanged that are no complete TCP SYN, announce no larger segments,
/// or authenticate their options (TCP-AO).
pub fn clamp(packet: &mut [u8], most: u16) -> bool {
    let Some((tcp, at)) = find(packet).filter(|(_, at)| be16(packet, *at) > most) else {
        return false;
    };
    let before = be16(packet, at);
    put16(packet, at, most);
    // At an odd offset the two bytes are halves of two words, and therefore exchanged.
    let turned = |size: u16| if (at - tcp).is_multiple_of(2) { size } else { size.swap_bytes() };
    let checksum = be16(packet, tcp + tcp::CHECKSUM_OFFSET);
    let sum = u64::from(!checksum) + u64::from(!turned(before)) + u64::from(turned(most));
    put16(packet, tcp + tcp::CHECKSUM_OFFSET, !fold(sum));
    true
}

/// Returns the offset of the TCP header of a SYN, and of its segment size.
fn find(packet: &[u8]) -> Option<(usize, usize)> {
    let ip = Ip::parse(packet).ok()?;
    if ip.upper() != protocol::TCP || ip.fragment().is_some() {
        return None;
    }
    let header = tcp::Packet::new(ip.payload()).ok().filter(tcp::Packet::syn)?;
    let begin = ip.upper_offset();
    let end = begin + header.header_len();
    let mut at = begin + tcp::MIN_HEADER_LEN;
    let mut found = None;
    while at < end {
        let len = match (packet[at], packet.get(at + 1).filter(|_| at + 1 < end)) {
            (option::END, _) => break,
            (option::NO_OPERATION, _) => 1,
            (option::AUTHENTICATION, _) => return None,
            (kind, Some(&len)) if len >= 2 && at + usize::from(len) <= end => {
                if kind == option::MAXIMUM_SEGMENT_SIZE && len == 4 {
                    found = found.or(Some(at + 2));
                }
                usize::from(len)
            }
            _ => return None,
        };
        at += len;
    }
    found.map(|at| (begin, at))
}

#[cfg(test)]
mod tests {
    use super::*;
    use etherparse::{PacketBuilder, PacketHeaders, TcpOptionElement, TransportHeader};
    use proptest::prelude::*;

    /// A TCP packet with a right checksum.
    fn packet(v6: bool, syn: bool, options: &[TcpOptionElement], payload: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        let builder = match v6 {
            false => PacketBuilder::ipv4([10, 1, 0, 1], [10, 2, 0, 2], 64),
            true => PacketBuilder::ipv6([0xfd; 16], [0xfe; 16], 64),
        };
        let tcp = builder.tcp(40_000, 80, 7, 65_535).options(options).expect("options that fit");
        let tcp = if syn { tcp.syn() } else { tcp.ack(1) };
        tcp.write(&mut bytes, payload).expect("etherparse writes to a vector");
        bytes
    }

    /// The options of a packet, whose checksum must be right.
    fn read(bytes: &[u8]) -> Vec<TcpOptionElement> {
        let headers = PacketHeaders::from_ip_slice(bytes).expect("a packet");
        let Some(TransportHeader::Tcp(tcp)) = headers.transport else { panic!("TCP") };
        let payload = headers.payload.slice();
        let right = match headers.net.expect("IP") {
            etherparse::NetHeaders::Ipv4(ip, _) => tcp.calc_checksum_ipv4(&ip, payload),
            etherparse::NetHeaders::Ipv6(ip, _) => tcp.calc_checksum_ipv6(&ip, payload),
            etherparse::NetHeaders::Arp(_) => panic!("IP"),
        };
        // 0 and 0xffff are the same number
        let same = |sum: u16| if sum == 0xffff { 0 } else { sum };
        assert_eq!(same(tcp.checksum), same(right.expect("a sum")));
        tcp.options_iterator().map(|option| option.expect("an option")).collect()
    }

    proptest! {
        #[test]
        fn lowers_the_size_and_nothing_else(
            v6: bool,
            syn: bool,
            size: u16,
            most: u16,
            before in 0..4usize,
            has_size: bool,
            payload in proptest::collection::vec(any::<u8>(), 0..50),
        ) {
            let mut options = vec![TcpOptionElement::Noop; before];
            options.extend(has_size.then_some(TcpOptionElement::MaximumSegmentSize(size)));
            options.push(TcpOptionElement::WindowScale(7));
            let original = packet(v6, syn, &options, &payload);
            let mut clamped = original.clone();
            let lower = syn && has_size && size > most;
            prop_assert_eq!(clamp(&mut clamped, most), lower);
            if lower {
                options[before] = TcpOptionElement::MaximumSegmentSize(most);
                let written = read(&clamped);
                prop_assert_eq!(&written[..options.len()], &options[..]);
                let header = if v6 { 40 } else { 20 };
                let same = |bytes: &[u8]| {
                    let mut bytes = bytes.to_vec();
                    bytes[header + 16..header + 18].fill(0);
                    bytes[header + 20 + before + 2..header + 20 + before + 4].fill(0);
                    bytes
                };
                prop_assert_eq!(same(&clamped), same(&original));
            } else {
                prop_assert_eq!(clamped, original);
            }
        }

        #[test]
        fn no_packet_makes_it_panic(
            v6: bool,
            options in proptest::collection::vec(any::<u8>(), 40),
            change in proptest::collection::vec((0..120usize, any::<u8>()), 0..6),
            end in 0..120usize,
        ) {
            let noop = vec![TcpOptionElement::Noop; 40];
            let mut bytes = packet(v6, true, &noop, b"payload");
            let at = if v6 { 60 } else { 40 };
            bytes[at..at + 40].copy_from_slice(&options);
            for (at, value) in change {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte = value;
                }
            }
            bytes.truncate(end);
            let len = bytes.len();
            clamp(&mut bytes, 1000);
            prop_assert_eq!(bytes.len(), len);
        }
    }

    #[test]
    fn options_that_are_authenticated_stay() {
        let noop = [
            TcpOptionElement::MaximumSegmentSize(1460),
            TcpOptionElement::Noop,
            TcpOptionElement::Noop,
            TcpOptionElement::Noop,
            TcpOptionElement::Noop,
        ];
        let mut bytes = packet(false, true, &noop, b"");
        bytes[44..48].copy_from_slice(&[option::AUTHENTICATION, 4, 1, 1]);
        let before = bytes.clone();
        assert!(!clamp(&mut bytes, 1000) && bytes == before);
    }

    #[test]
    fn a_size_leaves_a_packet_within_its_mtu() {
        assert_eq!((of_mtu(Version::V4, 1446), of_mtu(Version::V6, 1446)), (1406, 1386));
        assert_eq!((of_mtu(Version::V4, 0), of_mtu(Version::V6, 1 << 20)), (64, u16::MAX));
    }
}
