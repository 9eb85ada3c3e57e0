//! Tracks which bytes of a file arrived, and hashes each span once: by BLAKE3 in order, by a CRC as
//! its pieces arrive.
//!
//! Bytes that arrived are never overwritten by duplicates, so the file is what was hashed.

use std::collections::HashMap;
use std::ops::Range;

use headroom_transfer_proto::span::{ChainingValue, Hash, PieceSum, SpanHasher, Spans, Tree};

use super::error::ErrorKind;
use super::ranges::Ranges;

/// Contiguous bytes that are worth hashing before a span is complete.
const HASHED_TOGETHER: u64 = 64 << 10;
/// The most incomplete spans at once, 2 KiB of memory each.
const MAX_OPEN: usize = 1024;
/// The most ranges of all of them.
const MAX_RANGES: usize = 1 << 15;

/// The progress of receiving a file.
#[derive(Debug)]
pub(super) struct Progress {
    tree: Tree,
    open: HashMap<u64, OpenSpan>,
    /// Ranges of all incomplete spans.
    ranges: usize,
    /// Values of spans that were present, which the sender may replace.
    claims: HashMap<u64, ChainingValue>,
    /// Bytes of complete spans that arrived.
    came: u64,
    /// Values of spans that arrived, if they are asked for: the tree forgets them.
    values: Option<HashMap<u64, ChainingValue>>,
}

/// What is known of a complete span.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KnownSpan {
    /// It arrived, and has this value.
    Arrived(ChainingValue),
    /// It was present, has this value, and counts unless data for it arrives.
    Claimed(ChainingValue),
}

impl KnownSpan {
    /// Returns its value.
    pub(crate) const fn value(self) -> ChainingValue {
        match self {
            Self::Arrived(value) | Self::Claimed(value) => value,
        }
    }
}

/// An incomplete span.
#[derive(Debug)]
struct OpenSpan {
    /// Bytes written or being written.
    taken: Ranges,
    /// Bytes written.
    written: Ranges,
    /// `None` while a thread hashes, and where pieces are summed.
    hasher: Option<SpanHasher>,
    /// The end of the hashed bytes.
    hashed: u64,
    /// The sum of what was written, where that takes any order.
    sum: PieceSum,
}

/// A range to hash, and its hasher.
#[derive(Debug)]
pub(super) struct Task {
    pub(super) hasher: SpanHasher,
    pub(super) range: Range<u64>,
}

impl Progress {
    pub(super) fn new(spans: Spans) -> Self {
        Self {
            tree: Tree::new(spans),
            open: HashMap::new(),
            ranges: 0,
            claims: HashMap::new(),
            came: 0,
            values: None,
        }
    }

    /// Reserves the bytes of one span that nobody else has written or is writing. Report them as
    /// `written` or `given_back`.
    ///
    /// # Errors
    /// There are too many separate pieces.
    pub(super) fn take(
        &mut self,
        span: u64,
        range: &Range<u64>,
    ) -> Result<Vec<Range<u64>>, ErrorKind> {
        if self.tree.contains(span) {
            return Ok(Vec::new());
        }
        if !self.open.contains_key(&span) {
            let spans = self.tree.spans();
            let Some(bytes) = spans.range(span) else { return Err(ErrorKind::BeyondEnd) };
            if self.open.len() >= MAX_OPEN {
                return Err(ErrorKind::Scattered);
            }
            let (taken, written) = (Ranges::default(), Ranges::default());
            let hasher = if spans.takes_any_order() { None } else { spans.hasher(span) };
            let (hashed, sum) = (bytes.start, PieceSum::default());
            self.open.insert(span, OpenSpan { taken, written, hasher, hashed, sum });
        }
        // the sender replaces what was present
        self.claims.remove(&span);
        let Some(open) = self.open.get_mut(&span) else { return Ok(Vec::new()) };
        let gaps = open.taken.gaps(range);
        if !gaps.is_empty() && self.ranges >= MAX_RANGES {
            return Err(ErrorKind::Scattered);
        }
        self.ranges -= open.taken.len();
        gaps.iter().for_each(|gap| open.taken.insert(gap));
        self.ranges += open.taken.len();
        Ok(gaps)
    }

    /// Releases reserved bytes that could not be written.
    pub(super) fn given_back(&mut self, span: u64, range: &Range<u64>) {
        if let Some(open) = self.open.get_mut(&span) {
            self.ranges -= open.taken.len();
            open.taken.remove(range);
            self.ranges += open.taken.len();
        }
    }

