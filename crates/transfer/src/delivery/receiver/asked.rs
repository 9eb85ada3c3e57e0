//! The ranges of a file that this side has asked one sender for.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard};

use headroom_mutex::lock;
use headroom_transfer_proto::span::{ChainingValue, Spans};

use crate::delivery::divided::{NextRange, Participant};
use crate::error::Error;
use crate::files::{KnownSpan, Partial, Ranges};

/// The ranges of a file that this side has asked one sender for.
pub(super) struct AskedRanges {
    part: Participant,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// All spans that it was ever asked for.
    ever: Ranges,
    /// Ranges that are not complete, in order.
    open: VecDeque<OpenRange>,
}

/// A range that is not complete.
pub(super) struct OpenRange {
    spans: Range<u64>,
    /// The values that the sender said when it had sent all of it.
    values: Option<Vec<ChainingValue>>,
    /// Spans from the first on that are here with these values.
    checked: usize,
}

/// The state of a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RangeState {
    /// Something is on its way.
    Waiting,
    /// All spans are here.
    Complete,
    /// A span has arrived with another value than the sender said.
    Wrong,
}

impl OpenRange {
    /// Makes a range of which the sender has sent everything.
    pub(super) fn sent(spans: Range<u64>, values: Vec<ChainingValue>) -> Self {
        Self { spans, values: Some(values), checked: 0 }
    }

    /// Returns the range and its values, if the sender has sent everything.
    pub(super) fn into_sent(self) -> Option<(Range<u64>, Vec<ChainingValue>)> {
        Some((self.spans, self.values?))
    }

    /// Explains what is wrong.
    pub(super) fn wrong(&self) -> String {
        let span = self.spans.start + self.checked as u64;
        format!("its span {span} has arrived with another hash than it said")
    }

    pub(super) fn progress(&mut self, partial: &Partial) -> RangeState {
        let Some(values) = &self.values else { return RangeState::Waiting };
        for (span, value) in self.spans.clone().zip(values).skip(self.checked) {
            match partial.known(span) {
                Some(known) if known.value() == *value => self.checked += 1,
                Some(KnownSpan::Arrived(_)) => return RangeState::Wrong,
                // what was claimed is replaced
                Some(KnownSpan::Claimed(_)) | None => return RangeState::Waiting,
            }
        }
        RangeState::Complete
    }
}

