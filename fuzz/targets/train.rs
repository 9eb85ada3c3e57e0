//! Any octets behind any offload header, as a TUN device hands them over: what
//! is cut are packets.
#![no_main]

use headroom_packet::ip::Ip;
use headroom_packet::offload::TrainKind;
use headroom_packet::segmenter::Segmenter;
use headroom_packet::{Offload, checksum};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|octets: &[u8]| {
    let Ok(offload) = Offload::decode(octets) else { return };
    let packet = &octets[10..];
    if let Some((start, offset)) = offload.checksum {
        let at = checksum::Unfinished { start: usize::from(start), offset: usize::from(offset) };
        let _ = checksum::finish(&mut packet.to_vec(), at);
    }
    let Ok(segmenter) = Segmenter::new(packet, offload) else { return };
    let mut out = vec![0; segmenter.head_len() + packet.len()];
    for index in 0..segmenter.segments().min(64) {
        let Ok(len) = segmenter.copy(index, &mut out) else { continue };
        // in a single packet the sender may have its checksum anywhere
        if offload.kind != TrainKind::None {
            let ip = Ip::parse(&out[..len]).expect("a packet");
            assert_eq!(ip.total_len(), len);
            assert!(out[..len].ends_with(segmenter.payload(index)));
        }
    }
});
