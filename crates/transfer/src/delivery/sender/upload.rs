//! A file that several connections send to servers of one store, or to one server of a directory,
//! each in ranges of its own.
//!
//! The first server begins an upload in parts, and names it; the others take part in it. A range
//! consists of whole parts, and is confirmed when its server has stored them with the values of
//! this side's spans. Ranges that a lost server has not confirmed are sent to another one. At last
//! one server takes the upload over and completes it: that request sends what is still missing.
//!
//! Or each connection belongs to another process, and sends one range that it was given. These take
//! part in whichever upload of the file there is.

mod participant;

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard};

use headroom_mutex::lock;
use headroom_transfer_proto::message::{ANY_UPLOAD, PartsRequest, UPLOAD_BYTES};
use headroom_transfer_proto::path::RelPath;
use headroom_transfer_proto::span::{ChainingValue, Spans};
use tokio::sync::Notify;

use super::open_file::OpenFile;
use crate::delivery::range_allocator::RangeAllocator;
use crate::files::Ranges;

pub(crate) use participant::UploadParticipant;

/// The least bytes of the pieces in which the range of a process is sent.
const MIN_OF_RANGE: u64 = 16 << 20;

/// A file that several connections send, each in ranges of its own.
pub(crate) struct DividedUpload {
    path: RelPath,
    spans: Spans,
    /// The spans that are sent from here; a part belongs to where it begins.
    wanted: Range<u64>,
    /// The upload to ask for before a server has named one.
    asked: Option<[u8; UPLOAD_BYTES]>,
    allocator: RangeAllocator,
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

impl DividedUpload {
    /// Divides a file of `size` bytes among `connections`. A range has `range_bytes` at least,
    /// except for the remainder of a returned one. `one_server`: all connections lead to one.
    pub(crate) fn new(
        path: RelPath,
        size: u64,
        (connections, range_bytes): (usize, u64),
        one_server: bool,
    ) -> Arc<Self> {
        let spans = Spans::new(size);
        let allocator = RangeAllocator::new(connections, range_bytes);
        let whose = (None, one_server.then_some(true));
        Self::of((path, spans), 0..spans.count(), allocator, whose)
    }

    /// Makes one of a file of `size` bytes of which this process sends what `bytes` touch, over one
    /// connection. Other processes send the rest of the same upload, at the same server or at others
    /// of its store.
    pub(crate) fn range(path: RelPath, size: u64, bytes: Range<u64>) -> Arc<Self> {
        let spans = Spans::new(size);
        let allocator = RangeAllocator::new(1, MIN_OF_RANGE);
        Self::of((path, spans), spans.touched(bytes), allocator, (Some(ANY_UPLOAD), Some(true)))
    }

    fn of(
        (path, spans): (RelPath, Spans),
        wanted: Range<u64>,
        allocator: RangeAllocator,
        (asked, one_server): (Option<[u8; UPLOAD_BYTES]>, Option<bool>),
    ) -> Arc<Self> {
        let mut left = Ranges::default();
        left.insert(&wanted);
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
            wanted,
            asked,
            allocator,
            one_server,
            state: Mutex::new(state),
            changed: Notify::new(),
            opened: Mutex::default(),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
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
        let state = self.state();
        let part_spans = state.upload.map_or(1, |upload| upload.part_spans);
        let Range { start, end } = self.wanted_in(part_spans);
        state.stored_spans == end - start
    }

    /// Returns the spans that are sent from here, of an upload with parts of so many spans.
    fn wanted_in(&self, part_spans: u64) -> Range<u64> {
        let all = self.spans.count();
        let next_part = |span: u64| span.div_ceil(part_spans).saturating_mul(part_spans).min(all);
        next_part(self.wanted.start)..next_part(self.wanted.end)
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

    /// Whether the servers store whole files, or the file has too few parts.
    pub(crate) fn is_declined(&self) -> bool {
        self.state().is_declined
    }

    /// Notes that a server takes no ranges. Before one has begun the upload, all are taken to be
    /// like it.
    pub(crate) fn decline(&self) {
        self.change(|state| state.is_declined |= state.upload.is_none());
    }

    /// Whether a server has begun the upload.
    pub(crate) fn is_begun(&self) -> bool {
        self.state().upload.is_some()
    }

    /// Returns when a server has begun the upload.
    pub(crate) async fn begun(&self) {
        loop {
            let changed = self.changed.notified();
            if self.is_begun() {
                return;
            }
            changed.await;
        }
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
        let opened = lock(&self.opened).clone();
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
