//! Files that arrive on lanes or data streams.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use super::asked::AskedRanges;
use super::sent::SentRanges;
use crate::claims::{Claim, Receiving};
use crate::files::Partial;

/// A file that arrives on lanes or data streams.
pub(super) struct Incoming {
    /// Of a file of which this connection receives ranges, others may have it, too.
    pub(super) partial: Arc<Partial>,
    /// Dropped after the lock of `partial`, therefore declared after it.
    pub(super) _claim: Option<Claim>,
    /// Its part in an upload that several sessions share. Dropped when nothing is being written.
    pub(super) receiving: Option<Receiving>,
    /// The ranges that were asked for, if not the whole file is.
    pub(super) ranges: Option<AskedRanges>,
    /// The ranges that were sent and are not stored, if others receive other parts.
    pub(super) sent: Option<SentRanges>,
    /// Bytes that will arrive, in whole spans; [`u64::MAX`] until the sender has announced them.
    pub(super) sealed: AtomicU64,
    /// Writers that have not counted yet what they wrote.
    pub(super) writing: AtomicU64,
}

impl Incoming {
    /// Whether everything that the sender announced, or the next range, has arrived and is counted.
    /// A writer checks again when it has counted.
    pub(super) fn is_whole(&self) -> bool {
        if let Some(sent) = &self.sent {
            // of the next ranges something may always be written
            return sent.is_settled(&self.partial);
        }
        !self.is_writing()
            && match &self.ranges {
                Some(ranges) => ranges.is_settled(&self.partial),
                None => self.partial.came() >= self.sealed.load(SeqCst),
            }
    }

    /// Whether somebody has not counted yet what was written.
    pub(super) fn is_writing(&self) -> bool {
        self.writing.load(SeqCst) > 0
    }

    /// Notes that of `len` bytes that arrived, `new` were written: sessions that share the file may
    /// wait for them.
    pub(super) fn wrote(&self, len: u64, new: u64) {
        if let Some(receiving) = &self.receiving {
            receiving.wrote(len, new);
        }
    }

    /// Whether bytes were asked for.
    pub(super) fn is_asked_for(&self, offset: u64, len: u64) -> bool {
        let spans = self.partial.spans();
        self.ranges.as_ref().is_none_or(|ranges| ranges.has(spans, offset, len))
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
