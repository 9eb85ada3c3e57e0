//! Time that random loss adds, by simulation.
//!
//! A dialogue's packets have none behind them that would reveal a loss, so a time-out does:
//! 1 s before a peer has answered (RFC 6298, section 2.1; RFC 9002, section 6.2.2), after that
//! by TCP a round trip and 200 ms, Linux's least, by QUIC three round trips and 25 ms.
//! A body is sent in rounds: slow start doubles the window (RFC 5681), a round with a loss
//! makes it 0.7 of itself, and it grows by CUBIC's function of time or, if that is more, as
//! Reno would (RFC 9438, sections 4.2 to 4.7). A tail that is lost takes a tail loss probe
//! after two round trips (RFC 8985, section 7.2). A sender that keeps its rate sends what is lost
//! again. The same seed simulates the same.

use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};

/// Window after a loss, as a share of the one before (RFC 9438, section 4.6).
const BETA: f64 = 0.7;
/// RFC 9438, section 5.
const C: f64 = 0.4;
/// Segments of the initial window (RFC 6928).
const INITIAL_SEGMENTS: f64 = 10.0;
/// Linux's least retransmission time-out.
const MIN_TIMEOUT_S: f64 = 0.2;
/// RFC 6298, section 2.1, and RFC 9002, section 6.2.2.
const FIRST_TIMEOUT_S: f64 = 1.0;
/// The most by which QUIC's receiver delays an acknowledgement unless it says otherwise
/// (RFC 9000, section 18.2).
const QUIC_ACK_DELAY_S: f64 = 0.025;

/// A path with loss as one connection sees it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LossyPath {
    /// Round-trip time without load.
    pub rtt_s: f64,
    /// Seconds that a full segment takes at the narrowest rate.
    pub segment_s: f64,
    /// Share of packets lost, each way.
    pub loss: f64,
    /// The most segments in flight: the application's window, or what the link and its queue
    /// hold.
    pub most_in_flight: f64,
}

/// Chance of one path.
#[derive(Debug)]
pub struct Chance {
    random: ChaCha8Rng,
    loss: f64,
    /// Packets that still pass before one is lost.
    passing: f64,
}

impl Chance {
    /// Starts a sequence of losses.
    pub fn new(loss: f64, seed: u64) -> Self {
        let mut chance = Self { random: ChaCha8Rng::seed_from_u64(seed), loss, passing: 0.0 };
        chance.passing = chance.run();
        chance
    }

    /// Draws how many packets pass before the next loss.
    fn run(&mut self) -> f64 {
        let uniform: f64 = self.random.random_range(f64::MIN_POSITIVE..1.0);
        (uniform.ln() / (1.0 - self.loss).ln()).floor()
    }

    /// Sends packets; returns how many are lost, and whether the last one is.
    fn lost_of(&mut self, packets: f64) -> (f64, bool) {
        let (mut left, mut lost, mut last) = (packets, 0.0, false);
        while left > self.passing {
            left -= self.passing + 1.0;
            lost += 1.0;
            last = left == 0.0;
            self.passing = self.run();
        }
        self.passing -= left;
        (lost, last)
    }
}

/// Seconds after which TCP of Linux sends the only packet in flight again.
pub fn tcp_timeout_s(rtt_s: f64) -> f64 {
    MIN_TIMEOUT_S + rtt_s
}

/// Seconds after which QUIC does: the round trip and four times its variation, at first half of
/// it (RFC 9002, sections 5.3 and 6.2.1), and the receiver's delay.
pub fn quic_timeout_s(rtt_s: f64) -> f64 {
    3.0 * rtt_s + QUIC_ACK_DELAY_S
}

/// Seconds that losses add to a dialogue: `round_trips` of one packet each way, of which
/// `connections` open a connection; all others are sent again after `timeout_s`.
pub fn dialogue_s(chance: &mut Chance, round_trips: f64, connections: f64, timeout_s: f64) -> f64 {
    let timeouts = |chance: &mut Chance, exchanges: f64, timeout_s: f64| {
        chance.lost_of((2.0 * exchanges).round()).0 * timeout_s
    };
    let opening = connections.min(round_trips);
    timeouts(chance, opening, FIRST_TIMEOUT_S) + timeouts(chance, round_trips - opening, timeout_s)
}

