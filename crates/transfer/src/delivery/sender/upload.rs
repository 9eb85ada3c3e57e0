//! A file that several connections send to servers of one store, or to one server of a directory,
//! each in ranges of its own.
//!
//! The first server begins an upload in parts, and names it; the others take part in it. A range has
//! whole parts, and counts when its server has stored them with the values of this side's spans.
//! What a lost server has not confirmed is sent to another one. At last one of them takes the upload
//! over, and completes it: that request sends what is missing then.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use headroom_transfer_proto::message::{MAX_VALUES, PartsRequest, UPLOAD_BYTES};
use headroom_transfer_proto::path::RelPath;
use headroom_transfer_proto::span::{ChainingValue, SPAN_BYTES, Spans};
use tokio::sync::Notify;

use super::open_file::OpenFile;
use crate::error::Error;
use crate::files::{self, Found, Ranges, SourceFile, SourceKind};

/// The most spans of a range, unless the least number is greater.
const MAX_SPANS: u64 = 1024;
/// The part of one connection's share of what is left that a range is, so that all connections end
/// at about the same time.
const PART: u64 = 4;
/// Ranges that one connection may have sent and not confirmed, while there are many: the next one
/// is sent while the store takes the last one.
const AHEAD: usize = 2;
/// The least parts of each connection: a file of fewer is sent whole.
const MIN_PARTS: u64 = 2;

/// A file that several connections send, each in ranges of its own.
pub(crate) struct DividedUpload {
    path: RelPath,
    spans: Spans,
    /// The least number of spans of a range.
    least: u64,
    connections: u64,
    /// Whether all connections lead to one server.
    one_server: Option<bool>,
    state: Mutex<State>,
    changed: Notify,
    /// The file, which the first connection opens for all.
    opened: Mutex<Option<Arc<OpenFile>>>,
}

