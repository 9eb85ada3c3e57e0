//! The model of the path: the bottleneck's rate, the round-trip time without a queue, and the
//! queue.

use std::time::Duration;

use super::filter::MaxFilter;
use super::queue::QueueHistory;
use super::report::Report;

// Sources as in `rate/mod.rs`.

/// Rounds that the bandwidth is remembered: BBRv1's BtlBw filter, ten round trips, longer than
/// a cycle.
const BANDWIDTH_ROUNDS: u64 = 10;
/// Shorter rounds do not count, because hosts are scheduled in slices. Ours: some time slices
/// of the host; `hosts_that_pause_are_no_bottleneck`.
const SHORTEST_ROUND: Duration = Duration::from_millis(20);
/// Seconds that the highest bandwidth is remembered. Ours: longer than others need to fill a queue
/// of a second (`a_deep_queue_beside_cubic_is_not_taken_for_the_path`).
const HIGHEST_S: u64 = 30;
/// A shorter queue is noise of the hosts. Ours; an eighth of the round trip if that is more, as
/// in HyStart++ (RFC 9406, section 4.2).
const NOISE: Duration = Duration::from_micros(1500);
/// A queue that our own trains are: as long as one.
const OWN_QUEUE: Duration = Duration::from_millis(1);
/// On a shorter path the round trip is mostly the hosts' own: a busy processor is not a queue
/// on the path. Ours, for local networks: `hosts_that_pause_are_no_bottleneck`.
const SHORT: Duration = Duration::from_millis(2);
const NOISE_OF_SHORT: Duration = Duration::from_millis(6);
/// For this long after a loss the path counts as a bottleneck. Ours: some round trips of a path
/// shorter than [`SHORT`], and longer than a pause of its hosts.
const HOST_LIMITED_AFTER: Duration = Duration::from_millis(500);
/// The most random loss that is made up for. Ours: twice the 5 % of
/// `random_loss_does_not_slow_it_and_the_queue_stays_below_the_ceiling`.
const MAX_CHANCE_LOSS: f64 = 0.1;
/// Share of a round from which its losses, with congestion, are those of a queue that overflows:
/// BBRv3's `BBR.LossThresh`, or twice the random loss if that is more.
const OVERFLOW_LOSS: f64 = 0.02;

/// A path, as feedback shows it.
#[derive(Clone, Debug)]
pub(super) struct Model {
    bandwidth: MaxFilter,
    /// The highest of long, which may have been before others came.
    highest: MaxFilter,
    /// The latest rates: a single one may be wrong because the receiver was busy.
    latest: [f64; 3],
    rtt: Option<Duration>,
    smoothed: Duration,
    min_rtt: Option<Duration>,
    min_rtt_at: Duration,
    /// The lowest round trip since [`Model::begin_floor`].
    floor: Duration,
    /// The highest since [`Model::begin_peak`].
    peak: Duration,
    /// When the last round without a queue ended, since [`Model::begin_empty`].
    empty_at: Option<Duration>,
    /// When the last feedback arrived, and the last that reported a loss.
    seen_at: Duration,
    lost_at: Option<Duration>,
    rounds: u64,
    /// Rounds that count for the bandwidth filter, and when the last began.
    age: u64,
    age_at: Duration,
    round_ends: u64,
    round_floor: Duration,
    round_peak: Duration,
    round_acked: u64,
    round_lost: u64,
    round_congested: bool,
    /// Share of packets lost at random, smoothed over rounds.
    chance_loss: f64,
    queues: QueueHistory,
}

impl Model {
    pub(super) fn new() -> Self {
        Self {
            bandwidth: MaxFilter::new(BANDWIDTH_ROUNDS),
            highest: MaxFilter::new(HIGHEST_S),
            latest: [0.0; 3],
            rtt: None,
            smoothed: Duration::ZERO,
            min_rtt: None,
            min_rtt_at: Duration::ZERO,
            floor: Duration::MAX,
            peak: Duration::ZERO,
            empty_at: None,
            seen_at: Duration::ZERO,
            lost_at: None,
            rounds: 0,
            age: 0,
            age_at: Duration::ZERO,
            round_ends: 0,
            round_floor: Duration::MAX,
            round_peak: Duration::ZERO,
            round_acked: 0,
            round_lost: 0,
            round_congested: false,
            chance_loss: 0.0,
            queues: QueueHistory::new(),
        }
    }

