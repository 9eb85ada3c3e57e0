//! Limits the rate of ICMP messages.

use std::time::{Duration, Instant};

/// Messages per second. Senders react to the first one.
const MESSAGES_PER_SECOND: u32 = 100;

/// Limits the rate of ICMP messages (RFC 1812, section 4.3.2.8; RFC 4443, section 2.4 (f)).
#[derive(Debug)]
pub(crate) struct IcmpRateLimit {
    since: Instant,
    left: u32,
}

impl Default for IcmpRateLimit {
    fn default() -> Self {
        Self { since: Instant::now(), left: MESSAGES_PER_SECOND }
    }
}

impl IcmpRateLimit {
    pub(crate) fn allows(&mut self) -> bool {
        if self.since.elapsed() >= Duration::from_secs(1) {
            *self = Self::default();
        }
        self.left = match self.left.checked_sub(1) {
            Some(left) => left,
            None => return false,
        };
        true
    }
}