impl AskedRanges {
    pub(super) fn new(part: Participant) -> Self {
        Self { part, state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Whether bytes are of a range that was asked for.
    pub(super) fn has(&self, spans: Spans, offset: u64, len: u64) -> bool {
        let Some(end) = offset.checked_add(len).filter(|end| *end <= spans.size()) else {
            return false;
        };
        let touched = spans.touched(offset..end);
        self.state().ever.reach(touched.start) >= touched.end
    }

    /// Takes the next range to ask for, if there is one and the sender has not enough to send.
    pub(super) fn next(&self) -> Option<NextRange> {
        let mut state = self.state();
        let unsent = state.open.iter().filter(|range| range.values.is_none()).count();
        let next = self.part.next(unsent)?;
        state.ever.insert(&next.spans);
        let spans = next.spans.clone();
        state.open.push_back(OpenRange { spans, values: None, checked: 0 });
        Some(next)
    }

    /// Notes that the sender has sent a range, whose spans have these values.
    ///
    /// # Errors
    /// It was not asked for.
    pub(super) fn sent(&self, first: u64, values: Vec<ChainingValue>) -> Result<(), Error> {
        let mut state = self.state();
        let count = values.len() as u64;
        let range = state.open.iter_mut().find(|range| {
            let Range { start, end } = range.spans;
            range.values.is_none() && start == first && end - start == count
        });
        match range {
            Some(range) => {
                range.values = Some(values);
                Ok(())
            }
            None => Err(Error::Protocol(format!(
                "it says that it has sent {count} spans from {first} on, which were not asked for"
            ))),
        }
    }

    /// Whether nothing of the next range is on its way.
    pub(super) fn is_settled(&self, partial: &Partial) -> bool {
        let mut state = self.state();
        let next = state.open.front_mut();
        next.is_none_or(|range| range.progress(partial) != RangeState::Waiting)
    }

    /// Whether every range is complete.
    pub(super) fn is_empty(&self) -> bool {
        self.state().open.is_empty()
    }

    /// Takes the next range if it is complete, and notes that; returns whether it was.
    ///
    /// # Errors
    /// Something else has arrived than the sender said.
    pub(super) fn complete_next(&self, partial: &Partial) -> Result<bool, String> {
        let mut state = self.state();
        let Some(range) = state.open.front_mut() else { return Ok(false) };
        match range.progress(partial) {
            RangeState::Waiting => return Ok(false),
            RangeState::Complete => {}
            RangeState::Wrong => return Err(range.wrong()),
        }
        let complete = state.open.pop_front();
        drop(state);
        if let Some(OpenRange { spans, values: Some(values), .. }) = complete {
            self.part.done(&spans, &values);
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use headroom_transfer_proto::message::Time;
    use headroom_transfer_proto::path::RelPath;
    use headroom_transfer_proto::span::SPAN_BYTES;

    use super::*;
    use crate::delivery::divided::{DividedFile, FileVersion};
    use crate::files::Root;

    fn begin(folder: &std::path::Path, spans: u64) -> (Arc<DividedFile>, Participant) {
        let root = Root::open(folder).expect("a folder");
        let mtime = Time { seconds: 1, nanoseconds: 0 };
        let version = FileVersion { size: spans * SPAN_BYTES, mtime };
        let path = RelPath::parse(b"big").expect("a path");
        let begun = DividedFile::begin(&root, &path, (version, "a"), (1, 2 * SPAN_BYTES));
        let file = begun.expect("a partial file").expect("a disk");
        let (part, _leaving) = file.join("a".to_owned());
        assert!(part.confirm(Some(version), 0o600, None));
        (file, part)
    }

    #[test]
    fn a_range_is_complete_when_its_spans_are_here_with_the_values_that_the_sender_said() {
        let folder = tempfile::tempdir().expect("a folder");
        let (file, part) = begin(folder.path(), 2);
        let (partial, ranges) = (part.partial(), AskedRanges::new(part));
        assert!(!ranges.has(partial.spans(), 0, 1), "nothing is asked for");
        assert_eq!(ranges.next().expect("a range").spans, 0..2);
        assert!(ranges.next().is_none(), "one is not sent");
        let bytes = [vec![1; SPAN_BYTES as usize], vec![2; SPAN_BYTES as usize]];
        let value = |span: u64| {
            let bytes = &bytes[span as usize];
            partial.write_at(span * SPAN_BYTES, bytes).expect("room");
            partial.spans().value(span, bytes).expect("a span")
        };
        let first = value(0);
        assert!(!ranges.is_settled(&partial));
        let second = partial.spans().value(1, &bytes[1]).expect("a span");
        ranges.sent(0, vec![first, second]).expect("it was asked for");
        assert_eq!(ranges.complete_next(&partial), Ok(false));
        assert_eq!(value(1), second);
        assert!(ranges.is_settled(&partial) && !ranges.is_empty());
        assert_eq!(ranges.complete_next(&partial), Ok(true));
        assert!(ranges.is_empty() && file.is_whole());
        // what comes twice is dropped later
        assert!(ranges.has(partial.spans(), SPAN_BYTES, 5));
        assert!(!ranges.has(partial.spans(), SPAN_BYTES, SPAN_BYTES + 1));
        assert!(!ranges.has(partial.spans(), u64::MAX, 2));
    }

    #[test]
    fn what_was_not_asked_for_and_what_is_wrong_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let (_file, part) = begin(folder.path(), 40);
        let (partial, ranges) = (part.partial(), AskedRanges::new(part));
        let spans = ranges.next().expect("a range").spans;
        assert_eq!(spans, 0..10);
        assert!(ranges.has(partial.spans(), 0, 10 * SPAN_BYTES));
        assert!(!ranges.has(partial.spans(), 9 * SPAN_BYTES, SPAN_BYTES + 1));
        let values = |count| vec![ChainingValue([3; 32]); count];
        for (first, count) in [(1, 9), (0, 9), (0, 11), (10, 10), (u64::MAX, 1)] {
            let error = ranges.sent(first, values(count)).expect_err("it was not asked for");
            assert!(error.to_string().contains("not asked for"), "{error}");
        }
        ranges.sent(0, values(10)).expect("it was asked for");
        assert!(ranges.sent(0, values(10)).is_err(), "twice");
        partial.write_at(0, &vec![1; SPAN_BYTES as usize]).expect("room");
        let error = ranges.complete_next(&partial).expect_err("it has another value");
        assert!(error.contains("span 0"), "{error}");
    }
}
