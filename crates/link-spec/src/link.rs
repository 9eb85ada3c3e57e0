//! A link: two directions.

use std::time::Duration;

use crate::direction::{FULL_FRAME_BITS, LinkDirection};
use crate::trace::Trace;

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
        let unshaped = |one: &LinkDirection| !one.has_queue() && !one.needs_netem();
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

    /// Returns the lower rate of the two directions, of a trace its mean; none: neither has
    /// one.
    pub fn slowest_bps(&self) -> Option<u64> {
        self.down.mean_bps().into_iter().chain(self.up.mean_bps()).min()
    }

    /// Returns the traces that its directions follow.
    pub fn traces(&self) -> impl Iterator<Item = &Trace> {
        self.down.trace.iter().chain(&self.up.trace)
    }

    /// Makes the same link without its traces: a direction that followed one has neither rate
    /// nor queue.
    #[must_use]
    pub fn without_traces(&self) -> Self {
        let without = |one: &LinkDirection| LinkDirection {
            trace: None,
            aqm: one.aqm.filter(|_| one.trace.is_none()),
            ..one.clone()
        };
        Self { down: without(&self.down), up: without(&self.up) }
    }

    /// Returns the longest time from one full-size frame to the next while either direction is
    /// busy: at a rate the time that a frame takes, by a trace its longest gap; zero: unshaped.
    pub fn longest_frame_gap(&self) -> Duration {
        let of_direction = |one: &LinkDirection| {
            let of_rate = |bps: u64| FULL_FRAME_BITS * 1_000_000_000 / bps.max(1);
            let at_rate = one.rate_bps.map(of_rate).map(Duration::from_nanos);
            at_rate.or_else(|| one.trace.as_ref().map(Trace::longest_gap)).unwrap_or_default()
        };
        of_direction(&self.down).max(of_direction(&self.up))
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn a_trace_counts_by_its_mean_and_its_longest_gap() {
        let trace = Trace::parse(Path::new("/"), "a.trace", b"10\n12\n100\n").expect("a trace");
        let down = LinkDirection { trace: Some(trace), ..LinkDirection::default() };
        let up = LinkDirection { rate_bps: Some(1_000_000), ..LinkDirection::default() };
        let link = LinkSpec { down, up };
        assert!(!link.is_unshaped() && link.traces().count() == 1);
        assert_eq!(link.slowest_bps(), Some(360_000), "three times 1500 bytes in 100 ms");
        assert_eq!(link.longest_frame_gap(), Duration::from_millis(88));
        let rest = link.without_traces();
        assert!(rest.down == LinkDirection::default() && rest.up == link.up);
        assert_eq!(rest.longest_frame_gap(), Duration::from_micros(12_304));
    }
}
