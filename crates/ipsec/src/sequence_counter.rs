//! The sequence number counter of an outbound association: each number is used once.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::reason::Reason;

/// The sequence numbers of one association (RFC 4303, section 3.3.3), which are the nonces of its
/// suite. It hands out only granted numbers: the ledger grants numbers that no later run will use.
#[derive(Debug)]
pub struct SequenceCounter {
    next: AtomicU64,
    /// The highest number that may be used.
    granted: AtomicU64,
    /// The highest number of the protocol.
    last: u64,
}

impl SequenceCounter {
    /// Makes a counter that begins at 1, without a grant.
    pub(crate) fn new(extended: bool) -> Self {
        let last = if extended { u64::MAX - 1 } else { u64::from(u32::MAX) };
        Self { next: AtomicU64::new(1), granted: AtomicU64::new(0), last }
    }

    /// Returns the next number.
    pub fn next(&self) -> u64 {
        self.next.load(Ordering::Relaxed)
    }

    /// Returns the highest number granted.
    pub fn granted(&self) -> u64 {
        self.granted.load(Ordering::Relaxed)
    }

    /// Grants the numbers up to and including `to`. Never revokes a grant.
    pub fn grant(&self, to: u64) {
        self.granted.fetch_max(to, Ordering::Release);
    }

    /// Skips the numbers below `first`, which an earlier run may have used.
    pub fn skip_to(&self, first: u64) {
        self.next.fetch_max(first, Ordering::AcqRel);
    }

    /// Takes `count` numbers and returns the first.
    ///
    /// # Errors
    /// [`Reason::SequenceExhausted`] if there are no more, [`Reason::LedgerBehind`] if they are not
    /// granted. Then none is taken.
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
