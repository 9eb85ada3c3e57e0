//! The statistics of an RTP stream at its receiver, as `headroom load` measures and prints
//! them and as results hold them.

use serde::{Deserialize, Serialize};

/// An RTP stream at its receiver. Totals cover the time that a query selects, `bins` the
/// whole stream.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StreamStats {
    /// Time from the first packet that arrived to the last.
    pub measured_s: f64,
    /// Packets sent, as far as sequence numbers tell.
    pub sent: u64,
    /// Packets that arrived.
    pub arrived: u64,
    /// Packets that did not arrive.
    pub lost: u64,
    /// Copies of packets that had arrived already.
    pub duplicates: u64,
    /// Packets that arrived after one with a higher number (RFC 4737 §3).
    pub reordered: u64,
    /// Rate of the datagrams that arrived after the first, over `measured_s`.
    pub mean_bps: f64,
    /// Rate in the slowest whole second; none: the stream was shorter.
    pub lowest_bps: Option<f64>,
    /// Rate in the fastest whole second.
    pub highest_bps: Option<f64>,
    /// One-way delay; none: the packets carry no send time.
    pub delay: Option<DelayStats>,
    /// Mean of the interarrival jitter after each packet (RFC 3550 §6.4.1).
    pub jitter_s: f64,
    /// Rate of the TCP cross traffic that arrived; none: there was none.
    pub cross_traffic_bps: Option<f64>,
    /// Frames that a decoder decoded, of a video.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub frames: Option<u64>,
    /// Length of each of `bins`.
    pub bin_s: f64,
    /// The stream over time.
    pub bins: Vec<StreamBin>,
}

/// Percentiles of one-way delays.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "percentiles, in seconds")]
pub struct DelayStats {
    pub p50_s: f64,
    pub p95_s: f64,
    pub p99_s: f64,
    pub max_s: f64,
}

/// An interval of a stream: packets sent and bytes received in it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StreamBin {
    /// Start, after the first packet.
    pub at_s: f64,
    /// Packets sent.
    pub sent: u64,
    /// Packets of these that were lost.
    pub lost: u64,
    /// Rate of the datagrams that arrived.
    pub bps: f64,
    /// Mean one-way delay.
    pub delay_s: Option<f64>,
    /// Longest one-way delay.
    pub delay_max_s: Option<f64>,
    /// Interarrival jitter after the last packet.
    pub jitter_s: Option<f64>,
    /// Rate of the cross traffic that arrived.
    pub cross_traffic_bps: Option<f64>,
}

impl StreamStats {
    /// Returns the share of packets that did not arrive, per cent.
    pub fn loss_pct(&self) -> f64 {
        if self.sent == 0 { 0.0 } else { 100.0 * self.lost as f64 / self.sent as f64 }
    }
}
