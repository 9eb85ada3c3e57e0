//! Hashes files in spans of 1 MiB, aligned subtrees of BLAKE3, in any order; together they give
//! the file's ordinary BLAKE3 hash.
//!
//! A file of more than one span has a chaining value for each, which depends on the span's
//! position (BLAKE3 paper, section 2.1). A file of one span has its hash in that place. An
//! empty file has no span.
//!
//! A file may be verified by CRC-64/NVME instead ([`Verification`]). Then the values of spans are
//! their CRCs, and they give that of the file. Such a value has eight bytes, most significant
//! first, and zeros behind them.

use std::collections::HashMap;
use std::fmt;
use std::ops::Range;

pub use blake3::Hash;
use blake3::hazmat::{HasherExt, Mode, merge_subtrees_non_root, merge_subtrees_root};

use crate::crc::Crc;

/// Bytes of a span; the last one of a file may be shorter.
pub const SPAN_BYTES: u64 = 1 << 20;

/// How the content of a file is verified from the sender's reading to the receiver's writing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, minicbor::Encode, minicbor::Decode)]
#[cbor(index_only)]
pub enum Verification {
    /// By BLAKE3, a cryptographic hash: its spans can be compared with what is present.
    #[default]
    #[n(0)]
    Blake3,
    /// By CRC-64/NVME, which costs a fraction of that and finds faults, not forgeries.
    #[n(1)]
    Crc64,
}

/// The hash of a span.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ChainingValue(pub [u8; 32]);

impl fmt::Debug for ChainingValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(Hash::from_bytes(self.0).to_hex().as_str())
    }
}

impl ChainingValue {
    fn of_crc(crc: Crc) -> Self {
        let mut value = [0; 32];
        value[..8].copy_from_slice(&crc.0.to_be_bytes());
        Self(value)
    }
}

/// Returns the CRC-64/NVME in the value of a span or file that is verified by that.
#[must_use]
pub fn crc_in(value: &[u8; 32]) -> u64 {
    let mut crc = [0; 8];
    crc.copy_from_slice(&value[..8]);
    u64::from_be_bytes(crc)
}

/// The spans of a file of a given size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spans {
    size: u64,
    verification: Verification,
}

impl Spans {
    /// Makes the spans of a file of `size` bytes, which BLAKE3 verifies.
    #[must_use]
    pub const fn new(size: u64) -> Self {
        Self { size, verification: Verification::Blake3 }
    }

    /// Sets how they are verified.
    #[must_use]
    pub const fn verified_by(self, verification: Verification) -> Self {
        Self { verification, ..self }
    }

    /// Returns how they are verified.
    #[must_use]
    pub const fn verification(self) -> Verification {
        self.verification
    }

    /// Returns the file's size in bytes.
    #[must_use]
    pub const fn size(self) -> u64 {
        self.size
    }

    /// Returns how many there are: 0 for an empty file.
    #[must_use]
    pub const fn count(self) -> u64 {
        self.size.div_ceil(SPAN_BYTES)
    }

    /// Returns the bytes of a span; `None` if the file has no such span.
    #[must_use]
    pub fn range(self, span: u64) -> Option<Range<u64>> {
        (span < self.count()).then(|| {
            let start = span * SPAN_BYTES;
            start..self.size.min(start.saturating_add(SPAN_BYTES))
        })
    }

    /// Returns the spans that a range of bytes touches. The range is cut off at the file's end.
    #[must_use]
    pub fn touched(self, bytes: Range<u64>) -> Range<u64> {
        let end = bytes.end.min(self.size);
        if bytes.start >= end {
            return 0..0;
        }
        bytes.start / SPAN_BYTES..end.div_ceil(SPAN_BYTES)
    }

    /// Starts hashing a span; `None` if the file has no such span.
    #[must_use]
    pub fn hasher(self, span: u64) -> Option<SpanHasher> {
        let range = self.range(span)?;
        let state = match self.verification {
            Verification::Blake3 => {
                let mut hasher = blake3::Hasher::new();
                hasher.set_input_offset(range.start);
                State::Blake3(hasher)
            }
            Verification::Crc64 => State::Crc64(Crc::default()),
        };
        Some(SpanHasher { state, lacks: range.end - range.start, alone: self.count() == 1 })
    }

