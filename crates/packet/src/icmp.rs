//! "Packet too big" messages: ICMP type 3 code 4 with the MTU of the next hop (RFC 792, RFC 1191)
//! and ICMPv6 type 2 (RFC 4443, section 3.2).

use std::net::{IpAddr, Ipv4Addr};

use crate::bytes::put16;
use crate::checksum::{fold, pseudo_header, sum};
use crate::header::IpHeader;
use crate::{Ip, Version, ipv6, protocol};

/// The longest message in bytes: IPv6's minimum MTU.
pub const MAX_LEN: usize = 1280;
/// The longest message in IPv4 (RFC 1812, section 4.3.2.3).
const MAX_V4_LEN: usize = 576;

/// Bytes of the ICMP header before the quoted packet.
const HEADER_LEN: usize = 8;
const UNREACHABLE: u8 = 3;
const FRAGMENTATION_NEEDED: u8 = 4;
const TOO_BIG: u8 = 2;
const REDIRECT_V6: u8 = 137;
const HOP_LIMIT: u8 = 64;
/// The DSCP of messages from routers (RFC 1812, section 4.3.2.5): CS6.
const TOS: u8 = 0xc0;

/// Writes the message about `packet`, which is longer than `mtu` bytes, to `out`, which must have
/// [`MAX_LEN`] bytes, and returns its length. `from` is an address of the router. The caller limits
/// the rate.
///
/// None if there must be no message: about an ICMP error, a later fragment, or a packet with a
/// source that is not one host or with a multicast destination (RFC 1122, section 3.2.2; RFC 4443,
/// section 2.4 (e), allows a multicast destination); or if `from` has the other IP version or `out`
/// is too short.
pub fn too_big(packet: &Ip<'_>, mtu: u32, from: IpAddr, out: &mut [u8]) -> Option<usize> {
    if !may_be_answered(packet) {
        return None;
    }
    let (max_len, protocol) = match packet.version() {
        Version::V4 => (MAX_V4_LEN, protocol::ICMP),
        Version::V6 => (MAX_LEN, protocol::ICMPV6),
    };
    let header = IpHeader {
        source: from,
        destination: packet.source(),
        tos: TOS,
        hop_limit: HOP_LIMIT,
        protocol,
        id: 0,
        dont_fragment: false,
        flow_label: 0,
    };
    let before = header.header_len() + HEADER_LEN;
    let quoted = &packet.bytes()[..packet.total_len().min(max_len - before)];
    let ip_len = header.write(HEADER_LEN + quoted.len(), out).ok()?;
    let answer = out.get_mut(..before + quoted.len())?;
    let (ip, icmp) = answer.split_at_mut(ip_len);
    icmp[..HEADER_LEN].fill(0);
    icmp[HEADER_LEN..].copy_from_slice(quoted);
    let pseudo = match packet.version() {
        Version::V4 => {
            (icmp[0], icmp[1]) = (UNREACHABLE, FRAGMENTATION_NEEDED);
            put16(icmp, 6, u16::try_from(mtu).unwrap_or(u16::MAX));
            0
        }
        Version::V6 => {
            icmp[0] = TOO_BIG;
            icmp[4..8].copy_from_slice(&mtu.to_be_bytes());
            pseudo_header(&ip[8..ipv6::HEADER_LEN], protocol, icmp.len())
        }
    };
    put16(icmp, 2, !fold(sum(icmp, pseudo)));
    Some(answer.len())
}

fn may_be_answered(packet: &Ip<'_>) -> bool {
    !packet.is_later_fragment()
        && is_one_host(packet.source())
        && !is_many_v4(packet.destination())
        && !is_error(packet)
}

fn is_one_host(address: IpAddr) -> bool {
    !address.is_unspecified()
        && !address.is_multicast()
        && !address.is_loopback()
        && !matches!(address, IpAddr::V4(v4) if is_class_e(v4))
}

/// Checks for an IPv4 multicast or broadcast destination; in IPv6 a message is allowed, for path
/// MTU discovery.
fn is_many_v4(address: IpAddr) -> bool {
    matches!(address, IpAddr::V4(v4) if v4.is_multicast() || v4.is_broadcast())
}

/// Checks for reserved addresses and limited broadcast (RFC 1112, section 4).
fn is_class_e(address: Ipv4Addr) -> bool {
    address.octets()[0] >= 240
}

