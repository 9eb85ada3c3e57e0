use super::*;
use etherparse::PacketBuilder;
use proptest::prelude::*;

fn build(v6: bool, payload: &[u8]) -> Vec<u8> {
    let ip = if v6 {
        PacketBuilder::ipv6([0xfd; 16], [0xfc; 16], 63)
    } else {
        PacketBuilder::ipv4([10, 0, 0, 1], [10, 0, 0, 2], 63)
    };
    let mut bytes = Vec::new();
    ip.udp(4000, 53).write(&mut bytes, payload).expect("etherparse writes to a vector");
    bytes
}

/// An IPv6 packet with these extension headers, each a kind and its bytes
/// behind the next header field, and `upper` behind them.
fn chain(extensions: &[(u8, &[u8])], upper: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = build(true, &[])[..40].to_vec();
    bytes[6] = extensions.first().map_or(upper, |(kind, _)| *kind);
    for (index, (_, body)) in extensions.iter().enumerate() {
        bytes.push(extensions.get(index + 1).map_or(upper, |(kind, _)| *kind));
        bytes.extend_from_slice(body);
    }
    bytes.extend_from_slice(payload);
    let len = bytes.len() - 40;
    crate::bytes::put16(&mut bytes, 4, len as u16);
    bytes
}

const OPTIONS: &[u8] = &[0, 1, 4, 0, 0, 0, 0];
const PORTS: &[u8] = &[0x0f, 0xa0, 0, 53, 0, 8, 0, 0];

#[test]
fn parses_packets_of_etherparse() {
    for v6 in [false, true] {
        let mut bytes = build(v6, b"hello");
        let len = bytes.len();
        bytes.resize(len + 9, 7); // a longer buffer is cut
        let ip = Ip::parse(&bytes).expect("a good packet");
        assert_eq!(ip.bytes(), &bytes[..len]);
        assert_eq!((ip.upper(), ip.ports(), ip.hop_limit()), (17, Some((4000, 53)), 63));
        assert_eq!(ip.source().is_ipv6(), v6);
        assert_eq!(&ip.payload()[8..], b"hello");
        assert_eq!(ip.security_offset(), ip.upper_offset());
        assert_eq!(bytes[ip.next_header_offset()], 17);
        assert_eq!(ip.version() == Version::V6, v6);
        assert!(ip.dont_fragment());
    }
}

#[test]
fn tos_and_flow_label_are_where_the_headers_have_them() {
    let mut bytes = build(true, b"");
    bytes[..4].copy_from_slice(&0x6b9a_bcde_u32.to_be_bytes());
    let ip = Ip::parse(&bytes).expect("a good packet");
    assert_eq!((ip.tos(), ip.flow_label()), (0xb9, 0x000a_bcde));
    let mut bytes = build(false, b"");
    bytes[1] = 0xb9;
    assert_eq!(Ip::parse(&bytes).map(|ip| (ip.tos(), ip.flow_label())), Ok((0xb9, 0)));
}

#[test]
fn a_security_header_goes_behind_hop_by_hop_and_before_destination_options() {
    let bytes = chain(&[(0, OPTIONS), (60, OPTIONS)], 17, PORTS);
    let ip = Ip::parse(&bytes).expect("a good packet");
    assert_eq!((ip.upper(), ip.upper_offset(), ip.ports()), (17, 56, Some((4000, 53))));
    assert_eq!((ip.security_offset(), ip.next_header_offset()), (48, 40));
    assert_eq!(bytes[ip.next_header_offset()], 60);
}

#[test]
fn destination_options_for_the_nodes_of_a_route_stay_before_a_security_header() {
    let mut routing = vec![2, 2, 1]; // 24 bytes, type 2, one segment left
    routing.extend([0; 4]);
    routing.extend([0xaa; 16]);
    let bytes = chain(&[(60, OPTIONS), (43, &routing), (60, OPTIONS)], 17, PORTS);
    let ip = Ip::parse(&bytes).expect("a good packet");
    assert_eq!((ip.security_offset(), ip.next_header_offset()), (72, 48));
    assert_eq!(ip.upper_offset(), 80);
}

#[test]
fn ports_are_found_behind_a_source_route_of_ipv4() {
    let mut bytes = build(false, b"");
    bytes[0] = 0x48;
    bytes.splice(20..20, [1, 131, 11, 4, 1, 1, 1, 1, 9, 9, 9, 9]);
    let len = bytes.len();
    crate::bytes::put16(&mut bytes, 2, len as u16);
    let ip = Ip::parse(&bytes).expect("a good packet");
    assert_eq!((ip.security_offset(), ip.ports()), (32, Some((4000, 53))));
}

