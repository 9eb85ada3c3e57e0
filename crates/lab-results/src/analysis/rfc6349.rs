//! The three measures of RFC 6349, "Framework for TCP Throughput Testing".

use super::slow_start::Segment;
use crate::schema::{Rfc6349, Tcp};

/// Seconds in which a link of `rate_bps` could carry the bytes at best: full
/// segments, framing and headers counted (section 4.1.1).
pub fn ideal_s(bytes: f64, rate_bps: f64, segment: Segment) -> f64 {
    bytes / segment.payload_bytes_per_s(rate_bps)
}

/// Actual over ideal transfer time (section 4.1.2); 1 is as good as it gets.
pub fn transfer_time_ratio(actual_s: f64, ideal_s: f64) -> Option<f64> {
    (ideal_s > 0.0).then(|| actual_s / ideal_s)
}

/// Share of the transmitted bytes that were not sent again, per cent (section
/// 4.2.1).
pub fn tcp_efficiency_pct(transmitted: u64, retransmitted: u64) -> Option<f64> {
    let useful = transmitted.checked_sub(retransmitted)? as f64;
    (transmitted > 0).then(|| 100.0 * useful / transmitted as f64)
}

/// How much longer the round trip is under load than without, per cent (section
/// 4.3.1).
pub fn buffer_delay_pct(mean_rtt: f64, baseline_rtt: f64) -> Option<f64> {
    (baseline_rtt > 0.0).then(|| 100.0 * (mean_rtt - baseline_rtt) / baseline_rtt)
}

/// The measures of one cell: its mean time, its bytes of file and what TCP did
/// in each of its samples. The baseline round trip is the smallest of the cell.
pub fn of_cell(
    mean_s: f64,
    bytes: f64,
    rate_bps: Option<u64>,
    segment: Segment,
    tcp: &[Tcp],
) -> Rfc6349 {
    let ideal_s = rate_bps.map(|rate| ideal_s(bytes, rate as f64, segment));
    let sum = |value: fn(&Tcp) -> u64| tcp.iter().map(value).sum::<u64>();
    let means: Vec<f64> = tcp.iter().filter_map(|tcp| tcp.rtt_mean_us).collect();
    let mean = super::stats::mean(&means).map(|m| m.mean);
    let least = tcp.iter().filter_map(|tcp| tcp.rtt_min_us).reduce(f64::min);
    Rfc6349 {
        ideal_s,
        transfer_time_ratio: ideal_s.and_then(|ideal| transfer_time_ratio(mean_s, ideal)),
        tcp_efficiency_pct: tcp_efficiency_pct(
            sum(|tcp| tcp.transmitted_bytes),
            sum(|tcp| tcp.retransmitted_bytes),
        ),
        buffer_delay_pct: mean.zip(least).and_then(|(mean, least)| buffer_delay_pct(mean, least)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_examples_of_the_rfc() {
        // 4.1.1: 1500-byte packets on Ethernet at 100 Mbit/s are 8127 frames a
        // second and, with 1460 bytes in each, 94.9 Mbit/s
        let segment = Segment { payload_bytes: 1460.0, line_bytes: 1538.0 };
        let bps = 8.0 * segment.payload_bytes_per_s(100e6);
        assert!((bps - 94.93e6).abs() < 0.01e6, "{bps}");
        // 4.1.2: actual over ideal
        let ratio = transfer_time_ratio(9.0, 8.0).expect("a time");
        assert!((ratio - 1.125).abs() < 1e-12);
        // 4.2.1: 100 000 bytes, 2000 of them sent again
        let efficiency = tcp_efficiency_pct(102_000, 2_000).expect("bytes");
        assert!((efficiency - 98.03).abs() < 0.01);
        // 4.3.1: 25 ms becomes 32 ms
        assert!((buffer_delay_pct(32.0, 25.0).expect("a round trip") - 28.0).abs() < 1e-9);
    }

    #[test]
    fn nothing_measured_is_nothing_known() {
        let segment = Segment { payload_bytes: 1428.0, line_bytes: 1538.0 };
        let none = of_cell(1.0, 1e6, None, segment, &[]);
        assert_eq!(
            (
                none.ideal_s,
                none.transfer_time_ratio,
                none.tcp_efficiency_pct,
                none.buffer_delay_pct
            ),
            (None, None, None, None)
        );
        assert_eq!(tcp_efficiency_pct(1, 2), None);
        assert_eq!(buffer_delay_pct(1.0, 0.0), None);
    }
}
