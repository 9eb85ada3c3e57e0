//! The time, as engines keep it.

use std::time::{SystemTime, UNIX_EPOCH};

/// Returns the milliseconds since 1970, by this machine's clock.
#[must_use]
pub fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}
