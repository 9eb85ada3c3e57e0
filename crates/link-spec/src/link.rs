//! A link: two directions.

use std::time::Duration;

use crate::direction::LinkDirection;

/// What the link does to frames, in each direction.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct LinkSpec {
    /// From server to client; from interface B to interface A.
    pub down: LinkDirection,
    /// From client to server; from interface A to interface B.
    pub up: LinkDirection,
}

impl LinkSpec {
    /// Makes a link that treats both directions alike.
    pub fn symmetric(direction: LinkDirection) -> Self {
        Self { down: direction.clone(), up: direction }
    }

    /// Tells whether both directions are alike.
    pub fn is_symmetric(&self) -> bool {
        self.down == self.up
    }

    /// Tells whether either direction needs more than a rate and a queue.
    pub fn needs_netem(&self) -> bool {
        self.down.needs_netem() || self.up.needs_netem()
    }

    /// Tells whether the link passes frames unchanged, as fast as the machine can.
    pub fn is_unshaped(&self) -> bool {
        let unshaped = |one: &LinkDirection| one.rate_bps.is_none() && !one.needs_netem();
        unshaped(&self.down) && unshaped(&self.up)
    }

    /// Names the first property that only a router's kernel can provide and the emulator
    /// cannot.
    pub fn beyond_frames(&self) -> Option<&'static str> {
        let directions = [&self.down, &self.up];
        if directions.iter().any(|direction| direction.priority.is_some()) {
            Some("priority")
        } else {
            directions.iter().any(|direction| direction.dscp.is_some()).then_some("DSCP")
        }
    }

    /// Sums delays and jitters to the longest round trip, without queueing and
    /// serialisation.
    pub fn longest_round_trip(&self) -> Duration {
        self.down.delay + self.down.jitter + self.up.delay + self.up.jitter
    }

    /// Returns the lower rate of the two directions; none: neither has one.
    pub fn slowest_bps(&self) -> Option<u64> {
        self.down.rate_bps.into_iter().chain(self.up.rate_bps).min()
    }
}
