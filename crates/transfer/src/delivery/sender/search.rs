//! Where to look in two versions of a file for content that both have.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use headroom_transfer_proto::message::{ChunkHash, ChunkSize};
use headroom_transfer_proto::span::SPAN_BYTES;

use super::copies::{Copies, CopyRange};
use super::open_file::OpenFile;
use super::shared::MAX_KNOWN_CHUNKS;
use crate::files::{self, Ranges};

/// The greatest file whose spans are listed.
const MAX_BYTES: u64 = 1 << 44;
/// The least bytes of the old file that are searched: a round trip is worth more than fewer.
pub(super) const MIN_OLD: u64 = 16 << 10;
/// How many times as much there may be of one version as of the other, if all of it is to be
/// searched.
const FAR: u64 = 16;
/// The most chunks on average of either file. Of larger ones chunks are longer.
const MAX_CHUNKS: u64 = 1 << 19;
/// Up to so many bytes all are tried for blocks at their place; of more, samples.
const FEW: u64 = 16 << 20;
/// How many spans are tried of more.
const SAMPLES: u64 = 4;
/// Bytes from which on groups of chunks are searched before chunks.
const MANY: u64 = 8 << 20;

/// The bits of the least average length of blocks and chunks. 20 bytes describe each, and every
/// change costs the one or two that it touches: 4 KiB is near the optimum for a change in each span
/// of 1 MiB, and the length of most blocks of file systems and databases.
const FINE: u32 = 12;
/// The same of chunks that are in groups.
const COARSE: u32 = 13;

/// Where to look.
#[derive(Debug)]
pub(super) struct Search {
    /// Data of the new file that the receiver lacks, in whole spans.
    pub(super) own: Ranges,
    /// What of the old file is not at the same place of the new one.
    pub(super) old: Ranges,
}

impl Search {
    /// Plans a search for content of an old file of `old` bytes; `None` if there is nothing to be
    /// found.
    pub(super) fn new(opened: &OpenFile, old: u64) -> Result<Option<Self>, files::Error> {
        if opened.size().max(old) > MAX_BYTES {
            return Ok(None);
        }
        let lacking = opened.lacking();
        let own = opened.with_data(&lacking)?;
        Ok(Self::of(lacking, own, opened.size(), old))
    }

    /// `lacking` are the spans that the receiver lacks of a new file of `size` bytes, and `own`
    /// those of them with data.
    fn of(lacking: Ranges, mut own: Ranges, size: u64, old: u64) -> Option<Self> {
        let mut parts = lacking;
        parts.remove(&(old..u64::MAX));
        // of a log that lost nearly all, the end may be there
        let end = size.max(old.saturating_sub(total(&own).saturating_mul(FAR)));
        parts.insert(&(end.min(old)..old));
        if total(&own) / FAR > total(&parts) {
            // most of it was appended
            let end = parts.iter().last().map_or(0, |part| part.end);
            own.remove(&(end.next_multiple_of(SPAN_BYTES)..u64::MAX));
        }
        let search = Self { own, old: parts };
        let is_worth_it = total(&search.own) > 0 && total(&search.old) >= MIN_OLD;
        (is_worth_it && search.size(FINE).is_some()).then_some(search)
    }

    /// Returns for how many chunks there should be memory.
    pub(super) fn chunks(&self) -> u32 {
        let size = self.size(FINE).unwrap_or(ChunkSize::MAX);
        let chunks = 2 * total(&self.old) / u64::from(size.bytes());
        u32::try_from(chunks).unwrap_or(u32::MAX).clamp(1, MAX_KNOWN_CHUNKS)
    }

    /// Returns what is lacking at the same place of both.
    pub(super) fn place(&self) -> Ranges {
        let mut place = Ranges::default();
        for range in self.own.iter() {
            place.insert(range);
            self.old.gaps(range).iter().for_each(|gap| place.remove(gap));
        }
        place
    }

