//! How long the path's queue has been: what lasted of it, and what it held when it overflowed.

use std::time::Duration;

use super::filter::MaxFilter;

// Sources as in `rate/mod.rs`.

/// Milliseconds that the highest round trip is remembered. Ours: as long as the lowest.
const MAX_RTT_MS: u64 = 10_000;
/// Round trips in a row of which the lowest counts as a queue that lasts: a pause of a host makes
/// some long ones. Ours: feedback comes eight times in a round trip, so that a pause of half of one
/// does not show, and a probe of a whole one does; `a_pause_of_the_sender_is_not_a_long_queue`.
const LASTING: usize = 5;
/// Overflows of which the shortest queue is what the path holds: a pause of a host adds to what
/// packets met. Ours; `a_pause_of_a_host_in_an_overflow_does_not_show_that_a_queue_holds_more`.
const OVERFLOWS: usize = 3;

/// The queues that a path has had. In its methods, `min_rtt` is the round trip without a queue.
#[derive(Clone, Debug)]
pub(super) struct QueueHistory {
    /// The latest round trips.
    rtts: [Duration; LASTING],
    /// The highest of late, in seconds, that lasted.
    max_rtt: MaxFilter,
    /// The longest queue of each of the last rounds in which it overflowed, or one that stood since.
    overflows: [Option<Duration>; OVERFLOWS],
    /// The round in which it last overflowed.
    overflow_round: u64,
}

impl QueueHistory {
    pub(super) fn new() -> Self {
        Self {
            rtts: [Duration::MAX; LASTING],
            max_rtt: MaxFilter::new(MAX_RTT_MS),
            overflows: [None; OVERFLOWS],
            overflow_round: 0,
        }
    }

    /// Adds a round trip.
    pub(super) fn sample_rtt(&mut self, now: Duration, rtt: Duration) {
        self.rtts.rotate_right(1);
        self.rtts[0] = rtt;
        // the first of a path include the work of a handshake
        if self.rtts[LASTING - 1] != Duration::MAX {
            self.max_rtt.push(now.as_millis() as u64, self.lasting_rtt().as_secs_f64());
        }
    }

    /// Adds an overflow in a round whose longest queue was `queue`.
    pub(super) fn overflowed(&mut self, round: u64, queue: Duration) {
        self.overflows.rotate_right(1);
        self.overflows[0] = Some(queue);
        self.overflow_round = round;
    }

    /// Adds a queue that was never shorter in a round, and did not overflow.
    pub(super) fn stood(&mut self, queue: Duration) {
        self.overflows.iter_mut().flatten().for_each(|held| *held = (*held).max(queue));
    }

    /// Returns the shortest queueing delay of the latest packets.
    pub(super) fn lasting(&self, min_rtt: Duration) -> Duration {
        self.lasting_rtt().saturating_sub(min_rtt)
    }

    /// Returns the longest queueing delay of late that lasted.
    pub(super) fn longest(&self, min_rtt: Duration) -> Duration {
        let longest = self.max_rtt.get() - min_rtt.as_secs_f64();
        Duration::from_secs_f64(longest.max(0.0))
    }

    /// Returns the longest queue that the path holds, if one has overflowed.
    pub(super) fn held(&self) -> Option<Duration> {
        self.overflows.iter().flatten().min().copied()
    }

    /// Returns the round in which the queue last overflowed, if it has.
    pub(super) fn last_overflow(&self) -> Option<u64> {
        self.overflows[0].map(|_| self.overflow_round)
    }

