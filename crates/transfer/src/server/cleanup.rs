//! Unfinished files of transfers that nobody goes on with, removed day by day.

use std::sync::Arc;
use std::time::Duration;

use headroom_units::size;
use tokio::task::spawn_blocking;

use super::{Server, Shared};
use crate::files::CleanupStats;

const DAY: Duration = Duration::from_hours(24);

impl Server {
    /// Removes unfinished files to which nothing was written for a time, now and then
    /// once a day, below the server's root. Files that are being written stay. It must be called within a tokio runtime.
    pub fn remove_unfinished(&self, age: Duration) {
        let shared = Arc::downgrade(&self.shared);
        tokio::spawn(async move {
            while let Some(shared) = shared.upgrade() {
                // a server that is in a hurry to end does not wait for this
                let _ = spawn_blocking(move || shared.clean_up(age)).await;
                tokio::time::sleep(DAY).await;
            }
        });
    }
}

impl Shared {
    fn clean_up(&self, age: Duration) {
        let root = &self.root;
        let CleanupStats { removed, octets, left } = root.remove_unfinished(age);
        tracing::debug!(
            "{}: {removed} unfinished files of {} were removed, {left} stay",
            root.path().display(),
            size(octets)
        );
    }
}
