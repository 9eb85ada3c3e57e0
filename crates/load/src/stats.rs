//! The measurements that `headroom load` prints as JSON, and that its readers import.

use serde::{Deserialize, Serialize};

/// Datagrams that the server counted.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PacketStats {
    /// Time from the first report that counts to the last.
    pub seconds: f64,
    /// Datagrams that arrived in this time.
    pub packets: u64,
    /// Datagrams that were sent in this time and did not arrive.
    pub lost: u64,
}

/// Round-trip times.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EchoStats {
    /// Number of round trips.
    pub round_trips: u64,
    /// Datagrams that did not return.
    pub lost: u64,
    /// Median.
    pub median_s: f64,
    /// 99th percentile.
    pub p99_s: f64,
}

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
    #[serde(rename = "beside_bps")]
    pub cross_traffic_bps: Option<f64>,
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
    #[serde(rename = "beside_bps")]
    pub cross_traffic_bps: Option<f64>,
}

/// A video stream at its receiver and decoder.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct VideoStats {
    /// Its packets.
    #[serde(flatten)]
    pub stream: StreamStats,
    /// Frames that the decoder decoded.
    pub frames: u64,
}
