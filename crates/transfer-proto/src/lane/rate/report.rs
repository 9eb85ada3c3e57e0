//! What feedback tells the rate control.

use std::time::Duration;

/// What one feedback, or the passing of time, says about the path.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Report {
    /// Bytes acknowledged, and bytes declared lost.
    pub(crate) acked: u64,
    pub(crate) lost: u64,
    /// When the last lost packet was sent.
    pub(crate) lost_sent: Duration,
    pub(crate) rtt: Option<Duration>,
    /// The delivery rate in bytes per second; `limited`: by the source.
    pub(crate) rate: Option<f64>,
    pub(crate) limited: bool,
    /// Bytes in flight now.
    pub(crate) in_flight: u64,
    /// Bytes delivered: now, and when the newest packet was sent.
    pub(crate) delivered: u64,
    pub(crate) delivered_before: u64,
    /// Whether packets were marked Congestion Experienced.
    pub(crate) congested: bool,
}