#[test]
fn ah_and_esp_are_upper_layer_protocols() {
    for upper in [50, 51, 59, 253] {
        let bytes = chain(&[(0, OPTIONS)], upper, PORTS);
        let ip = Ip::parse(&bytes).expect("a good packet");
        assert_eq!((ip.upper(), ip.upper_offset(), ip.ports()), (upper, 48, None));
        assert_eq!(ip.security_offset(), 48);
    }
}

#[test]
fn fragments_are_read_in_both_versions() {
    let mut bytes = build(false, b"hello");
    crate::bytes::put16(&mut bytes, 4, 77);
    for (field, expected, ports) in [
        (0x4000, None, true),
        (0x2000, Some(Fragment { id: 77, offset: 0, more: true }), true),
        (0x2001, Some(Fragment { id: 77, offset: 8, more: true }), false),
        (0x1fff, Some(Fragment { id: 77, offset: 65_528, more: false }), false),
    ] {
        crate::bytes::put16(&mut bytes, 6, field);
        let ip = Ip::parse(&bytes).expect("a good packet");
        assert_eq!((ip.fragment(), ip.ports().is_some()), (expected, ports));
    }
    for (field, expected, upper) in [
        ([0, 0], None, 17),
        ([0, 1], Some(Fragment { id: 77, offset: 0, more: true }), 17),
        ([0, 8], Some(Fragment { id: 77, offset: 8, more: false }), 60),
    ] {
        let fragment = [0, field[0], field[1], 0, 0, 0, 77];
        let bytes = chain(&[(44, &fragment), (60, OPTIONS)], 17, PORTS);
        let ip = Ip::parse(&bytes).expect("a good packet");
        assert_eq!((ip.fragment(), ip.upper()), (expected, upper));
        assert_eq!(ip.security_offset(), 48);
    }
}

#[test]
fn refuses_malformed_packets() {
    assert_eq!(Ip::parse(&[]).err(), Some(Error::Truncated("IP")));
    assert_eq!(Ip::parse(&[0x50; 60]).err(), Some(Error::Unsupported));
    let mut bytes = build(false, b"hello");
    let whole = bytes.len();
    assert_eq!(Ip::parse(&bytes[..whole - 1]).err(), Some(Error::Truncated("IP")));
    crate::bytes::put16(&mut bytes, 2, 19); // below the header
    assert_eq!(Ip::parse(&bytes).err(), Some(Error::Truncated("IPv4")));
    assert_eq!(Ip::parse_train(&bytes).map(|ip| ip.total_len()), Ok(whole));
    let late = chain(&[(60, OPTIONS), (0, OPTIONS)], 17, PORTS);
    assert_eq!(Ip::parse(&late).err(), Some(Error::Malformed("IPv6 hop-by-hop")));
    let long = chain(&[(60, OPTIONS); 17], 17, PORTS);
    assert_eq!(Ip::parse(&long).err(), Some(Error::Malformed("IPv6 extension")));
    let most = chain(&[(60, OPTIONS); 16], 17, PORTS);
    assert_eq!(Ip::parse(&most).map(|ip| ip.upper()), Ok(17));
}

/// Calls everything a packet offers.
fn touch(ip: &Ip<'_>) {
    let _ = (ip.source(), ip.destination(), ip.tos(), ip.hop_limit());
    let _ = (ip.flow_label(), ip.ports(), ip.fragment(), ip.dont_fragment(), ip.payload());
    assert!(ip.next_header_offset() < ip.security_offset());
    assert!(ip.security_offset() <= ip.upper_offset());
    assert!(ip.upper_offset() <= ip.total_len());
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(mut bytes in proptest::collection::vec(prop_oneof![0u8..4, proptest::sample::select(vec![0u8, 43, 44, 60, 131, 137]), any::<u8>()], 0..200), v6: bool) {
        if let Some(first) = bytes.first_mut() {
            *first = if v6 { 0x60 } else { 0x40 | *first & 0x0f };
        }
        if let Ok(ip) = Ip::parse_train(&bytes) {
            touch(&ip);
            prop_assert_eq!(ip.total_len(), bytes.len());
        }
        if bytes.len() > 40 {
            let len = bytes.len();
            crate::bytes::put16(&mut bytes, if v6 { 4 } else { 2 }, if v6 { len - 40 } else { len } as u16);
        }
        if let Ok(ip) = Ip::parse(&bytes) {
            touch(&ip);
        }
    }
}
