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

mod cubic;
mod filter;
mod hold;
mod ledbat;
mod model;
mod priority;
mod report;

use std::time::Duration;

use cubic::Cubic;
use hold::{Hold, Round};
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
/// BBRv1's probing gain, 5/4.
const UP_GAIN: f64 = 1.25;
/// While hosts are the bottleneck, they must not wait for the pacer. Ours: any gain that the
/// pacer does not limit; `hosts_that_pause_are_no_bottleneck`.
const HOST_LIMITED_GAIN: f64 = 2.0;
/// After probes that found more capacity. Ours: twice the first probe's;
/// `freed_capacity_is_found_soon`.
const MAX_UP_GAIN: f64 = 1.5;
/// BBRv1's gain after a probe, 3/4: takes back what the probe added.
const DOWN_GAIN: f64 = 0.75;
/// While a queue persists that our probe did not cause. Ours:
/// `two_lanes_share_evenly_and_keep_the_queue_short`.
const YIELD_GAIN: f64 = 0.92;
/// How long the lowest round trip is believed: BBRv1's RTprop filter, 10 s.
const MIN_RTT_AGE: Duration = Duration::from_secs(10);
/// The same while competing, when others' queues hide it. Ours: longer than
/// [`MAX_PROBE_RTT_INTERVAL`], so that a probe finds it first.
const MIN_RTT_AGE_COMPETING: Duration = Duration::from_secs(30);
/// The same while retreating, when it must not take others' queue for the path. Ours, and a
/// tenth of RFC 6817's (section 4.2): so long a path that became longer looks occupied.
const MIN_RTT_AGE_RETREATING: Duration = Duration::from_secs(60);
/// Rounds without a queue after which nobody else uses the path: one of ours probes at least every
/// eighth ([`CRUISE_ROUNDS`], the probe and what takes it back). Ours:
/// `a_scavenger_takes_the_link_again_after_others`.
const QUIET_ROUNDS: u64 = 8;
/// RFC 9002, section 7.2.
const INITIAL_PACKETS: f64 = 10.0;
/// BBR's minimum window, four packets: acknowledgements of every second packet keep it
/// going.
const MIN_PACKETS: f64 = 4.0;
/// A busy host must not look like a standing queue. Ours: some of Linux's time slices (a few ms
/// each).
const SHORTEST_CRUISE: Duration = Duration::from_millis(50);
/// Between probes whether the queue is still others': at first BBR's interval of `ProbeRTT`, 5
/// s; after many that found so, ours: `beside_cubic_each_gets_at_least_a_quarter`.
const PROBE_RTT_INTERVAL: Duration = Duration::from_secs(5);
const MAX_PROBE_RTT_INTERVAL: Duration = Duration::from_secs(20);
/// Round trips from one such probe to the next, at least: each costs two, which a deep queue
/// makes long. Ours: a twentieth is lost so.
/// `a_deep_queue_beside_cubic_is_not_taken_for_the_path`.
const PROBE_RTT_ROUNDS: u32 = 32;
/// Share of the capacity from which on others seem to have left: it is probed as often as on a
/// short path then. Ours.
const ALONE_SHARE: f64 = 0.9;
/// Share of the former bandwidth-delay product with which to resume after a silence (RFC 9959).
const RESUME_SHARE: f64 = 0.5;
/// Packets leave in trains of this length, which are a queue of their own.
pub(crate) const TRAIN: Duration = Duration::from_millis(1);
/// The least extra rate of a probe on a path whose queue is short: less is noise. Ours:
/// `a_queue_of_fifty_packets_does_not_keep_it_from_the_rate_of_the_link`.
const LEAST_UP: f64 = 1.0 / 16.0;
/// Share of a capacity that startup measures, to take at once. Ours: with [`STARTUP_GAIN`] it is
/// sent at less than the capacity, so that alone it causes no queue, however short that is.
/// `startup_fills_long_links_in_three_round_trips`.
const CAPACITY_SHARE: f64 = 0.75;
/// Rounds of startup that are paced at the measured capacity at most. It may have been measured too
/// low, and a source that is now and then too slow would never show that: `a_slow_source_does_not_keep_it_in_startup`.
const CAPPED_ROUNDS: u64 = 4;
/// Share of startup's window that must have arrived without a queue, to take the whole capacity.
/// Ours, likewise; HyStart++ (RFC 9406) decides after eight samples of a round.
const TRIED_SHARE: f64 = 0.125;
/// Share of the bandwidth-delay product in flight meanwhile. BBR's `ProbeRTT` has 0.5; ours
/// costs less, and a queue of others still shows.
const PROBE_RTT_GAIN: f64 = 0.6;
/// Growth of the bandwidth in three rounds below which startup ends (draft-ietf-ccwg-bbr,
/// section 5.3.1.2).
const FULL_GROWTH: f64 = 1.25;
const FULL_ROUNDS: u32 = 3;
/// Rounds between probes: four to six, so that two senders do not synchronize. BBRv1 probes
/// every eighth; ours: `freed_capacity_is_found_soon`.
const CRUISE_ROUNDS: [u64; 3] = [4, 5, 6];
/// Share of a probe's extra rate that must have arrived to probe again at once. Ours:
/// `freed_capacity_is_found_soon`.
const FOUND_SHARE: f64 = 0.6;
/// Pacing by a loss-based window: Linux paces TCP in congestion avoidance at 1.2 windows per
/// round trip (`tcp_pacing_ca_ratio`).
const COMPETE_PACING_GAIN: f64 = 1.2;
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
/// Share of what is due below which losses may be those of others that do not yield ([`Hold`]).
/// Ours: beside one CUBIC flow the window is seldom smaller;
/// `beside_bbr_in_a_short_queue_each_gets_at_least_a_quarter`.
const LOW_SHARE: f64 = 0.6;
/// Share of the window in flight from which it counts as used, so that it may grow (RFC 9438,
/// section 5.8, without a number). Ours: `beside_cubic_each_gets_at_least_a_quarter`.
const USED_SHARE: f64 = 0.8;

