//! The round-trip time and how long to wait for an answer (RFC 6298, RFC 9002).

use std::time::Duration;

/// Before any sample (RFC 9002, section 6.2.2, has 333 ms; RFC 6298 one second).
const INITIAL: Duration = Duration::from_millis(333);
const GRANULARITY: Duration = Duration::from_millis(1);
/// The longest that a receiver keeps feedback back.
pub(crate) const FEEDBACK_DELAY: Duration = Duration::from_millis(10);

/// An estimate of the round trip.
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
    /// What is known of the path otherwise, until there is a sample.
    pub(crate) fn guess(rtt: Duration) -> Self {
        Self { latest: rtt, smoothed: None, variation: rtt / 2 }
    }

    /// Takes a sample, without the time that the peer kept it (RFC 9002, 5.3).
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

    /// The smoothed round trip, if any was measured.
    pub(crate) fn smoothed(&self) -> Option<Duration> {
        self.smoothed
    }

    /// The smoothed round trip, or a guess.
    pub(crate) fn get(&self) -> Duration {
        self.smoothed.unwrap_or(self.latest)
    }

    /// How long an answer may take (RFC 9002, section 6.2.1).
    pub(crate) fn timeout(&self) -> Duration {
        self.get() + (self.variation * 4).max(GRANULARITY) + FEEDBACK_DELAY
    }

    /// How much later than another a packet may arrive that is not lost (RFC
    /// 9002, section 6.1.2): nine eighths of the round trip after it was sent.
    pub(crate) fn loss_delay(&self) -> Duration {
        (self.get().max(self.latest) * 9 / 8).max(GRANULARITY)
    }
}
