//! A TCP that is not ours: BBR version 1 as Linux has it (`net/ipv4/tcp_bbr.c`; Cardwell et
//! al., ACM Queue 14(5), 2016), in packets, with a scoreboard and acknowledgement of each.
//! Left out: the detection of token buckets (from a fifth lost on), and the allowance for
//! aggregated acknowledgements. Simpler: a loss ends the phase of 1.25 also later in its round, and
//! the window is restored after one round of recovery, in which Linux lets it grow back.

use std::collections::VecDeque;
use std::time::Duration;

use super::Chance;

const HIGH_GAIN: f64 = 2.885;
const CYCLE: [f64; 8] = [1.25, 0.75, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0];
const MIN_RTT_AGE: Duration = Duration::from_secs(10);
const PROBE_RTT: Duration = Duration::from_millis(200);
const MIN_WINDOW: f64 = 4.0;
/// Pacing is this share of the bandwidth, times the gain.
const MARGIN: f64 = 0.99;

#[derive(Debug, Clone, Copy)]
struct Packet {
    at: Duration,
    acked: bool,
    lost: bool,
    delivered: u64,
    delivered_at: Duration,
    first_at: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Mode {
    Startup,
    Drain,
    ProbeBw { phase: usize, since: Duration },
    ProbeRtt { done_at: Option<Duration> },
}

/// The sender.
#[derive(Debug)]
pub(super) struct Bbr {
    mode: Mode,
    window: f64,
    prior_window: f64,
    packets: VecDeque<Packet>,
    base: u64,
    largest: u64,
    in_flight: usize,
    delivered: u64,
    delivered_at: Duration,
    first_at: Duration,
    rounds: u64,
    round_ends: u64,
    /// Rates in packets per second, by round.
    rates: VecDeque<(u64, f64)>,
    min_rtt: Duration,
    min_rtt_at: Duration,
    full: f64,
    full_rounds: u32,
    filled: bool,
    /// Packets below this number were sent before the last recovery began, and the round in
    /// which it began.
    recover: u64,
    conserve_until: u64,
    lost_in_round: bool,
    next_at: Duration,
    pub(super) last_ack: Duration,
    chance: Chance,
}

impl Bbr {
    pub(super) fn new(now: Duration, seed: u64) -> Self {
        Self {
            mode: Mode::Startup,
            window: 10.0,
            prior_window: 0.0,
            packets: VecDeque::new(),
            base: 0,
            largest: 0,
            in_flight: 0,
            delivered: 0,
            delivered_at: now,
            first_at: now,
            rounds: 0,
            round_ends: 0,
            rates: VecDeque::new(),
            min_rtt: Duration::MAX,
            min_rtt_at: now,
            full: 0.0,
            full_rounds: 0,
            filled: false,
            recover: 0,
            conserve_until: 0,
            lost_in_round: false,
            next_at: now,
            last_ack: now,
            chance: Chance(seed),
        }
    }

    fn bandwidth(&self) -> f64 {
        self.rates.front().map_or(0.0, |&(_, rate)| rate)
    }

    fn bdp(&self) -> f64 {
        if self.min_rtt == Duration::MAX {
            return 10.0;
        }
        self.bandwidth() * self.min_rtt.as_secs_f64()
    }

    /// Packets a second.
    fn pacing(&self) -> f64 {
        let gain = match self.mode {
            Mode::Startup => HIGH_GAIN,
            Mode::Drain => 1.0 / HIGH_GAIN,
            Mode::ProbeBw { phase, .. } => CYCLE[phase],
            Mode::ProbeRtt { .. } => 1.0,
        };
        if self.bandwidth() == 0.0 {
            // ten packets in the round trip of the handshake
            return HIGH_GAIN * 10.0 / 1e-3;
        }
        MARGIN * gain * self.bandwidth()
    }

    /// Packets sent at once: a millisecond's (TCP's TSO size).
    fn quantum(&self) -> f64 {
        (self.pacing() * 1e-3).clamp(2.0, 43.0).floor()
    }

    /// When it wants to send next, if the window allows.
    pub(super) fn timeout(&self) -> Duration {
        let overdue = self.last_ack + Duration::from_secs(1);
        if self.in_flight as f64 + 1.0 > self.window { overdue } else { self.next_at.min(overdue) }
    }

    /// The numbers of packets to be sent now.
    pub(super) fn send(&mut self, now: Duration) -> Vec<u64> {
        let mut numbers = Vec::new();
        if now < self.next_at {
            return numbers;
        }
        while (numbers.len() as f64) < self.quantum() && self.in_flight as f64 + 1.0 <= self.window
        {
            if self.in_flight == 0 {
                (self.first_at, self.delivered_at) = (now, now);
            }
            self.in_flight += 1;
            self.packets.push_back(Packet {
                at: now,
                acked: false,
                lost: false,
                delivered: self.delivered,
                delivered_at: self.delivered_at,
                first_at: self.first_at,
            });
            numbers.push(self.base + self.packets.len() as u64 - 1);
        }
        if !numbers.is_empty() {
            self.next_at = now + Duration::from_secs_f64(numbers.len() as f64 / self.pacing());
        }
        numbers
    }

