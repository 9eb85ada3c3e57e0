//! What feedback tells the rate control.

use std::time::Duration;

/// What one feedback, or the passing of time, says about the path. Times are since any moment.
#[derive(Clone, Copy, Debug, Default)]
pub struct Report {
    /// Bytes acknowledged.
    pub acked: u64,
    /// Bytes declared lost.
    pub lost: u64,
    /// When the last lost packet was sent.
    pub lost_sent: Duration,
    /// The round-trip time of the newest packet.
    pub rtt: Option<Duration>,
    /// The delivery rate in bytes per second.
    pub rate: Option<f64>,
    /// Whether the source limited that rate, and not the path.
    pub limited: bool,
    /// The bottleneck's capacity, if packets arrived that it had spread.
    pub capacity: Option<Capacity>,
    /// Bytes in flight now.
    pub in_flight: u64,
    /// Bytes delivered until now.
    pub delivered: u64,
    /// Bytes that had been delivered when the newest packet was sent.
    pub delivered_before: u64,
    /// Whether packets were marked Congestion Experienced.
    pub congested: bool,
}

/// How far a bottleneck spread packets that were sent at once: its capacity, within the precision
/// of the receiver's clock.
#[derive(Clone, Copy, Debug)]
pub struct Capacity {
    /// Bytes that arrived after the first packet.
    pub bytes: f64,
    /// How long they took.
    pub took: Duration,
}

impl Capacity {
    /// How much too late a busy receiver may note that a packet arrived. Ours: what a processor
    /// takes to wake up.
    const NOISE: Duration = Duration::from_micros(200);
    /// Share of the capacity from which it counts as reached. Ours.
    const REACHED: f64 = 0.85;

    /// Returns the bytes per second that it has at least.
    pub(super) fn least(self) -> f64 {
        self.bytes / (self.took + Self::NOISE).as_secs_f64()
    }

    /// Returns the bytes per second that it has at most; infinity if the clock is too coarse.
    pub(super) fn most(self) -> f64 {
        self.bytes / self.took.saturating_sub(Self::NOISE).as_secs_f64()
    }

    /// Whether a rate reaches it, as far as one can tell.
    pub(super) fn is_reached(self, rate: f64) -> bool {
        self.most() < 2.0 * self.least()
            && rate >= Self::REACHED * self.bytes / self.took.as_secs_f64()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_capacity_is_as_certain_as_the_clock_allows() {
        let slow = Capacity { bytes: 10_800.0, took: Duration::from_micros(4320) };
        assert!((0.95..1.0).contains(&(slow.least() / 2.5e6)), "20 Mbit/s");
        assert!((1.0..1.05).contains(&(slow.most() / 2.5e6)));
        assert!(slow.is_reached(2.2e6) && !slow.is_reached(2.0e6));
        let fast = Capacity { bytes: 10_800.0, took: Duration::from_micros(173) };
        assert_eq!(fast.most(), f64::INFINITY, "500 Mbit/s, or any other");
        assert!(!fast.is_reached(60e6), "it is not known");
    }
}
