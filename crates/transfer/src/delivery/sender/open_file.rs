//! A file that is being sent: reads and hashes the spans that the receiver lacks.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, OnceLock};

use bytes::Bytes;
use headroom_mutex::lock;
use headroom_transfer_proto::message::ErrorCode;
use headroom_transfer_proto::path::RelPath;
use headroom_transfer_proto::span::{ChainingValue, SPAN_BYTES, Spans, Tree, Verification};

use crate::failure::Failure;
use crate::files::{self, Ranges, Reader, SourceFile};
use crate::lanes::{self, LaneHandle, PART, Part};
use crate::rate::Stopped;

/// Spans that are all data or all hole.
pub(super) enum Extent {
    Data(Range<u64>),
    Hole(Range<u64>),
}

/// Spans to send.
pub(super) enum Lacking {
    /// All that the receiver did not report to have.
    Rest,
    /// These.
    Of(Ranges),
}

impl Lacking {
    /// Finds the next spans to send of a file, at `from` or later.
    pub(super) fn piece(&self, opened: &OpenFile, from: u64, most: usize) -> Option<Range<u64>> {
        match self {
            Self::Rest => opened.piece(from, most),
            Self::Of(spans) => {
                let next = spans.iter().find(|next| next.end > from)?;
                let start = next.start.max(from);
                Some(start..next.end.min(start.saturating_add(most as u64)))
            }
        }
    }
}

/// A file that is being sent.
pub(super) struct OpenFile {
    reader: Reader,
    tree: Mutex<Tree>,
    /// The values of spans, of a file of which ranges are sent: the tree forgets them.
    each: Option<Mutex<HashMap<u64, ChainingValue>>>,
    /// Whether the receiver has each span; spans beyond the end of this list are missing.
    has: Vec<bool>,
    /// Spans that were sent as copies and literals, after a search.
    patched: OnceLock<Ranges>,
    /// Bytes that the receiver has.
    pub(super) kept: u64,
    /// A range known to be data: some file systems inspect every page to answer that.
    data: Mutex<Range<u64>>,
    /// Whether the file may change meanwhile. Each span is then read once, so that its hash is that
    /// of what was sent.
    changing: bool,
}

/// The result of sending a file.
pub(super) struct Sealed {
    /// Its hash.
    pub(super) root: [u8; 32],
    /// A warning for the user.
    pub(super) warning: Option<String>,
}

impl OpenFile {
    /// Opens the file, and compares the spans that the receiver has. Those whose values are `known`
    /// are not read.
    pub(super) fn new(
        file: &SourceFile,
        held: &[(u64, ChainingValue)],
        changing: bool,
        verification: Verification,
        known: impl Fn(u64) -> Option<ChainingValue>,
    ) -> Result<Self, files::Error> {
        let reader = if changing { file.open_changed()? } else { file.open()? };
        let reader = reader.verified_by(verification);
        let mut tree = Tree::new(reader.spans());
        let mut has = Vec::new();
        let mut kept = 0;
        for (span, theirs) in held {
            let ours = match known(*span) {
                Some(known) => Some(known),
                None => reader.span_value(*span)?,
            };
            let Some(ours) = ours else { continue };
            let is_same = ours == *theirs;
            // one that may change is hashed as it is when it is sent
            if is_same || !changing {
                tree.insert(*span, ours);
            }
            if is_same {
                let place = usize::try_from(*span).unwrap_or(usize::MAX);
                has.resize(place + 1, false);
                has[place] = true;
                kept += reader.spans().range(*span).map_or(0, |range| range.end - range.start);
            }
        }
        let (tree, patched, data) = (Mutex::new(tree), OnceLock::new(), Mutex::default());
        Ok(Self { reader, tree, each: None, has, patched, kept, data, changing })
    }

    /// Opens a file of which ranges are sent.
    pub(super) fn by_ranges(file: &SourceFile) -> Result<Self, files::Error> {
        Ok(Self {
            each: Some(Mutex::default()),
            ..Self::new(file, &[], false, Verification::Blake3, |_| None)?
        })
    }

    /// Notes the value of a span.
    fn note(&self, span: u64, value: ChainingValue) {
        match &self.each {
            Some(each) => {
                lock(each).insert(span, value);
            }
            None => {
                lock(&self.tree).insert(span, value);
            }
        }
    }