    /// Handles feedback; returns whether a round trip is over.
    pub(super) fn report(&mut self, now: Duration, report: &Report) -> bool {
        self.seen_at = now;
        if report.lost > 0 {
            self.lost_at = Some(now);
        }
        self.round_acked += report.acked;
        self.round_lost += report.lost;
        let over = report.acked > 0 && report.delivered_before >= self.round_ends;
        if over {
            self.rounds += 1;
            self.round_ends = report.delivered;
            if now >= self.age_at + SHORTEST_ROUND {
                (self.age, self.age_at) = (self.age + 1, now);
            }
        }
        if let Some(rtt) = report.rtt {
            self.round_floor = self.round_floor.min(rtt);
            self.round_peak = self.round_peak.max(rtt);
            self.sample_rtt(now, rtt);
        }
        if let Some(rate) = report.rate {
            self.latest = [rate, self.latest[0], self.latest[1]];
            let rate = self.latest_rate();
            if !report.limited || rate > self.bandwidth.get() {
                self.bandwidth.push(self.age, rate);
                self.highest.push(now.as_secs(), rate);
            }
        }
        over
    }

    /// Notes congestion in this round: its losses are not random.
    pub(super) fn note_congestion(&mut self) {
        self.round_congested = true;
    }

    /// Whether there was congestion in this round.
    pub(super) fn was_congested(&self) -> bool {
        self.round_congested
    }

    /// Returns the share of random loss, [`MAX_CHANCE_LOSS`] at most.
    pub(super) fn chance_loss(&self) -> f64 {
        self.chance_loss.min(MAX_CHANCE_LOSS)
    }

    /// Begins another round trip.
    pub(super) fn end_round(&mut self) {
        match self.round_loss() {
            Some(lost) if !self.round_congested => {
                self.chance_loss += (lost - self.chance_loss) / 8.0;
            }
            Some(lost)
                if lost > OVERFLOW_LOSS.max(2.0 * self.chance_loss)
                    && !self.round_peak.is_zero() =>
            {
                let queue = self.round_peak.saturating_sub(self.min_rtt());
                self.queues.overflowed(self.rounds, queue);
            }
            _ => {}
        }
        // a single long round trip may be a pause of a host; a round of them is a queue
        if !self.round_congested && self.round_floor != Duration::MAX {
            self.queues.stood(self.round_floor.saturating_sub(self.min_rtt()));
        }
        let empty = self.min_rtt() + (self.min_rtt() / 32).max(OWN_QUEUE);
        if !self.round_peak.is_zero() && self.round_peak <= empty {
            self.empty_at = Some(self.seen_at);
        }
        self.round_congested = false;
        (self.round_acked, self.round_lost) = (0, 0);
        (self.round_floor, self.round_peak) = (Duration::MAX, Duration::ZERO);
    }

    /// Returns the share of this round's bytes that was lost, if there were any.
    fn round_loss(&self) -> Option<f64> {
        let bytes = self.round_acked + self.round_lost;
        (bytes > 0).then(|| self.round_lost as f64 / bytes as f64)
    }

    /// Returns the share of this round's bytes that was lost and not at random.
    pub(super) fn congestion_loss(&self) -> f64 {
        (self.round_loss().unwrap_or_default() - self.chance_loss).max(0.0)
    }

    /// Whether more of this round was lost than chance may lose.
    pub(super) fn loses_more_than_by_chance(&self) -> bool {
        self.round_loss().is_some_and(|lost| lost > MAX_CHANCE_LOSS)
    }

    /// Returns the bytes acknowledged in this round.
    pub(super) fn round_acked(&self) -> u64 {
        self.round_acked
    }

