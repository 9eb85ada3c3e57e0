//! What an engine dropped, and why.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counts of what an engine dropped, by reason.
#[derive(Debug, Default)]
pub(crate) struct Dropped {
    /// Packets of unknown lanes.
    pub(crate) unknown_lane: AtomicU64,
    /// Packets that were damaged, forged, repeated or late.
    pub(crate) unopened: AtomicU64,
    /// Packets without a buffer because a disk is stuck.
    pub(crate) no_buffer: AtomicU64,
    /// Bytes of files that are not being received.
    pub(crate) unknown_file: AtomicU64,
    /// Bytes beyond the end of their file.
    pub(crate) beyond_end: AtomicU64,
}

impl Dropped {
    pub(super) fn count(counter: &AtomicU64, by: usize) {
        counter.fetch_add(by as u64, Ordering::Relaxed);
    }
}
