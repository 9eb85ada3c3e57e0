//! What an engine dropped, and why.

use std::sync::atomic::{AtomicU64, Ordering};

/// What an engine dropped, and why: nothing of it stops anybody.
#[derive(Debug, Default)]
pub(crate) struct Dropped {
    /// Packets of lanes that nobody opened.
    pub(crate) unknown_lane: AtomicU64,
    /// Packets that were damaged, forged, repeated or late.
    pub(crate) unopened: AtomicU64,
    /// Packets for which a disk that is stuck left no room.
    pub(crate) no_buffer: AtomicU64,
    /// Octets of files that are not taken in, or not any longer.
    pub(crate) unknown_file: AtomicU64,
    /// Octets beyond the end of their file.
    pub(crate) beyond_end: AtomicU64,
}

impl Dropped {
    pub(super) fn count(counter: &AtomicU64, by: usize) {
        counter.fetch_add(by as u64, Ordering::Relaxed);
    }
}
