//! A file that is being sent: what of it the receiver lacks, read and hashed.

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use headroom_transfer_proto::message::MOST_HOLE;
use headroom_transfer_proto::path::RelPath;
use headroom_transfer_proto::span::{ChainingValue, SPAN_OCTETS, Tree};

use crate::files::{self, Reader, SourceFile};
use crate::lanes::{self, LaneHandle, PART, Part};
use crate::rate::Stopped;

/// Spans that are alike.
pub(super) enum Extent {
    Data(Range<u64>),
    Hole(Range<u64>),
}

/// A file that is being sent.
pub(super) struct OpenFile {
    reader: Reader,
    tree: Mutex<Tree>,
    /// For each span whether the receiver has it; of those at the end that are
    /// not in here it has none.
    has: Vec<bool>,
    /// Octets that the receiver has.
    pub(super) kept: u64,
    /// Octets that are known to be no hole: some file systems look at every page to
    /// say so.
    data: Mutex<Range<u64>>,
    /// Whether it is sent as it was read if it changes meanwhile. Each span is read once
    /// then, so that its hash is that of what was sent.
    changing: bool,
}

/// What was sent of a file.
pub(super) struct Sealed {
    /// Its hash.
    pub(super) root: [u8; 32],
    /// What its user is to know.
    pub(super) warning: Option<String>,
}

impl OpenFile {
    /// Opens it, and looks which of the spans that the receiver has are right.
    pub(super) fn new(
        file: &SourceFile,
        held: &[(u64, ChainingValue)],
        changing: bool,
    ) -> Result<Self, files::Error> {
        let reader = if changing { file.open_changed()? } else { file.open()? };
        let mut tree = Tree::new(reader.spans());
        let mut has = Vec::new();
        let mut kept = 0;
        for (span, theirs) in held {
            let Some(ours) = reader.span_value(*span)? else { continue };
            tree.insert(*span, ours);
            if ours == *theirs {
                let place = usize::try_from(*span).unwrap_or(usize::MAX);
                has.resize(place + 1, false);
                has[place] = true;
                kept += reader.spans().range(*span).map_or(0, |range| range.end - range.start);
            }
        }
        Ok(Self { reader, tree: Mutex::new(tree), has, kept, data: Mutex::default(), changing })
    }

    /// What the spans of a piece begin with: those that have data, or a hole, which
    /// may be longer. A hole is hashed here, and is not read.
    pub(super) fn extent(&self, piece: Range<u64>) -> Result<Extent, files::Error> {
        // somebody may write where a hole was
        if self.changing {
            return Ok(Extent::Data(piece));
        }
        let data = self.next_data(piece.start * SPAN_OCTETS)?;
        let first = data.as_ref().map_or(u64::MAX, |data| data.start / SPAN_OCTETS);
        if first <= piece.start {
            let end = data.map_or(u64::MAX, |data| data.end.div_ceil(SPAN_OCTETS));
            return Ok(Extent::Data(piece.start..piece.end.min(end)));
        }
        let lacking = self.piece(piece.start, (MOST_HOLE / SPAN_OCTETS) as usize);
        let hole = piece.start..lacking.map_or(piece.end, |lacking| lacking.end).min(first);
        for span in hole.clone() {
            if let Some(value) = self.reader.span_value(span)? {
                self.tree.lock().unwrap_or_else(PoisonError::into_inner).insert(span, value);
            }
        }
        Ok(Extent::Hole(hole))
    }

    /// Octets of it.
    pub(super) fn size(&self) -> u64 {
        self.reader.size()
    }

    /// The next octets from `from` on that are no hole.
    fn next_data(&self, from: u64) -> Result<Option<Range<u64>>, files::Error> {
        let mut known = self.data.lock().unwrap_or_else(PoisonError::into_inner);
        if !known.contains(&from) {
            match self.reader.next_data(from)? {
                Some(data) => *known = data,
                None => return Ok(None),
            }
        }
        Ok(Some(known.clone()))
    }

