//! The measurements that `headroom load` prints as JSON, and that its readers import; those
//! of streams are [`headroom_lab_trace::StreamStats`].

use serde::{Deserialize, Serialize};

/// Datagrams that the server counted.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
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
