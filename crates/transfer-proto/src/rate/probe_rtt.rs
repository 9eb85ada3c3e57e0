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
        let is_crowded = competing && self.model.queue_stood();
        if is_crowded && self.config.priority == Priority::Scavenger {
            self.begin_retreat();
        } else if is_crowded {
            self.cubic.pause(now.saturating_sub(since));
            self.catches_up_from = None;
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
}
