//! Stores the parts of a large file as they become whole.

use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use headroom_mutex::lock;
use headroom_store::{Object, Record, Upload, Version};
use headroom_transfer_proto::message::UPLOAD_BYTES;
use headroom_transfer_proto::span::{ChainingValue, Hash, SPAN_BYTES, Spans, Tree};

use super::error::of_write;
use super::root::Root;
use super::tags;
use super::whole::{Whole, part_range, span_values};
use crate::files::disk;
use crate::files::error::ErrorKind;
use crate::files::offer::PartialRole;

/// The most bytes of whole parts of one file that wait in the spool, unless one part has more.
const MAX_WAITING: u64 = 64 << 20;

/// The parts of a file.
#[derive(Debug)]
pub(super) struct Parts {
    root: Root,
    key: String,
    whole: Whole,
    upload: Upload,
    spool: Arc<disk::Partial>,
    /// The object of that name, if its spans may be reused.
    old: Option<Old>,
    state: Mutex<State>,
    changed: Condvar,
}

/// The object that is replaced.
#[derive(Debug)]
struct Old {
    object: Object,
    record: Record,
}

#[derive(Debug)]
struct State {
    parts: Vec<Part>,
    /// Parts that are being stored, and their bytes.
    running: u32,
    waiting: u64,
    /// The values of what was stored by this transfer.
    tree: Tree,
    /// Why a part could not be stored.
    failed: Option<Box<str>>,
    /// The values of the part that was asked for last.
    asked: Option<(u32, Option<Vec<[u8; 32]>>)>,
}

/// What becomes of a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    /// It lies in the spool, as far as it has arrived.
    Missing,
    /// An earlier transfer stored it.
    Kept,
    Running,
    Stored,
}

impl Parts {
    /// Starts or resumes an upload, or takes part in one. `reuse`: spans of the object of that name
    /// may be reused.
    ///
    /// # Errors
    /// Another server receives the file, or the store refuses.
    pub(super) fn begin(
        root: &Root,
        key: &str,
        whole: Whole,
        (reuse, role): (bool, Option<PartialRole>),
        spool: Arc<disk::Partial>,
    ) -> Result<Arc<Self>, ErrorKind> {
        let old = match root.object(key)? {
            Some(object) if reuse && tags::has_record(&object) => {
                let record = root.store.record(key, &object.version)?;
                let spans = Spans::new(object.size).count();
                let record = record.filter(|record| {
                    record.size == object.size && record.values.len() as u64 == spans
                });
                record.map(|record| Old { object, record })
            }
            _ => None,
        };
        let upload = root.upload(key, &whole.offer()?, role)?;
        let parts = (0..upload.parts())
            .map(|part| if upload.values(part).is_some() { Part::Kept } else { Part::Missing })
            .collect();
        let state = State {
            parts,
            running: 0,
            waiting: 0,
            tree: Tree::new(Spans::new(whole.size)),
            failed: None,
            asked: None,
        };
        Ok(Arc::new(Self {
            root: root.clone(),
            key: key.to_owned(),
            whole,
            upload,
            spool,
            old,
            state: Mutex::new(state),
            changed: Condvar::new(),
        }))
    }

    /// Returns the value of a span that is in the store: in a part of an earlier transfer, or in
    /// the object that is replaced.
    pub(super) fn value(&self, span: u64) -> Option<ChainingValue> {
        let (part, first) = self.part_of(span)?;
        let mut state = self.state();
        let asked = match state.asked.take() {
            Some(asked) if asked.0 == part => asked,
            _ => (part, self.upload.values(part)),
        };
        let place = usize::try_from(span - first).ok()?;
        let value = match &asked.1 {
            Some(values) => values.get(place).copied(),
            None => self.old_value(span),
        };
        state.asked = Some(asked);
        value.map(ChainingValue)
    }

    /// Whether a span has a [`Self::value`].
    pub(super) fn has_value(&self, span: u64) -> bool {
        let Some((part, _)) = self.part_of(span) else { return false };
        let is_kept = self.state().parts.get(part as usize) == Some(&Part::Kept);
        is_kept || self.old_value(span).is_some()
    }

    /// The recorded value of a span that has the same place and size in the old object.
    fn old_value(&self, span: u64) -> Option<[u8; 32]> {
        let Old { object, record } = self.old.as_ref()?;
        let (ours, theirs) = (Spans::new(self.whole.size), Spans::new(object.size));
        // a value of a file of one span is of another kind: such files are not stored in parts
        let is_same = ours.range(span)? == theirs.range(span)? && theirs.count() > 1;
        let value = record.values.get(usize::try_from(span).ok()?)?;
        is_same.then_some(*value)
    }

