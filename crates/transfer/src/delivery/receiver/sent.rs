//! The ranges of a file that the sender has sent, and that are not stored yet.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard};

use headroom_mutex::lock;
use headroom_transfer_proto::span::ChainingValue;

use super::asked::{OpenRange, RangeState};
use crate::error::Error;
use crate::files::Partial;

/// The most ranges that are sent and not stored: 512 KiB of values each at most.
const MAX_UNSTORED: usize = 8;

/// Ranges that the sender has sent, of which something may still be on its way.
#[derive(Default)]
pub(super) struct SentRanges(Mutex<State>);

#[derive(Default)]
struct State {
    /// In the order in which they were sent.
    open: VecDeque<OpenRange>,
    /// Whether one is being stored. Only one is at a time, so that a client that sends the same
    /// range again and again occupies one thread.
    is_storing: bool,
}

impl SentRanges {
    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.0)
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
        let mut state = self.state();
        if state.open.len() + usize::from(state.is_storing) >= MAX_UNSTORED {
            return Err(Error::Protocol(format!(
                "it sends more than {MAX_UNSTORED} ranges of a file at once"
            )));
        }
        state.open.push_back(OpenRange::sent(first..end, values));
        Ok(())
    }

    /// Whether the next range can be taken: none is being stored, and nothing of the next one is on
    /// its way.
    pub(super) fn is_settled(&self, partial: &Partial) -> bool {
        let mut state = self.state();
        let State { open, is_storing } = &mut *state;
        let next = open.front_mut().filter(|_| !*is_storing);
        next.is_some_and(|range| range.progress(partial) != RangeState::Waiting)
    }

    /// Takes the next range to store it, if all of it is here and no other is being stored.
    ///
    /// # Errors
    /// Something else has arrived than the sender said.
    pub(super) fn take_next(&self, partial: &Partial) -> Result<Option<Sent>, String> {
        let mut state = self.state();
        let State { open, is_storing } = &mut *state;
        let Some(range) = open.front_mut().filter(|_| !*is_storing) else { return Ok(None) };
        match range.progress(partial) {
            RangeState::Waiting => return Ok(None),
            RangeState::Wrong => return Err(range.wrong()),
            RangeState::Complete => {}
        }
        let sent = open.pop_front().and_then(OpenRange::into_sent);
        *is_storing = sent.is_some();
        Ok(sent)
    }

    /// Notes that the range that was taken is stored.
    pub(super) fn stored(&self) {
        self.state().is_storing = false;
    }
}

/// A range that was sent, and the values of its spans.
pub(super) type Sent = (Range<u64>, Vec<ChainingValue>);

#[cfg(test)]
mod tests {
    use headroom_transfer_proto::message::Time;
    use headroom_transfer_proto::path::RelPath;
    use headroom_transfer_proto::span::SPAN_BYTES;

    use super::*;
    use crate::files::{Offer, Root};

    #[test]
    fn ranges_are_stored_one_by_one_and_few_wait() {
        let folder = tempfile::tempdir().expect("a folder");
        let root = Root::open(folder.path()).expect("a folder");
        let path = RelPath::parse(b"big").expect("a path");
        let (size, mtime) = (2 * SPAN_BYTES, Time { seconds: 1, nanoseconds: 0 });
        let offer = Offer { size, mtime, data: size, reuse: false };
        let partial = root.begin(&path, &offer).expect("a partial file");
        assert!(partial.remember());
        let (spans, ranges) = (partial.spans(), SentRanges::default());
        let bytes = vec![7; SPAN_BYTES as usize];
        let values = [0, 1].map(|span| spans.value(span, &bytes).expect("a span"));
        // on a disk the whole file is one part
        let send = || ranges.add(&partial, 0, values.to_vec());
        send().expect("a range");
        assert!(!ranges.is_settled(&partial));
        assert_eq!(ranges.take_next(&partial), Ok(None), "nothing of it is here");
        for span in 0..2 {
            partial.write_at(span * SPAN_BYTES, &bytes).expect("room");
        }
        assert!(ranges.is_settled(&partial));
        let sent = ranges.take_next(&partial).expect("it is right").expect("a range");
        assert_eq!(sent, (0..2, values.to_vec()));
        // the same again and again, while it is being stored
        for _ in 1..MAX_UNSTORED {
            send().expect("a range");
            assert!(!ranges.is_settled(&partial));
            assert_eq!(ranges.take_next(&partial), Ok(None), "another one is being stored");
        }
        let error = send().expect_err("that is enough");
        assert!(error.to_string().contains("more than 8 ranges"), "{error}");
        ranges.stored();
        assert!(ranges.is_settled(&partial));
        assert!(ranges.take_next(&partial).expect("it is right").is_some());
        send().expect("there is room again");
    }
}
