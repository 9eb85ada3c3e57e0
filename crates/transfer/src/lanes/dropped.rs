//! What an engine dropped, and why.

use std::iter::Sum;
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

    /// Reads the counts.
    pub(super) fn counts(&self) -> DropCounts {
        let Self { unknown_lane, unopened, no_buffer, unknown_file, beyond_end } = self;
        let [unknown_lane, unopened, no_buffer, unknown_file_bytes, beyond_end_bytes] =
            [unknown_lane, unopened, no_buffer, unknown_file, beyond_end]
                .map(|count| count.load(Ordering::Relaxed));
        DropCounts { unknown_lane, unopened, no_buffer, unknown_file_bytes, beyond_end_bytes }
    }
}

/// What the lanes of a server have dropped since it started, by reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DropCounts {
    /// Packets of unknown lanes: those that come after the end of their transfer, and forged ones.
    pub unknown_lane: u64,
    /// Packets that were damaged, forged, repeated or late.
    pub unopened: u64,
    /// Packets without a buffer because a disk is stuck.
    pub no_buffer: u64,
    /// Bytes of files that are not being received.
    pub unknown_file_bytes: u64,
    /// Bytes beyond the end of their file.
    pub beyond_end_bytes: u64,
}

impl DropCounts {
    pub(super) const fn plus(self, other: Self) -> Self {
        Self {
            unknown_lane: self.unknown_lane + other.unknown_lane,
            unopened: self.unopened + other.unopened,
            no_buffer: self.no_buffer + other.no_buffer,
            unknown_file_bytes: self.unknown_file_bytes + other.unknown_file_bytes,
            beyond_end_bytes: self.beyond_end_bytes + other.beyond_end_bytes,
        }
    }
}

impl Sum for DropCounts {
    fn sum<I: Iterator<Item = Self>>(counts: I) -> Self {
        counts.fold(Self::default(), Self::plus)
    }
}