/// Seconds from a body's first byte to its last, at the receiver.
pub fn body_s(path: &LossyPath, chance: &mut Chance, segments: f64) -> f64 {
    /// From here on the average rate says the rest.
    const ROUNDS: usize = 20_000;
    let mut window = INITIAL_SEGMENTS;
    let (mut threshold, mut largest) = (f64::INFINITY, 0.0_f64);
    let (mut reno, mut since_s) = (0.0, 0.0);
    let (mut elapsed_s, mut arrived) = (0.0, 0.0);
    for _ in 0..ROUNDS {
        let left = segments - arrived;
        if left <= 0.0 {
            return elapsed_s;
        }
        let sent = window.floor().max(1.0).min(left);
        let overflow = (sent - path.most_in_flight).max(0.0);
        let (by_chance, last_lost) = chance.lost_of(sent - overflow);
        let lost = by_chance + overflow;
        let sending_s = sent * path.segment_s;
        let is_last = sent >= left && lost == 0.0;
        // until the first segment is acknowledged, unless nothing waits for that
        let round_s = if is_last { sending_s } else { sending_s.max(path.rtt_s + path.segment_s) };
        elapsed_s += round_s;
        arrived += sent - lost;
        if lost > 0.0 {
            if sent >= left && last_lost {
                elapsed_s += if sent < 2.0 { MIN_TIMEOUT_S } else { path.rtt_s };
            }
            // fast convergence, RFC 9438 section 4.7
            largest = if window < largest { window * (1.0 + BETA) / 2.0 } else { window };
            threshold = (window * BETA).max(2.0);
            window = threshold;
            reno = window;
            since_s = elapsed_s;
        } else if window < threshold {
            window = (2.0 * window).min(threshold);
        } else {
            // Linux keeps this rate beyond the old window as well (net/ipv4/tcp_cubic.c)
            reno += 3.0 * (1.0 - BETA) / (1.0 + BETA);
            let k = (largest * (1.0 - BETA) / C).cbrt();
            let cubic = C * (elapsed_s - since_s + path.rtt_s - k).powi(3) + largest;
            window = cubic.min(1.5 * window).max(reno).max(window);
        }
    }
    elapsed_s * segments / arrived.max(1.0)
}

/// Seconds of the same body by a sender that keeps its rate, and that takes `clear_s` without
/// loss. What is lost is sent again among the rest; what the last round trip loses, after it.
pub fn steady_body_s(path: &LossyPath, chance: &mut Chance, segments: f64, clear_s: f64) -> f64 {
    let last = (path.rtt_s / path.segment_s).min(segments).floor();
    let early = chance.lost_of(segments - last).0;
    let mut lost = chance.lost_of(last + early).0;
    let mut elapsed_s = clear_s + early * path.segment_s;
    while lost > 0.0 {
        elapsed_s += path.rtt_s + lost * path.segment_s;
        lost = chance.lost_of(lost).0;
    }
    elapsed_s
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATH: LossyPath =
        LossyPath { rtt_s: 0.05, segment_s: 1e-6, loss: 0.01, most_in_flight: f64::INFINITY };

    fn mean(mut one: impl FnMut(&mut Chance) -> f64) -> f64 {
        let all = (0..400).map(|seed| one(&mut Chance::new(PATH.loss, seed)));
        all.sum::<f64>() / 400.0
    }

    #[test]
    fn a_dialogue_waits_as_often_as_packets_are_lost() {
        // 2 packets of 100 are lost: one round trip in fifty
        let waits = mean(|chance| dialogue_s(chance, 50.0, 0.0, tcp_timeout_s(PATH.rtt_s)));
        assert!((waits - 50.0 * 2.0 * 0.01 * 0.25).abs() < 0.03, "{waits}");
        let opens = mean(|chance| dialogue_s(chance, 50.0, 50.0, 0.0));
        assert!((opens - 50.0 * 2.0 * 0.01).abs() < 0.12, "{opens}");
        let quic = mean(|chance| dialogue_s(chance, 50.0, 0.0, quic_timeout_s(PATH.rtt_s)));
        assert!((quic - 50.0 * 2.0 * 0.01 * 0.175).abs() < 0.03, "{quic}");
    }

    #[test]
    fn a_small_body_is_hardly_ever_late() {
        let first_window = mean(|chance| body_s(&PATH, chance, 1.0));
        // one in a hundred is lost and waits for a probe
        assert!(first_window < 0.01, "{first_window}");
    }

    #[test]
    fn a_large_body_goes_at_the_window_of_rfc_9438() {
        // 1.054 · RTT^¾ / p^¾ or √(3/(2p)) segments, of which the larger: 12.2 each 50 ms
        let seconds = mean(|chance| body_s(&PATH, chance, 20_000.0));
        let expected = 20_000.0 / (1.5_f64 / 0.01).sqrt() * 0.05;
        assert!((seconds / expected - 1.0).abs() < 0.25, "{seconds} {expected}");
    }

    #[test]
    fn a_sender_that_keeps_its_rate_sends_again_what_was_lost() {
        let path = LossyPath { segment_s: 1e-4, ..PATH };
        let seconds = mean(|chance| steady_body_s(&path, chance, 20_000.0, 2.0));
        // one in a hundred again; of the last 500 some are lost, and hardly any of those
        let expected = 2.0 * 1.01 + 1.07 * 0.05;
        assert!((seconds - expected).abs() < 0.01, "{seconds} {expected}");
        let without = LossyPath { loss: 1e-9, ..path };
        let chance = &mut Chance::new(without.loss, 1);
        assert_eq!(steady_body_s(&without, chance, 20_000.0, 2.0), 2.0);
    }

    #[test]
    fn a_link_without_chance_takes_slow_start_and_the_rate() {
        let path = LossyPath { segment_s: 1e-3, loss: 1e-9, ..PATH };
        let seconds = body_s(&path, &mut Chance::new(path.loss, 1), 1000.0);
        // rounds of 10, 20 and 40 segments wait for their acknowledgement
        let waits = 3.0 * 0.051 - 0.070;
        assert!((seconds - (1.0 + waits)).abs() < 0.002, "{seconds}");
    }
}
