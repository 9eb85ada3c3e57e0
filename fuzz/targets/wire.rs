//! Any frames as what was captured of a transfer: they are read as one, in each way that
//! the lab reads them.
#![no_main]

use std::net::IpAddr;

use headroom_lab_trace::{Expectation, Framing, Login, SetUp, TimeHints, Trace, read};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|octets: &[u8]| {
    let Some((&kind, mut rest)) = octets.split_first() else { return };
    let is = |bit: u32| kind >> bit & 1 == 1;
    let framing = if is(0) { Framing::Ip } else { Framing::Ethernet };
    let mut trace = Trace::new(IpAddr::from([10, 0, 0, 1]));
    let start = 1_700_000_000_000_000_000;
    let mut now = start;
    while let Some(([wait, beyond, len], behind)) = rest.split_first_chunk::<3>() {
        let (head, behind) = behind.split_at(usize::from(*len).min(behind.len()));
        rest = behind;
        now += u64::from(*wait) * 100_000;
        trace.push(framing, now, head, head.len() as u32 + u32::from(*beyond) * 8);
    }
    let _ = (trace.is_over(), SetUp::of_tls(&trace), SetUp::of_tunnel(&trace));
    let mark = Some(start + (now - start) / 2);
    let expected = Expectation {
        port: 80,
        data_connections: is(4),
        over_datagrams: kind == u8::MAX,
        upload: is(5),
        size: 2000,
        frame_s: 0.0,
        has_close_exchange: is(6),
        login: is(7).then_some(Login { opened: 10, granted: 20 }),
        hints: TimeHints {
            start_ns: None,
            request_ns: mark.filter(|_| is(1)),
            login_ns: mark.filter(|_| is(2)),
            done_ns: mark.filter(|_| is(3)),
        },
    };
    if let Some(record) = read(&trace, &expected) {
        assert!(record.tcp.retransmitted_bytes <= record.tcp.transmitted_bytes);
    }
});
