//! The window of a sender that takes only what others leave: LEDBAT (RFC 6817), with the
//! multiplicative decrease of LEDBAT++ (draft-irtf-iccrg-ledbat-plus-plus, section 4.2), by which
//! it also leaves others that arrive later their room.

use std::time::Duration;

/// RFC 6817, section 2.4.2: 1 at most, so that it never grows faster than TCP.
const GAIN: f64 = 1.0;
/// Share of the window that a round trip with twice the target's queue, or more, takes away:
/// LEDBAT++'s bound.
const MAX_DECREASE: f64 = 0.5;
/// Packets; RFC 6817's `MIN_CWND`.
const MIN_PACKETS: f64 = 2.0;

/// A congestion window in bytes.
#[derive(Debug, Clone)]
pub(crate) struct Ledbat {
    mss: f64,
    window: f64,
    reduced_at: Option<Duration>,
}

impl Ledbat {
    /// Starts from `window` bytes.
    pub(crate) fn new(window: f64, mss: f64) -> Self {
        Self { mss, window: window.max(MIN_PACKETS * mss), reduced_at: None }
    }

    pub(crate) fn window(&self) -> f64 {
        self.window
    }

    /// Handles `acked` bytes of which the newest found this queue; `target` is the longest that
    /// it lets stand.
    pub(crate) fn acked(&mut self, acked: f64, queue: Duration, target: Duration) {
        let off_target = 1.0 - queue.as_secs_f64() / target.as_secs_f64();
        let of_a_round = (acked / self.window).min(1.0);
        let change = if off_target >= 0.0 {
            GAIN * off_target * self.mss
        } else {
            MAX_DECREASE * off_target.max(-1.0) * self.window
        };
        self.window = (self.window + change * of_a_round).max(MIN_PACKETS * self.mss);
    }

    /// Handles congestion of packets sent at `sent`, once per round trip.
    pub(crate) fn congested(&mut self, now: Duration, sent: Duration) {
        if self.reduced_at.is_some_and(|reduced_at| sent <= reduced_at) {
            return;
        }
        self.reduced_at = Some(now);
        self.window = (self.window / 2.0).max(MIN_PACKETS * self.mss);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn it_grows_by_a_packet_a_round_trip_at_most_and_gives_half_back() {
        let mut ledbat = Ledbat::new(100_000.0, 1000.0);
        ledbat.acked(100_000.0, Duration::ZERO, 25 * MS);
        assert_eq!(ledbat.window(), 101_000.0);
        ledbat.acked(101_000.0, 25 * MS, 25 * MS);
        assert_eq!(ledbat.window(), 101_000.0, "on target");
        ledbat.acked(101_000.0, 500 * MS, 25 * MS);
        assert_eq!(ledbat.window(), 50_500.0);
        ledbat.congested(100 * MS, 50 * MS);
        ledbat.congested(110 * MS, 60 * MS);
        assert_eq!(ledbat.window(), 25_250.0, "once in a round trip");
        for _ in 0..100 {
            ledbat.acked(1e9, 500 * MS, 25 * MS);
        }
        assert_eq!(ledbat.window(), 2000.0);
    }
}
