//! A connection's part in a file that several connections send: which ranges it sends.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use headroom_mutex::lock;
use headroom_transfer_proto::message::{MAX_VALUES, PartsRequest, UPLOAD_BYTES};
use headroom_transfer_proto::span::ChainingValue;

use super::{Assigned, DividedUpload, State, Upload};
use crate::delivery::sender::open_file::OpenFile;
use crate::error::Error;
use crate::files::{self, Found, Ranges, SourceFile, SourceKind};

/// The least parts of each connection: a file of fewer is sent whole.
const MIN_PARTS: u64 = 2;

/// A connection that takes part in a divided upload. Clones are the same one.
#[derive(Debug, Clone)]
pub(crate) struct UploadParticipant {
    upload: Arc<DividedUpload>,
    number: u64,
    /// Whether the server has answered what of the file it has.
    has_begun: Arc<AtomicBool>,
}

/// What a connection does next.
#[derive(Debug, PartialEq, Eq)]
enum Next {
    Send(Range<u64>),
    Wait,
    End,
}

impl DividedUpload {
    /// Notes a connection that takes part; `None` while the server of another one begins.
    pub(crate) fn join(self: &Arc<Self>) -> Option<UploadParticipant> {
        let mut state = self.state();
        if state.upload.is_none() && state.beginning.is_some() {
            return None;
        }
        let number = state.next_number;
        state.next_number += 1;
        if state.upload.is_none() {
            state.beginning = Some(number);
        }
        drop(state);
        Some(UploadParticipant { upload: Arc::clone(self), number, has_begun: Arc::default() })
    }
}

impl UploadParticipant {
    /// Returns what its request wants of the server.
    pub(crate) fn request(&self) -> PartsRequest {
        let named = self.upload.state().upload.map(|upload| upload.name);
        let upload = named.or(self.upload.asked);
        PartsRequest { upload, completes: None, one_server: self.upload.one_server }
    }

    /// Whether something that was found is the file, as far as its kind and size tell.
    pub(in crate::delivery::sender) fn is_of(&self, found: &Found) -> bool {
        let size = self.upload.spans.size();
        matches!(&found.kind, SourceKind::File(file) if file.metadata().size == size)
    }

    /// Notes the upload, as the server names it.
    ///
    /// # Errors
    /// It is another one than that of other servers, or makes no sense.
    pub(in crate::delivery::sender) fn begun(
        &self,
        name: [u8; UPLOAD_BYTES],
        part_spans: u64,
    ) -> Result<(), Error> {
        let DividedUpload { path, spans, allocator, .. } = &*self.upload;
        if !(1..=MAX_VALUES as u64).contains(&part_spans) {
            return Err(Error::Protocol(format!(
                "it divides {path} into parts of {part_spans} MiB"
            )));
        }
        let upload = Upload { name, part_spans };
        self.upload.change(|state| {
            if state.upload.is_some_and(|there| there != upload) {
                let what = format!("it names another upload of {path} than other servers");
                return Err(Error::Protocol(what));
            }
            if state.upload.replace(upload).is_none() {
                state.left = Ranges::default();
                state.left.insert(&self.upload.wanted_in(part_spans));
            }
            let parts = spans.count().div_ceil(part_spans);
            state.is_declined |= parts < MIN_PARTS * allocator.connections();
            Ok(())
        })
    }

    /// Whether ranges were sent, or could have been.
    pub(crate) fn has_begun(&self) -> bool {
        self.has_begun.load(Ordering::Relaxed)
    }

    /// Notes that ranges may be sent. Returns whether the server has named the upload.
    pub(in crate::delivery::sender) fn begin(&self) -> bool {
        let is_named = self.upload.state().upload.is_some();
        self.has_begun.store(is_named, Ordering::Relaxed);
        is_named
    }

    /// Opens the file, once for all connections. Blocks.
    pub(in crate::delivery::sender) fn open(
        &self,
        file: &SourceFile,
    ) -> Result<Arc<OpenFile>, files::Error> {
        let mut opened = lock(&self.upload.opened);
        if let Some(opened) = &*opened {
            return Ok(Arc::clone(opened));
        }
        let file = Arc::new(OpenFile::by_ranges(file)?);
        *opened = Some(Arc::clone(&file));
        Ok(file)
    }

