//! What feedback tells the rate controller.

use std::time::Duration;

/// What one feedback, or the time that passed, says about the path.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Report {
    /// Octets known to have arrived, and taken as lost.
    pub(crate) acked: u64,
    pub(crate) lost: u64,
    /// When the last of the lost ones was sent.
    pub(crate) lost_sent: Duration,
    pub(crate) rtt: Option<Duration>,
    /// Octets a second; `limited`: no more than the source gave.
    pub(crate) rate: Option<f64>,
    pub(crate) limited: bool,
    /// Octets on their way now.
    pub(crate) in_flight: u64,
    /// Octets delivered: now, and when the newest packet was sent.
    pub(crate) delivered: u64,
    pub(crate) delivered_before: u64,
    /// Packets came with Congestion Experienced.
    pub(crate) congested: bool,
}
