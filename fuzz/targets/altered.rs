//! A good packet, sealed, then altered in any way: it opens to what it was, or
//! not at all.
#![no_main]

mod common;

use common::Shape;
use headroom_ipsec::spec::Direction;
use headroom_ipsec::{FlowCache, Headers, OpenScratch, Outer, Verdict};
use headroom_packet::ip::Ip;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|octets: &[u8]| {
    let Some(([shape, changes], rest)) = octets.split_first_chunk::<2>() else { return };
    let shape = Shape(*shape);
    let changes = usize::from(*changes & 7);
    if rest.len() < changes * 3 {
        return;
    }
    let (altered, packet) = rest.split_at(changes * 3);
    let Ok(ip) = Ip::parse(packet) else { return };
    if [50, 51, 253].contains(&ip.upper()) {
        return; // under AH it would be taken for ours
    }
    let headers = Headers::read(&ip);
    let sender = shape.engine(Direction::Out);
    let Verdict::Protect(_, bundle) = sender.decide(&headers, &mut FlowCache::default()) else {
        return;
    };
    let len = ip.total_len();
    let mut reservation = bundle.reserve(1, len as u64).expect("numbers");
    let mut sealed = vec![0; len + 300];
    let write = |room: &mut [u8]| room.copy_from_slice(ip.bytes());
    let Ok(total) = bundle.seal(&mut reservation, &headers, len, &mut sealed, write) else {
        return;
    };
    sealed.truncate(total);
    assert_eq!(total, bundle.sealed_len(len, headers.security_offset));

    let outer_ip = Ip::parse(&sealed).expect("a sealed packet");
    let (source, destination) = (outer_ip.source(), outer_ip.destination());
    // what a socket takes away: the IP header, and UDP's
    let at = if shape.in_udp() { outer_ip.upper_offset() + 8 } else { outer_ip.security_offset() };
    let header = sealed[..at].to_vec();
    let mut body = sealed[at..].to_vec();
    let original = body.clone();
    for change in altered.chunks(3) {
        let place = usize::from(u16::from_be_bytes([change[0], change[1]])) % body.len();
        body[place] ^= change[2];
    }
    let outer = Outer {
        source,
        destination,
        tos: 0,
        header: if shape.in_udp() { &[] } else { &header },
        udp: shape.in_udp().then_some((4500, 4500)),
    };
    let unchanged = body == original;
    let mut room = OpenScratch::default();
    let receiver = shape.engine(Direction::In);
    match receiver.open(&outer, shape.protocol(), &mut body, &mut room) {
        Ok(opened) => {
            assert!(unchanged, "altered, and opened");
            let behind = packet[..len].len() - opened.payload.len();
            assert_eq!(body[opened.payload.clone()][..], packet[behind..len]);
        }
        Err(reason) => {
            let odd =
                ["bad-inner", "malformed", "header-too-long", "source-route", "dummy", "too-long"];
            assert!(!unchanged || odd.contains(&reason.name()), "{reason}");
        }
    }
});
