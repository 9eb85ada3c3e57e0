//! What acknowledgements say of a path's capacity (draft-ietf-ccwg-bbr, section 4.1).

use std::collections::VecDeque;
use std::time::Instant;

/// The most trains whose acknowledgement is awaited: at 10 Gbit/s and 100 ms 125 MB are in
/// flight, in trains of ten packets. Older ones give no sample.
const MAX_TRAINS: usize = 16_384;

/// What has been sent and delivered on a path. Times are those of the sender: QUIC's
/// acknowledgements carry none of each packet.
#[derive(Clone, Debug)]
pub(super) struct Delivery {
    trains: VecDeque<Train>,
    delivered: u64,
    delivered_at: Instant,
    /// When the newest packet that has been acknowledged was sent.
    acked_sent: Instant,
    /// Delivered bytes up to which samples are limited by the source.
    limited_until: u64,
    /// Bytes acknowledged since the last sample, and when the newest of them was sent.
    acked: u64,
    newest: Option<Instant>,
}

/// Packets that were sent together, and the state when they were.
#[derive(Clone, Copy, Debug)]
struct Train {
    sent: Instant,
    delivered: u64,
    delivered_at: Instant,
    first_sent: Instant,
    limited: bool,
}

/// What one acknowledgement says.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Sample {
    pub(super) acked: u64,
    /// When the newest packet was sent.
    pub(super) sent: Instant,
    /// Bytes per second; `None` if no time passed.
    pub(super) rate: Option<f64>,
    pub(super) limited: bool,
    /// Bytes that had been delivered when the newest packet was sent.
    pub(super) delivered_before: u64,
}

impl Delivery {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            trains: VecDeque::new(),
            delivered: 0,
            delivered_at: now,
            acked_sent: now,
            limited_until: 0,
            acked: 0,
            newest: None,
        }
    }

    pub(super) fn delivered(&self) -> u64 {
        self.delivered
    }

    /// Notes packets that leave together; `idle`: nothing else is in flight.
    pub(super) fn sent(&mut self, now: Instant, idle: bool) {
        if idle {
            (self.delivered_at, self.acked_sent) = (now, now);
        }
        if self.trains.back().is_some_and(|last| last.sent == now) {
            return;
        }
        if self.trains.len() == MAX_TRAINS {
            self.trains.pop_front();
        }
        self.trains.push_back(Train {
            sent: now,
            delivered: self.delivered,
            delivered_at: self.delivered_at,
            first_sent: self.acked_sent,
            limited: self.limited_until > self.delivered,
        });
    }

    /// Notes a packet that has been acknowledged.
    pub(super) fn acked(&mut self, sent: Instant, bytes: u64) {
        self.acked += bytes;
        self.newest = self.newest.max(Some(sent));
    }

    /// Notes that all packets of an acknowledgement have been noted, and returns what they say.
    /// `limited`: the source has nothing more to send.
    pub(super) fn end(&mut self, now: Instant, in_flight: u64, limited: bool) -> Option<Sample> {
        let (acked, newest) = (std::mem::take(&mut self.acked), self.newest.take()?);
        self.delivered += acked;
        self.delivered_at = now;
        if limited {
            self.limited_until = self.delivered + in_flight + 1;
        }
        let older = self.trains.partition_point(|train| train.sent < newest);
        self.trains.drain(..older);
        let train = self.trains.front().copied().filter(|train| train.sent == newest)?;
        let sending = newest.saturating_duration_since(train.first_sent);
        let arriving = now.saturating_duration_since(train.delivered_at);
        let elapsed = sending.max(arriving).as_secs_f64();
        self.acked_sent = self.acked_sent.max(newest);
        Some(Sample {
            acked,
            sent: newest,
            rate: (elapsed > 0.0).then(|| (self.delivered - train.delivered) as f64 / elapsed),
            limited: train.limited,
            delivered_before: train.delivered,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn acknowledgements_that_bunch_do_not_raise_the_rate() {
        let start = Instant::now();
        let mut delivery = Delivery::new(start);
        for ms in 0..10 {
            delivery.sent(start + ms * MS, ms == 0);
        }
        for ms in 0..10 {
            delivery.acked(start + ms * MS, 1000);
        }
        let sample = delivery.end(start + 60 * MS, 0, false).expect("a sample");
        assert_eq!((sample.acked, sample.sent), (10_000, start + 9 * MS));
        assert_eq!(sample.rate, Some(10_000.0 / 0.06), "over the whole time, not over its end");
        assert_eq!(delivery.end(start + 61 * MS, 0, false), None, "nothing more was acknowledged");
    }

    #[test]
    fn a_source_that_pauses_marks_what_follows() {
        let start = Instant::now();
        let mut delivery = Delivery::new(start);
        delivery.sent(start, true);
        delivery.acked(start, 1000);
        assert!(!delivery.end(start + 50 * MS, 0, true).expect("a sample").limited);
        delivery.sent(start + 100 * MS, true);
        delivery.acked(start + 100 * MS, 1000);
        let sample = delivery.end(start + 150 * MS, 0, false).expect("a sample");
        assert_eq!((sample.limited, sample.rate), (true, Some(1000.0 / 0.05)), "the pause is out");
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let start = Instant::now();
        let mut delivery = Delivery::new(start);
        for nth in 0..2 * MAX_TRAINS as u64 {
            delivery.sent(start + Duration::from_nanos(nth), false);
        }
        assert_eq!(delivery.trains.len(), MAX_TRAINS);
        delivery.acked(start, 1000);
        assert_eq!(delivery.end(start + MS, 0, false), None, "it was forgotten");
        assert_eq!(delivery.delivered(), 1000);
    }
}
