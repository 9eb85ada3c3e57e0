//! The cycle of a sender that is alone: it cruises, probes for more, and takes back what the probe
//! added.

use std::time::Duration;

use super::cubic::Cubic;
use super::report::{Capacity, Report};
use super::{Controller, MIN_RTT_AGE, Mode, TRAIN};

// Sources as in `rate/mod.rs`.

/// BBRv1's probing gain, 5/4.
const UP_GAIN: f64 = 1.25;
/// After probes that found more capacity. Ours: twice the first probe's;
/// `freed_capacity_is_found_soon`.
const MAX_UP_GAIN: f64 = 1.5;
/// The least extra rate of a probe on a path whose queue is short: less is noise. Ours:
/// `a_queue_of_fifty_packets_does_not_keep_it_from_the_rate_of_the_link`.
const MIN_UP: f64 = 1.0 / 16.0;
/// Share of a probe's extra rate that must have arrived to probe again at once. Ours:
/// `freed_capacity_is_found_soon`.
const FOUND_SHARE: f64 = 0.6;
/// Rounds between probes: four to six, so that two senders do not synchronize. BBRv1 probes
/// every eighth; ours: `freed_capacity_is_found_soon`.
const CRUISE_ROUNDS: [u64; 3] = [4, 5, 6];
/// Rounds of two cycles, with their probes: two cruises of six, ups and downs of two each. Ours.
const TWO_CYCLES: u64 = 20;
/// A busy host must not look like a standing queue. Ours: some of Linux's time slices (a few ms
/// each).
const SHORTEST_CRUISE: Duration = Duration::from_millis(50);

impl Controller {
    pub(super) fn cruise(&mut self, now: Duration) {
        self.model.begin_floor();
        self.saw_congestion = false;
        self.cycles += 1;
        // the first is short: a queue that is left is startup's own
        let varied = CRUISE_ROUNDS[(self.cycles % 3) as usize];
        let rounds = if self.cycles == 1 { 1 } else { varied };
        let from_round = self.model.rounds();
        let (until_round, until) = (from_round + rounds, now + SHORTEST_CRUISE);
        self.mode = Mode::Cruise { from_round, until_round, until };
    }

    pub(super) fn end_cycle(&mut self, now: Duration, report: &Report) {
        // a queue right after startup is startup's own
        if self.cycles == 1 && !self.model.queue_is_empty() {
            return self.cruise(now);
        }
        // where no queue can be seen, a probe for competitors costs two round trips and finds none
        let is_crowded = self.saw_congestion && self.model.queue_can_stand();
        self.mode = if is_crowded || self.model.queue_stood() {
            let rtt = self.model.smoothed().unwrap_or_default().as_secs_f64();
            let window = (report.in_flight as f64).max(self.model.bandwidth() * rtt);
            self.cubic = Cubic::new(now, window, self.mss, self.config.priority.flows());
            let measured = self.capacity.map_or(0.0, Capacity::least);
            self.known_capacity = self.model.highest_bandwidth().max(measured);
            self.hold.stop();
            self.model.begin_empty();
            self.may_catch_up = !self.saw_congestion;
            // a probe of another time says nothing about these others
            self.probed_floor = None;
            Mode::ProbeRtt { since: now, drained: None, competing: true }
        } else if self.model.min_rtt_age(now) > MIN_RTT_AGE || self.may_hide_others(now) {
            Mode::ProbeRtt { since: now, drained: None, competing: false }
        } else {
            self.found = 0;
            return self.probe();
        };
    }

    /// Whether the lowest round trip may be that of a queue that others keep: one has overflowed of
    /// late, though the first probe of a cycle asks for no more than it held, and the round trip was
    /// not probed for long.
    fn may_hide_others(&self, now: Duration) -> bool {
        let overflows = self.model.overflowed_within(TWO_CYCLES) && self.model.queue_can_stand();
        overflows && now >= self.rtt_probed_at + MIN_RTT_AGE
    }

    pub(super) fn probe(&mut self) {
        self.probed_from = self.model.bandwidth();
        self.model.begin_peak();
        self.mode = Mode::Up { from_round: self.model.rounds() };
    }

    /// Whether the last probe achieved most of its extra rate without a queue: there may be more.
    pub(super) fn has_found_more(&self) -> bool {
        let asked = self.up_gain() - 1.0;
        self.probed_from > 0.0
            && self.model.bandwidth() >= (1.0 + FOUND_SHARE * asked) * self.probed_from
            && self.model.queue_never_showed()
    }

    /// Returns the gain of a probe. The first causes a queue of the ceiling at most, if it lasts a
    /// round trip, and hardly more than the path holds. Each that finds more is followed by one of
    /// twice the extra rate.
    pub(super) fn up_gain(&self) -> f64 {
        let min_rtt = self.model.min_rtt().as_secs_f64().max(1e-6);
        let within = |queue: Duration| queue.as_secs_f64() / min_rtt;
        let held = self.model.held_queue().map_or(f64::INFINITY, |held| within(held).max(MIN_UP));
        let first = (UP_GAIN - 1.0).min(within(self.config.ceiling)).min(held);
        1.0 + (first * f64::from(1 << self.found.min(3))).min(MAX_UP_GAIN - 1.0)
    }

    /// Whether a queue persists that our last probe did not cause: for one round trip the queue is
    /// the probe's.
    pub(super) fn yields(&self, from_round: u64) -> bool {
        let queue = (self.model.threshold() / 2).max(TRAIN);
        self.model.rounds() > from_round + 1 && self.model.lasting_queue() > queue
    }

    /// Returns the longest queue that probing may cause.
    pub(super) fn most_queue(&self) -> Duration {
        (self.model.min_rtt() / 4).min(self.config.ceiling).max(Duration::from_millis(1))
    }
}