    /// Returns what is still to be searched when these copies were found: spans of which less than
    /// three quarters were, and parts of the old file that are not copied.
    pub(super) fn left(&self, copies: &Copies) -> Self {
        let mut found = Ranges::default();
        copies.iter().for_each(|copy| found.insert(&(copy.to..copy.to + copy.len)));
        // in order, because a peer may have scattered them
        let mut sources: Vec<_> =
            copies.iter().map(|copy| copy.from..copy.from + copy.len).collect();
        sources.sort_unstable_by_key(|source| source.start);
        let mut used = Ranges::default();
        sources.iter().for_each(|source| used.insert(source));
        let (mut own, mut old) = (Ranges::default(), Ranges::default());
        for range in self.old.iter() {
            used.gaps(range).iter().for_each(|gap| old.insert(gap));
        }
        for range in self.own.iter() {
            let mut start = range.start;
            while start < range.end {
                let end = (start / SPAN_BYTES + 1).saturating_mul(SPAN_BYTES).min(range.end);
                let gaps = found.gaps(&(start..end));
                if 4 * gaps.iter().map(|gap| gap.end - gap.start).sum::<u64>() > end - start {
                    gaps.iter().for_each(|gap| own.insert(gap));
                }
                start = end;
            }
        }
        Self { own, old }
    }

    /// Whether so much is to be searched that it is worth to look for groups of chunks first.
    pub(super) fn is_large(&self) -> bool {
        total(&self.own) >= MANY
    }

    /// Returns the average length of blocks, or of chunks without groups.
    pub(super) fn fine(&self) -> ChunkSize {
        self.size(FINE).unwrap_or(ChunkSize::MAX)
    }

    /// Returns the average length of chunks in groups.
    pub(super) fn coarse(&self) -> ChunkSize {
        self.size(COARSE).unwrap_or(ChunkSize::MAX)
    }

    /// `None` if there are too many bytes for chunks of any length.
    fn size(&self, least_bits: u32) -> Option<ChunkSize> {
        let bytes = total(&self.own).max(total(&self.old));
        let mut sizes = (least_bits..=20).map(|bits| 1_u32 << bits);
        let size = sizes.find(|size| bytes / u64::from(*size) <= MAX_CHUNKS);
        size.and_then(ChunkSize::new)
    }
}

/// Returns the ranges if they are few bytes, and otherwise spans that are spread over them.
pub(super) fn sample(ranges: &Ranges) -> Ranges {
    let all = total(ranges);
    if all <= FEW {
        return ranges.clone();
    }
    // `before` is how many bytes precede the range
    let (mut some, mut taken, mut before) = (Ranges::default(), 0, 0);
    for range in ranges.iter() {
        let len = range.end - range.start;
        while taken < SAMPLES && taken * (all / SAMPLES) < before + len {
            let at = range.start + (taken * (all / SAMPLES)).saturating_sub(before);
            let start = (at / SPAN_BYTES * SPAN_BYTES).max(range.start);
            some.insert(&(start..range.end.min(start.saturating_add(SPAN_BYTES))));
            taken += 1;
        }
        before += len;
    }
    some
}

/// What of two files was found to be the same, and what is left of both.
#[derive(Debug, Default)]
pub(super) struct Matched {
    pub(super) copies: Copies,
    pub(super) own: Ranges,
    pub(super) old: Ranges,
}

/// Finds groups of chunks of the old file in the new one. Both are in order.
pub(super) fn match_groups(old: &[(u64, ChunkHash)], own: &[(u64, ChunkHash)]) -> Matched {
    let range = |offset: u64, group: &ChunkHash| offset..offset + u64::from(group.len);
    let places: HashMap<_, _> = old.iter().map(|(offset, group)| (*group, *offset)).collect();
    let (mut matched, mut used) = (Matched::default(), HashSet::new());
    for (to, group) in own {
        match places.get(group).filter(|_| group.has_hash()) {
            Some(from) => {
                used.insert(*group);
                matched.copies.add(CopyRange { from: *from, to: *to, len: group.len.into() });
            }
            None => matched.own.insert(&range(*to, group)),
        }
    }
    for (offset, group) in old.iter().filter(|(_, group)| !used.contains(group)) {
        matched.old.insert(&range(*offset, group));
    }
    matched
}

/// Gives the chunks of a description their offsets.
pub(super) struct Position<'a> {
    ranges: std::slice::Iter<'a, Range<u64>>,
    left: Range<u64>,
}

impl<'a> Position<'a> {
    /// Begins with the first of the ranges that are described.
    pub(super) fn new(ranges: &'a [Range<u64>]) -> Self {
        Self { ranges: ranges.iter(), left: 0..0 }
    }

