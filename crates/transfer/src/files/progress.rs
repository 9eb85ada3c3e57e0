//! Which octets of a file came, and the hashes of its spans, each made once.
//!
//! Octets that came stay what they were: what comes again is not written again,
//! or what lies there could be another thing than what was hashed.

use std::collections::HashMap;
use std::ops::Range;

use headroom_transfer_proto::span::{ChainingValue, Hash, SpanHasher, Spans, Tree};

use super::error::ErrorKind;
use super::ranges::Ranges;

/// Octets of a span that are hashed together before it is whole.
const HASHED_TOGETHER: u64 = 64 << 10;
/// Spans that may be incomplete at once, 2 KiB of memory each.
const MOST_OPEN: usize = 1024;
/// Ranges that all of them may have.
const MOST_RANGES: usize = 1 << 15;

/// What is known of a file that is being received.
#[derive(Debug)]
pub(super) struct Progress {
    tree: Tree,
    open: HashMap<u64, OpenSpan>,
    /// Ranges of all open spans.
    ranges: usize,
    /// Values of spans that lie here since before, which the sender may replace.
    claims: HashMap<u64, ChainingValue>,
    /// Octets of spans that came and are whole.
    came: u64,
}

/// A span of which a part came.
#[derive(Debug)]
struct OpenSpan {
    /// Octets that somebody has written or is writing.
    taken: Ranges,
    /// Octets that lie in the file.
    written: Ranges,
    /// Absent while somebody hashes.
    hasher: Option<SpanHasher>,
    /// Where the octets that are hashed end.
    hashed: u64,
}

