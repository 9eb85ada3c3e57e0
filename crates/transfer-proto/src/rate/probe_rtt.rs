//! Probes of the round trip: what a sender concludes from the queue that is left while it sends
//! little.

use std::time::Duration;

use super::priority::Priority;
use super::report::Report;
use super::{Controller, Drained, MIN_RTT_AGE, Mode};

// Sources as in `rate/mod.rs`.

/// How long the lowest round trip is believed while competing, when others' queues hide it. Ours: longer than
/// [`MAX_PROBE_RTT_INTERVAL`], so that a probe finds it first.
const MIN_RTT_AGE_COMPETING: Duration = Duration::from_secs(30);
/// Between probes whether the queue is still others': at first BBR's interval of `ProbeRTT`, 5
/// s; after many that found so, ours: `beside_cubic_each_gets_at_least_a_quarter`.
const PROBE_RTT_INTERVAL: Duration = Duration::from_secs(5);
const MAX_PROBE_RTT_INTERVAL: Duration = Duration::from_secs(20);
/// Round trips from one such probe to the next, at least: each costs two, which a deep queue
/// makes long. Ours: a twentieth is lost so.
/// `a_deep_queue_beside_cubic_is_not_taken_for_the_path`.
const PROBE_RTT_ROUNDS: u32 = 32;
/// After so many cycles in a row at whose end a queue stood, it is others', though sending less
/// drains it. Ours: `beside_cubic_in_a_short_queue_each_gets_at_least_three_tenths`.
const RETURNS: u32 = 3;
/// Share of the path that a sender who yields to losses must be able to fill, to be who keeps the
/// queue. Ours: with less than a quarter nobody like that takes much from us, and two lanes that
/// compete drift apart.
const FILLS: f64 = 0.25;

impl Controller {
    /// Whether a packet that was sent after a probe had drained our own queue found a deep one,
    /// which is others' then.
    pub(super) fn meets_deep_queue(&self, report: &Report, drained: Drained) -> bool {
        report.rtt.is_some()
            && report.delivered_before >= drained.delivered
            && self.model.queue_is_deep()
    }

    pub(super) fn end_probe_rtt(&mut self, now: Duration, since: Duration, competing: bool) {
        self.rtt_probed_at = now;
        let believed = if competing { MIN_RTT_AGE_COMPETING } else { MIN_RTT_AGE };
        let floor = self.model.floor().filter(|_| competing);
        // others' queue is not as long each time; a path that became longer is
        let is_path = match (self.probed_floor, floor) {
            (Some(before), Some(floor)) => self.model.agree(before, floor),
            _ => !competing,
        };
        self.probed_floor = floor;
        if is_path && self.model.min_rtt_age(now) > believed {
            self.model.replace_min_rtt(now);
        }
        let from_cycle = competing && self.probe_rtt_after.is_zero();
        let returns = from_cycle && self.stood >= RETURNS && self.others_may_fill();
        let is_crowded = competing && (self.model.queue_stood() || returns);
        if is_crowded && self.config.priority == Priority::Scavenger {
            self.begin_retreat();
        } else if is_crowded {
            self.cubic.pause(now.saturating_sub(since));
            self.catches_up_from = None;
            if from_cycle {
                self.model.begin_empty();
            }
            self.probe_rtt_after =
                (self.probe_rtt_after * 2).clamp(PROBE_RTT_INTERVAL, MAX_PROBE_RTT_INTERVAL);
            let rounds = PROBE_RTT_ROUNDS * self.model.smoothed().unwrap_or_default();
            self.probe_rtt_alone_at = now + self.probe_rtt_after;
            self.probe_rtt_at = now + self.probe_rtt_after.max(rounds);
            self.mode = Mode::Compete;
        } else {
            self.probe_rtt_after = Duration::ZERO;
            self.found = 0;
            self.probe();
        }
    }

    /// Whether others that yield to losses may keep a short queue: we have less than the path
    /// carries, and few enough packets are lost at random (a window of √(1.5/p) packets: Mathis et
    /// al., ACM CCR 27(3), 1997).
    fn others_may_fill(&self) -> bool {
        let path = self.known_capacity * self.model.min_rtt().as_secs_f64();
        let window = (1.5 / self.model.chance_loss()).sqrt() * self.mss;
        !self.seems_alone() && window >= FILLS * path
    }
}