    /// Notes that reserved bytes were written. `sum` is theirs, where pieces take any order: the
    /// last one of a span gives its value.
    pub(super) fn written(&mut self, span: u64, range: &Range<u64>, sum: Option<PieceSum>) {
        let Some(open) = self.open.get_mut(&span) else { return };
        self.ranges -= open.written.len();
        open.written.insert(range);
        self.ranges += open.written.len();
        if let Some(sum) = sum {
            open.sum.add(sum);
            if let Some(value) = self.tree.spans().value_of_sum(span, open.sum) {
                self.complete(span, value);
            }
        }
    }

    /// Returns what is worth hashing now, unless another thread hashes the span: the bytes after
    /// the hashed ones, if they are many or the span's last. Report the task as `hashed` or
    /// `not_hashed`.
    pub(super) fn next_task(&mut self, span: u64) -> Option<Task> {
        let end = self.tree.spans().range(span)?.end;
        let open = self.open.get_mut(&span)?;
        let reach = open.written.reach(open.hashed);
        if reach < end && reach - open.hashed < HASHED_TOGETHER {
            return None;
        }
        Some(Task { hasher: open.hasher.take()?, range: open.hashed..reach })
    }

    /// Notes a finished task. The last one of a span gives its value.
    pub(super) fn hashed(&mut self, span: u64, task: Task) {
        if let Some(value) = task.hasher.finish() {
            self.complete(span, value);
        } else if let Some(open) = self.open.get_mut(&span) {
            open.hashed = task.range.end;
            open.hasher = Some(task.hasher);
        }
    }

    fn complete(&mut self, span: u64, value: ChainingValue) {
        if let Some(open) = self.open.remove(&span) {
            self.ranges -= open.taken.len() + open.written.len();
        }
        if let Some(values) = &mut self.values {
            values.insert(span, value);
        }
        if self.tree.insert(span, value) {
            self.came += self.tree.spans().range(span).map_or(0, |it| it.end - it.start);
        }
    }

    /// Notes a failed task: the span is hashed from its beginning again.
    pub(super) fn not_hashed(&mut self, span: u64) {
        if let (Some(open), Some(bytes)) = (self.open.get_mut(&span), self.tree.spans().range(span))
        {
            open.hashed = bytes.start;
            open.hasher = self.tree.spans().hasher(span);
        }
    }

    /// Whether all bytes of a span arrived.
    pub(super) fn is_whole(&self, span: u64) -> bool {
        self.tree.contains(span)
    }

    /// Whether nothing of a span arrived or is claimed.
    pub(super) fn is_untouched(&self, span: u64) -> bool {
        !self.tree.contains(span)
            && !self.open.contains_key(&span)
            && !self.claims.contains_key(&span)
    }

    /// Returns the claimed value of a span.
    pub(super) fn claimed(&self, span: u64) -> Option<ChainingValue> {
        self.claims.get(&span).copied()
    }

    /// Claims that a span with this value is present. It counts unless data for it arrives.
    pub(super) fn claim(&mut self, span: u64, value: ChainingValue) {
        self.claims.insert(span, value);
    }

    /// Keeps the values of spans that arrive from now on.
    pub(super) fn remember(&mut self) {
        self.values.get_or_insert_default();
    }

    /// Makes claims of spans that arrived and are [remembered](Self::remember). Of all others that
    /// arrived nothing counts.
    pub(super) fn reopen(&mut self) {
        let mut claims = std::mem::take(&mut self.claims);
        claims.extend(self.values.take().unwrap_or_default());
        *self = Self { claims, ..Self::new(self.tree.spans()) };
    }

    /// Returns what is known of a complete span. Of one that arrived, only if it was to be
    /// [remembered](Self::remember).
    pub(super) fn known(&self, span: u64) -> Option<KnownSpan> {
        let arrived = self.values.as_ref().and_then(|values| values.get(&span));
        let claimed = || self.claims.get(&span).copied().map(KnownSpan::Claimed);
        arrived.copied().map(KnownSpan::Arrived).or_else(claimed)
    }

    /// Bytes of complete spans that arrived.
    pub(super) fn came(&self) -> u64 {
        self.came
    }

    /// Returns the number of complete and claimed spans.
    pub(super) fn present(&self) -> u64 {
        self.tree.present() + self.claims.len() as u64
    }

    /// Computes the file's hash, with claimed spans that were not replaced.
    ///
    /// # Errors
    /// Spans are missing.
    pub(super) fn root(&mut self) -> Result<Hash, ErrorKind> {
        let all = self.tree.spans().count();
        if self.present() == all {
            for (span, value) in self.claims.drain() {
                self.tree.insert(span, value);
            }
        }
        self.tree.root().ok_or(ErrorKind::Incomplete { missing: all - self.present(), all })
    }
}