    pub(super) fn sample_rtt(&mut self, now: Duration, rtt: Duration) {
        self.smoothed = match self.rtt {
            None => rtt,
            Some(_) => (self.smoothed * 7 + rtt) / 8,
        };
        self.rtt = Some(rtt);
        self.floor = self.floor.min(rtt);
        self.peak = self.peak.max(rtt);
        self.queues.sample_rtt(now, rtt);
        // close to the lowest is as good: the queue was empty
        if self.min_rtt.is_none_or(|min| rtt <= min + min / 32) {
            self.min_rtt_at = now;
        }
        self.min_rtt = Some(self.min_rtt.map_or(rtt, |min| min.min(rtt)));
    }

    /// Returns the bottleneck's rate in bytes per second.
    pub(super) fn bandwidth(&self) -> f64 {
        self.bandwidth.get()
    }

    /// Returns the highest of the last half minute.
    pub(super) fn highest_bandwidth(&self) -> f64 {
        self.highest.get()
    }

    /// Returns the latest rate: of three the lowest.
    pub(super) fn latest_rate(&self) -> f64 {
        self.latest.iter().copied().fold(f64::INFINITY, f64::min)
    }

    /// Trusts the latest rate only, if a fifth of a round was lost: the path's capacity has
    /// dropped. A fifth is ours: twice [`MAX_CHANCE_LOSS`].
    pub(super) fn distrust_bandwidth(&mut self) {
        if self.round_lost as f64 > 0.2 * (self.round_acked + self.round_lost) as f64 {
            self.bandwidth.reset(self.age, self.latest_rate());
            self.highest.reset(self.seen_at.as_secs(), self.latest_rate());
        }
    }

    /// Returns the number of round trips.
    pub(super) fn rounds(&self) -> u64 {
        self.rounds
    }

    /// Returns the smoothed round-trip time, if any was measured.
    pub(super) fn smoothed(&self) -> Option<Duration> {
        self.rtt.map(|_| self.smoothed)
    }

    /// Returns the round-trip time without a queue; 0 if none was measured.
    pub(super) fn min_rtt(&self) -> Duration {
        self.min_rtt.unwrap_or_default()
    }

    /// Returns how long ago the lowest round trip was last seen.
    pub(super) fn min_rtt_age(&self, now: Duration) -> Duration {
        now.saturating_sub(self.min_rtt_at)
    }

    /// Replaces it by the lowest round trip since the floor began.
    pub(super) fn replace_min_rtt(&mut self, now: Duration) {
        if self.floor != Duration::MAX {
            self.min_rtt = Some(self.floor);
            self.min_rtt_at = now;
        }
    }

    /// Returns the lowest round trip since the floor began, if there was any.
    pub(super) fn floor(&self) -> Option<Duration> {
        (self.floor != Duration::MAX).then_some(self.floor)
    }

    /// Whether two lowest round trips are the same but for noise.
    pub(super) fn agree(&self, one: Duration, other: Duration) -> bool {
        one.abs_diff(other) <= one / 128 + self.noise()
    }

    /// Whether the newest packet found a queue of a bandwidth-delay product at least.
    pub(super) fn queue_is_deep(&self) -> bool {
        self.queue() > self.min_rtt().max(self.threshold() * 4)
    }

    /// Starts measuring the lowest round trip: the queue should be empty now.
    pub(super) fn begin_floor(&mut self) {
        self.floor = Duration::MAX;
    }

    /// Starts measuring the highest round trip, to see whether a queue appears.
    pub(super) fn begin_peak(&mut self) {
        self.peak = Duration::ZERO;
    }

    /// Whether no queue appeared since [`Model::begin_peak`].
    pub(super) fn queue_never_showed(&self) -> bool {
        self.peak <= self.min_rtt() + self.threshold()
    }

    /// Whether the queue was never empty since [`Model::begin_floor`].
    pub(super) fn queue_stood(&self) -> bool {
        self.floor != Duration::MAX && self.floor > self.min_rtt() + self.threshold()
    }

    /// Whether the queue was never empty in this round.
    pub(super) fn queue_stood_this_round(&self) -> bool {
        self.round_floor != Duration::MAX && self.round_floor > self.min_rtt() + self.threshold()
    }

