//! One direction of a link.

use std::time::Duration;

use crate::loss::Loss;
use crate::router::{Dscp, Flow};
use crate::trace::Trace;

/// The properties of one direction.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct LinkDirection {
    /// Bits per second on the wire, Ethernet framing counted; none: as fast as
    /// the machine, or as the trace has it.
    pub rate_bps: Option<u64>,
    /// Recorded opportunities to deliver, which stand in place of a rate.
    pub trace: Option<Trace>,
    /// One-way delay.
    pub delay: Duration,
    /// Greatest deviation from the delay, in both senses, uniformly distributed. Jitter
    /// never reorders: a frame waits for the one before it.
    pub jitter: Duration,
    /// Which frames are lost.
    pub loss: Loss,
    /// Per cent of frames that arrive twice.
    pub duplicate_pct: f64,
    /// Per cent of frames that are held back until three later ones have passed
    /// them, or 10 ms, whichever is first.
    pub reorder_pct: f64,
    /// Per cent of frames that arrive with one wrong bit.
    pub corrupt_pct: f64,
    /// The limit of the bottleneck's queue; none: [`Self::queue`] chooses one.
    pub queue: Option<Queue>,
    /// How that queue is managed; none: it drops what arrives when it is full.
    pub aqm: Option<Aqm>,
    /// The flow whose packets a router sends before all others.
    pub priority: Option<Flow>,
    /// The code point that a router writes into every packet's header.
    pub dscp: Option<Dscp>,
}

/// The limit of the bottleneck's queue, which drops frames that arrive when it is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Queue {
    /// Waiting frames.
    Packets(u32),
    /// Bytes of waiting frames, Ethernet header counted.
    Bytes(u64),
}

/// Active management of a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Aqm {
    /// Controlled delay (RFC 8289).
    Codel,
    /// The same for each flow, and flows take turns (RFC 8290).
    FqCodel,
}

impl Aqm {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Codel, Self::FqCodel];

    /// Its name in plans.
    pub fn name(self) -> &'static str {
        match self {
            Self::Codel => "codel",
            Self::FqCodel => "fq-codel",
        }
    }
}

/// Frames that a managed queue holds at most where the link says nothing: as Linux has it.
const MANAGED_PACKETS: u32 = 10_240;
/// Bits of a full-size frame: 1518 bytes and 20 of preamble and gap (IEEE 802.3).
pub(crate) const FULL_FRAME_BITS: u64 = 1538 * 8;

impl LinkDirection {
    /// Tells whether frames wait in a queue, for a rate or a trace.
    pub fn has_queue(&self) -> bool {
        self.rate_bps.is_some() || self.trace.is_some()
    }

    /// Returns the rate, or the mean of the trace, bits per second; none: as fast as the
    /// machine. A trace has no single rate: its mean is good for guesses at durations alone.
    pub fn mean_bps(&self) -> Option<u64> {
        self.rate_bps.or_else(|| self.trace.as_ref().map(Trace::mean_bps))
    }

    /// Tells whether this direction needs more than a rate and a queue.
    pub fn needs_netem(&self) -> bool {
        !self.delay.is_zero()
            || !self.jitter.is_zero()
            || self.loss != Loss::None
            || [self.duplicate_pct, self.reorder_pct, self.corrupt_pct].iter().any(|&pct| pct > 0.0)
    }

    /// Returns the queue's limit: the one in the specification, else 50 ms of full-size
    /// frames at the mean rate, but at least 100 frames; for a managed queue, which keeps itself
    /// short, 10 240.
    pub fn queue(&self) -> Queue {
        if let (None, Some(_)) = (self.queue, self.aqm) {
            return Queue::Packets(MANAGED_PACKETS);
        }
        let fifty_ms = self.mean_bps().unwrap_or(0) / 20 / FULL_FRAME_BITS;
        self.queue
            .unwrap_or_else(|| Queue::Packets(u32::try_from(fifty_ms).unwrap_or(u32::MAX).max(100)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_queue_holds_fifty_milliseconds() {
        let direction = LinkDirection { rate_bps: Some(100_000_000), ..LinkDirection::default() };
        assert_eq!(direction.queue(), Queue::Packets(406));
        let slow = LinkDirection { rate_bps: Some(1_000_000), ..LinkDirection::default() };
        assert_eq!(slow.queue(), Queue::Packets(100));
    }
}
