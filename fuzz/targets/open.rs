//! Any octets as what arrives on a protected path: an error, never a packet, for
//! nobody knows the keys; and never a panic.
#![no_main]

mod common;

use common::Shape;
use headroom_ipsec::spec::Direction;
use headroom_ipsec::{OpenScratch, Outer};
use headroom_packet::ip::Ip;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|octets: &[u8]| {
    let Some((&shape, rest)) = octets.split_first() else { return };
    let shape = Shape(shape);
    let receiver = shape.engine(Direction::In);
    let (source, destination) = shape.ends();
    // as a UDP socket gives it, then as a raw socket does, header and all
    let mut body = rest.to_vec();
    let outer = Outer {
        source,
        destination,
        tos: 0,
        header: &[],
        udp: shape.in_udp().then_some((4500, 4500)),
    };
    assert!(
        receiver.open(&outer, shape.protocol(), &mut body, &mut OpenScratch::default()).is_err()
    );
    let Ok(ip) = Ip::parse(rest) else { return };
    let (header, body) = ip.bytes().split_at(ip.upper_offset());
    let outer = Outer { source, destination, tos: ip.tos(), header, udp: None };
    let mut body = body.to_vec();
    for protocol in [ip.upper(), shape.protocol()] {
        assert!(receiver.open(&outer, protocol, &mut body, &mut OpenScratch::default()).is_err());
    }
});
