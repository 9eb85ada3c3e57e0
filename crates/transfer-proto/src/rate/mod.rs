//! The rate control.
//!
//! Loss alone says little on the networks this is for: radio loses packets that
//! no queue refused. So the rate follows a **model** of the path, and not each
//! loss: the highest delivery rate of the last rounds and the lowest round trip
//! are what the bottleneck can carry and how far it is, their product is what
//! belongs in flight (BBR: Cardwell et al., ACM Queue 14(5), 2016;
//! draft-ietf-ccwg-bbr). Rates are taken at the receiver's clock, which lost,
//! late and bunched feedback does not disturb. Probing upwards for a round trip
//! every few of them finds capacity that came free, and stops as soon as a queue
//! shows; a probe is followed by sending less, so that alone the queue is empty
//! most of the time and never longer than the ceiling.
//!
//! BBR bounds its model by loss (version 3: 2 % in a round), which 5 % of random
//! loss would keep closed. Here loss counts as congestion only where the round
//! trip says that the queue was long: a tail that drops is a full queue, chance is
//! not (the discrimination of TCP Veno, Fu and Liew, 2003).
//!
//! Startup does not double its way up from ten packets: these leave at once, and how far the
//! bottleneck spreads them (packet pairs: Keshav 1991; trains: Dovrolis, Ramanathan and Moore,
//! 2004) shows its capacity, of which startup takes three quarters at once, as Careful Resume
//! (RFC 9959) takes half of a capacity that it remembers. Others may use the rest: it is taken
//! when an eighth of that flight has arrived and met no queue, up to the capacity and no further.
//!
//! A model that keeps its queue short starves beside senders that fill it, and
//! starves them where the queue is short and drops do not slow it. So there is a
//! second mode, as in Copa (Arun and Balakrishnan, NSDI 2018): where the queue does
//! not empty for a cycle, nor in two rounds of sending little, somebody else fills
//! it, and the window becomes CUBIC's (RFC 9438) until a pause finds the queue empty. Beside flows
//! that do not yield to losses, as BBR, it is held at a share (`hold.rs`). A sender of
//! low priority then takes LEDBAT's (RFC 6817) instead, which leaves the others their room.

mod compete;
mod config;
mod cubic;
mod cycle;
mod filter;
mod hold;
mod ledbat;
mod model;
mod priority;
mod probe_rtt;
mod queue;
mod report;
mod retreat;
mod startup;
#[cfg(test)]
mod tests;

use std::time::Duration;

pub use config::RateConfig;
use cubic::Cubic;
use hold::Hold;
use ledbat::Ledbat;
use model::Model;
pub use priority::Priority;
pub use report::{Capacity, Report};

// Sources: "BBR" is draft-ietf-ccwg-bbr, "BBRv1" Cardwell et al. 2016. "Ours" has no
// source but its reason and the simulation of `lane/sim/` that is named, which was run with
// it: another value may do as well.

/// Pacing in startup: a little faster than the window fills, which doubles each round trip. BBR's
/// 2.77 sends two windows in half of a round trip, which a short queue drops.
const STARTUP_GAIN: f64 = 1.25;
/// BBR's drain gain: drains the queue of startup in a round trip.
const DRAIN_GAIN: f64 = 0.35;
/// While hosts are the bottleneck, they must not wait for the pacer. Ours: any gain that the
/// pacer does not limit; `hosts_that_pause_are_no_bottleneck`.
const HOST_LIMITED_GAIN: f64 = 2.0;
/// BBRv1's gain after a probe, 3/4: takes back what the probe added.
const DOWN_GAIN: f64 = 0.75;
/// While a queue persists that our probe did not cause. Ours:
/// `two_lanes_share_evenly_and_keep_the_queue_short`.
const YIELD_GAIN: f64 = 0.92;
/// How long the lowest round trip is believed: BBRv1's RTprop filter, 10 s.
const MIN_RTT_AGE: Duration = Duration::from_secs(10);
/// RFC 9002, section 7.2.
const INITIAL_PACKETS: f64 = 10.0;
/// BBR's minimum window, four packets: acknowledgements of every second packet keep it
/// going.
const MIN_PACKETS: f64 = 4.0;
/// Packets leave in trains of this length, which are a queue of their own.
pub(crate) const TRAIN: Duration = Duration::from_millis(1);
/// Rounds of startup that are paced at the measured capacity at most. It may have been measured too
/// low, and a source that is now and then too slow would never show that: `a_slow_source_does_not_keep_it_in_startup`.
const CAPPED_ROUNDS: u64 = 5;
/// Share of the bandwidth-delay product in flight while the round trip is probed. BBR's `ProbeRTT`
/// has 0.5; ours costs less, and a queue of others still shows.
const PROBE_RTT_GAIN: f64 = 0.6;
/// Pacing by a loss-based window: Linux paces TCP in congestion avoidance at 1.2 windows per
/// round trip (`tcp_pacing_ca_ratio`).
const COMPETE_PACING_GAIN: f64 = 1.2;
/// Share of the window in flight from which it counts as used, so that it may grow (RFC 9438,
/// section 5.8, without a number). Ours: `beside_cubic_each_gets_at_least_a_quarter`.
const USED_SHARE: f64 = 0.8;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Mode {
    Startup,
    Drain,
    Down {
        from_round: u64,
        /// When the longest queue that the path holds has drained.
        until: Duration,
    },
    Cruise {
        from_round: u64,
        until_round: u64,
        until: Duration,
    },
    Up {
        from_round: u64,
    },
    Compete,
    /// Leaving others what they use; no queue has appeared since `quiet_from`.
    Retreat {
        quiet_from: u64,
    },
    /// Sending little, to see the queue empty (BBR's ProbeRTT).
    ProbeRtt {
        since: Duration,
        drained: Option<Drained>,
        competing: bool,
    },
}