/// Checks whether the packet is an ICMP error or redirect, or may be one.
fn is_error(packet: &Ip<'_>) -> bool {
    let kind = packet.payload().first().copied();
    match packet.upper() {
        // All types but the queries of RFC 792, RFC 950, RFC 1256 and RFC 8335.
        protocol::ICMP => {
            kind.is_none_or(|kind| !matches!(kind, 0 | 8 | 9 | 10 | 13..=18 | 42 | 43))
        }
        protocol::ICMPV6 => kind.is_none_or(|kind| kind < 128 || kind == REDIRECT_V6),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::header;
    use crate::testing::Recipe;
    use etherparse::icmpv4;
    use etherparse::{Icmpv4Type, Icmpv6Type, PacketBuilder, PacketHeaders, TransportHeader};
    use proptest::prelude::*;

    fn router(v6: bool) -> IpAddr {
        if v6 { IpAddr::from([0xfe; 16]) } else { IpAddr::from([10, 0, 0, 254]) }
    }

    fn answer(bytes: &[u8], mtu: u32) -> Option<Vec<u8>> {
        let packet = Ip::parse(bytes).expect("a good packet");
        let mut out = vec![7; MAX_LEN];
        let v6 = packet.version() == Version::V6;
        let len = too_big(&packet, mtu, router(v6), &mut out)?;
        out.truncate(len);
        Some(out)
    }

    #[test]
    fn sends_no_message_where_standards_forbid_it() {
        let good = Recipe::TCP.build(&[5; 100]);
        assert!(answer(&good, 100).is_some());
        let change = |at: usize, octets: &[u8]| {
            let mut bytes = good.clone();
            bytes[at..at + octets.len()].copy_from_slice(octets);
            bytes
        };
        for (what, bytes) in [
            ("later fragment", change(6, &[0, 1])),
            ("source 0.0.0.0", change(12, &[0, 0, 0, 0])),
            ("source multicast", change(12, &[224, 0, 0, 1])),
            ("source broadcast", change(12, &[255, 255, 255, 255])),
            ("source loopback", change(12, &[127, 0, 0, 1])),
            ("destination multicast", change(16, &[239, 0, 0, 1])),
            ("destination broadcast", change(16, &[255, 255, 255, 255])),
        ] {
            assert_eq!(answer(&bytes, 100), None, "{what}");
        }
        let mut v6 = Recipe { v6: true, ..Recipe::TCP }.build(&[5; 100]);
        v6[24] = 0xff; // a multicast destination learns the path MTU
        assert!(answer(&v6, 100).is_some());
        v6[8] = 0xff;
        assert_eq!(answer(&v6, 100), None);
    }

    #[test]
    fn an_icmp_error_gets_no_answer_and_a_query_does() {
        for (kind, is_answered) in [(0, true), (8, true), (3, false), (5, false), (11, false)] {
            let mut bytes = Vec::new();
            let ip = PacketBuilder::ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64);
            ip.icmpv4_raw(kind, 0, [0; 4]).write(&mut bytes, &[5; 100]).expect("a vector");
            assert_eq!(answer(&bytes, 100).is_some(), is_answered, "{kind}");
        }
        for (kind, is_answered) in [(128, true), (129, true), (1, false), (2, false), (137, false)]
        {
            let mut bytes = Vec::new();
            let ip = PacketBuilder::ipv6([0xfd; 16], [0xfc; 16], 64);
            ip.icmpv6_raw(kind, 0, [0; 4]).write(&mut bytes, &[5; 100]).expect("a vector");
            assert_eq!(answer(&bytes, 100).is_some(), is_answered, "{kind}");
        }
        // the type is missing
        let mut bytes = Recipe::TCP.build(&[])[..20].to_vec();
        bytes[9] = protocol::ICMP;
        header::set_total_len(&mut bytes, 20).expect("a header");
        assert_eq!(answer(&bytes, 10), None);
    }

    #[test]
    fn an_answer_needs_room_and_an_address_of_its_family() {
        for v6 in [false, true] {
            let bytes = Recipe { v6, ..Recipe::TCP }.build(&[5; 100]);
            let packet = Ip::parse(&bytes).expect("a good packet");
            let len = answer(&bytes, 100).expect("an answer").len();
            let mut out = vec![0; len];
            assert_eq!(too_big(&packet, 100, router(!v6), &mut out), None);
            assert_eq!(too_big(&packet, 100, router(v6), &mut out[..len - 1]), None);
            assert_eq!(too_big(&packet, 100, router(v6), &mut out), Some(len));
        }
    }

    proptest! {
        #[test]
        fn etherparse_reads_the_answer(v6: bool, udp: bool, payload in proptest::collection::vec(any::<u8>(), 0..3000), mtu in 68u16..) {
            let bytes = Recipe { v6, udp, ..Recipe::TCP }.build(&payload);
            let answer = answer(&bytes, mtu.into()).expect("it may be answered");
            let ip = Ip::parse(&answer).expect("a good packet");
            prop_assert_eq!(ip.destination(), Ip::parse(&bytes).expect("a good packet").source());
            prop_assert_eq!(ip.source(), router(v6));
            let read = PacketHeaders::from_ip_slice(&answer).expect("a good packet");
            let quoted = read.payload.slice();
            let (longest, before) = if v6 { (1280, 48) } else { (576, 28) };
            prop_assert_eq!(quoted, &bytes[..bytes.len().min(longest - before)]);
            match read.transport.expect("ICMP") {
                TransportHeader::Icmpv4(icmp) => {
                    let expected = icmpv4::DestUnreachableHeader::FragmentationNeeded { next_hop_mtu: mtu };
                    prop_assert_eq!(&icmp.icmp_type, &Icmpv4Type::DestinationUnreachable(expected));
                    prop_assert_eq!(icmp.icmp_type.calc_checksum(quoted), icmp.checksum);
                }
                TransportHeader::Icmpv6(icmp) => {
                    prop_assert_eq!(&icmp.icmp_type, &Icmpv6Type::PacketTooBig { mtu: mtu.into() });
                    let (source, destination) = (answer[8..24].try_into().expect("16"), answer[24..40].try_into().expect("16"));
                    prop_assert_eq!(icmp.icmp_type.calc_checksum(source, destination, quoted).expect("a length"), icmp.checksum);
                }
                other => prop_assert!(false, "{:?}", other),
            }
        }
    }
}
