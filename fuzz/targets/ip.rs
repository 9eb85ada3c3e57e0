//! Any octets as an IP packet: every accessor is in bounds, and what is written
//! over a packet leaves one.
#![no_main]

use headroom_packet::ip::Ip;
use headroom_packet::{header, icmp, mss, udp};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|octets: &[u8]| {
    let _ = headroom_packet::Segment::parse(octets, octets.len());
    for parse in [Ip::parse, Ip::parse_train] {
        let Ok(ip) = parse(octets) else { continue };
        let (upper, at) = (ip.upper(), ip.upper_offset());
        assert!(ip.total_len() <= octets.len() && at <= ip.total_len());
        assert!(ip.security_offset() <= at && ip.next_header_offset() < ip.security_offset());
        let _ = (ip.source(), ip.destination(), ip.ports(), ip.fragment(), ip.flow_label());
        let _ = (ip.hop_limit(), ip.dont_fragment(), ip.is_later_fragment());
        if upper == 17 {
            let _ = udp::Packet::new(ip.payload());
        }
        let mut answer = [0; 2048];
        let _ = icmp::too_big(&ip, 1280, ip.destination(), &mut answer);

        let mut changed = ip.bytes().to_vec();
        header::set_tos(&mut changed, 0x55).expect("a packet");
        header::set_total_len(&mut changed, ip.total_len().min(65_535)).expect("a packet");
        let _ = header::decrement_hop_limit(&mut changed);
        let before = changed.clone();
        let clamped = mss::clamp(&mut changed, 1000);
        assert_eq!(clamped, changed != before, "and nothing else is written");
        let again = Ip::parse_train(&changed).expect("still a packet");
        assert_eq!((again.tos(), again.upper(), again.upper_offset()), (0x55, upper, at));
    }
});
