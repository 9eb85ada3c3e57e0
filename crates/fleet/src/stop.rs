//! Tells a run or a worker to end.

use std::sync::Arc;

use tokio::sync::watch;

/// A request to end, which any thread makes. Clones are the same request.
#[derive(Debug, Clone)]
pub struct Stop(Arc<watch::Sender<bool>>);

impl Stop {
    /// Makes one that nobody has made yet.
    #[must_use]
    pub fn new() -> Self {
        Self(Arc::new(watch::Sender::new(false)))
    }

    /// Requests the end.
    pub fn stop(&self) {
        self.0.send_replace(true);
    }

    /// Whether the end was requested.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        *self.0.borrow()
    }

    /// Waits until the end is requested.
    pub async fn stopped(&self) {
        // the sender is here, and so is not dropped
        let _ = self.0.subscribe().wait_for(|stopped| *stopped).await;
    }
}

impl Default for Stop {
    fn default() -> Self {
        Self::new()
    }
}
