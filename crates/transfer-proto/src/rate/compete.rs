//! Beside others that fill the queue: the window is CUBIC's, catches up with theirs, and is held
//! at a share where they do not yield.

use std::time::Duration;

use super::hold::Round;
use super::priority::Priority;
use super::report::Report;
use super::{Controller, Mode, USED_SHARE, congested_at};

// Sources as in `rate/mod.rs`.

/// Share of the capacity from which on others seem to have left: it is probed as often as on a
/// short path then. Ours.
const ALONE_SHARE: f64 = 0.9;
/// Bandwidth-delay products that others have in flight from which on their queue is deep: one is
/// the path, so that queues of one never are. Until it overflows, the window is then at least the
/// share of the known capacity that is due beside so many other connections: 1/(1 + 1.2), 0.45.
/// Ours: one, and somewhat less than half of the link for us.
/// `beside_cubic_with_a_deep_queue_each_gets_at_least_three_tenths`.
const DEEP_QUEUE: f64 = 2.0;
const DEEP_QUEUE_OTHERS: f64 = 1.2;
/// Share of the window by which it grows to that in a round trip: if several do so, each must see
/// the others' part before it is far too much.
const CATCH_UP: f64 = 0.125;
/// What twice the window must bring, as a multiple of the rate, to be raised further. Alone, on a
/// path that carries less than it did, it brings nothing but a longer queue. Ours: less than
/// beside others whose window grows meanwhile, and more than noise;
/// `the_window_catches_up_with_others_and_not_with_its_own_queue`.
const CAUGHT_UP: f64 = 1.125;
/// Share of what is due below which losses may be those of others that do not yield (`hold.rs`).
/// Ours: beside one CUBIC flow the window is seldom smaller;
/// `beside_bbr_in_a_short_queue_each_gets_at_least_a_quarter`.
const LOW_SHARE: f64 = 0.6;

impl Controller {
    pub(super) fn compete(&mut self, now: Duration, report: &Report, congested: bool) {
        // the priority was changed
        if self.config.priority == Priority::Scavenger {
            return self.begin_retreat();
        }
        let rtt = self.model.smoothed().unwrap_or_default();
        let acked = report.acked as f64;
        if congested {
            let before = self.cubic.window();
            self.cubic.congested(now, congested_at(now, report, rtt));
            if self.hold.is_on() {
                self.cubic.raise(before.min(self.due(1.0, rtt)));
            }
        } else if report.in_flight as f64 + acked >= USED_SHARE * self.cubic.window() {
            self.cubic.acked(now, acked, rtt);
            self.catch_up(acked, rtt);
        }
        let seems_alone = self.model.bandwidth() >= ALONE_SHARE * self.known_capacity;
        let is_due = now >= self.probe_rtt_at || (seems_alone && now >= self.probe_rtt_alone_at);
        // while the share is held, losses show that others are still there
        if is_due && !self.hold.is_on() {
            self.mode = Mode::ProbeRtt { since: now, drained: None, competing: true };
        }
    }

    /// Raises the window towards the share that is due, while others fill a deep queue which has
    /// not overflowed: whose window had grown for longer when we noticed them would keep its share,
    /// as nothing is lost for as long as the queue grows.
    pub(super) fn catch_up(&mut self, acked: f64, rtt: Duration) {
        let in_flight = self.known_capacity * rtt.as_secs_f64();
        let path = self.known_capacity * self.model.min_rtt().as_secs_f64();
        let (window, rate) = (self.cubic.window(), self.model.latest_rate());
        if !self.may_catch_up || in_flight - window < DEEP_QUEUE * path {
            return;
        }
        let (from, rate_then) = *self.catches_up_from.get_or_insert((window, rate));
        if window >= 2.0 * from {
            self.catches_up_from = None;
            self.may_catch_up = rate >= CAUGHT_UP * rate_then;
        }
        if self.may_catch_up {
            let due = self.due(self.config.priority.flows(), rtt);
            self.cubic.raise(due.min(window + CATCH_UP * acked));
        }
    }

    /// Returns the share of the known capacity that is due to `flows` beside other traffic, in
    /// bytes in flight.
    fn due(&self, flows: f64, rtt: Duration) -> f64 {
        flows / (flows + DEEP_QUEUE_OTHERS) * self.known_capacity * rtt.as_secs_f64()
    }

    /// Decides whether the window is held at the share that is due, and lets it grow to that. One
    /// share also if the priority is high: with more, BBR's `ProbeRTT` would not empty the queue.
    pub(super) fn hold_share(&mut self) {
        let rtt = self.model.smoothed().unwrap_or_default();
        let (window, due) = (self.cubic.window(), self.due(1.0, rtt));
        let others = self.known_capacity * rtt.as_secs_f64() - window;
        self.hold.end_round(Round {
            number: self.model.rounds(),
            lost: self.model.congestion_loss(),
            others: others.max(0.0) / self.mss,
            is_low: window < LOW_SHARE * due && !self.model.queue_is_deep(),
            empty_ago: self.model.empty_ago(),
        });
        if self.hold.is_on() {
            let grown = window + CATCH_UP * self.model.round_acked() as f64;
            self.cubic.raise(grown.min(due));
        }
    }
}
