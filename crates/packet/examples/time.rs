//! Nanoseconds a call of what runs for every packet, on one core:
//! `cargo run --release -p headroom-packet --example time`.

use std::hint::black_box;
use std::io::IoSlice;
use std::time::{Duration, Instant};

use headroom_packet::{Coalescer, Offload, Segmenter, offload};

const SEGMENT: usize = 1400;
const HEADERS: usize = 40;

fn main() {
    let train = train();
    let offload = Offload {
        checksum: Some((20, 16)),
        kind: offload::TrainKind::Tcp4,
        segment_len: SEGMENT as u16,
        header_len: HEADERS as u16,
    };
    let mut out = vec![0; HEADERS + SEGMENT];
    time("copy 1400 bytes", || out[HEADERS..].copy_from_slice(&black_box(&train)[100..1500]));
    let Ok(segmenter) = Segmenter::new(&train, offload) else { return };
    time("head of a segment of 1400 bytes", || {
        let _ = black_box(segmenter.write_head(black_box(1), &mut out));
    });
    time("copy of a segment of 1400 bytes", || {
        let _ = black_box(segmenter.copy(black_box(1), &mut out));
    });

    let segments: Vec<Vec<u8>> = (0..segmenter.segments())
        .map(|index| {
            let mut segment = out.clone();
            let len = segmenter.copy(index, &mut segment).unwrap_or(0);
            segment.truncate(len);
            segment
        })
        .collect();
    time("joining 46 segments of 1400 bytes", || {
        let mut coalescer = Coalescer::new(false, |offload, slices: &[IoSlice<'_>]| {
            assert_eq!((offload.segment_len, slices.len()), (1400, 47));
            black_box(slices);
        });
        for segment in &segments {
            coalescer.push(&[], segment);
        }
        coalescer.finish();
    });
}

/// An IPv4 packet with 46 segments of TCP.
fn train() -> Vec<u8> {
    let mut packet: Vec<u8> = (0..HEADERS + 46 * SEGMENT).map(|at| (at * 7) as u8).collect();
    packet[..HEADERS].fill(0);
    (packet[0], packet[9], packet[32], packet[33]) = (0x45, 6, 0x50, 0x10);
    packet
}

/// The least mean of ten runs, to be told little of what else the machine does.
fn time(what: &str, mut call: impl FnMut()) {
    const CALLS: u32 = 20_000;
    let mut least = Duration::MAX;
    for _ in 0..10 {
        let start = Instant::now();
        for _ in 0..CALLS {
            call();
        }
        least = least.min(start.elapsed() / CALLS);
    }
    println!("{what}: {} ns", least.as_nanos());
}