#[derive(Debug)]
struct State {
    /// The upload, once a server has begun it.
    upload: Option<Upload>,
    /// The number of the connection whose server begins it.
    beginning: Option<u64>,
    /// Whether the servers store whole files, or the file has too few parts.
    is_declined: bool,
    /// Spans that are not assigned to a connection.
    left: Ranges,
    assigned: Vec<Assigned>,
    /// The number of the next connection that takes part.
    next_number: u64,
    /// The values of spans that are stored, by the first spans of their ranges.
    stored: BTreeMap<u64, Vec<ChainingValue>>,
    /// How many these are.
    stored_spans: u64,
    /// Why it cannot be divided.
    failure: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Upload {
    name: [u8; UPLOAD_BYTES],
    /// Spans of each part but the last.
    part_spans: u64,
}

/// A range that a connection sends.
#[derive(Debug)]
struct Assigned {
    connection: u64,
    spans: Range<u64>,
    /// The values of its spans, when it is sent.
    values: Option<Vec<ChainingValue>>,
}

/// What a connection does next.
#[derive(Debug, PartialEq, Eq)]
enum Next {
    Send(Range<u64>),
    Wait,
    End,
}

impl DividedUpload {
    /// Divides a file of this size in bytes among so many connections. A range has `range_bytes`
    /// at least, but for what is left of another one. `one_server`: all connections lead to one.
    pub(crate) fn new(
        path: RelPath,
        size: u64,
        (connections, range_bytes): (usize, u64),
        one_server: bool,
    ) -> Arc<Self> {
        let spans = Spans::new(size);
        let mut left = Ranges::default();
        left.insert(&(0..spans.count()));
        let state = State {
            upload: None,
            beginning: None,
            is_declined: false,
            left,
            assigned: Vec::new(),
            next_number: 0,
            stored: BTreeMap::new(),
            stored_spans: 0,
            failure: None,
        };
        Arc::new(Self {
            path,
            spans,
            least: range_bytes.div_ceil(SPAN_BYTES).max(1),
            connections: connections.max(1) as u64,
            one_server: one_server.then_some(true),
            state: Mutex::new(state),
            changed: Notify::new(),
            opened: Mutex::default(),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let changed = change(&mut self.state());
        self.changed.notify_waiters();
        changed
    }

    /// Whether a connection may take part now.
    pub(crate) fn has_left(&self) -> bool {
        let state = self.state();
        let may_begin = state.upload.is_some() || state.beginning.is_none();
        may_begin && !state.is_over() && state.left.len() > 0
    }

    /// Whether all ranges are stored.
    pub(crate) fn is_whole(&self) -> bool {
        self.state().stored_spans == self.spans.count()
    }

    /// Whether no more of it is sent in ranges, however it ends.
    pub(crate) fn is_settled(&self) -> bool {
        self.is_whole() || self.state().is_over()
    }

    /// Returns why it cannot be divided, if that is so.
    pub(crate) fn failure(&self) -> Option<String> {
        self.state().failure.clone()
    }

    /// Lets no more of it be sent in ranges.
    pub(crate) fn fail(&self, reason: String) {
        self.change(|state| {
            state.failure.get_or_insert(reason);
        });
    }

    /// Notes that a server takes no ranges. Before one has begun the upload, all are taken to be
    /// like it.
    pub(crate) fn decline(&self) {
        self.change(|state| state.is_declined |= state.upload.is_none());
    }

    /// Whether the servers take no ranges, or it has too few parts for them: nothing is wrong.
    pub(crate) fn is_declined(&self) -> bool {
        self.state().is_declined
    }

    /// Returns when a server has begun the upload.
    pub(crate) async fn begun(&self) {
        loop {
            let changed = self.changed.notified();
            if self.state().upload.is_some() {
                return;
            }
            changed.await;
        }
    }

    /// Notes a connection that takes part; `None` while the server of another one begins.
    pub(crate) fn join(self: &Arc<Self>) -> Option<UploadPart> {
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
        Some(UploadPart { upload: Arc::clone(self), number, has_begun: Arc::default() })
    }

    /// Returns what the request that completes the file wants of the server.
    pub(crate) fn completion(&self) -> PartsRequest {
        let upload = self.state().upload.map(|upload| upload.name);
        PartsRequest { upload, completes: Some(true), one_server: self.one_server }
    }

    /// Returns the value of a span that is stored.
    pub(super) fn value(&self, span: u64) -> Option<ChainingValue> {
        let state = self.state();
        let (first, values) = state.stored.range(..=span).next_back()?;
        values.get(usize::try_from(span - first).ok()?).copied()
    }

    /// Whether the file is still the one whose values these are.
    pub(super) fn is_unchanged(&self) -> bool {
        let opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner).clone();
        opened.is_some_and(|opened| opened.reader().is_unchanged().unwrap_or(false))
    }
}

impl fmt::Debug for DividedUpload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DividedUpload")
            .field("path", &self.path)
            .field("state", &self.state)
            .finish_non_exhaustive()
    }
}

impl State {
    fn is_over(&self) -> bool {
        self.is_declined || self.failure.is_some()
    }
}

/// A connection's part in a divided upload. Clones are the same one.
#[derive(Debug, Clone)]
pub(crate) struct UploadPart {
    upload: Arc<DividedUpload>,
    number: u64,
    /// Whether the server has answered what of the file it has.
    has_begun: Arc<AtomicBool>,
}

impl UploadPart {
    /// Returns what its request wants of the server.
    pub(crate) fn request(&self) -> PartsRequest {
        let upload = self.upload.state().upload.map(|upload| upload.name);
        PartsRequest { upload, completes: None, one_server: self.upload.one_server }
    }

    /// Whether something that was found is the file, as far as its kind and size tell.
    pub(super) fn is_of(&self, found: &Found) -> bool {
        let size = self.upload.spans.size();
        matches!(&found.kind, SourceKind::File(file) if file.metadata().size == size)
    }