#[cfg(test)]
mod tests {
    use headroom_transfer_proto::span::{SPAN_BYTES, Verification};

    use super::*;

    fn done(progress: &mut Progress, span: u64, mut task: Task, file: &[u8]) {
        task.hasher.update(&file[task.range.start as usize..task.range.end as usize]);
        progress.hashed(span, task);
    }

    #[test]
    fn bytes_are_taken_once_and_hashed_once() {
        let file = vec![5; SPAN_BYTES as usize + 3];
        let mut progress = Progress::new(Spans::new(file.len() as u64));
        let mut taken = |start, end| match progress.take(0, &(start..end)).expect("room")[..] {
            [Range { start, end }] => (start, end),
            ref other => panic!("{other:?}"),
        };
        assert_eq!(taken(0, 70_000), (0, 70_000));
        assert_eq!(taken(60_000, 80_000), (70_000, 80_000));
        progress.written(0, &(70_000..80_000), None);
        assert!(progress.next_task(0).is_none(), "the first bytes are not written");
        progress.written(0, &(0..70_000), None);
        let task = progress.next_task(0).expect("a task");
        assert_eq!(task.range, 0..80_000);
        assert!(progress.next_task(0).is_none(), "somebody hashes");
        done(&mut progress, 0, task, &file);
        let rest = 80_000..SPAN_BYTES;
        let taken = progress.take(0, &(0..SPAN_BYTES)).expect("room");
        assert_eq!(taken, std::slice::from_ref(&rest));
        progress.written(0, &(80_000..SPAN_BYTES), None);
        let task = progress.next_task(0).expect("a task");
        done(&mut progress, 0, task, &file);
        assert!(progress.take(0, &(0..9)).expect("room").is_empty(), "it is whole");
        assert!(matches!(progress.root(), Err(ErrorKind::Incomplete { missing: 1, all: 2 })));
        let last = SPAN_BYTES..SPAN_BYTES + 3;
        assert_eq!(progress.take(1, &last).expect("room"), std::slice::from_ref(&last));
        progress.written(1, &last, None);
        let task = progress.next_task(1).expect("few bytes, but the last");
        done(&mut progress, 1, task, &file);
        assert_eq!(progress.root().expect("a hash"), blake3::hash(&file));
        assert_eq!((progress.ranges, progress.open.len()), (0, 0));
    }

    #[test]
    fn spans_that_could_not_be_written_or_hashed_are_accepted_again() {
        let file = vec![6; 100_000];
        let mut progress = Progress::new(Spans::new(100_000));
        assert_eq!(progress.take(0, &(0..100_000)).expect("room").len(), 1);
        progress.given_back(0, &(0..100_000));
        assert_eq!(progress.take(0, &(0..100_000)).expect("room").len(), 1);
        progress.written(0, &(0..100_000), None);
        assert!(progress.next_task(0).is_some());
        progress.not_hashed(0);
        let task = progress.next_task(0).expect("once more");
        done(&mut progress, 0, task, &file);
        assert_eq!(progress.root().expect("a hash"), blake3::hash(&file));
    }

    #[test]
    fn pieces_of_a_crc_are_summed_as_they_arrive_and_never_read_back() {
        let file: Vec<u8> = (0..SPAN_BYTES + 9).map(|n| (n % 251) as u8).collect();
        let spans = Spans::new(file.len() as u64).verified_by(Verification::Crc64);
        let mut progress = Progress::new(spans);
        let arrive = |progress: &mut Progress, start: u64, end: u64| {
            let span = start / SPAN_BYTES;
            for gap in progress.take(span, &(start..end)).expect("room") {
                let bytes = &file[gap.start as usize..gap.end as usize];
                progress.written(span, &gap, spans.piece_sum(&gap, Some(bytes)));
                assert!(progress.next_task(span).is_none(), "nothing is left to be hashed");
            }
        };
        arrive(&mut progress, 500_000, SPAN_BYTES);
        // one could not be written, and arrives again with bytes that are there
        assert_eq!(progress.take(0, &(100..2_000)).expect("room").len(), 1);
        progress.given_back(0, &(100..2_000));
        arrive(&mut progress, 1, 600_000);
        arrive(&mut progress, SPAN_BYTES, SPAN_BYTES + 9);
        assert_eq!(progress.came(), 9);
        arrive(&mut progress, 0, 4);
        assert_eq!((progress.came(), progress.ranges, progress.open.len()), (spans.size(), 0, 0));
        let mut tree = Tree::new(spans);
        for span in 0..2 {
            let range = spans.range(span).expect("a span");
            let bytes = &file[range.start as usize..range.end as usize];
            tree.insert(span, spans.value(span, bytes).expect("all bytes"));
        }
        assert_eq!(Some(progress.root().expect("a CRC")), tree.root());
    }