    /// Fails if a part could not be stored, and waits while too much is to be stored.
    pub(super) fn wait_for_room(&self) -> Result<(), ErrorKind> {
        let most = MAX_WAITING.max(self.upload.part_bytes());
        let is_too_much = |state: &mut State| state.failed.is_none() && state.waiting > most;
        let state = self.changed.wait_while(self.state(), is_too_much);
        failure(&state.unwrap_or_else(PoisonError::into_inner))
    }

    /// Stores the parts that bytes of these spans have made whole.
    pub(super) fn arrived(self: &Arc<Self>, spans: Range<u64>) {
        let mut last = None;
        for span in spans {
            let Some((part, _)) = self.part_of(span) else { return };
            if last != Some(part) {
                last = Some(part);
                self.touch(part);
            }
            if self.spool.has_arrived(span) && self.is_whole(part, false) {
                self.start(part);
            }
        }
    }

    /// Notes that bytes of a part arrived: what an earlier transfer stored of it is not the file's.
    fn touch(&self, part: u32) {
        if let Some(part) = self.state().parts.get_mut(part as usize)
            && *part == Part::Kept
        {
            *part = Part::Missing;
        }
    }

    /// Whether all spans of a part arrived, or with `old` are in the old object.
    fn is_whole(&self, part: u32, old: bool) -> bool {
        let mut spans = self.spans(part);
        spans.all(|span| self.spool.has_arrived(span) || old && self.old_value(span).is_some())
    }

    /// Starts to store a part, once.
    fn start(self: &Arc<Self>, part: u32) {
        let bytes = part_range(&self.upload, part);
        let bytes = bytes.end - bytes.start;
        {
            let mut state = self.state();
            match state.parts.get_mut(part as usize) {
                Some(state) if *state == Part::Missing => *state = Part::Running,
                _ => return,
            }
            state.running += 1;
            state.waiting += bytes;
        }
        let running = Run { parts: Arc::clone(self), part, bytes };
        drop(self.root.shared.threads.run(move || running.store()));
    }

    /// Stores a part; returns the values of its spans.
    fn store(&self, part: u32) -> Result<Vec<[u8; 32]>, ErrorKind> {
        let range = part_range(&self.upload, part);
        let _memory = self.root.shared.memory.take(range.end - range.start);
        let content = self.content(part)?;
        let values = span_values(Spans::new(self.whole.size), range.start, &content);
        self.upload.put_part(part, content, values.clone())?;
        self.spool.free(&range);
        Ok(values)
    }

    /// Reads a part from the spool, and what did not arrive from the old object.
    fn content(&self, part: u32) -> Result<Bytes, ErrorKind> {
        let range = part_range(&self.upload, part);
        let mut content = vec![0; usize::try_from(range.end - range.start).unwrap_or(usize::MAX)];
        let mut spans = self.spans(part).peekable();
        while let Some(first) = spans.next() {
            let is_here = self.spool.has_arrived(first);
            let mut end = first + 1;
            while spans.next_if(|span| self.spool.has_arrived(*span) == is_here).is_some() {
                end += 1;
            }
            let bytes = first * SPAN_BYTES..range.end.min(end * SPAN_BYTES);
            let place = |at: u64| usize::try_from(at - range.start).unwrap_or(usize::MAX);
            let into = &mut content[place(bytes.start)..place(bytes.end)];
            match &self.old {
                _ if is_here => self.spool.read_at(bytes.start, into)?,
                Some(Old { object, .. }) => {
                    let version = Some(&object.version);
                    into.copy_from_slice(&self.root.store.read(&self.key, bytes, version)?);
                }
                None => return Err(ErrorKind::StaleParts),
            }
        }
        Ok(content.into())
    }

    /// Stores the parts of these spans, which are whole parts, and of which all bytes have arrived
    /// or are in the store.
    ///
    /// # Errors
    /// A part cannot be stored, or has other values than these.
    pub(super) fn store_range(
        self: &Arc<Self>,
        spans: &Range<u64>,
        values: &[ChainingValue],
    ) -> Result<(), ErrorKind> {
        let number = |part: u64| u32::try_from(part).unwrap_or(u32::MAX);
        let first = number(spans.start / self.part_spans());
        let end = number(spans.end.div_ceil(self.part_spans())).min(self.upload.parts());
        for part in first..end {
            let is_missing = self.state().parts.get(part as usize) == Some(&Part::Missing);
            if is_missing {
                if !self.is_whole(part, true) {
                    return Err(ErrorKind::StaleParts);
                }
                self.start(part);
                self.wait_for_room()?;
            }
        }
        let still_runs = |state: &mut State| {
            let mut parts = first..end;
            let is_running = |part: u32| state.parts.get(part as usize) == Some(&Part::Running);
            state.failed.is_none() && parts.any(is_running)
        };
        let state = self.changed.wait_while(self.state(), still_runs);
        failure(&state.unwrap_or_else(PoisonError::into_inner))?;
        let stored = (first..end).flat_map(|part| self.upload.values(part).unwrap_or_default());
        match stored.eq(values.iter().map(|value| value.0)) {
            true => Ok(()),
            false => Err(ErrorKind::Mismatch),
        }
    }

