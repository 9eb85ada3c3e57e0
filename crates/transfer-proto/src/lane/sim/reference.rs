//! A TCP that is not ours: CUBIC (RFC 9438) in packets, with a scoreboard,
//! acknowledgement of each packet, and slow start that HyStart ends.

use std::collections::VecDeque;
use std::time::Duration;

/// Bytes of its packets on the link.
pub(super) const LEN: usize = 1500;
const C: f64 = 0.4;
const BETA: f64 = 0.7;

#[derive(Debug)]
struct Packet {
    at: Duration,
    acked: bool,
    lost: bool,
}

/// The sender.
#[derive(Debug)]
pub(super) struct Tcp {
    pub(super) window: f64,
    threshold: f64,
    top: f64,
    k: f64,
    epoch: Option<Duration>,
    reno: f64,
    packets: VecDeque<Packet>,
    base: u64,
    in_flight: usize,
    largest: u64,
    recover: u64,
    smoothed: Duration,
    min_rtt: Duration,
    slow_samples: u32,
    pub(super) last_ack: Duration,
}

impl Tcp {
    pub(super) fn new(now: Duration) -> Self {
        Self {
            window: 10.0,
            threshold: f64::INFINITY,
            top: 0.0,
            k: 0.0,
            epoch: None,
            reno: 0.0,
            packets: VecDeque::new(),
            base: 0,
            in_flight: 0,
            largest: 0,
            recover: 0,
            smoothed: Duration::ZERO,
            min_rtt: Duration::MAX,
            slow_samples: 0,
            last_ack: now,
        }
    }

    /// The number of a packet to be sent now.
    pub(super) fn send(&mut self, now: Duration) -> Option<u64> {
        if self.in_flight as f64 + 1.0 > self.window {
            return None;
        }
        self.in_flight += 1;
        self.packets.push_back(Packet { at: now, acked: false, lost: false });
        Some(self.base + self.packets.len() as u64 - 1)
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
        let rtt = now - packet.at;
        self.smoothed = if self.smoothed.is_zero() { rtt } else { (self.smoothed * 7 + rtt) / 8 };
        self.min_rtt = self.min_rtt.min(rtt);
        self.largest = self.largest.max(number);
        if number >= self.recover {
            self.grow(now, rtt);
        }
        let mut lost = None;
        for (number, packet) in (self.base..).zip(&mut self.packets) {
            if number + 3 > self.largest {
                break;
            }
            if !packet.acked && !packet.lost {
                packet.lost = true;
                self.in_flight -= 1;
                lost = Some(number);
            }
        }
        if lost.is_some_and(|lost| lost >= self.recover) {
            self.reduce();
        }
        while self.packets.front().is_some_and(|packet| packet.acked || packet.lost) {
            self.packets.pop_front();
            self.base += 1;
        }
    }

    /// No acknowledgement came for a second.
    pub(super) fn timeout(&mut self, now: Duration) {
        for packet in &mut self.packets {
            packet.lost = true;
        }
        self.in_flight = 0;
        self.threshold = (self.window * BETA).max(2.0);
        self.top = self.window;
        (self.window, self.epoch) = (2.0, None);
        self.recover = self.base + self.packets.len() as u64;
        self.last_ack = now;
    }

    fn grow(&mut self, now: Duration, rtt: Duration) {
        if self.window < self.threshold {
            self.window += 1.0;
            let slack =
                (self.min_rtt / 8).clamp(Duration::from_millis(4), Duration::from_millis(16));
            self.slow_samples = if rtt > self.min_rtt + slack { self.slow_samples + 1 } else { 0 };
            if self.slow_samples >= 8 && self.window >= 16.0 {
                self.threshold = self.window;
            }
            return;
        }
        let epoch = match self.epoch {
            Some(epoch) => epoch,
            None => {
                self.epoch = Some(now);
                if self.window < self.top {
                    self.k = ((self.top - self.window) / C).cbrt();
                } else {
                    self.k = 0.0;
                    self.top = self.window;
                }
                self.reno = self.window;
                now
            }
        };
        let t = (now - epoch + self.smoothed).as_secs_f64();
        let target = (self.top + C * (t - self.k).powi(3)).clamp(self.window, 1.5 * self.window);
        self.window += (target - self.window) / self.window;
        let alpha = if self.reno < self.top { 3.0 * (1.0 - BETA) / (1.0 + BETA) } else { 1.0 };
        self.reno += alpha / self.window;
        self.window = self.window.max(self.reno);
    }

    fn reduce(&mut self) {
        self.top =
            if self.window < self.top { self.window * (1.0 + BETA) / 2.0 } else { self.window };
        self.window = (self.window * BETA).max(2.0);
        self.threshold = self.window;
        self.epoch = None;
        self.recover = self.base + self.packets.len() as u64;
    }
}
