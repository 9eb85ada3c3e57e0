//! What feedback tells the rate control.

use std::time::Duration;

/// What one feedback, or the passing of time, says about the path. Times are since any moment.
#[derive(Clone, Copy, Debug, Default)]
pub struct Report {
    /// Bytes acknowledged.
    pub acked: u64,
    /// Bytes declared lost.
    pub lost: u64,
    /// When the last lost packet was sent.
    pub lost_sent: Duration,
    /// The round-trip time of the newest packet.
    pub rtt: Option<Duration>,
    /// The delivery rate in bytes per second.
    pub rate: Option<f64>,
    /// Whether the source limited that rate, and not the path.
    pub limited: bool,
    /// Bytes in flight now.
    pub in_flight: u64,
    /// Bytes delivered until now.
    pub delivered: u64,
    /// Bytes that had been delivered when the newest packet was sent.
    pub delivered_before: u64,
    /// Whether packets were marked Congestion Experienced.
    pub congested: bool,
}