    /// Compares the spans of a range that the receiver has. Returns the spans that it lacks, and
    /// the bytes of the others.
    pub(super) fn compare_range(
        &self,
        spans: &Range<u64>,
        held: &[(u64, ChainingValue)],
    ) -> Result<(Ranges, u64), files::Error> {
        let (mut lacking, mut kept) = (Ranges::default(), 0);
        lacking.insert(spans);
        for (span, theirs) in held {
            let Some(ours) = self.reader.span_value(*span)? else { continue };
            if ours == *theirs {
                self.note(*span, ours);
                lacking.remove(&(*span..*span + 1));
                kept += self.bytes(&(*span..*span + 1)).1;
            }
        }
        Ok((lacking, kept))
    }

    /// Returns the values of the spans of a range, if the file is unchanged.
    pub(super) fn seal_range(&self, spans: Range<u64>) -> Result<Vec<ChainingValue>, Failure> {
        let path = self.reader.path();
        if !self.reader.is_unchanged()? {
            return Err(changed(path));
        }
        let Some(each) = &self.each else { return Err(changed(path)) };
        let mut each = lock(each);
        let values: Option<Vec<_>> = spans.map(|span| each.remove(&span)).collect();
        values.ok_or_else(|| changed(path))
    }

    /// Returns the file's spans.
    pub(super) fn spans(&self) -> Spans {
        self.reader.spans()
    }

    /// Returns the file itself.
    pub(super) fn reader(&self) -> &Reader {
        &self.reader
    }

    /// Returns the bytes of all spans that the receiver lacks.
    pub(super) fn lacking(&self) -> Ranges {
        let (mut lacking, mut next) = (Ranges::default(), 0);
        while let Some(piece) = self.piece(next, usize::MAX) {
            next = piece.end;
            let (start, len) = self.bytes(&piece);
            lacking.insert(&(start..start + len));
        }
        lacking
    }

    /// Returns the bytes of the spans in these ranges that are not all hole.
    pub(super) fn with_data(&self, ranges: &Ranges) -> Result<Ranges, files::Error> {
        let mut found = Ranges::default();
        for range in ranges.iter() {
            let mut at = range.start;
            while at < range.end {
                let Some(data) = self.next_data(at)?.filter(|data| data.start < range.end) else {
                    break;
                };
                let start = (data.start.max(at) / SPAN_BYTES * SPAN_BYTES).max(at);
                let end = data.end.div_ceil(SPAN_BYTES).saturating_mul(SPAN_BYTES).min(range.end);
                found.insert(&(start..end));
                at = end;
            }
        }
        Ok(found)
    }

    /// Hashes a span, unless that was done before.
    pub(super) fn hash_span(&self, span: u64) -> Result<(), files::Error> {
        let is_hashed = lock(&self.tree).contains(span);
        if is_hashed {
            return Ok(());
        }
        if let Some(value) = self.reader.span_value(span)? {
            self.note(span, value);
        }
        Ok(())
    }

    /// Notes once which spans were sent as copies and literals: they are not sent again.
    pub(super) fn note_patched(&self, spans: Ranges) {
        let _ = self.patched.set(spans);
    }

    /// Returns the extent that begins a piece: data, or a hole, which may be longer than the piece
    /// and ends at `hole_end` at the latest. A hole is hashed here and not read.
    pub(super) fn extent(&self, piece: Range<u64>, hole_end: u64) -> Result<Extent, files::Error> {
        // something may be written where a hole was
        if self.changing {
            return Ok(Extent::Data(piece));
        }
        let data = self.next_data(piece.start * SPAN_BYTES)?;
        let first = data.as_ref().map_or(u64::MAX, |data| data.start / SPAN_BYTES);
        if first <= piece.start {
            let end = data.map_or(u64::MAX, |data| data.end.div_ceil(SPAN_BYTES));
            return Ok(Extent::Data(piece.start..piece.end.min(end)));
        }
        let hole = piece.start..hole_end.min(first);
        for span in hole.clone() {
            if let Some(value) = self.reader.span_value(span)? {
                self.note(span, value);
            }
        }
        Ok(Extent::Hole(hole))
    }

    /// Returns the file's size in bytes.
    pub(super) fn size(&self) -> u64 {
        self.reader.size()
    }

    /// Finds the next range of data at `from` or later.
    fn next_data(&self, from: u64) -> Result<Option<Range<u64>>, files::Error> {
        let mut known = lock(&self.data);
        if !known.contains(&from) {
            match self.reader.next_data(from)? {
                Some(data) => *known = data,
                None => return Ok(None),
            }
        }
        Ok(Some(known.clone()))
    }

