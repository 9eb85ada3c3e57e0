//! Startup: how the window grows until the path is full, after a silence from what is known of it.

use std::time::Duration;

use super::report::Report;
use super::{CAPPED_ROUNDS, Controller, Mode, SavedPath, USED_SHARE};

// Sources as in `rate/mod.rs`.

/// Share of a capacity that startup measures, to take at once. Ours: with `STARTUP_GAIN` it is
/// sent at less than the capacity, so that alone it causes no queue, however short that is.
/// `startup_fills_long_links_in_three_round_trips`.
const CAPACITY_SHARE: f64 = 0.75;
/// Share of startup's window that must have arrived without a queue, to take the whole capacity.
/// Ours, likewise; HyStart++ (RFC 9406) decides after eight samples of a round.
const TRIED_SHARE: f64 = 0.125;
/// Growth of the bandwidth in three rounds below which startup ends (draft-ietf-ccwg-bbr,
/// section 5.3.1.2).
const FULL_GROWTH: f64 = 1.25;
const FULL_ROUNDS: u32 = 3;
/// Share of the former bandwidth-delay product with which to resume after a silence (RFC 9959).
const RESUME_SHARE: f64 = 0.5;

impl Controller {
    /// Resumes at half of the former capacity if the round-trip time is similar: the jump of
    /// Careful Resume (RFC 9959), which allows a half to ten times the former round-trip time;
    /// twice is more careful. The jump is paced over a round trip, and congestion undoes it as in
    /// any startup.
    pub(super) fn resume(&mut self, rtt: Duration) {
        let Some(SavedPath { bandwidth, min_rtt }) = self.saved.take() else { return };
        if (min_rtt / 2..=min_rtt * 2 + self.config.ceiling).contains(&rtt) {
            let jump = RESUME_SHARE * bandwidth * min_rtt.as_secs_f64();
            self.startup_window = self.startup_window.max(jump);
        }
    }

    /// Handles feedback while the window grows to what the path carries.
    pub(super) fn start_up(&mut self, report: &Report, round_over: bool, congested: bool) {
        let (round, bdp) = (self.model.rounds(), self.model.bdp());
        if congested {
            // the first packets cause no more than their own queue; what follows shows
            // that others use a part of the capacity, or that it is less
            self.may_jump &= round <= 1;
            // what was lost exceeded the capacity
            let most = bdp.max(self.startup_window - report.lost as f64);
            self.startup_window = self.startup_window.min(most);
        } else if !report.limited || self.uses_window(report) {
            // a queue: carefully (RFC 9406)
            let careful = self.model.queue() > self.model.threshold();
            self.startup_window += report.acked as f64 / if careful { 4.0 } else { 1.0 };
            // a pause on the way looks like a smaller capacity
            let seen = [self.capacity, report.capacity].into_iter().flatten();
            self.capacity = seen.max_by(|a, b| a.least().total_cmp(&b.least()));
            if let Some(capacity) = self.capacity.filter(|_| round <= CAPPED_ROUNDS) {
                // infinity times nothing is no number
                let rtt = self.model.min_rtt().as_secs_f64().max(1e-6);
                let tried = !round_over && self.has_tried();
                let share = if tried { 1.0 } else { CAPACITY_SHARE };
                let jump = if self.may_jump { share * capacity.least() * rtt } else { 0.0 };
                let most = capacity.most() * rtt;
                self.startup_window = self.startup_window.max(jump).min(most.max(jump));
            }
        }
        if round_over && self.is_full(report) {
            self.mode = Mode::Drain;
        }
    }

    /// Whether the flight that startup sent by the capacity has begun to arrive and meets no
    /// queue.
    fn has_tried(&self) -> bool {
        // what is acknowledged in the first round was sent before
        self.model.rounds() > 1
            && self.model.round_acked() as f64 >= TRIED_SHARE * self.startup_window
            && self.model.queue_is_empty()
            && !self.model.loses_more_than_by_chance()
    }

    /// Whether startup's window holds it back, although the source had nothing for a moment.
    fn uses_window(&self, report: &Report) -> bool {
        (report.in_flight + report.acked) as f64 >= USED_SHARE * self.startup_window
    }

    /// Whether the rate has stopped growing (draft-ietf-ccwg-bbr, section 5.3.1.2), or a queue
    /// overflows, or a policer drops, which lets the first packets pass at the rate of the line.
    fn is_full(&mut self, report: &Report) -> bool {
        let stood = self.model.queue_stood_this_round();
        if stood && self.model.was_congested() {
            return true;
        }
        // a queue shows that more was sent than the path carries, even if the source is slow
        if report.limited && !stood {
            return false;
        }
        let bandwidth = self.model.bandwidth();
        if bandwidth >= FULL_GROWTH * self.full_bandwidth {
            self.full_bandwidth = bandwidth;
            self.full_rounds = 0;
            return false;
        }
        self.full_rounds += 1;
        self.full_rounds >= FULL_ROUNDS
            || stood
            || self.model.loses_more_than_by_chance()
            || self.capacity.is_some_and(|capacity| capacity.is_reached(bandwidth))
    }
}
