//! Waiting by the clock on the wall, by which certificates expire.

use std::time::{Duration, SystemTime};

/// How often to compare: a timer of the system stands still while a machine sleeps.
const COMPARED: Duration = Duration::from_secs(600);

/// Waits until this time has come.
pub(crate) async fn until(time: SystemTime) {
    while let Ok(left) = time.duration_since(SystemTime::now()) {
        if left.is_zero() {
            break;
        }
        tokio::time::sleep(left.min(COMPARED)).await;
    }
}