/// When a probe of the round trip reached its window.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Drained {
    round: u64,
    /// Bytes delivered until then.
    delivered: u64,
}

/// Computes rate and window from feedback.
#[derive(Clone, Debug)]
pub struct Controller {
    config: RateConfig,
    mss: f64,
    mode: Mode,
    model: Model,
    /// The bandwidth when the last probe began.
    probed_from: f64,
    /// Consecutive probes that found more capacity.
    found: u32,
    /// Congestion appeared at the end of a cycle, when the queue should be empty.
    saw_congestion: bool,
    full_bandwidth: f64,
    full_rounds: u32,
    startup_window: f64,
    /// The largest measured in startup.
    capacity: Option<Capacity>,
    /// Whether startup may take it at once: no congestion came after the first packets.
    may_jump: bool,
    cubic: Cubic,
    ledbat: Ledbat,
    /// When the round trip was last probed, or startup ended.
    rtt_probed_at: Duration,
    probe_rtt_at: Duration,
    /// The same if others seem to have left.
    probe_rtt_alone_at: Duration,
    probe_rtt_after: Duration,
    /// The lowest round trip of the last probe for competitors.
    probed_floor: Option<Duration>,
    /// The capacity in bytes per second, as far as it was known when competing began.
    known_capacity: f64,
    /// Whether the window may catch up with others': the queue has not overflowed since then, and
    /// is not our own.
    may_catch_up: bool,
    /// Window and rate from which it is catching up, in bytes and bytes per second.
    catches_up_from: Option<(f64, f64)>,
    hold: Hold,
    cycles: u64,
    /// The path's parameters before a silence.
    saved: Option<SavedPath>,
}

/// Saved parameters of a path (RFC 9959).
#[derive(Clone, Copy, Debug)]
struct SavedPath {
    bandwidth: f64,
    min_rtt: Duration,
}

impl Controller {
    /// Starts without knowledge of the path. `mss`: bytes of a packet.
    pub fn new(config: RateConfig, mss: usize) -> Self {
        let mss = mss as f64;
        Self {
            config,
            mss,
            mode: Mode::Startup,
            model: Model::new(),
            probed_from: 0.0,
            found: 0,
            saw_congestion: false,
            full_bandwidth: 0.0,
            full_rounds: 0,
            startup_window: INITIAL_PACKETS * mss,
            capacity: None,
            may_jump: true,
            cubic: Cubic::new(Duration::ZERO, INITIAL_PACKETS * mss, mss, 1.0),
            ledbat: Ledbat::new(INITIAL_PACKETS * mss, mss),
            rtt_probed_at: Duration::ZERO,
            probe_rtt_at: Duration::ZERO,
            probe_rtt_alone_at: Duration::ZERO,
            probe_rtt_after: Duration::ZERO,
            probed_floor: None,
            known_capacity: 0.0,
            may_catch_up: false,
            catches_up_from: None,
            hold: Hold::new(),
            cycles: 0,
            saved: None,
        }
    }