    /// Leaves the upload to others, when nothing is being stored any more.
    ///
    /// # Errors
    /// Another server has taken it over, or the store refuses.
    pub(super) fn leave(&self) -> Result<(), ErrorKind> {
        let still_runs = |state: &mut State| state.running > 0;
        drop(self.changed.wait_while(self.state(), still_runs));
        Ok(self.upload.release()?)
    }

    /// Stores what is not stored, and gives the object its name.
    ///
    /// # Errors
    /// Something cannot be stored, or what was stored is not the file with this hash.
    pub(super) fn finish(self: &Arc<Self>, root: &Hash) -> Result<Version, ErrorKind> {
        if let Some(version) = self.is_there(root) {
            self.upload.abandon()?;
            return Ok(version);
        }
        for part in 0..self.upload.parts() {
            let is_missing = self.state().parts.get(part as usize) == Some(&Part::Missing);
            if is_missing {
                if !self.is_whole(part, true) {
                    self.upload.abandon()?;
                    return Err(ErrorKind::StaleParts);
                }
                self.start(part);
                self.wait_for_room()?;
            }
        }
        let still_runs = |state: &mut State| state.running > 0;
        let state = self.changed.wait_while(self.state(), still_runs);
        let mut state = state.unwrap_or_else(PoisonError::into_inner);
        failure(&state)?;
        for part in 0..self.upload.parts() {
            if state.parts.get(part as usize) == Some(&Part::Kept) {
                for (span, value) in
                    self.spans(part).zip(self.upload.values(part).unwrap_or_default())
                {
                    state.tree.insert(span, ChainingValue(value));
                }
            }
        }
        let is_right = state.tree.root() == Some(*root);
        drop(state);
        if !is_right {
            self.upload.abandon()?;
            return Err(ErrorKind::Mismatch);
        }
        self.upload.complete_over(*root.as_bytes()).map_err(of_write)
    }

    /// Returns the version of the old object if it is the same file, and nothing was stored.
    fn is_there(&self, root: &Hash) -> Option<Version> {
        let Old { object, record } = self.old.as_ref()?;
        let here = tags::metadata(&self.key, object);
        let is_same = (here.size, here.mode, here.mtime, record.root)
            == (self.whole.size, self.whole.mode & 0o777, self.whole.mtime, *root.as_bytes());
        is_same.then(|| object.version.clone())
    }

    /// Discards what was stored.
    pub(super) fn abandon(&self) -> Result<(), ErrorKind> {
        Ok(self.upload.abandon()?)
    }

    /// Whether an object had the name when this began, as far as that was looked at.
    pub(super) fn replaces(&self) -> bool {
        self.old.is_some()
    }

    /// Returns the name of the upload.
    pub(super) fn upload(&self) -> [u8; UPLOAD_BYTES] {
        self.upload.nonce()
    }

    /// Returns the number of spans of each part but the last.
    pub(super) fn part_spans(&self) -> u64 {
        self.upload.part_bytes() / SPAN_BYTES
    }

    /// Returns the part of a span, and the first span of that.
    fn part_of(&self, span: u64) -> Option<(u32, u64)> {
        let spans = self.part_spans();
        let part = u32::try_from(span / spans).ok().filter(|part| *part < self.upload.parts())?;
        Some((part, u64::from(part) * spans))
    }

    /// Returns the spans of a part.
    fn spans(&self, part: u32) -> Range<u64> {
        Spans::new(self.whole.size).touched(part_range(&self.upload, part))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

/// A part that is being stored. However that ends, nobody waits for it afterwards.
struct Run {
    parts: Arc<Parts>,
    part: u32,
    bytes: u64,
}

impl Run {
    fn store(self) {
        let stored = self.parts.store(self.part);
        let mut state = self.parts.state();
        match stored {
            Ok(values) => {
                for (span, value) in self.parts.spans(self.part).zip(values) {
                    state.tree.insert(span, ChainingValue(value));
                }
                if let Some(part) = state.parts.get_mut(self.part as usize) {
                    *part = Part::Stored;
                }
            }
            Err(kind) => {
                state.failed.get_or_insert_with(|| kind.to_string().into());
            }
        }
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        let mut state = self.parts.state();
        if let Some(part) = state.parts.get_mut(self.part as usize)
            && *part == Part::Running
        {
            *part = Part::Missing;
            state.failed.get_or_insert_with(|| "a part of it could not be stored".into());
        }
        state.running -= 1;
        state.waiting -= self.bytes;
        drop(state);
        self.parts.changed.notify_all();
    }
}

fn failure(state: &State) -> Result<(), ErrorKind> {
    match &state.failed {
        Some(reason) => Err(ErrorKind::Store(reason.clone())),
        None => Ok(()),
    }
}
