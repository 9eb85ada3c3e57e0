//! Any fragments in any order: memory stays bounded, and what comes out is a
//! packet.
#![no_main]

use std::time::Duration;

use headroom_packet::fragment::{Limits, Reassembler};
use headroom_packet::ip::Ip;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let limits = Limits { datagrams: 4, bytes: 100_000 };
    let mut reassembler = Reassembler::new(limits);
    let mut rest = bytes;
    let mut now = Duration::ZERO;
    while let Some(([high, low, wait], behind)) = rest.split_first_chunk::<3>() {
        let len = usize::from(u16::from_be_bytes([*high, *low])).min(behind.len());
        let (packet, behind) = behind.split_at(len);
        rest = behind;
        now += Duration::from_secs(u64::from(*wait));
        let Ok(ip) = Ip::parse(packet) else { continue };
        if let Ok(Some(whole)) = reassembler.push(&ip, now) {
            let ip = Ip::parse(&whole).expect("a packet");
            assert!(ip.fragment().is_none());
        }
        assert!(reassembler.datagrams() <= 4 && reassembler.bytes() <= 100_000);
    }
});