    /// Returns the offset of the next chunk, of `len` bytes; `None` if it would not end with its
    /// range or before.
    pub(super) fn next(&mut self, len: u32) -> Option<u64> {
        if self.left.is_empty() {
            self.left = self.ranges.next()?.clone();
        }
        let offset = self.left.start;
        self.left.start = offset.checked_add(len.into()).filter(|end| *end <= self.left.end)?;
        Some(offset)
    }
}

/// Returns how many chunks of these ranges there is memory for: twice the average.
pub(super) fn most_known(ranges: &Ranges, size: ChunkSize) -> usize {
    let chunks = 2 * (total(ranges) / u64::from(size.bytes())) + ranges.len() as u64;
    usize::try_from(chunks).unwrap_or(usize::MAX)
}

/// Returns how many bytes ranges have.
pub(super) fn total(ranges: &Ranges) -> u64 {
    ranges.iter().map(|range| range.end - range.start).sum()
}

/// Returns the first `most` bytes of ranges.
pub(super) fn first(ranges: &Ranges, most: u64) -> Ranges {
    let (mut some, mut left) = (Ranges::default(), most);
    for range in ranges.iter() {
        let end = range.end.min(range.start.saturating_add(left));
        left -= end - range.start;
        some.insert(&(range.start..end));
    }
    some
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn ranges(of: &[(u64, u64)]) -> Ranges {
        let mut ranges = Ranges::default();
        of.iter().for_each(|(start, end)| ranges.insert(&(*start..*end)));
        ranges
    }

    fn listed(ranges: &Ranges) -> Vec<(u64, u64)> {
        ranges.iter().map(|range| (range.start, range.end)).collect()
    }

    /// Plans for a file of data alone.
    fn plan(lacking: &[(u64, u64)], size: u64, old: u64) -> Option<Search> {
        Search::of(ranges(lacking), ranges(lacking), size, old)
    }

    #[test]
    fn single_spans_that_changed_are_searched_at_their_place() {
        let lacking = [(3 * MIB, 4 * MIB), (70 * MIB, 71 * MIB)];
        let search = plan(&lacking, 100 * MIB, 100 * MIB).expect("a search");
        assert_eq!(listed(&search.own), lacking);
        assert_eq!(listed(&search.old), lacking);
        assert_eq!(listed(&search.place()), lacking);
        assert_eq!((search.fine(), search.is_large()), (ChunkSize::MIN, false));
    }

    #[test]
    fn of_a_file_that_grew_only_the_last_old_span_is_searched() {
        let size = 1000 * MIB;
        let old = 10 * MIB + 77_777;
        let search = plan(&[(10 * MIB, size)], size, old).expect("a search");
        assert_eq!(listed(&search.own), [(10 * MIB, 11 * MIB)]);
        assert_eq!(listed(&search.old), [(10 * MIB, old)]);
        assert_eq!(listed(&search.place()), [(10 * MIB, old)]);
        assert!(!search.is_large());
    }

    #[test]
    fn of_a_file_that_became_shorter_all_of_the_old_one_is_searched() {
        let search = plan(&[(0, 90 * MIB)], 90 * MIB, 100 * MIB).expect("a search");
        assert_eq!(listed(&search.old), [(0, 100 * MIB)]);
        assert_eq!(listed(&search.place()), [(0, 90 * MIB)]);
        assert!(search.is_large());
    }

    #[test]
    fn of_a_far_larger_old_file_only_the_end_is_searched() {
        let old = 100_000 * MIB + 5;
        let search = plan(&[(0, 2 * MIB)], 2 * MIB, old).expect("a search");
        assert_eq!(listed(&search.old), [(0, 2 * MIB), (old - 32 * MIB, old)]);
        assert_eq!(listed(&search.place()), [(0, 2 * MIB)]);
        assert_eq!(search.fine(), ChunkSize::MIN);
    }

    #[test]
    fn nothing_is_searched_where_nothing_can_be_found() {
        assert!(plan(&[], 10 * MIB, 10 * MIB).is_none(), "nothing is lacking");
        assert!(plan(&[(0, MIB)], MIB, 0).is_none(), "nothing was there");
        assert!(plan(&[(0, MIB)], MIB, 10_000).is_none(), "it is not worth a round trip");
        // all that was there is still there
        assert!(plan(&[(10 * MIB, 20 * MIB)], 20 * MIB, 10 * MIB).is_none());
        let lacking = [(0, 20 * MIB)];
        let holes = Search::of(ranges(&lacking), Ranges::default(), 20 * MIB, 20 * MIB);
        assert!(holes.is_none(), "what is lacking is a hole");
    }

    #[test]
    fn memory_is_bounded_for_any_size() {
        for bits in 20..44 {
            let size = 1_u64 << bits;
            let Some(search) = plan(&[(0, size)], size, size) else {
                assert!(bits > 39, "2^{bits} bytes");
                continue;
            };
            assert!(bits <= 39, "2^{bits} bytes");
            for size_of_chunks in [search.fine(), search.coarse()] {
                assert!(size / u64::from(size_of_chunks.bytes()) <= MAX_CHUNKS, "2^{bits} bytes");
            }
            assert!(search.chunks() <= MAX_KNOWN_CHUNKS);
        }
    }

    #[test]
    fn samples_are_spread() {
        let few = ranges(&[(0, MIB), (9 * MIB, 20 * MIB)]);
        assert_eq!(listed(&sample(&few)), listed(&few));
        let many = ranges(&[(MIB, 2 * MIB), (8 * MIB, 47 * MIB)]);
        let spread: Vec<_> = [1, 17, 27, 37].map(|n| (n * MIB, (n + 1) * MIB)).into();
        assert_eq!(listed(&sample(&many)), spread);
        assert!(listed(&sample(&Ranges::default())).is_empty());
    }

    #[test]
    fn spans_that_were_found_are_not_searched_again() {
        let search = plan(&[(0, 3 * MIB)], 3 * MIB, 3 * MIB).expect("a search");
        let mut copies = Copies::default();
        // all but 4 KiB of the first span, a half of the second and nothing of the third
        for (from, to, len) in
            [(0, 0, 4096), (8192, 8192, MIB - 8192), (2 * MIB, MIB + MIB / 2, MIB / 2)]
        {
            copies.add(CopyRange { from, to, len });
        }
        let left = search.left(&copies);
        assert_eq!(listed(&left.own), [(MIB, MIB + MIB / 2), (2 * MIB, 3 * MIB)]);
        let old = [(4096, 8192), (MIB, 2 * MIB), (2 * MIB + MIB / 2, 3 * MIB)];
        assert_eq!(listed(&left.old), old);
    }

    fn chunk(name: u8, len: u32) -> ChunkHash {
        ChunkHash { len, hash: [name; 16] }
    }

    #[test]
    fn groups_are_matched_wherever_they_are() {
        let old = [(0, chunk(1, 10)), (10, chunk(2, 20)), (30, chunk(3, 30)), (60, chunk(4, 5))];
        let own = [(0, chunk(9, 7)), (7, chunk(1, 10)), (17, chunk(2, 20)), (37, chunk(4, 5))];
        let matched = match_groups(&old, &own);
        let copy = |from, to, len| CopyRange { from, to, len };
        let copies: Vec<_> = matched.copies.iter().copied().collect();
        assert_eq!(copies, [copy(0, 7, 30), copy(60, 37, 5)]);
        assert_eq!(listed(&matched.own), [(0, 7)]);
        assert_eq!(listed(&matched.old), [(30, 60)]);
    }

    #[test]
    fn groups_without_a_hash_match_nothing() {
        let group = [(0, ChunkHash { len: 9, hash: ChunkHash::NO_HASH })];
        let matched = match_groups(&group, &group);
        assert!(matched.copies.is_empty());
        assert_eq!((listed(&matched.own), listed(&matched.old)), (vec![(0, 9)], vec![(0, 9)]));
    }

    #[test]
    fn chunks_of_a_description_keep_to_their_ranges() {
        let ranges = [5..10, 20..24];
        let mut position = Position::new(&ranges);
        assert_eq!([2, 3, 4, 1].map(|len| position.next(len)), [Some(5), Some(7), Some(20), None]);
        let mut position = Position::new(&ranges);
        assert_eq!(position.next(6), None);
        assert_eq!(Position::new(&[]).next(1), None);
    }

    #[test]
    fn the_first_bytes_of_ranges() {
        let all = ranges(&[(0, 10), (20, 30)]);
        assert_eq!(listed(&first(&all, 15)), [(0, 10), (20, 25)]);
        assert_eq!(listed(&first(&all, 10)), [(0, 10)]);
        assert_eq!(listed(&first(&all, 99)), [(0, 10), (20, 30)]);
    }
}
