//! Files that arrive on lanes or data streams.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use crate::claims::Claim;
use crate::files::Partial;

/// A file that arrives on lanes or data streams.
pub(super) struct Incoming {
    pub(super) partial: Partial,
    /// Dropped after the lock of `partial`, therefore declared after it.
    pub(super) _claim: Option<Claim>,
    /// Bytes that will arrive, in whole spans; [`u64::MAX`] until the sender has announced them.
    pub(super) sealed: AtomicU64,
    /// Writers that have not counted yet what they wrote.
    pub(super) writing: AtomicU64,
}

impl Incoming {
    /// Whether everything that the sender announced has arrived and is counted. A writer checks
    /// again when it has counted.
    pub(super) fn is_whole(&self) -> bool {
        self.writing.load(SeqCst) == 0 && self.partial.came() >= self.sealed.load(SeqCst)
    }
}

/// A write to a file, until it is counted.
pub(super) struct Writing<'a>(&'a Incoming);

impl<'a> Writing<'a> {
    pub(super) fn begin(incoming: &'a Incoming) -> Self {
        incoming.writing.fetch_add(1, SeqCst);
        Self(incoming)
    }
}

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        self.0.writing.fetch_sub(1, SeqCst);
    }
}
