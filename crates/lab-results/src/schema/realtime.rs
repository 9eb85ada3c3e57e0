//! What became of a real-time stream, as `headroom load` says it (`headroom-load`
//! measures it and says how).

use serde::{Deserialize, Serialize};

/// A stream that was sent at a steady rate: in all and over time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Realtime {
    /// First packet that arrived to the last.
    pub measured_s: f64,
    /// Packets that were sent.
    pub sent: u64,
    /// Of these, arrived.
    pub arrived: u64,
    /// Of these, not.
    pub lost: u64,
    /// Copies of packets that had arrived.
    pub duplicates: u64,
    /// Packets behind one with a higher number.
    pub reordered: u64,
    /// Octets of datagrams that arrived, as a rate.
    pub mean_bps: f64,
    /// In the worst whole second.
    pub lowest_bps: Option<f64>,
    /// In the best.
    pub highest_bps: Option<f64>,
    /// One-way delay; none where packets do not say when they were sent.
    pub delay: Option<Delay>,
    /// The mean of RFC 3550's estimate.
    pub jitter_s: f64,
    /// TCP that went beside it.
    pub beside_bps: Option<f64>,
    /// Pictures that a player has decoded, where it is a film.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub frames: Option<u64>,
    /// Length of each of `bins`.
    pub bin_s: f64,
    /// Over time, also where the totals are of a part of it.
    pub bins: Vec<Bin>,
}

/// One-way delays.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "percentiles, in seconds")]
pub struct Delay {
    pub p50_s: f64,
    pub p95_s: f64,
    pub p99_s: f64,
    pub max_s: f64,
}

/// A piece of the stream's time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "documented in docs/results.md")]
pub struct Bin {
    pub at_s: f64,
    pub sent: u64,
    pub lost: u64,
    pub bps: f64,
    pub delay_s: Option<f64>,
    pub delay_max_s: Option<f64>,
    pub jitter_s: Option<f64>,
    pub beside_bps: Option<f64>,
}

impl Realtime {
    /// Packets that were sent and did not arrive.
    pub fn loss_pct(&self) -> f64 {
        if self.sent == 0 { 0.0 } else { 100.0 * self.lost as f64 / self.sent as f64 }
    }
}
