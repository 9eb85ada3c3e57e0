//! Paces trains: each covers one millisecond at the current rate, but is no longer than 24 KB or
//! a quarter of a millisecond, whichever is more; 64 KB at most and one packet at least.

use std::time::Duration;

use crate::rate::TRAIN;

/// The most bytes of one system call (UDP GSO).
const MAX_TRAIN: u64 = 65_000;
/// Bytes of a train up to which it may last longer than [`SHORT_TRAIN`]: a train arrives at the
/// bottleneck at once, and must fit into a short queue. RFC 9002, section 7.7, limits bursts to
/// ten packets; ours is 16, and more where the rate is so high that system calls would take much
/// of a processor: `a_queue_of_fifty_packets_does_not_keep_it_from_the_rate_of_the_link`.
const SMALL_TRAIN: u64 = 24_000;
const SHORT_TRAIN: Duration = Duration::from_micros(250);

/// Spreads packets over time.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pacer {
    next: Duration,
}

impl Pacer {
    /// Returns when the next train may be sent.
    pub(crate) fn next(&self) -> Duration {
        self.next
    }

    /// Returns the bytes of the next train at `rate`, in bytes per second.
    pub(crate) fn train(rate: f64) -> u64 {
        let bytes = |length: Duration| (rate * length.as_secs_f64()) as u64;
        bytes(TRAIN).min(SMALL_TRAIN.max(bytes(SHORT_TRAIN))).min(MAX_TRAIN)
    }

    /// Notes that `bytes` bytes were sent at `now`. The delay of one late train is made up for,
    /// that of two is not.
    pub(crate) fn sent(&mut self, now: Duration, bytes: u64, rate: f64) {
        let from = self.next.max(now.saturating_sub(TRAIN));
        self.next = from + Duration::from_secs_f64((bytes as f64 / rate.max(1.0)).min(10.0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bursts_last_a_millisecond_at_most_and_fit_one_system_call_and_short_queues() {
        assert_eq!(Pacer::train(12_500_000.0), 12_500, "100 Mbit/s");
        assert_eq!(Pacer::train(62_500_000.0), 24_000, "500 Mbit/s");
        assert_eq!(Pacer::train(125_000_000.0), 31_250, "1 Gbit/s");
        assert_eq!(Pacer::train(1.25e9), 65_000, "10 Gbit/s");
        let mut pacer = Pacer::default();
        let now = Duration::from_secs(1);
        pacer.sent(now, 12_500, 12_500_000.0);
        assert_eq!(pacer.next(), now, "the first is a millisecond late");
        pacer.sent(now, 12_500, 12_500_000.0);
        assert_eq!(pacer.next(), now + TRAIN);
    }
}
