//! The sequence counter of an outbound association: every number is given away
//! once.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::reason::Reason;

/// Sequence numbers of one association (RFC 4303, section 3.3.3), which are the
/// nonces of its suite. Nobody gets one that is not granted: who keeps the ledger
/// grants numbers that no crash can give away again.
#[derive(Debug)]
pub struct SequenceCounter {
    next: AtomicU64,
    /// The highest number that may be given away.
    granted: AtomicU64,
    /// The highest number that there is.
    last: u64,
}

impl SequenceCounter {
    /// Numbers from 1, none granted.
    pub(crate) fn new(extended: bool) -> Self {
        let last = if extended { u64::MAX - 1 } else { u64::from(u32::MAX) };
        Self { next: AtomicU64::new(1), granted: AtomicU64::new(0), last }
    }

    /// The next number to be given away.
    pub fn next(&self) -> u64 {
        self.next.load(Ordering::Relaxed)
    }

    /// The highest number granted.
    pub fn granted(&self) -> u64 {
        self.granted.load(Ordering::Relaxed)
    }

    /// Grants the numbers up to and with `to`; never takes any back.
    pub fn grant(&self, to: u64) {
        self.granted.fetch_max(to, Ordering::Release);
    }

    /// Skips the numbers below `first`: an earlier life of this association may
    /// have used them.
    pub fn skip_to(&self, first: u64) {
        self.next.fetch_max(first, Ordering::AcqRel);
    }

    /// Takes `count` numbers and returns the first.
    ///
    /// # Errors
    /// [`Reason::SequenceExhausted`] where there are no more,
    /// [`Reason::LedgerBehind`] where they are not granted; none is taken.
    pub(crate) fn take(&self, count: u64) -> Result<u64, Reason> {
        let granted = self.granted.load(Ordering::Acquire);
        self.next
            .fetch_update(Ordering::AcqRel, Ordering::Relaxed, |next| {
                let end = next.checked_add(count)?;
                (end - 1 <= granted.min(self.last)).then_some(end)
            })
            .map_err(|next| match next.checked_add(count) {
                Some(end) if end - 1 <= self.last => Reason::LedgerBehind,
                _ => Reason::SequenceExhausted,
            })
    }
}
