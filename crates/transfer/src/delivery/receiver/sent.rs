//! The ranges of a file that the sender has sent, and whose parts are to be stored.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

use headroom_transfer_proto::span::ChainingValue;

use super::asked::{OpenRange, RangeState};
use crate::error::Error;
use crate::files::Partial;

/// The most ranges that are sent and not stored.
const MAX_UNSTORED: usize = 64;

/// Ranges that the sender has sent, of which something may still be on its way.
#[derive(Default)]
pub(super) struct SentRanges(Mutex<VecDeque<OpenRange>>);

impl SentRanges {
    fn open(&self) -> MutexGuard<'_, VecDeque<OpenRange>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that a range was sent, whose spans have these values.
    ///
    /// # Errors
    /// It is not of whole parts, or there are too many.
    pub(super) fn add(
        &self,
        partial: &Partial,
        first: u64,
        values: Vec<ChainingValue>,
    ) -> Result<(), Error> {
        let (count, all) = (values.len() as u64, partial.spans().count());
        let part = partial.part_spans().unwrap_or(u64::MAX);
        let end = first.checked_add(count).filter(|end| *end <= all && count > 0);
        let is_whole =
            |end: &u64| first.is_multiple_of(part) && (end.is_multiple_of(part) || *end == all);
        let Some(end) = end.filter(is_whole) else {
            return Err(Error::Protocol(format!(
                "it says that it has sent {count} spans from {first} on, which are no whole parts of {part} spans"
            )));
        };
        let mut open = self.open();
        if open.len() >= MAX_UNSTORED {
            return Err(Error::Protocol(format!(
                "it sends more than {MAX_UNSTORED} ranges of a file at once"
            )));
        }
        open.push_back(OpenRange::sent(first..end, values));
        Ok(())
    }

    /// Whether nothing of the next range is on its way.
    pub(super) fn is_settled(&self, partial: &Partial) -> bool {
        let mut open = self.open();
        open.front_mut().is_some_and(|range| range.progress(partial) != RangeState::Waiting)
    }

    /// Takes the next range if all of it is here.
    ///
    /// # Errors
    /// Something else has arrived than the sender said.
    pub(super) fn take_next(&self, partial: &Partial) -> Result<Option<Sent>, String> {
        let mut open = self.open();
        let Some(range) = open.front_mut() else { return Ok(None) };
        match range.progress(partial) {
            RangeState::Waiting => Ok(None),
            RangeState::Complete => Ok(open.pop_front().and_then(OpenRange::into_sent)),
            RangeState::Wrong => Err(range.wrong()),
        }
    }
}

/// A range that was sent, and the values of its spans.
pub(super) type Sent = (Range<u64>, Vec<ChainingValue>);
