//! A file that several connections fetch together, each in ranges of its own.
//!
//! All connections write into one partial file. Each server names the version of the file that it
//! has, and says the values of the spans of each range that it sent. A range counts when every span
//! of it is here with that value, and the file when the hash of all these values is that of what
//! was written. What a lost connection has not completed is asked of another one, with the values
//! of the spans that have arrived.

use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use headroom_mutex::lock;
use headroom_transfer_proto::message::{Attributes, Time};
use headroom_transfer_proto::path::RelPath;
use headroom_transfer_proto::span::{ChainingValue, Spans, Tree};
use tokio::sync::oneshot;

use super::range_allocator::RangeAllocator;
use crate::files::{self, MAX_REMEMBERED, Offer, Partial, PartialRole, Ranges, Root, Seal};

/// The least bytes of a range of a file of which this process fetches a part.
const MIN_OF_PART: u64 = 16 << 20;

/// The version of a file, as a server names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileVersion {
    /// Its size in bytes.
    pub size: u64,
    /// When it was changed.
    pub mtime: Time,
}

impl FileVersion {
    /// Returns it as an offer, of which content that is here may be reused.
    const fn offer(self) -> Offer {
        Offer { size: self.size, mtime: self.mtime, data: 0, reuse: true }
    }
}

impl fmt::Display for FileVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Time { seconds, nanoseconds } = self.mtime;
        write!(f, "{} bytes, changed {seconds}.{nanoseconds:09} s after 1970", self.size)
    }
}

/// A file that several connections fetch together ([`Client::get_ranges`]), each in ranges of its
/// own.
///
/// It locks its partial file. When this and all connections that take part are dropped, what has
/// arrived stays for the next transfer of the same version.
///
/// [`Client::get_ranges`]: crate::Client::get_ranges
#[derive(Debug)]
pub struct DividedFile {
    root: Root,
    path: RelPath,
    version: FileVersion,
    /// The server that named the version.
    named_by: String,
    /// The spans to fetch.
    wanted: Range<u64>,
    partial: Arc<Partial>,
    allocator: RangeAllocator,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// Spans that no connection is asked for.
    left: Ranges,
    /// Ranges that connections are asked for, and have not completed, by the connections' numbers.
    asked: Vec<(u64, Range<u64>)>,
    /// The number of the next connection that takes part.
    next_number: u64,
    /// Values of the spans of complete ranges, as the servers said.
    values: Tree,
    /// The first server that has offered this version, and what else it said of the file.
    confirmed: Option<Confirmed>,
    /// Why it cannot be divided.
    failure: Option<String>,
}

#[derive(Debug, Clone)]
struct Confirmed {
    server: String,
    mode: u32,
    attributes: Option<Box<Attributes>>,
}

/// How a divided file was stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoredWhole {
    /// Its BLAKE3 hash.
    pub hash: [u8; 32],
    /// Bytes that were there from before.
    pub kept: u64,
}

impl DividedFile {
    /// Begins a file `path` below a root, whose directory is there, and hashes what an earlier
    /// transfer of this version has left of it. `named_by` is the server that named the version.
    /// `connections` may take part, and a range has `range_bytes` at least, but for what is left
    /// of another one. `None` if the root is an object store. Blocks.
    ///
    /// # Errors
    /// It has more than 1 TiB, the name belongs to something that no file replaces, another transfer
    /// has the partial file, or the disk refuses.
    pub fn begin(
        root: &Root,
        path: &RelPath,
        (version, named_by): (FileVersion, &str),
        (connections, range_bytes): (usize, u64),
    ) -> Result<Option<Arc<Self>>, files::Error> {
        if Spans::new(version.size).count() > MAX_REMEMBERED {
            return Err(files::Error::too_large_for_ranges(path, MAX_REMEMBERED >> 20));
        }
        let partial = root.begin(path, &version.offer())?;
        if !partial.remember() {
            return Ok(None);
        }
        let all = 0..partial.spans().count();
        let how = (connections, range_bytes);
        Self::of(partial, (root, path), (version, named_by), all, how).map(Some)
    }

