//! Any packets in a batch: none is lost, and none is made up.
#![no_main]

use std::io::IoSlice;

use headroom_packet::Offload;
use headroom_packet::coalesce::Coalescer;
use headroom_packet::ip::Ip;
use headroom_packet::segmenter::Segmenter;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|octets: &[u8]| {
    let Some((&joins_udp, mut rest)) = octets.split_first() else { return };
    let mut packets: Vec<&[u8]> = Vec::new();
    while let Some((len, behind)) = rest.split_first_chunk::<2>() {
        let len = usize::from(u16::from_be_bytes(*len)).min(behind.len());
        let (packet, behind) = behind.split_at(len);
        packets.push(packet);
        rest = behind;
    }
    let mut out: Vec<Vec<u8>> = Vec::new();
    let mut joined =
        Coalescer::new(joins_udp & 1 == 1, |offload: Offload, parts: &[IoSlice<'_>]| {
            let whole: Vec<u8> = parts.iter().flat_map(|part| part.iter().copied()).collect();
            if offload == Offload::default() {
                out.push(whole);
                return;
            }
            // a train is cut again, and its parts must be what came in
            let segmenter = Segmenter::new(&whole, offload).expect("a train that can be cut");
            for index in 0..segmenter.segments() {
                let mut packet = vec![0; whole.len()];
                let len = segmenter.copy(index, &mut packet).expect("a segment");
                packet.truncate(len);
                out.push(packet);
            }
        });
    for (n, packet) in packets.iter().enumerate() {
        let (head, payload) = packet.split_at(if n % 2 == 0 { 0 } else { packet.len().min(40) });
        joined.push(head, payload);
    }
    joined.finish();
    let sum = |packets: &[Vec<u8>]| packets.iter().map(Vec::len).sum::<usize>();
    let came: Vec<Vec<u8>> = packets.iter().map(|packet| packet.to_vec()).collect();
    assert_eq!((sum(&out), out.len()), (sum(&came), came.len()));
    // what is no IP packet passes as it is
    for packet in came.iter().filter(|packet| Ip::parse(packet).is_err()) {
        assert!(out.contains(packet));
    }
});