    /// Describes the state, for figures.
    #[cfg(test)]
    pub(crate) fn describe(&self) -> String {
        let mode = format!("{:?}", self.mode);
        format!(
            "{:8} bw {:7.2} Mbit/s rate {:7.2} window {:8} bdp {:8.0} min {:6.2} ms queue {:6.2} chance {:.4} rounds {} holds {}",
            mode.split(' ').next().unwrap_or_default(),
            self.model.bandwidth() * 8e-6,
            self.rate() * 8e-6,
            self.window(),
            self.model.bdp(),
            self.model.min_rtt().as_secs_f64() * 1e3,
            self.model.queue().as_secs_f64() * 1e3,
            self.model.chance_loss(),
            self.model.rounds(),
            self.hold.is_on(),
        )
    }

    /// Changes the length of packets.
    pub fn set_mss(&mut self, mss: usize) {
        self.mss = mss as f64;
    }

    /// Changes the share beside others.
    pub fn set_priority(&mut self, priority: Priority) {
        if priority != self.config.priority {
            self.config.priority = priority;
            self.cubic.set_flows(priority.flows());
        }
    }

    /// Starts over, on another path.
    pub(crate) fn restart(&mut self) {
        *self = Self::new(self.config, self.mss as usize);
    }

    /// Starts over after a silence, on what may be the same path: its parameters are kept until the
    /// first round trip shows whether it is.
    pub fn fall_silent(&mut self) {
        let (bandwidth, min_rtt) = (self.model.bandwidth(), self.model.min_rtt());
        let known = !matches!(self.mode, Mode::Startup) && bandwidth > 0.0;
        let saved = if known { Some(SavedPath { bandwidth, min_rtt }) } else { self.saved };
        self.restart();
        self.saved = saved;
    }

    /// Adds a round-trip time measured by a path challenge.
    pub(crate) fn first_rtt(&mut self, now: Duration, rtt: Duration) {
        self.model.sample_rtt(now, rtt);
    }

    /// Returns the sending rate in bytes per second; infinity for the first packets.
    pub fn rate(&self) -> f64 {
        let rtt = self.model.smoothed().map_or(0.333, |rtt| rtt.as_secs_f64().max(1e-4));
        let bandwidth = self.model.bandwidth();
        let rate = match self.mode {
            // the first packets leave at once: how the bottleneck spreads them shows its capacity
            Mode::Startup if self.model.rounds() == 0 => f64::INFINITY,
            Mode::Startup => {
                let capped = self.model.rounds() <= CAPPED_ROUNDS;
                let capacity = self.capacity.filter(|_| capped);
                let most = capacity.map_or(f64::INFINITY, Capacity::most);
                (STARTUP_GAIN * self.startup_window / rtt).min(most)
            }
            Mode::Drain => DRAIN_GAIN * bandwidth,
            Mode::Cruise { .. } | Mode::Up { .. } | Mode::Down { .. }
                if self.model.is_host_limited() =>
            {
                HOST_LIMITED_GAIN * bandwidth
            }
            Mode::Down { .. } => DOWN_GAIN * bandwidth,
            Mode::Cruise { from_round, .. } if self.yields(from_round) => {
                // drains the queue in one round trip
                let queue = self.model.lasting_queue().as_secs_f64();
                let gain = 1.0 - queue / self.model.smoothed().unwrap_or_default().as_secs_f64();
                gain.clamp(DOWN_GAIN, YIELD_GAIN) * bandwidth
            }
            // makes up for random loss
            Mode::Cruise { .. } => bandwidth / (1.0 - self.model.chance_loss()),
            Mode::Up { .. } => self.up_gain() * bandwidth / (1.0 - self.model.chance_loss()),
            Mode::ProbeRtt { .. } => bandwidth,
            Mode::Compete => COMPETE_PACING_GAIN * self.cubic.window() / rtt,
            Mode::Retreat { .. } => COMPETE_PACING_GAIN * self.ledbat.window() / rtt,
        };
        rate.max(2.0 * self.mss / rtt).min(self.config.limit.unwrap_or(f64::INFINITY))
    }

    /// Whether the window still grows to what the path carries.
    pub(crate) fn starts_up(&self) -> bool {
        self.mode == Mode::Startup
    }

    /// Returns the share of packets that are lost at random, a tenth at most.
    pub(crate) fn random_loss(&self) -> f64 {
        self.model.chance_loss()
    }

    /// Returns the smoothed round-trip time, if any was measured since the start.
    pub fn round_trip(&self) -> Option<Duration> {
        self.model.smoothed()
    }