    /// Hashes a span that is in memory as a whole; `None` if `bytes` has another length than the
    /// span.
    #[must_use]
    pub fn value(self, span: u64, bytes: &[u8]) -> Option<ChainingValue> {
        let mut hasher = self.hasher(span)?;
        (hasher.update(bytes) == bytes.len()).then(|| hasher.finish())?
    }

    /// Whether pieces of a span can be hashed in any order ([`Self::piece_sum`]); otherwise a
    /// [`SpanHasher`] takes them from the first byte to the last.
    #[must_use]
    pub const fn takes_any_order(self) -> bool {
        matches!(self.verification, Verification::Crc64)
    }

    /// Hashes a piece of one span: its bytes, or zeros with `None`. Returns `None` if pieces must
    /// be hashed in order, or if this is not a piece of one span.
    #[must_use]
    pub fn piece_sum(self, piece: &Range<u64>, bytes: Option<&[u8]>) -> Option<PieceSum> {
        let span = self.range(piece.start / SPAN_BYTES)?;
        let len = piece.end.checked_sub(piece.start)?;
        let is_within = piece.end <= span.end && bytes.is_none_or(|it| it.len() as u64 == len);
        (self.takes_any_order() && is_within).then(|| {
            let crc = bytes.map_or_else(|| Crc::of_zeros(len), Crc::of);
            PieceSum { crc: crc.moved_up(span.end - piece.end), bytes: len }
        })
    }

    /// Returns the value of a span whose pieces have this sum; `None` while bytes are missing.
    #[must_use]
    pub fn value_of_sum(self, span: u64, sum: PieceSum) -> Option<ChainingValue> {
        let range = self.range(span)?;
        (sum.bytes == range.end - range.start).then(|| ChainingValue::of_crc(sum.crc))
    }

    /// Joins the values of two subtrees of neighbours, the right one with this place in the tree.
    fn joined(self, left: &[u8; 32], right: &[u8; 32], (level, index): (u32, u64)) -> [u8; 32] {
        match self.verification {
            Verification::Blake3 if 2 << level >= self.count() => {
                *merge_subtrees_root(left, right, Mode::Hash).as_bytes()
            }
            Verification::Blake3 => merge_subtrees_non_root(left, right, Mode::Hash),
            Verification::Crc64 => {
                let bytes = |span: u64| span.saturating_mul(SPAN_BYTES).min(self.size);
                let len = bytes((index + 1) << level) - bytes(index << level);
                let joined = Crc(crc_in(left)).joined_with(Crc(crc_in(right)), len);
                ChainingValue::of_crc(joined).0
            }
        }
    }
}

/// The sum of pieces of one span, in any order. Each byte must be in one piece only.
#[derive(Debug, Clone, Copy, Default)]
pub struct PieceSum {
    crc: Crc,
    bytes: u64,
}

impl PieceSum {
    /// Adds another piece of the span, or several.
    pub fn add(&mut self, other: Self) {
        self.crc = self.crc.plus(other.crc);
        self.bytes = self.bytes.saturating_add(other.bytes);
    }
}

/// Hashes one span from its first byte to its last. Pieces of 64 KiB and more are several times
/// faster than small ones.
#[derive(Debug, Clone)]
pub struct SpanHasher {
    state: State,
    /// Bytes that are still missing.
    lacks: u64,
    /// Whether the file has no other span.
    alone: bool,
}

#[derive(Debug, Clone)]
#[expect(clippy::large_enum_variant, reason = "most are the large one")]
enum State {
    Blake3(blake3::Hasher),
    Crc64(Crc),
}

impl SpanHasher {
    /// Hashes the next bytes, and returns how many of them belong to the span.
    pub fn update(&mut self, bytes: &[u8]) -> usize {
        let taken = usize::try_from(self.lacks).map_or(bytes.len(), |n| n.min(bytes.len()));
        match &mut self.state {
            State::Blake3(hasher) => {
                hasher.update(&bytes[..taken]);
            }
            State::Crc64(crc) => *crc = crc.followed_by(&bytes[..taken]),
        }
        self.lacks -= taken as u64;
        taken
    }