    /// Begins a part of a file as [`Self::begin`] begins all of it: the spans that these bytes
    /// touch. Others may fetch other parts of the same version at the same time, also in other
    /// processes. On a disk all write into one partial file. In an object store all store parts of
    /// one upload, which the first one begins; there a part of the upload belongs to the bytes in
    /// which it begins, and `mode` must be that of the file. [`Self::finish_part`] leaves what is
    /// complete to a transfer of the whole file, which finds it, compares it with the sender's,
    /// and stores the file. `None` if a store takes the file in one request, the disk may not have
    /// room for the whole file, or the part has more than 1 TiB. Blocks.
    ///
    /// # Errors
    /// The name belongs to something that no file replaces, a transfer of the whole file has the
    /// partial file or the upload, or the disk or the store refuses.
    pub fn begin_part(
        root: &Root,
        path: &RelPath,
        (version, named_by): (FileVersion, &str),
        mode: u32,
        bytes: Range<u64>,
    ) -> Result<Option<Arc<Self>>, files::Error> {
        let touched = Spans::new(version.size).touched(bytes);
        if touched.end.saturating_sub(touched.start) > MAX_REMEMBERED {
            return Ok(None);
        }
        let begun = root.begin_shared(path, &version.offer(), mode, PartialRole::JoinOrBegin)?;
        let Some(partial) = begun else { return Ok(None) };
        let all = partial.spans().count();
        let wanted = match partial.part_spans() {
            Some(part) => {
                let next_part = |span: u64| span.div_ceil(part).saturating_mul(part).min(all);
                next_part(touched.start)..next_part(touched.end)
            }
            None => touched,
        };
        let how = (1, MIN_OF_PART);
        Self::of(partial, (root, path), (version, named_by), wanted, how).map(Some)
    }