    #[test]
    fn memory_is_bounded_for_any_input() {
        let mut progress = Progress::new(Spans::new(u64::MAX));
        let refused = (0..).find(|n| progress.take(0, &(2 * n..2 * n + 1)).is_err());
        assert_eq!(refused, Some(MAX_RANGES as u64));
        let mut progress = Progress::new(Spans::new(u64::MAX));
        let refused = (0..).find(|n| progress.take(*n, &(n << 20..(n << 20) + 1)).is_err());
        assert_eq!(refused, Some(MAX_OPEN as u64));
        assert!(matches!(progress.take(u64::MAX, &(0..1)), Err(ErrorKind::BeyondEnd)));
    }

    #[test]
    fn values_of_spans_that_arrived_are_remembered_on_request() {
        let file = vec![8; 2 * SPAN_BYTES as usize];
        let spans = Spans::new(2 * SPAN_BYTES);
        let value = |span| spans.value(span, &file[..SPAN_BYTES as usize]).expect("a value");
        for remembers in [false, true] {
            let mut progress = Progress::new(spans);
            if remembers {
                progress.remember();
            }
            progress.claim(0, ChainingValue([0; 32]));
            assert_eq!(progress.known(0), Some(KnownSpan::Claimed(ChainingValue([0; 32]))));
            progress.take(0, &(0..SPAN_BYTES)).expect("room");
            assert_eq!(progress.known(0), None, "data replaces what was claimed");
            progress.written(0, &(0..SPAN_BYTES), None);
            let task = progress.next_task(0).expect("a task");
            done(&mut progress, 0, task, &file);
            let arrived = remembers.then(|| KnownSpan::Arrived(value(0)));
            assert_eq!(progress.known(0), arrived);
            assert_eq!(progress.known(1), None);
        }
    }

    #[test]
    fn spans_that_arrived_are_replaced_when_the_file_is_reopened() {
        let spans = Spans::new(2 * SPAN_BYTES);
        let [old, new] = [8_u8, 9].map(|byte| vec![byte; 2 * SPAN_BYTES as usize]);
        let arrive = |progress: &mut Progress, span: u64, file: &[u8]| {
            let range = spans.range(span).expect("a span");
            let taken = progress.take(span, &range).expect("room");
            assert_eq!(taken, std::slice::from_ref(&range));
            progress.written(span, &range, None);
            let task = progress.next_task(span).expect("a task");
            done(progress, span, task, file);
        };
        let mut progress = Progress::new(spans);
        progress.remember();
        arrive(&mut progress, 0, &old);
        progress.take(1, &(SPAN_BYTES..SPAN_BYTES + 9)).expect("room");
        assert_eq!(progress.came(), SPAN_BYTES);
        progress.reopen();
        let value = spans.value(0, &old[..SPAN_BYTES as usize]).expect("a value");
        assert_eq!(progress.known(0), Some(KnownSpan::Claimed(value)));
        assert_eq!((progress.known(1), progress.came(), progress.ranges), (None, 0, 0));
        arrive(&mut progress, 0, &new);
        arrive(&mut progress, 1, &new);
        assert_eq!(progress.root().expect("a hash"), blake3::hash(&new));
    }

    #[test]
    fn a_claim_counts_until_bytes_of_its_span_come() {
        let file = vec![7; 2 * SPAN_BYTES as usize];
        let spans = Spans::new(2 * SPAN_BYTES);
        let value = |span| spans.value(span, &file[..SPAN_BYTES as usize]).expect("a value");
        let mut progress = Progress::new(spans);
        progress.claim(0, ChainingValue([0; 32]));
        progress.claim(1, value(1));
        assert_eq!(progress.present(), 2);
        progress.take(0, &(0..1)).expect("room");
        assert_eq!(progress.present(), 1, "one byte of it came");
        progress.take(0, &(1..SPAN_BYTES)).expect("room");
        progress.written(0, &(0..SPAN_BYTES), None);
        let task = progress.next_task(0).expect("a task");
        done(&mut progress, 0, task, &file);
        assert_eq!(progress.root().expect("a hash"), blake3::hash(&file));
    }
}
