//! The time in which a sender waits for acknowledgements because its congestion
//! window is still small.
//!
//! A window of ten segments (RFC 6928) doubles in each round trip (RFC 5681,
//! section 3.1). While sending a window takes less than a round trip the link is
//! idle for the rest of it. The sum of these waits is what slow start adds to
//! the time that the bytes take on the link (Kurose and Ross, *Computer
//! Networking*, "Modelling latency"). Without a rate it is
//! RTT·log₂(1 + size/IW), in whole rounds.

use crate::schema::PlanRecord;

/// Segments of the initial window, RFC 6928.
const INITIAL_SEGMENTS: f64 = 10.0;

/// A full packet.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Segment {
    /// Bytes of TCP payload.
    pub payload_bytes: f64,
    /// Bytes that it takes on the link, framing counted.
    pub line_bytes: f64,
}

impl Segment {
    /// Of a plan: the MTU less the IP header (40 bytes of IPv6, 20 of IPv4) and TCP's 20
    /// with 12 of time stamps; on the link Ethernet's 38 come on top.
    pub fn of(plan: &PlanRecord) -> Self {
        let ip = if plan.family == "ipv4" { 20 } else { 40 };
        Self {
            payload_bytes: f64::from(plan.mtu.saturating_sub(ip + 32).max(1)),
            line_bytes: f64::from(plan.mtu) + 38.0,
        }
    }

    /// Bytes of payload each second where full segments fill a link.
    pub fn payload_bytes_per_s(self, rate_bps: f64) -> f64 {
        rate_bps / 8.0 * self.payload_bytes / self.line_bytes
    }
}

/// A path as TCP sees it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Path {
    /// Bytes of file each second once the window is large enough; none: as many
    /// as one likes.
    pub bytes_per_s: Option<f64>,
    /// Round-trip time.
    pub rtt_s: f64,
    /// Bytes of payload of a full segment.
    pub segment_bytes: f64,
}

impl Path {
    /// Seconds in which a sender of `bytes` waits for its window to grow.
    pub fn waits_s(&self, bytes: f64) -> f64 {
        let (mut window, mut sent, mut waits) = (INITIAL_SEGMENTS * self.segment_bytes, 0.0, 0.0);
        // a window that doubles is past anything in 64 rounds
        for _ in 0..64 {
            sent += window;
            let sending = self.bytes_per_s.map_or(0.0, |rate| window / rate);
            let first_acknowledged =
                self.rtt_s + self.bytes_per_s.map_or(0.0, |rate| self.segment_bytes / rate);
            if sent >= bytes || sending >= first_acknowledged {
                break;
            }
            waits += first_acknowledged - sending;
            window *= 2.0;
        }
        waits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_double_until_all_is_sent() {
        let path = Path { bytes_per_s: None, rtt_s: 0.05, segment_bytes: 1000.0 };
        for (bytes, rounds) in [(1.0, 0.0), (10_000.0, 0.0), (10_001.0, 1.0), (30_001.0, 2.0)] {
            assert!((path.waits_s(bytes) - rounds * 0.05).abs() < 1e-12, "{bytes}");
        }
        // RTT·log₂(1 + size/IW), at the ends of rounds
        for rounds in 1..12 {
            let bytes = 10_000.0 * (2f64.powi(rounds) - 1.0);
            let log = (1.0 + bytes / 10_000.0).log2() - 1.0;
            assert!((path.waits_s(bytes) - 0.05 * log).abs() < 1e-9);
        }
    }

    #[test]
    fn a_full_pipe_waits_no_more() {
        // 1 MB/s and 50 ms: 50 kB in flight fill it, reached in the fourth round
        let path = Path { bytes_per_s: Some(1e6), rtt_s: 0.05, segment_bytes: 1000.0 };
        let expected = (0.051 - 0.010) + (0.051 - 0.020) + (0.051 - 0.040);
        assert!((path.waits_s(1e6) - expected).abs() < 1e-12);
        assert_eq!(path.waits_s(1e6), path.waits_s(1e9));
        assert_eq!(Path { rtt_s: 0.0, ..path }.waits_s(1e9), 0.0);
    }
}
