//! The line of a bottleneck: at a rate, or by a recorded trace.

use headroom_link_spec::LinkDirection;
use headroom_packet::ethernet::FRAMING_LEN;

use crate::trace_line::TraceLine;

/// Start of the emulator's clock, and of the traces that its lines follow: a frame may have arrived
/// before the emulator started.
pub(crate) const CLOCK_START_NS: u64 = 60_000_000_000;
/// Bytes of the shortest frame with its framing (IEEE 802.3).
const MIN_FRAME: u64 = 84;

/// The line of a bottleneck.
#[derive(Debug)]
pub(crate) enum Line {
    Rate(RateLine),
    Trace(TraceLine),
}

impl Line {
    /// Makes the line of a direction; none: its frames wait for nothing.
    pub(crate) fn of(direction: &LinkDirection) -> Option<Self> {
        match (&direction.trace, direction.rate_bps) {
            (Some(trace), _) => Some(Self::Trace(TraceLine::new(trace.clone(), CLOCK_START_NS))),
            (None, Some(rate_bps)) => Some(Self::Rate(RateLine::new(rate_bps))),
            (None, None) => None,
        }
    }

    /// When it can begin with a frame that has waited long enough.
    pub(crate) fn free_ns(&self) -> u64 {
        match self {
            Self::Rate(line) => line.free_ns,
            Self::Trace(line) => line.next_ns(),
        }
    }

    /// When it begins with a frame that arrived at a time, and that no other precedes. What a trace
    /// could have delivered until then is lost.
    pub(crate) fn begin_ns(&mut self, arrived_ns: u64) -> u64 {
        match self {
            Self::Rate(line) => line.free_ns.max(arrived_ns),
            Self::Trace(line) => line.next_after_ns(arrived_ns),
        }
    }

    /// Transmits a frame of `len` bytes (Ethernet header counted, checksum not) from the time that
    /// [`Self::begin_ns`] has returned for it, and returns when its last bit leaves.
    pub(crate) fn send(&mut self, begun_ns: u64, len: u64) -> u64 {
        match self {
            Self::Rate(line) => line.send(begun_ns, len),
            Self::Trace(line) => line.send(len),
        }
    }
}

/// A line with a rate: transmits frames one after the other, each for as long as its bits take. It
/// is no token bucket, so an idle line saves up no burst.
#[derive(Debug)]
pub(crate) struct RateLine {
    rate_bps: u64,
    /// When the last bit of the last frame leaves.
    free_ns: u64,
    /// Bits × 10⁹ short of a whole nanosecond, carried over so that the rate is exact.
    remainder: u64,
}

impl RateLine {
    pub(crate) fn new(rate_bps: u64) -> Self {
        Self { rate_bps: rate_bps.max(1), free_ns: 0, remainder: 0 }
    }

    fn send(&mut self, from_ns: u64, len: u64) -> u64 {
        if from_ns > self.free_ns {
            (self.free_ns, self.remainder) = (from_ns, 0);
        }
        let bits = (len + FRAMING_LEN as u64).max(MIN_FRAME) * 8;
        let work = u128::from(bits) * 1_000_000_000 + u128::from(self.remainder);
        let rate = u128::from(self.rate_bps);
        self.free_ns = self.free_ns.saturating_add((work / rate) as u64);
        self.remainder = (work % rate) as u64;
        self.free_ns
    }
}
