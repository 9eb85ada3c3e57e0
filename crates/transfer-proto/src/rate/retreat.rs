//! A sender of low priority beside others: the window is LEDBAT's, until they have left.

use std::time::Duration;

use super::ledbat::Ledbat;
use super::priority::Priority;
use super::report::Report;
use super::{Controller, Mode, PROBE_RTT_GAIN, congested_at};

// Sources as in `rate/mod.rs`.

/// How long the lowest round trip is believed while retreating, when it must not take others'
/// queue for the path. Ours, and a tenth of RFC 6817's (section 4.2): so long a path that became
/// longer looks occupied.
const MIN_RTT_AGE_RETREATING: Duration = Duration::from_secs(60);
/// Rounds without a queue after which nobody else uses the path: one of ours probes at least every
/// eighth (`CRUISE_ROUNDS`, the probe and what takes it back). Ours:
/// `a_scavenger_takes_the_link_again_after_others`.
const QUIET_ROUNDS: u64 = 8;

impl Controller {
    pub(super) fn begin_retreat(&mut self) {
        self.ledbat = Ledbat::new(PROBE_RTT_GAIN * self.model.bdp(), self.mss);
        self.model.begin_floor();
        self.model.begin_peak();
        self.mode = Mode::Retreat { quiet_from: self.model.rounds() };
    }

    pub(super) fn retreat(
        &mut self,
        now: Duration,
        report: &Report,
        congested: bool,
        quiet_from: u64,
    ) {
        let rtt = self.model.smoothed().unwrap_or_default();
        if congested {
            self.ledbat.congested(now, congested_at(now, report, rtt));
        } else {
            self.ledbat.acked(report.acked as f64, self.model.queue(), self.most_queue());
        }
        // the path may have become longer, and nobody fills it
        if self.model.min_rtt_age(now) > MIN_RTT_AGE_RETREATING {
            self.model.replace_min_rtt(now);
            self.model.begin_floor();
        }
        let round = self.model.rounds();
        let is_quiet = self.model.queue_never_showed();
        let is_over = is_quiet && round >= quiet_from + QUIET_ROUNDS;
        if is_over || self.config.priority != Priority::Scavenger {
            self.found = 0;
            self.probe();
        } else if !is_quiet {
            self.model.begin_peak();
            self.mode = Mode::Retreat { quiet_from: round };
        }
    }
}
