//! The round-trip time, and timeouts derived from it (RFC 6298, RFC 9002).

use std::time::Duration;

/// The estimate before any sample (RFC 9002, section 6.2.2; RFC 6298 has one second).
const INITIAL: Duration = Duration::from_millis(333);
const GRANULARITY: Duration = Duration::from_millis(1);
/// The longest time that a receiver delays feedback.
pub(crate) const FEEDBACK_DELAY: Duration = Duration::from_millis(10);

/// An estimate of the round-trip time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rtt {
    latest: Duration,
    smoothed: Option<Duration>,
    variation: Duration,
}

impl Default for Rtt {
    fn default() -> Self {
        Self { latest: INITIAL, smoothed: None, variation: INITIAL / 2 }
    }
}

impl Rtt {
    /// Starts from an estimate made elsewhere.
    pub(crate) fn guess(rtt: Duration) -> Self {
        Self { latest: rtt, smoothed: None, variation: rtt / 2 }
    }

    /// Adds a sample, without the peer's delay (RFC 9002, section 5.3).
    pub(crate) fn sample(&mut self, sample: Duration) {
        self.latest = sample;
        match self.smoothed {
            None => {
                self.smoothed = Some(sample);
                self.variation = sample / 2;
            }
            Some(smoothed) => {
                self.variation = (self.variation * 3 + smoothed.abs_diff(sample)) / 4;
                self.smoothed = Some((smoothed * 7 + sample) / 8);
            }
        }
    }

    /// Returns the smoothed round-trip time, if there is a sample.
    pub(crate) fn smoothed(&self) -> Option<Duration> {
        self.smoothed
    }

    /// Returns the smoothed round-trip time, or the initial estimate.
    pub(crate) fn get(&self) -> Duration {
        self.smoothed.unwrap_or(self.latest)
    }

    /// Returns the probe timeout (RFC 9002, section 6.2.1).
    pub(crate) fn timeout(&self) -> Duration {
        self.get() + (self.variation * 4).max(GRANULARITY) + FEEDBACK_DELAY
    }

    /// Returns the time threshold for loss (RFC 9002, section 6.1.2): nine eighths of the round
    /// trip after a packet was sent.
    pub(crate) fn loss_delay(&self) -> Duration {
        (self.get().max(self.latest) * 9 / 8).max(GRANULARITY)
    }
}