    /// The next spans that the receiver lacks, at `from` or behind.
    pub(super) fn piece(&self, from: u64, most: usize) -> Option<Range<u64>> {
        let count = self.reader.spans().count();
        let has = |span: &u64| {
            usize::try_from(*span).is_ok_and(|span| self.has.get(span).is_some_and(|has| *has))
        };
        let start = (from..count).find(|span| !has(span))?;
        let len = (start..count).take(most).take_while(|span| !has(span)).count();
        Some(start..start + len as u64)
    }

    /// Where these spans begin, and how many octets they have.
    pub(super) fn octets(&self, piece: &Range<u64>) -> (u64, u64) {
        let offset = piece.start * SPAN_OCTETS;
        (offset, self.reader.size().min(piece.end * SPAN_OCTETS) - offset)
    }

    /// Reads a span, and hashes it while it is in the processor's cache.
    pub(super) fn read_span(&self, span: u64) -> Result<Bytes, files::Error> {
        let range = self.reader.spans().range(span).unwrap_or_default();
        let mut octets = vec![0; usize::try_from(range.end - range.start).unwrap_or(0)];
        self.reader.read_at(range.start, &mut octets)?;
        if let Some(value) = self.reader.spans().value(span, &octets) {
            self.tree.lock().unwrap_or_else(PoisonError::into_inner).insert(span, value);
        }
        Ok(octets.into())
    }

    /// Reads a span, hashes it part by part, and gives the parts to a lane. Says how
    /// many octets it has; 0 if the lane does not take them.
    pub(super) fn feed_span(
        self: &Arc<Self>,
        file: u32,
        span: u64,
        lane: &LaneHandle,
        pace: impl Fn(usize) -> Result<(), Stopped>,
    ) -> Result<u64, files::Error> {
        let spans = self.reader.spans();
        let (Some(range), Some(mut hasher)) = (spans.range(span), spans.hasher(span)) else {
            return Ok(0);
        };
        let mut offset = range.start;
        while offset < range.end {
            let Ok(mut octets) = lane.buffer() else { return Ok(0) };
            octets.resize(PART.min((range.end - offset) as usize), 0);
            if let Err(error) = self.reader.read_at(offset, &mut octets) {
                lane.recycle(octets);
                return Err(error);
            }
            hasher.update(&octets);
            let len = octets.len() as u64;
            if pace(octets.len()).is_err() {
                lane.recycle(octets);
                return Ok(0);
            }
            let part = Part { file, offset, octets, source: Arc::clone(self) as _ };
            if lane.push(part).is_err() {
                return Ok(0);
            }
            offset += len;
        }
        if let Some(value) = hasher.finish() {
            self.tree.lock().unwrap_or_else(PoisonError::into_inner).insert(span, value);
        }
        Ok(range.end - range.start)
    }

    /// Returns the file's hash, if it is still what was read, or need not be.
    pub(super) fn seal(&self) -> Result<Sealed, String> {
        let path = self.reader.source().path();
        let warning = match self.reader.is_unchanged() {
            Ok(true) => None,
            Ok(false) if self.changing => Some(sent_changed(path)),
            Ok(false) => return Err(changed(path)),
            Err(error) => return Err(error.to_string()),
        };
        let tree = self.tree.lock().unwrap_or_else(PoisonError::into_inner);
        let root = tree.root().map(|root| *root.as_bytes()).ok_or_else(|| changed(path))?;
        Ok(Sealed { root, warning })
    }
}

/// What was lost on a lane is read again.
impl lanes::Source for OpenFile {
    fn read(&self, offset: u64, buffer: &mut [u8]) {
        if self.reader.read_at(offset, buffer).is_err() {
            // the hash will not be right, and the receiver says so
            buffer.fill(0);
        }
    }
}

/// Says that a file is not the one that was found any more.
pub(super) fn changed(path: &RelPath) -> String {
    format!(
        "{path} was not sent: it changed while it was read; send it again, or with --allow-changing as it is read"
    )
}

/// Says that a file was sent that is not the one that was found any more.
pub(super) fn sent_changed(path: &RelPath) -> String {
    format!("{path} changed while it was read; it was sent as it was read")
}