    /// Finds the next spans that the receiver lacks, at `from` or later.
    pub(super) fn piece(&self, from: u64, most: usize) -> Option<Range<u64>> {
        let count = self.reader.spans().count();
        let has = |span: &u64| {
            let is_patched = |patched: &Ranges| patched.reach(*span) > *span;
            usize::try_from(*span).is_ok_and(|span| self.has.get(span).is_some_and(|has| *has))
                || self.patched.get().is_some_and(is_patched)
        };
        let start = (from..count).find(|span| !has(span))?;
        let len = (start..count).take(most).take_while(|span| !has(span)).count();
        Some(start..start + len as u64)
    }

    /// Returns the offset and the size of these spans.
    pub(super) fn bytes(&self, piece: &Range<u64>) -> (u64, u64) {
        let offset = piece.start * SPAN_BYTES;
        (offset, self.reader.size().min(piece.end * SPAN_BYTES) - offset)
    }

    /// Reads a span, and hashes it while it is in the processor's cache.
    pub(super) fn read_span(&self, span: u64) -> Result<Bytes, files::Error> {
        let range = self.reader.spans().range(span).unwrap_or_default();
        let mut bytes = vec![0; usize::try_from(range.end - range.start).unwrap_or(0)];
        self.reader.read_at(range.start, &mut bytes)?;
        if let Some(value) = self.reader.spans().value(span, &bytes) {
            self.note(span, value);
        }
        Ok(bytes.into())
    }

    /// Reads a span, hashes it part by part, and queues the parts on a lane. Returns the span's
    /// size, or 0 if the lane does not accept it.
    pub(super) fn feed_span(
        self: &Arc<Self>,
        file: u32,
        span: u64,
        lane: &LaneHandle,
        wait_for_turn: impl Fn(usize) -> Result<(), Stopped>,
    ) -> Result<u64, files::Error> {
        let spans = self.reader.spans();
        let (Some(range), Some(mut hasher)) = (spans.range(span), spans.hasher(span)) else {
            return Ok(0);
        };
        let mut offset = range.start;
        while offset < range.end {
            let Ok(mut bytes) = lane.buffer() else { return Ok(0) };
            bytes.resize(PART.min((range.end - offset) as usize), 0);
            if let Err(error) = self.reader.read_at(offset, &mut bytes) {
                lane.recycle(bytes);
                return Err(error);
            }
            hasher.update(&bytes);
            let len = bytes.len() as u64;
            if wait_for_turn(bytes.len()).is_err() {
                lane.recycle(bytes);
                return Ok(0);
            }
            let part = Part { file, offset, bytes, source: Arc::clone(self) as _ };
            if lane.push(part).is_err() {
                return Ok(0);
            }
            offset += len;
        }
        if let Some(value) = hasher.finish() {
            self.note(span, value);
        }
        Ok(range.end - range.start)
    }

    /// Returns the file's hash, if the file is unchanged or may change.
    pub(super) fn seal(&self) -> Result<Sealed, Failure> {
        let path = self.reader.path();
        let warning = match self.reader.is_unchanged() {
            Ok(true) => None,
            Ok(false) if self.changing => Some(sent_changed(path)),
            Ok(false) => return Err(changed(path)),
            Err(error) => return Err(error.into()),
        };
        let tree = lock(&self.tree);
        let root = tree.root().map(|root| *root.as_bytes()).ok_or_else(|| changed(path))?;
        Ok(Sealed { root, warning })
    }
}

/// Reads lost data again.
impl lanes::Source for OpenFile {
    fn read(&self, offset: u64, buffer: &mut [u8]) {
        if self.reader.read_at(offset, buffer).is_err() {
            // the hash will be wrong, and the receiver reports it
            buffer.fill(0);
        }
    }
}

/// Explains that a file changed.
pub(super) fn changed(path: &RelPath) -> Failure {
    let reason = format!(
        "{path} cannot be sent: it changed while it was read; send it again, or use --allow-changing"
    );
    Failure::coded(ErrorCode::CHANGED, reason)
}

/// Explains that a file was sent although it changed.
pub(super) fn sent_changed(path: &RelPath) -> String {
    format!("{path} changed while it was read; it was sent as it was read")
}
