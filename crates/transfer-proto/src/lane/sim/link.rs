//! The bottleneck: loss, a queue with a tail that drops, a rate, a delay; then
//! reordering, duplication and corruption.

use std::time::Duration;

use super::Chance;

/// One direction.
#[derive(Debug, Clone)]
pub(super) struct Link {
    /// Bytes a second.
    pub(super) rate: f64,
    /// One way.
    pub(super) delay: Duration,
    /// Bytes of the queue.
    pub(super) buffer: f64,
    pub(super) losses: Losses,
    /// Share of packets that are later by up to this.
    pub(super) reorder: (f64, Duration),
    pub(super) duplicate: f64,
    pub(super) corrupt: f64,
    /// Longer packets vanish.
    pub(super) mtu: usize,
    /// The queue above this marks Congestion Experienced.
    pub(super) mark_above: f64,
    free_at: Duration,
    /// Queueing delays in milliseconds, one of each packet that got through.
    pub(super) queued_ms: Vec<f32>,
    pub(super) dropped: u64,
}

/// Losses of one direction, each alone or in bursts: the model of Gilbert and Elliott.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Losses {
    share: f64,
    /// Share of lost packets that another lost one follows.
    again: f64,
    /// Whether the last packet was lost.
    bad: bool,
}

/// A packet at the far end.
pub(super) struct Arrival {
    pub(super) at: Duration,
    pub(super) wrong_bit: Option<u64>,
    pub(super) marked: bool,
}

impl Losses {
    /// Each packet is lost with this probability, whatever became of those before.
    pub(super) fn alone(share: f64) -> Self {
        Self { share, again: share, bad: false }
    }

    /// This share of packets is lost, on average so many in a row.
    pub(super) fn in_bursts(share: f64, mean: u32) -> Self {
        Self { share, again: share.max(1.0 - 1.0 / f64::from(mean)), bad: false }
    }

    /// Whether the next packet is lost.
    pub(super) fn take(&mut self, chance: &mut Chance) -> bool {
        let first = self.share * (1.0 - self.again) / (1.0 - self.share);
        self.bad = chance.happens(if self.bad { self.again } else { first });
        self.bad
    }
}

impl Link {
    /// A link of `mbps` and a round trip of `rtt`, with a queue of `bdps` times
    /// what is on the way.
    pub(super) fn new(mbps: f64, rtt: Duration, bdps: f64) -> Self {
        let rate = mbps * 1e6 / 8.0;
        Self {
            rate,
            delay: rtt / 2,
            buffer: (bdps * rate * rtt.as_secs_f64()).max(15_000.0),
            losses: Losses::default(),
            reorder: (0.0, Duration::ZERO),
            duplicate: 0.0,
            corrupt: 0.0,
            mtu: usize::MAX,
            mark_above: f64::INFINITY,
            free_at: Duration::ZERO,
            queued_ms: Vec::new(),
            dropped: 0,
        }
    }

    /// What becomes of a packet of `len` bytes.
    pub(super) fn offer(&mut self, now: Duration, len: usize, chance: &mut Chance) -> Vec<Arrival> {
        if len > self.mtu || self.losses.take(chance) {
            return Vec::new();
        }
        let waits = self.free_at.saturating_sub(now);
        let queue = waits.as_secs_f64() * self.rate;
        if queue + len as f64 > self.buffer {
            self.dropped += 1;
            return Vec::new();
        }
        self.queued_ms.push((waits.as_secs_f64() * 1e3) as f32);
        self.free_at = self.free_at.max(now) + Duration::from_secs_f64(len as f64 / self.rate);
        let copies = 1 + u32::from(chance.happens(self.duplicate));
        (0..copies)
            .map(|_| {
                let late = if chance.happens(self.reorder.0) {
                    self.reorder.1.mul_f64(chance.share())
                } else {
                    Duration::ZERO
                };
                Arrival {
                    at: self.free_at + self.delay + late,
                    wrong_bit: chance.happens(self.corrupt).then(|| chance.next()),
                    marked: queue > self.mark_above,
                }
            })
            .collect()
    }

    /// Forwards nothing until then; the queue keeps what it has room for.
    pub(super) fn pause(&mut self, until: Duration) {
        self.free_at = self.free_at.max(until);
    }

    /// The queueing delay in milliseconds that this share of packets did not
    /// exceed, since the last call.
    pub(super) fn queue_quantile(&mut self, share: f64) -> f32 {
        self.queued_ms.sort_by(f32::total_cmp);
        let at = (self.queued_ms.len() as f64 * share) as usize;
        self.queued_ms.get(at.min(self.queued_ms.len().saturating_sub(1))).copied().unwrap_or(0.0)
    }
}