    /// Bytes that are still missing.
    #[must_use]
    pub const fn lacks(&self) -> u64 {
        self.lacks
    }

    /// Returns the span's value; `None` while bytes are missing.
    #[must_use]
    pub fn finish(&self) -> Option<ChainingValue> {
        (self.lacks == 0).then(|| match &self.state {
            State::Blake3(hasher) if self.alone => ChainingValue(*hasher.finalize().as_bytes()),
            State::Blake3(hasher) => ChainingValue(hasher.finalize_non_root()),
            State::Crc64(crc) => ChainingValue::of_crc(*crc),
        })
    }
}

/// Collects the values of a file's spans and computes its hash. Siblings are merged as soon as
/// both are there: for spans in order it holds one value for each bit of their number.
#[derive(Debug, Clone)]
pub struct Tree {
    spans: Spans,
    /// Complete subtrees whose sibling is missing. Node `(level, index)` covers
    /// the spans from `index << level` on, 2^level of them or up to the last.
    nodes: HashMap<(u32, u64), ChainingValue>,
    present: u64,
    root: Option<Hash>,
}

impl Tree {
    /// Starts a tree without values for a file of these spans.
    #[must_use]
    pub fn new(spans: Spans) -> Self {
        let root = (spans.size == 0).then(|| match spans.verification {
            Verification::Blake3 => blake3::hash(&[]),
            Verification::Crc64 => Hash::from_bytes(ChainingValue::of_crc(Crc::default()).0),
        });
        Self { spans, nodes: HashMap::new(), present: 0, root }
    }

    /// Adds the value of a span. Returns whether it was missing: a value that is there stays, and
    /// one for a span that the file does not have is dropped.
    pub fn insert(&mut self, span: u64, value: ChainingValue) -> bool {
        let count = self.spans.count();
        if span >= count || self.contains(span) {
            return false;
        }
        self.present += 1;
        if count == 1 {
            self.root = Some(Hash::from_bytes(value.0));
            return true;
        }
        let (mut level, mut index, mut value) = (0, span, value.0);
        loop {
            let sibling = index ^ 1;
            // a subtree at the right edge has no sibling: it is its own parent
            if sibling << level < count {
                let Some(other) = self.nodes.remove(&(level, sibling)) else {
                    self.nodes.insert((level, index), ChainingValue(value));
                    return true;
                };
                let (left, right) =
                    if index < sibling { (&value, &other.0) } else { (&other.0, &value) };
                value = self.spans.joined(left, right, (level, index | 1));
                if 2 << level >= count {
                    self.root = Some(Hash::from_bytes(value));
                    return true;
                }
            }
            level += 1;
            index /= 2;
        }
    }

    /// Whether the value of a span is there.
    #[must_use]
    pub fn contains(&self, span: u64) -> bool {
        span < self.spans.count()
            && (self.root.is_some()
                || (0..u64::BITS).any(|level| self.nodes.contains_key(&(level, span >> level))))
    }

    /// Returns how many values are there.
    #[must_use]
    pub const fn present(&self) -> u64 {
        self.present
    }

    /// Returns the file's spans.
    #[must_use]
    pub const fn spans(&self) -> Spans {
        self.spans
    }