    /// Notes the upload, as the server names it.
    ///
    /// # Errors
    /// It is another one than that of other servers, or makes no sense.
    pub(super) fn begun(&self, name: [u8; UPLOAD_BYTES], part_spans: u64) -> Result<(), Error> {
        let DividedUpload { path, spans, connections, .. } = &*self.upload;
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
            state.upload = Some(upload);
            let parts = spans.count().div_ceil(part_spans);
            state.is_declined |= parts < MIN_PARTS * connections;
            Ok(())
        })
    }

    /// Whether ranges were sent, or could have been.
    pub(crate) fn has_begun(&self) -> bool {
        self.has_begun.load(Ordering::Relaxed)
    }

    /// Notes that ranges may be sent. Returns whether the server has named the upload.
    pub(super) fn begin(&self) -> bool {
        let is_named = self.upload.state().upload.is_some();
        self.has_begun.store(is_named, Ordering::Relaxed);
        is_named
    }

    /// Opens the file, once for all connections. Blocks.
    pub(super) fn open(&self, file: &SourceFile) -> Result<Arc<OpenFile>, files::Error> {
        let mut opened = self.upload.opened.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(opened) = &*opened {
            return Ok(Arc::clone(opened));
        }
        let file = Arc::new(OpenFile::by_ranges(file)?);
        *opened = Some(Arc::clone(&file));
        Ok(file)
    }

    /// Waits for the next range to send; `None` if there is no more.
    pub(super) async fn next(&self) -> Option<Range<u64>> {
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
        let DividedUpload { least, connections, .. } = &*self.upload;
        let mut state = self.upload.state();
        let Some(Upload { part_spans, .. }) = state.upload.filter(|_| !state.is_over()) else {
            return Next::End;
        };
        let own = state.assigned.iter().filter(|range| range.connection == self.number).count();
        let Some(first) = state.left.iter().next().cloned() else {
            return if own == 0 { Next::End } else { Next::Wait };
        };
        let in_parts = |spans: u64| spans.div_ceil(part_spans) * part_spans;
        let longest = MAX_VALUES as u64 / part_spans * part_spans;
        let least = in_parts(*least).min(longest);
        let left: u64 = state.left.iter().map(|range| range.end - range.start).sum();
        let share = left / (PART * connections);
        let ahead = if share > least { AHEAD } else { 1 };
        if own >= ahead {
            return Next::Wait;
        }
        let (len, rest) = (share.clamp(least, MAX_SPANS.max(least)), first.end - first.start);
        let len = in_parts(len);
        // a rest that is not worth a range goes with it
        let len = if rest < len + least { rest } else { len };
        let spans = first.start..first.start + len.min(longest);
        state.left.remove(&spans);
        let (connection, values) = (self.number, None);
        state.assigned.push(Assigned { connection, spans: spans.clone(), values });
        Next::Send(spans)
    }

    /// Notes that a range is sent, whose spans have these values.
    pub(super) fn sent(&self, spans: &Range<u64>, values: &[ChainingValue]) {
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
    pub(super) fn stored(&self, first: u64, count: u64) -> Result<(), Error> {
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
    use super::*;

    const NAME: [u8; UPLOAD_BYTES] = [5; UPLOAD_BYTES];

    fn divided(mib: u64, range_bytes: u64) -> Arc<DividedUpload> {
        let path = RelPath::parse(b"big").expect("a path");
        DividedUpload::new(path, mib * SPAN_BYTES - 5, (2, range_bytes), false)
    }

    /// Confirms a range.
    fn store(part: &UploadPart, spans: &Range<u64>) {
        let count = spans.end - spans.start;
        part.sent(spans, &vec![ChainingValue([spans.start as u8; 32]); count as usize]);
        part.stored(spans.start, count).expect("it was sent");
    }

    fn next(part: &UploadPart) -> Option<Range<u64>> {
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
        assert!(upload.is_declined() && upload.failure().is_none() && !upload.has_left());
        assert_eq!(other.try_next(), Next::End);
        let declined = divided(400, SPAN_BYTES);
        let part = declined.join().expect("the first one");
        declined.decline();
        part.leave();
        assert!(declined.is_declined() && declined.is_settled() && declined.failure().is_none());
        assert!(!declined.has_left());
    }
}