    /// Starts watching for rounds without a queue.
    pub(super) fn begin_empty(&mut self) {
        self.empty_at = None;
    }

    /// Returns how long ago a round ended in which no packet found a queue but that of our own
    /// trains, if there was one since [`Model::begin_empty`].
    pub(super) fn empty_ago(&self) -> Option<Duration> {
        self.empty_at.map(|empty_at| self.seen_at.saturating_sub(empty_at))
    }

    /// Whether the newest packet found no queue.
    pub(super) fn queue_is_empty(&self) -> bool {
        self.queue() <= self.threshold() / 2
    }

    /// Returns the queueing delay of the newest packet.
    pub(super) fn queue(&self) -> Duration {
        self.rtt.unwrap_or_default().saturating_sub(self.min_rtt())
    }

    /// Returns the shortest queueing delay of the latest packets: a single long one may be a pause
    /// of a host.
    pub(super) fn lasting_queue(&self) -> Duration {
        self.queues.lasting(self.min_rtt())
    }

    /// Returns the longest queueing delay of late that lasted.
    pub(super) fn longest_queue(&self) -> Duration {
        self.queues.longest(self.min_rtt())
    }

    /// Whether others could fill a queue so that it shows: it holds more than noise, as far as is
    /// known.
    pub(super) fn queue_can_stand(&self) -> bool {
        self.held_queue().is_none_or(|held| held > self.threshold())
    }

    /// Returns the longest queue that the path holds, if one has overflowed. One that was longer
    /// for a round since, and did not, shows that it holds more.
    pub(super) fn held_queue(&self) -> Option<Duration> {
        self.queues.held()
    }

    /// Whether the queue has overflowed within so many rounds.
    pub(super) fn overflowed_within(&self, rounds: u64) -> bool {
        self.queues.last_overflow().is_some_and(|last| self.rounds <= last + rounds)
    }

    /// Returns the shortest delay that counts as a queue.
    pub(super) fn threshold(&self) -> Duration {
        (self.min_rtt() / 8).max(self.noise())
    }

    /// Whether the hosts are the bottleneck, and not the path.
    pub(super) fn is_host_limited(&self) -> bool {
        let clean = self.lost_at.is_none_or(|lost_at| self.seen_at >= lost_at + HOST_LIMITED_AFTER);
        self.min_rtt() < SHORT && self.queue_is_empty() && clean
    }

    /// Returns the noise of the hosts.
    pub(super) fn noise(&self) -> Duration {
        if self.min_rtt() < SHORT { NOISE_OF_SHORT } else { NOISE }
    }

    /// Whether the queue is near the longest seen, or what it held when it overflowed: a loss is
    /// then a tail drop. A host that pauses for most of a round trip makes the longest seen too long
    /// for ten seconds.
    pub(super) fn queue_is_long(&self) -> bool {
        let longest = self.held_queue().unwrap_or(Duration::MAX).min(self.longest_queue());
        self.queue() > self.threshold() / 2 && self.queue() >= longest / 2
    }

    /// Returns the bandwidth-delay product in bytes.
    pub(super) fn bdp(&self) -> f64 {
        self.bandwidth() * self.min_rtt().as_secs_f64()
    }

    /// Returns the bytes in flight that fill the path despite random loss.
    pub(super) fn pipe(&self) -> f64 {
        self.bdp() / (1.0 - self.chance_loss())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn late_timestamps_of_a_busy_receiver_do_not_raise_the_bandwidth() {
        let mut model = Model::new();
        let mut sees = |rate| {
            let report = Report { acked: 1, rate: Some(rate), ..Report::default() };
            model.report(Duration::from_secs(1), &report);
            model.bandwidth()
        };
        assert_eq!([100.0; 3].map(&mut sees)[2], 100.0);
        // the stretch begins with a packet that lay there for long: it seems short
        assert_eq!([160.0, 150.0, 100.0].map(&mut sees), [100.0; 3]);
        assert_eq!([200.0, 200.0, 200.0].map(&mut sees), [100.0, 100.0, 200.0]);
    }
}