    fn of(
        mut partial: Partial,
        (root, path): (&Root, &RelPath),
        (version, named_by): (FileVersion, &str),
        wanted: Range<u64>,
        (connections, range_bytes): (usize, u64),
    ) -> Result<Arc<Self>, files::Error> {
        let mut next = partial.next_present(wanted.start)?;
        while let Some(span) = next.filter(|span| *span < wanted.end) {
            partial.present(span)?;
            next = partial.next_present(span + 1)?;
        }
        let mut left = Ranges::default();
        left.insert(&wanted);
        let state = State {
            left,
            asked: Vec::new(),
            next_number: 0,
            values: Tree::new(partial.spans()),
            confirmed: None,
            failure: None,
        };
        Ok(Arc::new(Self {
            root: root.clone(),
            path: path.clone(),
            version,
            named_by: named_by.to_owned(),
            wanted,
            partial: Arc::new(partial),
            allocator: RangeAllocator::new(connections, range_bytes),
            state: Mutex::new(state),
        }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Whether there are ranges that no connection is asked for, and the file can be divided.
    #[must_use]
    pub fn has_left(&self) -> bool {
        let state = self.state();
        state.failure.is_none() && state.left.len() > 0
    }

    /// Whether everything that was wanted of it is here, with the values that servers said.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        let state = self.state();
        state.failure.is_none() && state.left.len() == 0 && state.asked.is_empty()
    }

    /// Leaves a part of a file ([`Self::begin_part`]) that [is complete](Self::is_complete) to the
    /// transfer of the whole file. When this returns, a store has it, or with `fsync` the disk.
    /// Blocks.
    ///
    /// # Errors
    /// The disk or the store refuses, another process has taken the store's upload over, or not all
    /// of the part is here.
    pub fn finish_part(&self, fsync: bool) -> Result<(), files::Error> {
        if fsync {
            self.partial.sync()?;
        }
        if self.partial.part_spans().is_some() && !self.wanted.is_empty() {
            let value = |span| Some(self.partial.known(span)?.value());
            let values: Vec<_> = self.wanted.clone().map_while(value).collect();
            self.partial.store_range(&self.wanted, &values)?;
        }
        self.partial.leave()
    }

    /// Whether all ranges are complete, so that [`Self::finish`] can store it.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.state().values.root().is_some()
    }

    /// Returns why it cannot be divided, if that is so: servers have different versions, one cannot
    /// read it, or it cannot be written here.
    #[must_use]
    pub fn failure(&self) -> Option<String> {
        self.state().failure.clone()
    }

    /// Lets no connection be asked for more of it.
    pub(crate) fn fail(&self, reason: String) {
        self.state().failure.get_or_insert(reason);
    }

    /// Verifies the whole file, sets mode, time and attributes, and gives it its name. With
    /// `fsync`, it is on the disk when this returns. Blocks.
    ///
    /// # Errors
    /// Ranges are not complete: the data stays. The hash of what was written is not that of the
    /// servers' spans: the data is removed. The disk refuses: the data stays.
    pub fn finish(&self, fsync: bool) -> Result<StoredWhole, files::Error> {
        let (root, present, confirmed) = {
            let state = self.state();
            (state.values.root(), state.values.present(), state.confirmed.clone())
        };
        let Some((root, confirmed)) = root.zip(confirmed) else {
            let all = self.partial.spans().count();
            return Err(files::Error::incomplete(&self.path, all - present, all));
        };
        let seal = Seal { root, mode: confirmed.mode, mtime: self.version.mtime, fsync };
        self.partial.finish_with(&seal, confirmed.attributes.as_deref())?;
        let kept = self.version.size.saturating_sub(self.partial.came());
        Ok(StoredWhole { hash: *root.as_bytes(), kept })
    }

    /// Notes a connection to a server that takes part. Also returns what waits for its end.
    pub(crate) fn join(self: &Arc<Self>, server: String) -> (Participant, Leaving) {
        let mut state = self.state();
        let number = state.next_number;
        state.next_number += 1;
        drop(state);
        let (end, ended) = oneshot::channel();
        let file = Arc::clone(self);
        let part = Part { file, number, server, has_begun: AtomicBool::new(false), _end: end };
        (Participant(Arc::new(part)), Leaving(ended))
    }
}

/// A connection that takes part in a divided file. Clones are the same one. Whoever writes for it
/// has a clone: when the last one is dropped, nothing of its ranges is being written, and what it
/// has not completed is left to others.
#[derive(Debug, Clone)]
pub(crate) struct Participant(Arc<Part>);

/// A connection's part in a divided file.
#[derive(Debug)]
struct Part {
    file: Arc<DividedFile>,
    number: u64,
    /// The server, as users know it.
    server: String,
    /// Whether the server has offered the file.
    has_begun: AtomicBool,
    /// Dropped when the connection takes no further part.
    _end: oneshot::Sender<()>,
}

/// Waits until a connection takes no further part in a divided file.
#[derive(Debug)]
pub(crate) struct Leaving(oneshot::Receiver<()>);

impl Leaving {
    /// Returns when what the connection has not completed is left to others.
    pub(crate) async fn ended(self) {
        // nothing is sent: the other end is dropped
        let _ = self.0.await;
    }
}

/// A range to ask a server for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct NextRange {
    pub(crate) spans: Range<u64>,
    /// Spans in it that are here, with their values, in order.
    pub(crate) held: Vec<(u64, ChainingValue)>,
}

impl Participant {
    pub(crate) fn root(&self) -> &Root {
        &self.0.file.root
    }

    pub(crate) fn partial(&self) -> Arc<Partial> {
        Arc::clone(&self.0.file.partial)
    }

    /// Whether the server has offered the file, in whichever version.
    pub(crate) fn has_begun(&self) -> bool {
        self.0.has_begun.load(Ordering::Relaxed)
    }

    /// Notes the version that the server offers. Returns whether it is the right one; if it is
    /// not, the file cannot be divided.
    pub(crate) fn confirm(
        &self,
        version: Option<FileVersion>,
        mode: u32,
        attributes: Option<Box<Attributes>>,
    ) -> bool {
        let Part { file, server, has_begun, .. } = &*self.0;
        has_begun.store(true, Ordering::Relaxed);
        let DividedFile { path, version: right, named_by, .. } = &**file;
        let mut state = file.state();
        if version == Some(*right) {
            let server = server.clone();
            state.confirmed.get_or_insert(Confirmed { server, mode, attributes });
            return state.failure.is_none();
        }
        let other = state.confirmed.as_ref().map_or(named_by, |confirmed| &confirmed.server);
        let here = match version {
            Some(version) => version.to_string(),
            None => "no such file".to_owned(),
        };
        let reason = format!(
            "{path} differs between the servers: {server} has {here}, and {other} has {right}"
        );
        state.failure.get_or_insert(reason);
        false
    }

