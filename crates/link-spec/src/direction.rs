//! One direction of a link.

use std::time::Duration;

use crate::loss::Loss;
use crate::router::{Dscp, Flow};

/// What one direction does to frames.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct LinkDirection {
    /// Bits per second on the wire, Ethernet framing counted; none: as fast as
    /// the machine.
    pub rate_bps: Option<u64>,
    /// One-way delay.
    pub delay: Duration,
    /// Greatest deviation from the delay, up or down, uniform. It never
    /// reorders: a frame waits for the one before it.
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
    /// What the bottleneck queues; none: chosen from the rate.
    pub queue: Option<Queue>,
    /// Whose packets leave the bottleneck before all others, which a router does.
    pub priority: Option<Flow>,
    /// What a router writes into every packet's header.
    pub dscp: Option<Dscp>,
}

/// How much the bottleneck queues; what comes when it is full is dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Queue {
    /// Frames that wait.
    Packets(u32),
    /// Octets of the frames that wait, Ethernet header counted.
    Bytes(u64),
}

impl LinkDirection {
    /// Whether this direction needs more than a rate and a queue.
    pub fn needs_netem(&self) -> bool {
        !self.delay.is_zero()
            || !self.jitter.is_zero()
            || self.loss != Loss::None
            || [self.duplicate_pct, self.reorder_pct, self.corrupt_pct].iter().any(|&pct| pct > 0.0)
    }

    /// What the bottleneck queues: what was asked for, else 50 ms of full-size
    /// frames, and never fewer than 100.
    pub fn queue(&self) -> Queue {
        const FULL_FRAME_BITS: u64 = 1538 * 8;
        let fifty_ms = self.rate_bps.unwrap_or(0) / 20 / FULL_FRAME_BITS;
        self.queue
            .unwrap_or_else(|| Queue::Packets(u32::try_from(fifty_ms).unwrap_or(u32::MAX).max(100)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_queue_holds_fifty_milliseconds() {
        let direction = LinkDirection { rate_bps: Some(100_000_000), ..LinkDirection::default() };
        assert_eq!(direction.queue(), Queue::Packets(406));
        let slow = LinkDirection { rate_bps: Some(1_000_000), ..LinkDirection::default() };
        assert_eq!(slow.queue(), Queue::Packets(100));
    }
}
