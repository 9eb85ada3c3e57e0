//! Deletes partial files of transfers that were not resumed, once a day.

use std::sync::Arc;
use std::time::Duration;

use headroom_units::size;
use tokio::task::spawn_blocking;

use super::{Server, Shared};
use crate::files::CleanupStats;

const DAY: Duration = Duration::from_hours(24);

impl Server {
    /// Deletes partial files below the server's root that were not written to for `age`, now and
    /// once a day. Files in use stay. Must be called within a tokio runtime.
    pub fn remove_unfinished(&self, age: Duration) {
        let shared = Arc::downgrade(&self.shared);
        tokio::spawn(async move {
            while let Some(shared) = shared.upgrade() {
                // a server that stops does not wait for this
                let _ = spawn_blocking(move || shared.clean_up(age)).await;
                tokio::time::sleep(DAY).await;
            }
        });
    }
}

impl Shared {
    fn clean_up(&self, age: Duration) {
        let root = &self.root;
        let CleanupStats { removed, bytes, left } = root.remove_unfinished(age);
        tracing::debug!(
            "{}: {removed} partial files of {} were deleted, {left} stay",
            root.path().display(),
            size(bytes)
        );
    }
}