    /// Returns what to ask the server for next, which has not sent so many ranges yet; `None` if
    /// it has enough to send, or nothing is left.
    pub(crate) fn next(&self, unsent: usize) -> Option<NextRange> {
        let Part { file, number, .. } = &*self.0;
        let mut state = file.state();
        if state.failure.is_some() {
            return None;
        }
        let spans = file.allocator.next(&mut state.left, 1, unsent)?;
        state.asked.push((*number, spans.clone()));
        drop(state);
        let value = |span| Some((span, file.partial.known(span)?.value()));
        let held = spans.clone().filter_map(value).collect();
        Some(NextRange { spans, held })
    }

    /// Notes that a range is complete, with the values that the server said.
    pub(crate) fn done(&self, spans: &Range<u64>, values: &[ChainingValue]) {
        let mut state = self.0.file.state();
        let is_it =
            |(number, asked): &(u64, Range<u64>)| *number == self.0.number && asked == spans;
        let Some(at) = state.asked.iter().position(is_it) else { return };
        state.asked.swap_remove(at);
        for (span, value) in spans.clone().zip(values) {
            state.values.insert(span, *value);
        }
    }

    /// Lets no connection be asked for more of the file, because of what this one found.
    pub(crate) fn fail(&self, reason: &str) {
        let Part { file, server, .. } = &*self.0;
        let path = &file.path;
        file.fail(format!("{path} cannot be divided because of {server}: {reason}"));
    }
}

/// Leaves what the connection was asked for and has not completed to others.
impl Drop for Part {
    fn drop(&mut self) {
        let mut state = self.file.state();
        let State { left, asked, .. } = &mut *state;
        asked.retain(|(number, spans)| {
            let is_own = *number == self.number;
            if is_own {
                left.insert(spans);
            }
            !is_own
        });
    }
}

#[cfg(test)]
mod tests {
    use headroom_transfer_proto::span::SPAN_BYTES;
    use tokio::sync::oneshot::error::TryRecvError;

    use super::*;

    const MTIME: Time = Time { seconds: 1_700_000_000, nanoseconds: 5 };

    fn begin(folder: &std::path::Path, spans: u64, range_bytes: u64) -> Arc<DividedFile> {
        let root = Root::open(folder).expect("a folder");
        let path = RelPath::parse(b"big").expect("a path");
        let version = FileVersion { size: spans * SPAN_BYTES, mtime: MTIME };
        let begun = DividedFile::begin(&root, &path, (version, "first"), (3, range_bytes));
        begun.expect("a partial file").expect("a disk")
    }

    /// Joins, and confirms the version.
    fn join(file: &Arc<DividedFile>, server: &str) -> Participant {
        let (part, _leaving) = file.join(server.to_owned());
        assert!(part.confirm(Some(file.version), 0o640, None));
        part
    }

    /// Writes a span, all of one byte, and returns its value.
    fn write(file: &DividedFile, span: u64) -> ChainingValue {
        let bytes = vec![span as u8 + 1; SPAN_BYTES as usize];
        file.partial.write_at(span * SPAN_BYTES, &bytes).expect("room");
        file.partial.spans().value(span, &bytes).expect("a span")
    }