    /// Returns the congestion window in bytes.
    pub fn window(&self) -> u64 {
        let (bdp, bandwidth) = (self.model.bdp(), self.model.bandwidth());
        let window = match self.mode {
            Mode::Startup => self.startup_window,
            Mode::Compete => self.cubic.window(),
            // which may be shorter than any other
            Mode::Retreat { .. } => return self.ledbat.window() as u64,
            Mode::ProbeRtt { .. } => PROBE_RTT_GAIN * bdp,
            _ => {
                // data that arrived and is not acknowledged yet: feedback comes eight times
                let late = 2.0 * self.model.noise().as_secs_f64();
                let buffer =
                    self.config.peer_buffer.map_or(f64::INFINITY, |bytes| bytes as f64 / 2.0);
                let slack = bdp / 4.0 + (bandwidth * late).min(buffer) + 3.0 * self.mss;
                bdp + (bandwidth * self.config.ceiling.as_secs_f64()).min(bdp) + slack
            }
        };
        window.max(MIN_PACKETS * self.mss) as u64
    }

    /// Handles feedback.
    pub fn report(&mut self, now: Duration, report: &Report) {
        if let Some(rtt) = report.rtt {
            self.resume(rtt);
        }
        let round_over = self.model.report(now, report);
        let congested = report.congested || (report.lost > 0 && self.model.queue_is_long());
        if congested {
            self.model.note_congestion();
            self.may_catch_up = false;
        }
        self.advance(now, report, round_over, congested);
        if round_over {
            // what is acknowledged now was sent two rounds ago at most: not with the probe
            if matches!(self.mode, Mode::Cruise { from_round, .. }
                if self.model.rounds() > from_round + 2)
            {
                self.model.distrust_bandwidth();
            }
            if self.mode == Mode::Compete {
                self.hold_share();
            }
            self.model.end_round();
        }
    }

    fn advance(&mut self, now: Duration, report: &Report, round_over: bool, congested: bool) {
        let (round, pipe) = (self.model.rounds(), self.model.pipe());
        let in_flight = report.in_flight as f64;
        match self.mode {
            Mode::Startup => {
                // what startup overflows is no sign of others
                self.rtt_probed_at = now;
                self.start_up(report, round_over, congested);
            }
            Mode::Drain if in_flight <= pipe || self.model.queue_is_empty() => self.cruise(now),
            Mode::Down { from_round, until }
                if in_flight <= pipe || round >= from_round + 3 || now >= until =>
            {
                self.cruise(now);
            }
            // somebody else's, however short it is
            Mode::Cruise { from_round, .. }
                if self.config.priority == Priority::Scavenger && self.yields(from_round) =>
            {
                self.begin_retreat();
            }
            Mode::Cruise { .. } if self.has_found_more() => {
                self.found += 1;
                self.probe();
            }
            Mode::Cruise { until_round, until, .. } if round >= until_round && now >= until => {
                self.end_cycle(now, report);
            }
            Mode::Cruise { until_round, .. } => {
                // what startup overflowed is reported until after the first cruise began
                self.saw_congestion |= congested && round + 2 >= until_round && self.cycles > 1;
            }
            Mode::Up { from_round } => {
                let whole =
                    in_flight >= self.up_gain() * pipe || self.model.queue() > self.most_queue();
                let over = round > from_round && whole;
                if over || congested || round > from_round + 2 {
                    // what a queue that overflowed could not hold need not be taken back
                    let drains = |held: Duration| now + held.mul_f64(1.0 / (1.0 - DOWN_GAIN));
                    let until = self.model.held_queue().map_or(Duration::MAX, drains);
                    self.mode = Mode::Down { from_round: round, until };
                }
            }
            Mode::Compete => self.compete(now, report, congested),
            Mode::Retreat { quiet_from } => self.retreat(now, report, congested, quiet_from),
            Mode::ProbeRtt { since, drained: None, competing } => {
                if report.in_flight <= self.window() {
                    self.model.begin_floor();
                    let drained = Some(Drained { round, delivered: report.delivered });
                    self.mode = Mode::ProbeRtt { since, drained, competing };
                }
            }
            Mode::ProbeRtt { since, drained: Some(drained), competing }
                if round >= drained.round + 2
                    || (competing && self.meets_deep_queue(report, drained)) =>
            {
                self.end_probe_rtt(now, since, competing);
            }
            Mode::Drain | Mode::Down { .. } | Mode::ProbeRtt { .. } => {}
        }
    }
}

/// When what is reported as congestion was sent.
fn congested_at(now: Duration, report: &Report, rtt: Duration) -> Duration {
    // a mark carries no time: it is about a round trip old
    if report.lost > 0 { report.lost_sent } else { now.saturating_sub(rtt) }
}