    /// Returns the lowest of the latest round trips; there must have been one.
    fn lasting_rtt(&self) -> Duration {
        self.rtts.iter().copied().min().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::super::model::Model;
    use super::super::report::Report;
    use super::*;

    #[test]
    fn a_pause_of_the_sender_is_not_a_long_queue() {
        let (ms, s) = (Duration::from_millis(1), Duration::from_secs(1));
        let mut model = Model::new();
        let sees = |model: &mut Model, tenths: &[u32]| {
            tenths.iter().for_each(|&tenths| model.sample_rtt(s, ms * tenths / 10));
        };
        sees(&mut model, &[100; 8]);
        // feedback of half of a round trip waited for the sender
        sees(&mut model, &[150, 137, 125, 112, 100, 100, 100, 100]);
        // and then a short queue is full
        sees(&mut model, &[112; 5]);
        assert!(model.queue_is_long());
        sees(&mut model, &[150; 5]);
        sees(&mut model, &[112; 5]);
        assert!(!model.queue_is_long(), "there was a longer one");
    }

    #[test]
    fn a_queue_that_overflows_shows_what_it_holds() {
        let (ms, s) = (Duration::from_millis(1), Duration::from_secs(1));
        let mut model = Model::new();
        let mut round = |acked, lost, rtt: Duration, congested| {
            let report = Report { acked, lost, rtt: Some(rtt), ..Report::default() };
            model.report(s, &report);
            if congested {
                model.note_congestion();
            }
            model.end_round();
            model.held_queue()
        };
        assert_eq!(round(100, 0, 10 * ms, false), None);
        assert_eq!(round(90, 10, 10 * ms, false), None, "random loss");
        assert_eq!(round(99, 1, 12 * ms, true), None, "no more than by chance");
        assert_eq!(round(80, 20, 12 * ms, true), Some(2 * ms));
        assert_eq!(round(100, 0, 15 * ms, false), Some(5 * ms), "it holds more");
        assert_eq!(round(80, 20, 13 * ms, true), Some(3 * ms), "it holds less than it did");
    }

    #[test]
    fn a_queue_that_has_overflowed_is_long_from_half_of_what_it_held() {
        let ms = Duration::from_millis(1);
        let mut model = Model::new();
        let sees = |model: &mut Model, lost, rtt| {
            model.report(ms, &Report { acked: 80, lost, rtt: Some(rtt), ..Report::default() });
        };
        sees(&mut model, 0, 10 * ms);
        sees(&mut model, 20, 12 * ms);
        model.note_congestion();
        model.end_round();
        // feedback of most of a round trip waited for a host
        (0..LASTING).for_each(|_| sees(&mut model, 0, 18 * ms));
        sees(&mut model, 0, 10 * ms);
        model.end_round();
        assert_eq!((model.held_queue(), model.longest_queue()), (Some(2 * ms), 8 * ms));
        sees(&mut model, 0, 12 * ms);
        assert!(model.queue_is_long());
        sees(&mut model, 0, Duration::from_micros(10_900));
        assert!(!model.queue_is_long(), "below half of it");
    }

    #[test]
    fn a_pause_of_a_host_does_not_show_that_a_queue_holds_more() {
        let ms = Duration::from_millis(1);
        let mut model = Model::new();
        let report = |rtt: Duration| Report { acked: 80, rtt: Some(rtt), ..Report::default() };
        model.report(ms, &report(10 * ms));
        model.report(ms, &Report { lost: 20, ..report(12 * ms) });
        model.note_congestion();
        model.end_round();
        model.report(ms, &report(15 * ms));
        model.report(ms, &report(10 * ms));
        model.end_round();
        assert_eq!(model.held_queue(), Some(2 * ms));
    }

    #[test]
    fn the_work_of_a_handshake_is_not_a_long_queue() {
        let ms = Duration::from_millis(1);
        let mut model = Model::new();
        [22, 15, 12, 10, 10, 10, 10, 10, 11].iter().for_each(|&rtt| model.sample_rtt(ms, rtt * ms));
        assert!(model.queue_is_long());
    }

    #[test]
    fn a_pause_of_a_host_in_an_overflow_does_not_show_that_a_queue_holds_more() {
        let ms = Duration::from_millis(1);
        let mut model = Model::new();
        let report = |rtt: Duration| Report { acked: 80, rtt: Some(rtt), ..Report::default() };
        model.report(ms, &report(10 * ms));
        let mut overflows_at = |rtt| {
            model.report(ms, &Report { lost: 20, ..report(rtt) });
            model.note_congestion();
            model.end_round();
            model.held_queue()
        };
        assert_eq!(overflows_at(12 * ms), Some(2 * ms));
        assert_eq!(overflows_at(18 * ms), Some(2 * ms), "a pause");
        // a queue that became longer: every overflow is of it
        assert_eq!([(); OVERFLOWS - 1].map(|()| overflows_at(15 * ms)), [2 * ms, 5 * ms].map(Some));
    }
}
