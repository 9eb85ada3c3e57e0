//! Files that come on lanes or data streams.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use crate::claims::Claim;
use crate::files::Partial;

/// A file that comes on lanes or data streams.
pub(super) struct Incoming {
    pub(super) partial: Partial,
    /// Given up after the lock of `partial`, thus below it.
    pub(super) _claim: Option<Claim>,
    /// Octets that come, of whole spans; [`u64::MAX`] until the sender has said it.
    pub(super) sealed: AtomicU64,
    /// Those who write to it and have not counted what they wrote.
    pub(super) writing: AtomicU64,
}

impl Incoming {
    /// Whether all came that the sender says it has sent, and is counted. Who writes
    /// asks again when it has done that.
    pub(super) fn is_whole(&self) -> bool {
        self.writing.load(SeqCst) == 0 && self.partial.came() >= self.sealed.load(SeqCst)
    }
}

/// Somebody writes to a file, and counts it.
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