/// Octets to hash, and what is to be done with them.
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
        }
    }

    /// Takes octets of one span into one's care: those that nobody else has
    /// written or writes. They are to be `written` or `given_back`.
    ///
    /// # Errors
    /// More pieces lie apart than are kept in mind.
    pub(super) fn take(
        &mut self,
        span: u64,
        range: &Range<u64>,
    ) -> Result<Vec<Range<u64>>, ErrorKind> {
        if self.tree.contains(span) {
            return Ok(Vec::new());
        }
        if !self.open.contains_key(&span) {
            let (Some(octets), Some(hasher)) =
                (self.tree.spans().range(span), self.tree.spans().hasher(span))
            else {
                return Err(ErrorKind::BeyondEnd);
            };
            if self.open.len() >= MOST_OPEN {
                return Err(ErrorKind::Scattered);
            }
            let (taken, written) = (Ranges::default(), Ranges::default());
            let hashed = octets.start;
            self.open.insert(span, OpenSpan { taken, written, hasher: Some(hasher), hashed });
        }
        // the sender means to replace what lies there
        self.claims.remove(&span);
        let Some(open) = self.open.get_mut(&span) else { return Ok(Vec::new()) };
        let gaps = open.taken.gaps(range);
        if !gaps.is_empty() && self.ranges >= MOST_RANGES {
            return Err(ErrorKind::Scattered);
        }
        self.ranges -= open.taken.len();
        gaps.iter().for_each(|gap| open.taken.insert(gap));
        self.ranges += open.taken.len();
        Ok(gaps)
    }

    /// Octets that were taken could not be written.
    pub(super) fn given_back(&mut self, span: u64, range: &Range<u64>) {
        if let Some(open) = self.open.get_mut(&span) {
            self.ranges -= open.taken.len();
            open.taken.remove(range);
            self.ranges += open.taken.len();
        }
    }

    /// Octets that were taken lie in the file.
    pub(super) fn written(&mut self, span: u64, range: &Range<u64>) {
        if let Some(open) = self.open.get_mut(&span) {
            self.ranges -= open.written.len();
            open.written.insert(range);
            self.ranges += open.written.len();
        }
    }

    /// What of a span is worth hashing now, if nobody hashes it: the octets that
    /// follow those that are hashed, if they are many or the span's last. They
    /// are to be `hashed` or `not_hashed`.
    pub(super) fn next_task(&mut self, span: u64) -> Option<Task> {
        let end = self.tree.spans().range(span)?.end;
        let open = self.open.get_mut(&span)?;
        let reach = open.written.reach(open.hashed);
        if reach < end && reach - open.hashed < HASHED_TOGETHER {
            return None;
        }
        Some(Task { hasher: open.hasher.take()?, range: open.hashed..reach })
    }

    /// A task is done. The last one of a span gives its value.
    pub(super) fn hashed(&mut self, span: u64, task: Task) {
        if let Some(value) = task.hasher.finish() {
            if let Some(open) = self.open.remove(&span) {
                self.ranges -= open.taken.len() + open.written.len();
            }
            if self.tree.insert(span, value) {
                self.came += self.tree.spans().range(span).map_or(0, |it| it.end - it.start);
            }
        } else if let Some(open) = self.open.get_mut(&span) {
            open.hashed = task.range.end;
            open.hasher = Some(task.hasher);
        }
    }

    /// A task could not be done: the span is hashed from its beginning again.
    pub(super) fn not_hashed(&mut self, span: u64) {
        if let (Some(open), Some(octets)) =
            (self.open.get_mut(&span), self.tree.spans().range(span))
        {
            open.hashed = octets.start;
            open.hasher = self.tree.spans().hasher(span);
        }
    }

    /// Whether nothing of a span came or was claimed.
    pub(super) fn is_untouched(&self, span: u64) -> bool {
        !self.tree.contains(span)
            && !self.open.contains_key(&span)
            && !self.claims.contains_key(&span)
    }

    /// The value that was claimed for a span.
    pub(super) fn claimed(&self, span: u64) -> Option<ChainingValue> {
        self.claims.get(&span).copied()
    }

    /// A span of this value lies here since before. It counts unless octets of
    /// it come.
    pub(super) fn claim(&mut self, span: u64, value: ChainingValue) {
        self.claims.insert(span, value);
    }

    /// Octets of spans that came and are whole.
    pub(super) fn came(&self) -> u64 {
        self.came
    }

    /// How many spans are whole, claimed ones among them.
    pub(super) fn present(&self) -> u64 {
        self.tree.present() + self.claims.len() as u64
    }

    /// The file's hash, with what was claimed and not replaced.
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
    use headroom_transfer_proto::span::SPAN_OCTETS;

    use super::*;

    fn done(progress: &mut Progress, span: u64, mut task: Task, file: &[u8]) {
        task.hasher.update(&file[task.range.start as usize..task.range.end as usize]);
        progress.hashed(span, task);
    }

    #[test]
    fn octets_are_taken_once_and_hashed_once() {
        let file = vec![5; SPAN_OCTETS as usize + 3];
        let mut progress = Progress::new(Spans::new(file.len() as u64));
        let mut taken = |start, end| match progress.take(0, &(start..end)).expect("room")[..] {
            [Range { start, end }] => (start, end),
            ref other => panic!("{other:?}"),
        };
        assert_eq!(taken(0, 70_000), (0, 70_000));
        assert_eq!(taken(60_000, 80_000), (70_000, 80_000));
        progress.written(0, &(70_000..80_000));
        assert!(progress.next_task(0).is_none(), "the first octets are not written");
        progress.written(0, &(0..70_000));
        let task = progress.next_task(0).expect("a task");
        assert_eq!(task.range, 0..80_000);
        assert!(progress.next_task(0).is_none(), "somebody hashes");
        done(&mut progress, 0, task, &file);
        let rest = 80_000..SPAN_OCTETS;
        let taken = progress.take(0, &(0..SPAN_OCTETS)).expect("room");
        assert_eq!(taken, std::slice::from_ref(&rest));
        progress.written(0, &(80_000..SPAN_OCTETS));
        let task = progress.next_task(0).expect("a task");
        done(&mut progress, 0, task, &file);
        assert!(progress.take(0, &(0..9)).expect("room").is_empty(), "it is whole");
        assert!(matches!(progress.root(), Err(ErrorKind::Incomplete { missing: 1, all: 2 })));
        let last = SPAN_OCTETS..SPAN_OCTETS + 3;
        assert_eq!(progress.take(1, &last).expect("room"), std::slice::from_ref(&last));
        progress.written(1, &last);
        let task = progress.next_task(1).expect("few octets, but the last");
        done(&mut progress, 1, task, &file);
        assert_eq!(progress.root().expect("a hash"), blake3::hash(&file));
        assert_eq!((progress.ranges, progress.open.len()), (0, 0));
    }

    #[test]
    fn what_could_not_be_written_or_hashed_can_come_again() {
        let file = vec![6; 100_000];
        let mut progress = Progress::new(Spans::new(100_000));
        assert_eq!(progress.take(0, &(0..100_000)).expect("room").len(), 1);
        progress.given_back(0, &(0..100_000));
        assert_eq!(progress.take(0, &(0..100_000)).expect("room").len(), 1);
        progress.written(0, &(0..100_000));
        assert!(progress.next_task(0).is_some());
        progress.not_hashed(0);
        let task = progress.next_task(0).expect("once more");
        done(&mut progress, 0, task, &file);
        assert_eq!(progress.root().expect("a hash"), blake3::hash(&file));
    }

    #[test]
    fn memory_is_bounded_whatever_comes() {
        let mut progress = Progress::new(Spans::new(u64::MAX));
        let refused = (0..).find(|n| progress.take(0, &(2 * n..2 * n + 1)).is_err());
        assert_eq!(refused, Some(MOST_RANGES as u64));
        let mut progress = Progress::new(Spans::new(u64::MAX));
        let refused = (0..).find(|n| progress.take(*n, &(n << 20..(n << 20) + 1)).is_err());
        assert_eq!(refused, Some(MOST_OPEN as u64));
        assert!(matches!(progress.take(u64::MAX, &(0..1)), Err(ErrorKind::BeyondEnd)));
    }

    #[test]
    fn a_claim_counts_until_octets_of_its_span_come() {
        let file = vec![7; 2 * SPAN_OCTETS as usize];
        let spans = Spans::new(2 * SPAN_OCTETS);
        let value = |span| spans.value(span, &file[..SPAN_OCTETS as usize]).expect("a value");
        let mut progress = Progress::new(spans);
        progress.claim(0, ChainingValue([0; 32]));
        progress.claim(1, value(1));
        assert_eq!(progress.present(), 2);
        progress.take(0, &(0..1)).expect("room");
        assert_eq!(progress.present(), 1, "one octet of it came");
        progress.take(0, &(1..SPAN_OCTETS)).expect("room");
        progress.written(0, &(0..SPAN_OCTETS));
        let task = progress.next_task(0).expect("a task");
        done(&mut progress, 0, task, &file);
        assert_eq!(progress.root().expect("a hash"), blake3::hash(&file));
    }
}
