//! Any frames as what was captured of a transfer: they are read as one.
#![no_main]

use std::net::IpAddr;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|octets: &[u8]| {
    let Some((&kind, mut rest)) = octets.split_first() else { return };
    let mut now = 1_700_000_000_000_000_000;
    let frames = std::iter::from_fn(|| {
        let ([wait, beyond, len], behind) = rest.split_first_chunk::<3>()?;
        let (head, behind) = behind.split_at(usize::from(*len).min(behind.len()));
        rest = behind;
        now += u64::from(*wait) * 100_000;
        Some((now, head, head.len() as u32 + u32::from(*beyond) * 8))
    });
    let tcp = headroom_lab::read_frames(kind, IpAddr::from([10, 0, 0, 1]), frames);
    if let Some(tcp) = tcp {
        assert!(tcp.retransmitted_bytes <= tcp.transmitted_bytes);
    }
});
