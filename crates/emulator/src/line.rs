//! A line: transmits frames one after the other, each for as long as its bits take at the rate. It
//! is no token bucket, so an idle line saves up no burst.

use headroom_packet::ethernet::FRAMING_LEN;

/// Bytes of the shortest frame with its framing (IEEE 802.3).
const MIN_FRAME: u64 = 84;

/// The line of a bottleneck.
#[derive(Debug)]
pub(crate) struct Line {
    rate_bps: u64,
    /// When the last bit of the last frame leaves.
    free_ns: u64,
    /// Bits × 10⁹ short of a whole nanosecond, carried over so that the rate is exact.
    remainder: u64,
}

impl Line {
    pub(crate) fn new(rate_bps: u64) -> Self {
        Self { rate_bps: rate_bps.max(1), free_ns: 0, remainder: 0 }
    }

    /// When it can begin with the next frame.
    pub(crate) fn free_ns(&self) -> u64 {
        self.free_ns
    }

    /// Transmits a frame from a time on, which is not before it is free, and returns when its last
    /// bit leaves.
    pub(crate) fn send(&mut self, from_ns: u64, len: u64) -> u64 {
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