    /// Returns the file's BLAKE3 hash, or its CRC as a value; `None` while a value is missing.
    #[must_use]
    pub const fn root(&self) -> Option<Hash> {
        self.root
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use proptest::sample::Index;

    use super::*;

    const MIB: usize = 1 << 20;

    fn bytes(size: usize) -> Vec<u8> {
        let mut bytes = vec![0; size];
        blake3::Hasher::new().update(b"octets").finalize_xof().fill(&mut bytes);
        bytes
    }

    fn value(file: &[u8], spans: Spans, span: u64) -> ChainingValue {
        let range = spans.range(span).expect("a span");
        let bytes = &file[range.start as usize..range.end as usize];
        spans.value(span, bytes).expect("all bytes of the span")
    }

    fn by_crc(size: usize) -> Spans {
        Spans::new(size as u64).verified_by(Verification::Crc64)
    }

    fn root(file: &[u8], order: impl IntoIterator<Item = u64>) -> Option<Hash> {
        let spans = Spans::new(file.len() as u64);
        let mut tree = Tree::new(spans);
        for span in order {
            assert!(!tree.contains(span));
            assert!(tree.insert(span, value(file, spans, span)));
            assert!(tree.contains(span));
            assert!(!tree.insert(span, ChainingValue([0; 32])), "taken twice");
        }
        tree.root()
    }

    #[test]
    fn spans_of_files_at_every_edge_give_the_ordinary_hash() {
        let all = bytes(9 * MIB + 1);
        for size in [0, 1, 1024, 1025, MIB - 1, MIB, MIB + 1, 2 * MIB - 1, 2 * MIB, 2 * MIB + 1]
            .into_iter()
            .chain((3..10).flat_map(|n| [n * MIB, n * MIB + 1]))
        {
            let file = &all[..size];
            let count = Spans::new(size as u64).count();
            let hash = Some(blake3::hash(file));
            assert_eq!(root(file, 0..count), hash, "{size} bytes");
            assert_eq!(root(file, (0..count).rev()), hash, "{size} bytes");
            if count > 0 {
                assert_eq!(root(file, 1..count), None, "{size} bytes");
            }
        }
    }

    #[test]
    fn spans_of_files_at_every_edge_give_the_ordinary_crc() {
        let all = bytes(5 * MIB + 1);
        for size in [0, 1, MIB - 1, MIB, MIB + 1, 2 * MIB, 3 * MIB + 5, 5 * MIB, 5 * MIB + 1] {
            let (file, spans) = (&all[..size], by_crc(size));
            for is_reverse in [false, true] {
                let mut tree = Tree::new(spans);
                for n in 0..spans.count() {
                    let span = if is_reverse { spans.count() - 1 - n } else { n };
                    assert_eq!(tree.root(), None, "{size} bytes");
                    assert!(tree.insert(span, value(file, spans, span)));
                }
                let root = *tree.root().expect("all spans").as_bytes();
                assert_eq!(crc_in(&root), Crc::of(file).0, "{size} bytes");
                assert_eq!(root[8..], [0; 24]);
            }
        }
    }

    #[test]
    fn pieces_in_any_order_give_the_value_of_their_span() {
        let file = bytes(2 * MIB + 77_777);
        let spans = by_crc(file.len());
        let cuts = [0, 1, 300_000, MIB, MIB + 4096, 2 * MIB, 2 * MIB + 77_776, file.len()];
        let pieces: Vec<_> = cuts.windows(2).map(|cut| cut[0]..cut[1]).collect();
        let mut sums = [PieceSum::default(); 3];
        for (n, piece) in pieces.iter().enumerate().rev() {
            let span = piece.start / MIB;
            let is_last = n == 0 || pieces[n - 1].start / MIB < span;
            let range = piece.start as u64..piece.end as u64;
            let sum = spans.piece_sum(&range, Some(&file[piece.clone()])).expect("a piece");
            assert_eq!(spans.value_of_sum(span as u64, sums[span]), None, "bytes are missing");
            sums[span].add(sum);
            let whole = is_last.then(|| value(&file, spans, span as u64));
            assert_eq!(spans.value_of_sum(span as u64, sums[span]), whole);
        }
        let zeros = vec![0; 70_000];
        let sum = |bytes: Option<&[u8]>| spans.piece_sum(&(5..70_005), bytes).expect("a piece").crc;
        assert_eq!(sum(None), sum(Some(&zeros)));
        assert!(spans.piece_sum(&(5..70_005), Some(&zeros[1..])).is_none(), "another length");
        let across = MIB as u64 - 1..MIB as u64 + 1;
        assert!(spans.piece_sum(&across, Some(&[1, 2])).is_none(), "of two spans");
        assert!(spans.piece_sum(&(u64::MAX - 1..u64::MAX), None).is_none(), "beyond the end");
        let in_order = Spans::new(file.len() as u64);
        assert!(in_order.piece_sum(&(0..1), Some(&[1])).is_none(), "BLAKE3 needs an order");
    }

    #[test]
    fn spans_know_their_bytes() {
        let spans = Spans::new(2 * SPAN_BYTES + 5);
        assert_eq!(spans.count(), 3);
        assert_eq!(spans.range(1), Some(SPAN_BYTES..2 * SPAN_BYTES));
        assert_eq!(spans.range(2), Some(2 * SPAN_BYTES..2 * SPAN_BYTES + 5));
        assert_eq!(spans.range(3), None);
        assert_eq!(spans.touched(SPAN_BYTES - 1..SPAN_BYTES + 1), 0..2);
        assert_eq!(spans.touched(SPAN_BYTES..u64::MAX), 1..3);
        assert_eq!(spans.touched(7..7), 0..0);
        assert_eq!(spans.touched(u64::MAX - 1..u64::MAX), 0..0);
        let most = Spans::new(u64::MAX);
        assert_eq!(most.range(most.count() - 1), Some(u64::MAX - SPAN_BYTES + 1..u64::MAX));
        assert_eq!(Spans::new(0).range(0), None);
    }

    #[test]
    fn a_span_is_hashed_whole_or_not_at_all() {
        let spans = Spans::new(SPAN_BYTES + 10);
        let file = bytes(MIB + 10);
        let mut hasher = spans.hasher(1).expect("a span");
        assert_eq!(hasher.update(&file[MIB..MIB + 4]), 4);
        assert_eq!((hasher.finish(), hasher.lacks()), (None, 6));
        assert_eq!(hasher.update(&file[4..]), 6, "no byte of the next span");
        assert_eq!(hasher.update(&file), 0);
        assert_eq!(spans.value(1, &file[..9]), None);
        assert_eq!(spans.value(1, &file[..11]), None);
        assert_eq!(spans.value(2, &[]), None);
    }

    #[test]
    fn an_impossible_size_costs_no_memory() {
        let mut tree = Tree::new(Spans::new(u64::MAX));
        for span in 0..100_000 {
            assert!(tree.insert(span, ChainingValue([1; 32])));
        }
        assert!(tree.nodes.len() <= 17, "{} nodes", tree.nodes.len());
        assert!(tree.contains(99_999) && !tree.contains(100_000));
        assert!(tree.insert(tree.spans().count() - 1, ChainingValue([1; 32])));
        assert!(!tree.insert(tree.spans().count(), ChainingValue([1; 32])));
        assert!(!tree.insert(u64::MAX, ChainingValue([1; 32])));
        assert_eq!(tree.root(), None);
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

        #[test]
        fn any_order_of_spans_gives_the_ordinary_hash(
            size in 0..20 * MIB, swaps in prop::collection::vec(any::<(Index, Index)>(), 30),
        ) {
            let file = bytes(size);
            let mut order: Vec<_> = (0..Spans::new(size as u64).count()).collect();
            for (one, other) in swaps.iter().filter(|_| size > 0) {
                let (one, other) = (one.index(order.len()), other.index(order.len()));
                order.swap(one, other);
            }
            prop_assert_eq!(root(&file, order.iter().copied()), Some(blake3::hash(&file)));
            let mut tree = Tree::new(by_crc(size));
            for span in order {
                tree.insert(span, value(&file, by_crc(size), span));
            }
            let crc = tree.root().map(|root| crc_in(root.as_bytes()));
            prop_assert_eq!(crc, Some(Crc::of(&file).0));
        }

        #[test]
        fn pieces_of_any_size_give_the_same_value(cuts in prop::collection::vec(1..300_000_usize, 8)) {
            let file = bytes(2 * MIB + 77);
            let spans = Spans::new(file.len() as u64);
            for span in 0..3 {
                let range = spans.range(span).expect("a span");
                let mut rest = &file[range.start as usize..range.end as usize];
                let mut hasher = spans.hasher(span).expect("a span");
                for cut in cuts.iter().cycle() {
                    let (piece, others) = rest.split_at((*cut).min(rest.len()));
                    prop_assert_eq!(hasher.update(piece), piece.len());
                    rest = others;
                    if rest.is_empty() {
                        break;
                    }
                }
                prop_assert_eq!(hasher.finish(), Some(value(&file, spans, span)));
            }
        }
    }
}