    /// Waits for the next range to send; `None` if there is no more.
    pub(in crate::delivery::sender) async fn next(&self) -> Option<Range<u64>> {
        loop {
            let changed = self.upload.changed.notified();
            match self.try_next() {
                Next::Send(spans) => return Some(spans),
                Next::End => return None,
                Next::Wait => changed.await,
            }
        }
    }

    fn try_next(&self) -> Next {
        let mut state = self.upload.state();
        let Some(Upload { part_spans, .. }) = state.upload.filter(|_| !state.is_over()) else {
            return Next::End;
        };
        let own = state.assigned.iter().filter(|range| range.connection == self.number).count();
        match self.upload.allocator.next(&mut state.left, part_spans, own) {
            Some(spans) => {
                let (connection, values) = (self.number, None);
                state.assigned.push(Assigned { connection, spans: spans.clone(), values });
                Next::Send(spans)
            }
            None if own == 0 => Next::End,
            None => Next::Wait,
        }
    }

    /// Notes that a range is sent, whose spans have these values.
    pub(in crate::delivery::sender) fn sent(&self, spans: &Range<u64>, values: &[ChainingValue]) {
        let mut state = self.upload.state();
        let own = |range: &&mut Assigned| range.connection == self.number && range.spans == *spans;
        if let Some(range) = state.assigned.iter_mut().find(own) {
            range.values = Some(values.to_vec());
        }
    }

    /// Notes that the server has stored a range.
    ///
    /// # Errors
    /// It was not sent.
    pub(in crate::delivery::sender) fn stored(&self, first: u64, count: u64) -> Result<(), Error> {
        self.upload.change(|state| {
            let own = |range: &Assigned| {
                let Range { start, end } = range.spans;
                let is_it = range.connection == self.number && start == first;
                is_it && end - start == count && range.values.is_some()
            };
            let at = state.assigned.iter().position(own).ok_or_else(|| {
                Error::Protocol(format!(
                    "it says that it has stored {count} spans from {first} on, which were not sent"
                ))
            })?;
            let Assigned { values, .. } = state.assigned.swap_remove(at);
            state.stored.insert(first, values.unwrap_or_default());
            state.stored_spans += count;
            Ok(())
        })
    }

    /// Lets no more of the file be sent in ranges, because of what this connection found.
    pub(crate) fn fail(&self, reason: &str) {
        let path = &self.upload.path;
        self.upload.fail(format!("{path} cannot be divided: {reason}"));
    }

