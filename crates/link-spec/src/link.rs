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