    pub(super) fn acked(&mut self, now: Duration, number: u64) {
        self.last_ack = now;
        let Some(at) = number.checked_sub(self.base) else { return };
        let Some(packet) = self.packets.get_mut(at as usize) else { return };
        if packet.acked {
            return;
        }
        packet.acked = true;
        if !packet.lost {
            self.in_flight -= 1;
        }
        let packet = *packet;
        self.delivered += 1;
        self.delivered_at = now;
        self.first_at = packet.at;
        let before = self.largest;
        self.largest = self.largest.max(number);
        let from = before.saturating_sub(3).max(self.base);
        let mut lost = None;
        for number in from..self.largest.saturating_sub(2) {
            let packet = &mut self.packets[(number - self.base) as usize];
            if !packet.acked && !packet.lost {
                packet.lost = true;
                self.in_flight -= 1;
                lost = Some(number);
            }
        }
        while self.packets.front().is_some_and(|packet| packet.acked || packet.lost) {
            self.packets.pop_front();
            self.base += 1;
        }
        self.update(now, &packet, lost);
    }

    fn update(&mut self, now: Duration, packet: &Packet, lost: Option<u64>) {
        let round_over = packet.delivered >= self.round_ends;
        if round_over {
            self.rounds += 1;
            self.round_ends = self.delivered;
            self.lost_in_round = false;
        }
        self.lost_in_round |= lost.is_some();
        let interval = (packet.at - packet.first_at).max(now - packet.delivered_at);
        if !interval.is_zero() && interval >= self.min_rtt {
            let rate = (self.delivered - packet.delivered) as f64 / interval.as_secs_f64();
            while self.rates.back().is_some_and(|&(_, last)| last <= rate) {
                self.rates.pop_back();
            }
            self.rates.push_back((self.rounds, rate));
        }
        while self.rates.front().is_some_and(|&(round, _)| round + 10 < self.rounds) {
            self.rates.pop_front();
        }
        let rtt = now - packet.at;
        let expired = now > self.min_rtt_at + MIN_RTT_AGE;
        if rtt <= self.min_rtt || expired {
            (self.min_rtt, self.min_rtt_at) = (rtt, now);
        }
        if round_over && !self.filled {
            if self.bandwidth() >= 1.25 * self.full {
                (self.full, self.full_rounds) = (self.bandwidth(), 0);
            } else {
                self.full_rounds += 1;
                self.filled = self.full_rounds >= 3;
            }
        }
        let in_flight = self.in_flight as f64;
        match self.mode {
            Mode::Startup if self.filled => self.mode = Mode::Drain,
            Mode::Drain if in_flight <= self.bdp() => self.probe_bandwidth(now),
            Mode::ProbeBw { phase, since } => {
                let long = now > since + self.min_rtt;
                let over = match phase {
                    0 => long && (self.lost_in_round || in_flight >= 1.25 * self.bdp()),
                    1 => long || in_flight <= self.bdp(),
                    _ => long,
                };
                if over {
                    self.mode = Mode::ProbeBw { phase: (phase + 1) % CYCLE.len(), since: now };
                }
            }
            Mode::ProbeRtt { done_at: None } if in_flight <= MIN_WINDOW => {
                self.mode = Mode::ProbeRtt { done_at: Some(now + PROBE_RTT) };
            }
            Mode::ProbeRtt { done_at: Some(at) } if now >= at && round_over => {
                self.min_rtt_at = now;
                self.window = self.window.max(self.prior_window);
                if self.filled { self.probe_bandwidth(now) } else { self.mode = Mode::Startup }
            }
            _ => {}
        }
        if expired && !matches!(self.mode, Mode::ProbeRtt { .. }) {
            self.prior_window = self.window;
            self.mode = Mode::ProbeRtt { done_at: None };
        }
        self.set_window(lost);
    }

    fn probe_bandwidth(&mut self, now: Duration) {
        // any phase but that of 0.75
        let phase = (self.chance.next() % 7) as usize;
        let phase = if phase == 0 { 0 } else { phase + 1 };
        self.mode = Mode::ProbeBw { phase, since: now };
    }

    fn set_window(&mut self, lost: Option<u64>) {
        if let Some(lost) = lost {
            if lost >= self.recover && self.rounds > self.conserve_until + 1 {
                // one round trip of packet conservation
                self.recover = self.base + self.packets.len() as u64;
                self.conserve_until = self.rounds;
                self.prior_window = self.window.max(self.prior_window);
                self.window = self.in_flight as f64 + 1.0;
                return;
            }
            self.window = (self.window - 1.0).max(1.0);
        }
        if self.rounds <= self.conserve_until {
            self.window = self.window.max(self.in_flight as f64 + 1.0);
            return;
        }
        if self.prior_window > 0.0 && !matches!(self.mode, Mode::ProbeRtt { .. }) {
            self.window = self.window.max(std::mem::take(&mut self.prior_window));
        }
        let gain = if matches!(self.mode, Mode::ProbeBw { .. }) { 2.0 } else { HIGH_GAIN };
        let target = gain * self.bdp() + 3.0 * self.quantum();
        self.window = if self.filled { (self.window + 1.0).min(target) } else { self.window + 1.0 };
        self.window = self.window.max(MIN_WINDOW);
        if matches!(self.mode, Mode::ProbeRtt { .. }) {
            self.window = self.window.min(MIN_WINDOW);
        }
    }

    /// No acknowledgement came for a second.
    pub(super) fn timeout_over(&mut self, now: Duration) {
        self.base += self.packets.len() as u64;
        self.packets.clear();
        self.in_flight = 0;
        self.window = MIN_WINDOW;
        self.last_ack = now;
        self.next_at = now;
    }
}