    #[test]
    fn ranges_get_smaller_and_no_connection_has_many_at_the_end() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = begin(folder.path(), 120, 2 << 20);
        let parts = [join(&file, "a"), join(&file, "b")];
        let mut lengths = Vec::new();
        let mut end = 0;
        while let Some(next) = parts[lengths.len() % 2].next(0) {
            assert_eq!(next.spans.start, end, "in order, each once");
            assert!(next.held.is_empty());
            end = next.spans.end;
            lengths.push(next.spans.end - next.spans.start);
        }
        assert_eq!(end, 120);
        assert_eq!(lengths[0], 10, "a fourth of a third");
        assert!(lengths.windows(2).all(|pair| pair[0] >= pair[1] || pair[1] <= 3), "{lengths:?}");
        assert!(lengths.iter().all(|len| *len >= 2), "{lengths:?}");
        assert!(!file.has_left() && !file.is_whole());
        drop(parts);
        assert!(file.has_left());
        // while much is left, it is asked for two ranges at once
        let part = join(&file, "c");
        assert!(part.next(0).is_some() && part.next(1).is_some() && part.next(2).is_none());
        let folder = tempfile::tempdir().expect("a folder");
        let small = begin(folder.path(), 6, 1 << 20);
        assert_eq!(join(&small, "a").next(1), None, "little is left");
    }

    #[test]
    fn a_lost_connections_range_goes_to_another_with_what_has_arrived() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = begin(folder.path(), 4, 4 << 20);
        let lost = join(&file, "a");
        let range = lost.next(0).expect("a range");
        assert_eq!(range.spans, 0..4);
        let arrived = write(&file, 2);
        drop(lost);
        assert!(file.has_left() && !file.is_whole());
        let other = join(&file, "b");
        let range = other.next(0).expect("a range");
        assert_eq!(range, NextRange { spans: 0..4, held: vec![(2, arrived)] });
        let values = [write(&file, 0), write(&file, 1), arrived, write(&file, 3)];
        assert!(file.finish(false).is_err(), "its ranges are not complete");
        other.done(&range.spans, &values);
        assert!(file.is_whole());
        let stored = file.finish(false).expect("it is stored");
        let whole = std::fs::read(folder.path().join("big")).expect("a file");
        assert_eq!((stored.hash, stored.kept), (*blake3::hash(&whole).as_bytes(), 0));
        assert_eq!(whole.len() as u64, 4 * SPAN_BYTES);
    }

    #[test]
    fn a_connection_that_still_writes_keeps_its_ranges() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = begin(folder.path(), 4, 4 << 20);
        let (part, mut leaving) = file.join("a".to_owned());
        assert!(part.confirm(Some(file.version), 0o640, None));
        assert_eq!(part.next(0).expect("a range").spans, 0..4);
        let writing = part.clone();
        drop(part);
        assert_eq!(leaving.0.try_recv(), Err(TryRecvError::Empty));
        assert!(!file.has_left());
        drop(writing);
        assert_eq!(leaving.0.try_recv(), Err(TryRecvError::Closed));
        assert!(file.has_left());
    }

    #[test]
    fn what_an_earlier_transfer_left_is_kept() {
        let folder = tempfile::tempdir().expect("a folder");
        let first = write(&begin(folder.path(), 3, 1 << 20), 1);
        let file = begin(folder.path(), 3, 8 << 20);
        let part = join(&file, "a");
        let range = part.next(0).expect("a range");
        assert_eq!(range, NextRange { spans: 0..3, held: vec![(1, first)] });
        let values = [write(&file, 0), first, write(&file, 2)];
        part.done(&range.spans, &values);
        assert_eq!(file.finish(false).expect("it is stored").kept, SPAN_BYTES);
    }

    #[test]
    fn parts_of_one_file_are_written_at_once_and_found_by_the_transfer_of_the_whole() {
        let folder = tempfile::tempdir().expect("a folder");
        let root = Root::open(folder.path()).expect("a folder");
        let path = RelPath::parse(b"big").expect("a path");
        let version = FileVersion { size: 5 * SPAN_BYTES - 7, mtime: MTIME };
        let part = |bytes: Range<u64>| {
            let begun = DividedFile::begin_part(&root, &path, (version, "a"), 0o640, bytes);
            begun.expect("a partial file").expect("a disk")
        };
        let fetch = |file: &Arc<DividedFile>, spans: Range<u64>| {
            let part = join(file, "a");
            let range = part.next(0).expect("a range");
            assert_eq!(range.spans, spans, "nothing else of the file");
            let write = |span: u64| {
                let range = file.partial.spans().range(span).expect("a span");
                let bytes = vec![span as u8 + 1; (range.end - range.start) as usize];
                file.partial.write_at(range.start, &bytes).expect("room");
                file.partial.known(span).expect("it is whole").value()
            };
            let values: Vec<_> = spans.clone().map(write).collect();
            assert!(!file.is_complete());
            part.done(&spans, &values);
        };
        let (first, last) = (part(0..2 * SPAN_BYTES), part(2 * SPAN_BYTES..version.size));
        // a transfer of the whole file waits for both
        assert!(DividedFile::begin(&root, &path, (version, "a"), (1, 1)).is_err());
        fetch(&last, 2..5);
        fetch(&first, 0..2);
        assert!(first.is_complete() && last.is_complete());
        last.finish_part(true).expect("it is on the disk");
        assert!(first.finish(false).is_err(), "it has a part alone");
        // a part into which nothing was written takes nothing away from the others
        drop((first, part(0..SPAN_BYTES), last));
        let held = |next: NextRange| next.held.iter().map(|(span, _)| *span).collect::<Vec<_>>();
        let again = part(SPAN_BYTES..3 * SPAN_BYTES);
        assert_eq!(held(join(&again, "a").next(0).expect("a range")), [1, 2]);
        drop(again);
        let all = DividedFile::begin(&root, &path, (version, "a"), (1, version.size));
        let all = all.expect("a partial file").expect("a disk");
        assert_eq!(held(join(&all, "a").next(0).expect("a range")), [0, 1, 2, 3, 4]);
    }

    #[test]
    fn a_file_for_which_the_disk_has_no_room_has_no_parts() {
        let folder = tempfile::tempdir().expect("a folder");
        let root = Root::open(folder.path()).expect("a folder");
        let path = RelPath::parse(b"big").expect("a path");
        let version = FileVersion { size: 1 << 60, mtime: MTIME };
        let begun = DividedFile::begin_part(&root, &path, (version, "a"), 0o640, 0..SPAN_BYTES);
        assert!(begun.expect("a disk").is_none());
        assert_eq!(std::fs::read_dir(folder.path()).expect("a folder").count(), 0);
    }

    #[test]
    fn no_more_spans_are_remembered_than_fit_into_memory_whatever_a_server_says() {
        let folder = tempfile::tempdir().expect("a folder");
        let root = Root::open(folder.path()).expect("a folder");
        let path = RelPath::parse(b"big").expect("a path");
        for size in [(1 << 40) + 1, 1 << 62] {
            let version = FileVersion { size, mtime: MTIME };
            let begun = DividedFile::begin(&root, &path, (version, "a"), (3, 64 << 20));
            let error = begun.expect_err("it has too many spans").to_string();
            assert!(error.contains("more than 1 TiB"), "{error}");
            let part = DividedFile::begin_part(&root, &path, (version, "a"), 0o640, 0..size);
            assert!(part.expect("a disk").is_none());
        }
        assert_eq!(std::fs::read_dir(folder.path()).expect("a folder").count(), 0);
    }

    #[test]
    fn another_version_is_an_error_that_names_both_servers() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = begin(folder.path(), 3, 1 << 20);
        let part = join(&file, "one.example");
        let (other, _leaving) = file.join("two.example".to_owned());
        assert!(!other.has_begun());
        let version = FileVersion { size: 7, mtime: MTIME };
        assert!(!other.confirm(Some(version), 0o600, None) && other.has_begun());
        let failure = file.failure().expect("a reason");
        for words in ["one.example", "two.example", "7 bytes", "3145728 bytes", "1700000000"] {
            assert!(failure.contains(words), "{failure}");
        }
        assert!(part.next(0).is_none() && !file.has_left());
    }

    #[test]
    fn what_was_written_must_have_the_servers_hash() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = begin(folder.path(), 1, 1 << 20);
        let part = join(&file, "a");
        let range = part.next(0).expect("a range");
        write(&file, 0);
        let other = Spans::new(SPAN_BYTES).value(0, &vec![9; SPAN_BYTES as usize]);
        part.done(&range.spans, &[other.expect("a span")]);
        assert!(file.finish(false).is_err());
        assert!(!folder.path().join("big").exists());
    }
}