    /// Leaves to others what was not confirmed. The connection takes no further part.
    pub(crate) fn leave(&self) {
        self.upload.change(|state| {
            let State { left, assigned, beginning, .. } = state;
            assigned.retain(|range| {
                let is_own = range.connection == self.number;
                if is_own {
                    left.insert(&range.spans);
                }
                !is_own
            });
            if *beginning == Some(self.number) {
                *beginning = None;
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use headroom_transfer_proto::path::RelPath;
    use headroom_transfer_proto::span::SPAN_BYTES;

    use super::*;
    use headroom_transfer_proto::message::ANY_UPLOAD;

    const NAME: [u8; UPLOAD_BYTES] = [5; UPLOAD_BYTES];

    fn divided(mib: u64, range_bytes: u64) -> Arc<DividedUpload> {
        let path = RelPath::parse(b"big").expect("a path");
        DividedUpload::new(path, mib * SPAN_BYTES - 5, (2, range_bytes), false)
    }

    /// Confirms a range.
    fn store(part: &UploadParticipant, spans: &Range<u64>) {
        let count = spans.end - spans.start;
        part.sent(spans, &vec![ChainingValue([spans.start as u8; 32]); count as usize]);
        part.stored(spans.start, count).expect("it was sent");
    }

    fn next(part: &UploadParticipant) -> Option<Range<u64>> {
        match part.try_next() {
            Next::Send(spans) => Some(spans),
            Next::Wait | Next::End => None,
        }
    }

    #[test]
    fn ranges_have_whole_parts_and_what_a_lost_server_has_not_stored_goes_to_others() {
        let upload = divided(203, SPAN_BYTES);
        let one = upload.join().expect("the first one");
        assert!(upload.join().is_none() && !upload.has_left(), "its server begins");
        assert_eq!(one.request(), PartsRequest::default());
        one.begun(NAME, 8).expect("an upload");
        assert!(upload.has_left());
        let other = upload.join().expect("it takes part");
        assert_eq!(other.request().upload, Some(NAME));
        other.begun(NAME, 8).expect("the same one");
        assert!(other.begun([6; UPLOAD_BYTES], 8).is_err());
        let first = next(&one).expect("a range");
        assert_eq!(first, 0..32);
        let second = next(&other).expect("a range");
        assert_eq!(second, 32..56);
        store(&one, &first);
        other.leave();
        assert!(other.stored(32, 24).is_err(), "it is another's now");
        let mut end = 32;
        while let Some(spans) = next(&one) {
            assert_eq!(spans.start, end);
            assert!(spans.end == 203 || spans.end.is_multiple_of(8), "{spans:?}");
            end = spans.end;
            store(&one, &spans);
        }
        assert_eq!(end, 203);
        assert!(upload.is_whole() && upload.is_settled() && !upload.has_left());
        assert_eq!(one.try_next(), Next::End);
        assert_eq!(upload.value(31), Some(ChainingValue([0; 32])));
        assert_eq!(upload.value(32), Some(ChainingValue([32; 32])));
        assert_eq!((upload.value(203), upload.is_unchanged()), (None, false));
        assert_eq!(upload.completion().upload, Some(NAME));
    }

    #[test]
    fn a_connection_has_two_ranges_at_once_and_confirms_what_it_has_sent() {
        let upload = divided(400, SPAN_BYTES);
        let one = upload.join().expect("the first one");
        one.begun(NAME, 8).expect("an upload");
        let ranges = [(); 2].map(|()| next(&one).expect("a range"));
        assert_eq!(one.try_next(), Next::Wait);
        assert!(one.stored(0, 56).is_err(), "it is not sent");
        for spans in &ranges {
            store(&one, spans);
            assert!(one.stored(spans.start, 8).is_err(), "it was stored before");
        }
        upload.fail("a reason".to_owned());
        assert_eq!(one.try_next(), Next::End);
        assert_eq!(upload.failure().as_deref(), Some("a reason"));
    }

    #[test]
    fn a_range_has_the_parts_that_begin_in_it_of_whichever_upload_there_is() {
        let path = RelPath::parse(b"big").expect("a path");
        let range = |spans: Range<u64>| {
            let bytes = spans.start * SPAN_BYTES..spans.end * SPAN_BYTES;
            let upload = DividedUpload::range(path.clone(), 60 * SPAN_BYTES - 5, bytes);
            let part = upload.join().expect("the only one");
            let any =
                PartsRequest { upload: Some(ANY_UPLOAD), one_server: Some(true), completes: None };
            assert_eq!(part.request(), any);
            part.begun(NAME, 8).expect("an upload");
            (upload, part)
        };
        let (upload, part) = range(9..30);
        let spans = next(&part).expect("two parts");
        assert_eq!(spans, 16..32);
        assert!(!upload.is_whole());
        store(&part, &spans);
        assert!(upload.is_whole() && !upload.is_declined());
        assert_eq!(part.try_next(), Next::End);
        let (upload, part) = range(50..60);
        assert_eq!(next(&part), Some(56..60), "the last one has less");
        assert!(!upload.is_whole());
        let (upload, part) = range(9..16);
        assert_eq!(part.try_next(), Next::End, "no part begins there");
        assert!(upload.is_whole());
    }

    #[test]
    fn who_comes_after_a_lost_one_begins_and_few_parts_are_not_divided() {
        let upload = divided(24, SPAN_BYTES);
        let one = upload.join().expect("the first one");
        one.leave();
        assert!(upload.has_left());
        let other = upload.join().expect("it begins");
        for part_spans in [0, MAX_VALUES as u64 + 1] {
            assert!(other.begun(NAME, part_spans).is_err());
        }
        other.begun(NAME, 8).expect("an upload");
        assert!(upload.state().is_declined && upload.failure().is_none() && !upload.has_left());
        assert_eq!(other.try_next(), Next::End);
        let declined = divided(400, SPAN_BYTES);
        let part = declined.join().expect("the first one");
        declined.decline();
        part.leave();
        assert!(
            declined.state().is_declined && declined.is_settled() && declined.failure().is_none()
        );
        assert!(!declined.has_left());
    }
}
