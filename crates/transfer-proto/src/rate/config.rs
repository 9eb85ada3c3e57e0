//! The parameters of the rate control.

use std::time::Duration;

use super::priority::Priority;

/// The parameters of the rate control.
#[derive(Clone, Copy, Debug)]
pub struct RateConfig {
    /// The longest queueing delay that we may cause. The default, 25 ms, is ours: half of a queue
    /// of 50 ms, and `random_loss_does_not_slow_it_and_the_queue_stays_below_the_ceiling`.
    pub ceiling: Duration,
    /// The highest rate in bytes per second.
    pub limit: Option<f64>,
    /// Bytes of the peer's receive buffer, if known: what may be in flight beyond the path's
    /// capacity.
    pub peer_buffer: Option<u64>,
    /// Its share beside others.
    pub priority: Priority,
}

impl Default for RateConfig {
    fn default() -> Self {
        Self {
            ceiling: Duration::from_millis(25),
            limit: None,
            peer_buffer: None,
            priority: Priority::default(),
        }
    }
}