/// The parameters of the rate control.
#[derive(Clone, Copy, Debug)]
pub struct RateConfig {
    /// The longest queueing delay that we may cause. The default, 25 ms, is ours: half of a queue
    /// of 50 ms, and `random_loss_does_not_slow_it_and_the_queue_stays_below_the_ceiling`.
    pub ceiling: Duration,
    /// The highest rate in bytes per second.
    pub limit: Option<f64>,
    /// Bytes of the peer's receive buffer, if known: what may be in flight beyond the path's
    /// capacity.
    pub peer_buffer: Option<u64>,
    /// Its share beside others.
    pub priority: Priority,
}

impl Default for RateConfig {
    fn default() -> Self {
        Self {
            ceiling: Duration::from_millis(25),
            limit: None,
            peer_buffer: None,
            priority: Priority::default(),
        }
    }
}

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

    /// Resumes at half of the former capacity if the round-trip time is similar: the jump of
    /// Careful Resume (RFC 9959), which allows a half to ten times the former round-trip time;
    /// twice is more careful. The jump is paced over a round trip, and congestion undoes it as in
    /// any startup.
    fn resume(&mut self, rtt: Duration) {
        let Some(SavedPath { bandwidth, min_rtt }) = self.saved.take() else { return };
        if (min_rtt / 2..=min_rtt * 2 + self.config.ceiling).contains(&rtt) {
            let jump = RESUME_SHARE * bandwidth * min_rtt.as_secs_f64();
            self.startup_window = self.startup_window.max(jump);
        }
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
                let queue = self.model.queue().as_secs_f64();
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
        let (round, bdp, pipe) = (self.model.rounds(), self.model.bdp(), self.model.pipe());
        let in_flight = report.in_flight as f64;
        match self.mode {
            Mode::Startup => {
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

    fn cruise(&mut self, now: Duration) {
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

    fn end_cycle(&mut self, now: Duration, report: &Report) {
        // a queue right after startup is startup's own
        if self.cycles == 1 && !self.model.queue_is_empty() {
            return self.cruise(now);
        }
        self.mode = if self.saw_congestion || self.model.queue_stood() {
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
        } else if self.model.min_rtt_age(now) > MIN_RTT_AGE {
            Mode::ProbeRtt { since: now, drained: None, competing: false }
        } else {
            self.found = 0;
            return self.probe();
        };
    }

    fn probe(&mut self) {
        self.probed_from = self.model.bandwidth();
        self.model.begin_peak();
        self.mode = Mode::Up { from_round: self.model.rounds() };
    }

    /// Whether the last probe achieved most of its extra rate without a queue: there may be more.
    fn has_found_more(&self) -> bool {
        let asked = self.up_gain() - 1.0;
        self.probed_from > 0.0
            && self.model.bandwidth() >= (1.0 + FOUND_SHARE * asked) * self.probed_from
            && self.model.queue_never_showed()
    }

    /// Returns the gain of a probe. The first causes a queue of the ceiling at most, if it lasts a
    /// round trip, and hardly more than the path holds. Each that finds more is followed by one of
    /// twice the extra rate.
    fn up_gain(&self) -> f64 {
        let min_rtt = self.model.min_rtt().as_secs_f64().max(1e-6);
        let within = |queue: Duration| queue.as_secs_f64() / min_rtt;
        let held = self.model.held_queue().map_or(f64::INFINITY, |held| within(held).max(LEAST_UP));
        let first = (UP_GAIN - 1.0).min(within(self.config.ceiling)).min(held);
        1.0 + (first * f64::from(1 << self.found.min(3))).min(MAX_UP_GAIN - 1.0)
    }

    fn compete(&mut self, now: Duration, report: &Report, congested: bool) {
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
    fn catch_up(&mut self, acked: f64, rtt: Duration) {
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
    fn hold_share(&mut self) {
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

    /// Whether a packet that was sent after a probe had drained our own queue found a deep one,
    /// which is others' then.
    fn meets_deep_queue(&self, report: &Report, drained: Drained) -> bool {
        report.rtt.is_some()
            && report.delivered_before >= drained.delivered
            && self.model.queue_is_deep()
    }

    fn begin_retreat(&mut self) {
        self.ledbat = Ledbat::new(PROBE_RTT_GAIN * self.model.bdp(), self.mss);
        self.model.begin_floor();
        self.model.begin_peak();
        self.mode = Mode::Retreat { quiet_from: self.model.rounds() };
    }

    fn retreat(&mut self, now: Duration, report: &Report, congested: bool, quiet_from: u64) {
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

    fn end_probe_rtt(&mut self, now: Duration, since: Duration, competing: bool) {
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

    /// Whether a queue persists that our last probe did not cause: for one round trip the queue is
    /// the probe's.
    fn yields(&self, from_round: u64) -> bool {
        let queue = (self.model.threshold() / 2).max(TRAIN);
        self.model.rounds() > from_round + 1 && self.model.queue() > queue
    }

    /// Returns the longest queue that probing may cause.
    fn most_queue(&self) -> Duration {
        (self.model.min_rtt() / 4).min(self.config.ceiling).max(Duration::from_millis(1))
    }
}

/// When what is reported as congestion was sent.
fn congested_at(now: Duration, report: &Report, rtt: Duration) -> Duration {
    // a mark carries no time: it is about a round trip old
    if report.lost > 0 { report.lost_sent } else { now.saturating_sub(rtt) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Competes from `window` bytes on, on a path of 50 ms that carried 100 Mbit/s and now carries
    /// `carries` bytes per second, while others have `others` bytes in flight. Returns its window
    /// after 200 round trips.
    fn caught_up(window: f64, others: f64, carries: f64) -> f64 {
        let mut control = Controller::new(RateConfig::default(), 1200);
        control.model.sample_rtt(Duration::ZERO, Duration::from_millis(50));
        control.cubic = Cubic::new(Duration::ZERO, window, 1200.0, 1.0);
        (control.known_capacity, control.may_catch_up) = (12.5e6, true);
        for round in 0..200 {
            let window = control.cubic.window();
            let rtt = (window + others) / carries;
            let report = Report { rate: Some(window / rtt), ..Report::default() };
            control.model.report(Duration::ZERO, &report);
            // of three rates the lowest counts
            if round >= 2 {
                control.catch_up(window, Duration::from_secs_f64(rtt));
            }
        }
        control.cubic.window()
    }

    #[test]
    fn startup_takes_a_measured_capacity_only_until_congestion_follows() {
        let mut control = Controller::new(RateConfig::default(), 1200);
        control.model.sample_rtt(Duration::ZERO, Duration::from_millis(100));
        let mut reports = |report: Report| {
            control.report(Duration::from_millis(200), &report);
            assert_eq!(control.mode, Mode::Startup);
            control.window()
        };
        // ten million bytes per second at least, of which three quarters for 100 ms
        let capacity = Some(Capacity { bytes: 20_000.0, took: Duration::from_micros(1800) });
        let first = Report { acked: 12_000, delivered: 12_000, capacity, ..Report::default() };
        assert!((749_000..=751_000).contains(&reports(first)));
        let next = Report { delivered_before: 12_000, delivered: 24_000, ..Report::default() };
        let overflow = Report { acked: 12_000, lost: 400_000, congested: true, ..next };
        assert!((349_000..=351_000).contains(&reports(overflow)));
        let grown = reports(Report { acked: 1200, delivered: 25_200, ..next });
        assert!((350_000..=353_000).contains(&grown), "{grown}");
    }

    #[test]
    fn a_competitor_that_becomes_a_scavenger_retreats_at_once() {
        let mut control = Controller::new(RateConfig::default(), 1200);
        control.model.sample_rtt(Duration::ZERO, Duration::from_millis(50));
        control.mode = Mode::Compete;
        control.probe_rtt_at = Duration::from_secs(20);
        control.probe_rtt_alone_at = control.probe_rtt_at;
        let report = Report { acked: 1200, delivered: 1200, ..Report::default() };
        control.report(Duration::from_secs(1), &report);
        assert_eq!(control.mode, Mode::Compete);
        control.set_priority(Priority::Scavenger);
        control.report(Duration::from_secs(2), &report);
        assert!(matches!(control.mode, Mode::Retreat { .. }), "{:?}", control.mode);
    }

    #[test]
    fn the_window_catches_up_with_others_and_not_with_its_own_queue() {
        let window = caught_up(1e6, 8e6, 12.5e6);
        let share = window / (window + 8e6);
        assert!((0.44..0.46).contains(&share), "{share}");
        let window = caught_up(2e6, 0.0, 1.25e6);
        assert!(window < 2.3 * 2e6, "{window} bytes where the path carries a tenth");
    }
}
