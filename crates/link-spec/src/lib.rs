//! Describes the link between two hosts: what each direction does to frames.
//! `text` reads and writes a link as plans and command lines spell it.

mod router;
mod text;

use std::time::Duration;

pub use router::{Dscp, Flow, Transport};

/// What the link does to frames, in each direction.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct LinkSpec {
    /// From server to client; from interface B to interface A.
    pub down: LinkDirection,
    /// From client to server; from interface A to interface B.
    pub up: LinkDirection,
}

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

/// Which frames are lost.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum Loss {
    /// None.
    #[default]
    None,
    /// Each with the same probability.
    Random {
        /// Per cent of frames.
        pct: f64,
    },
    /// Two states, a good one and a bad one, with a loss probability each
    /// (Gilbert 1960, Elliott 1963; named as by netem: p, r, 1-h, 1-k).
    GilbertElliott {
        /// Per cent of frames after which the good state ends.
        to_bad_pct: f64,
        /// Per cent of frames after which the bad state ends.
        to_good_pct: f64,
        /// Per cent of frames lost in the bad state.
        loss_in_bad_pct: f64,
        /// Per cent of frames lost in the good state.
        loss_in_good_pct: f64,
    },
}

/// How much the bottleneck queues; what comes when it is full is dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Queue {
    /// Frames that wait.
    Packets(u32),
    /// Octets of the frames that wait, Ethernet header counted.
    Bytes(u64),
}

impl LinkSpec {
    /// A link that does the same in both directions.
    pub fn symmetric(direction: LinkDirection) -> Self {
        Self { down: direction.clone(), up: direction }
    }

    /// Whether both directions do the same.
    pub fn is_symmetric(&self) -> bool {
        self.down == self.up
    }

    /// Whether the link needs more than a rate and a queue in either direction.
    pub fn needs_netem(&self) -> bool {
        self.down.needs_netem() || self.up.needs_netem()
    }

    /// Whether the link does anything to frames at all.
    pub fn is_unshaped(&self) -> bool {
        let unshaped = |one: &LinkDirection| one.rate_bps.is_none() && !one.needs_netem();
        unshaped(&self.down) && unshaped(&self.up)
    }

    /// What only a router's kernel can do of it, in words; the emulator cannot.
    pub fn beyond_frames(&self) -> Option<&'static str> {
        let directions = [&self.down, &self.up];
        if directions.iter().any(|direction| direction.priority.is_some()) {
            Some("priority")
        } else {
            directions.iter().any(|direction| direction.dscp.is_some()).then_some("DSCP")
        }
    }

    /// The longest round trip that delays and jitter make, without queue and
    /// serialisation.
    pub fn longest_round_trip(&self) -> Duration {
        self.down.delay + self.down.jitter + self.up.delay + self.up.jitter
    }

    /// The lower rate of the two directions.
    pub fn slowest_bps(&self) -> Option<u64> {
        self.down.rate_bps.into_iter().chain(self.up.rate_bps).min()
    }
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

impl Loss {
    /// Loss of `pct` per cent in bursts of `frames` on average: the simple
    /// Gilbert model, in whose bad state everything is lost.
    ///
    /// # Errors
    /// No such process exists: a burst below one frame, or so much loss that
    /// the gaps between the bursts would be shorter than one frame.
    pub fn in_bursts(pct: f64, frames: f64) -> Result<Self, String> {
        if !(frames >= 1.0 && frames.is_finite()) {
            return Err(format!("a loss burst is one frame or more, not {frames}"));
        }
        if pct <= 0.0 {
            return Ok(Self::None);
        }
        let to_bad_pct = 100.0 * pct / (100.0 - pct) / frames;
        if !(0.0..=100.0).contains(&to_bad_pct) {
            return Err(format!(
                "{pct} % of loss in bursts of {frames} leaves less than a frame between the bursts"
            ));
        }
        Ok(Self::GilbertElliott {
            to_bad_pct,
            to_good_pct: 100.0 / frames,
            loss_in_bad_pct: 100.0,
            loss_in_good_pct: 0.0,
        })
    }

    /// Per cent of frames lost in the long run.
    pub fn average_pct(&self) -> f64 {
        match *self {
            Self::None => 0.0,
            Self::Random { pct } => pct,
            Self::GilbertElliott { to_bad_pct, to_good_pct, loss_in_bad_pct, loss_in_good_pct } => {
                if to_bad_pct == 0.0 {
                    return loss_in_good_pct; // it begins in the good state
                }
                (to_bad_pct * loss_in_bad_pct + to_good_pct * loss_in_good_pct)
                    / (to_bad_pct + to_good_pct)
            }
        }
    }

    /// Frames lost in a row on average; none where nothing is ever lost, or
    /// everything from some frame on.
    pub fn mean_burst(&self) -> Option<f64> {
        let lost = self.average_pct() / 100.0;
        // the mean run of losses is P(lost) / P(lost, the one before not)
        let ends = lost - self.two_in_a_row();
        (lost > 0.0 && ends > 0.0).then(|| lost / ends)
    }

    /// Probability that a frame and the next are both lost.
    fn two_in_a_row(&self) -> f64 {
        match *self {
            Self::None => 0.0,
            Self::Random { pct } => (pct / 100.0).powi(2),
            Self::GilbertElliott { to_bad_pct, to_good_pct, loss_in_bad_pct, loss_in_good_pct } => {
                let [p, r, bad, good] =
                    [to_bad_pct, to_good_pct, loss_in_bad_pct, loss_in_good_pct].map(|v| v / 100.0);
                let in_bad = if p == 0.0 { 0.0 } else { p / (p + r) };
                in_bad * bad * ((1.0 - r) * bad + r * good)
                    + (1.0 - in_bad) * good * ((1.0 - p) * good + p * bad)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bursts_have_the_loss_and_the_length_that_was_asked_for() {
        let loss = Loss::in_bursts(1.0, 8.0).expect("possible");
        assert!((loss.average_pct() - 1.0).abs() < 1e-12);
        assert!((loss.mean_burst().expect("some") - 8.0).abs() < 1e-9);
        let random = Loss::Random { pct: 20.0 };
        assert!((random.mean_burst().expect("some") - 1.25).abs() < 1e-12);
    }

    #[test]
    fn impossible_bursts_are_refused() {
        assert!(Loss::in_bursts(1.0, 0.5).is_err());
        assert!(Loss::in_bursts(90.0, 2.0).is_err());
        assert!(Loss::in_bursts(100.0, 2.0).is_err());
    }

    #[test]
    fn a_good_state_that_never_ends_loses_what_the_good_state_loses() {
        let loss = Loss::GilbertElliott {
            to_bad_pct: 0.0,
            to_good_pct: 0.0,
            loss_in_bad_pct: 100.0,
            loss_in_good_pct: 3.0,
        };
        assert!((loss.average_pct() - 3.0).abs() < 1e-12);
        assert!((loss.mean_burst().expect("some") - 1.0 / 0.97).abs() < 1e-9);
    }

    #[test]
    fn the_queue_holds_fifty_milliseconds() {
        let direction = LinkDirection { rate_bps: Some(100_000_000), ..LinkDirection::default() };
        assert_eq!(direction.queue(), Queue::Packets(406));
        let slow = LinkDirection { rate_bps: Some(1_000_000), ..LinkDirection::default() };
        assert_eq!(slow.queue(), Queue::Packets(100));
    }
}
