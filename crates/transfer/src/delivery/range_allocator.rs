//! Allocates ranges of a file to connections that fetch or send them.

use std::ops::Range;

use headroom_transfer_proto::message::MAX_VALUES;
use headroom_transfer_proto::span::SPAN_BYTES;

use crate::files::Ranges;

/// The most spans of a range, unless the least number is greater.
const MAX_SPANS: u64 = 1024;
/// A range is this fraction (a quarter) of one connection's share of what is left, so that all
/// connections end at about the same time.
const PART: u64 = 4;
/// How many ranges a connection may have at once while many are left: it need not wait for the
/// other side's answer to the last one.
const AHEAD: usize = 2;

/// Allocates ranges of a file.
#[derive(Debug)]
pub(super) struct RangeAllocator {
    /// The least number of spans of a range.
    least: u64,
    connections: u64,
}

impl RangeAllocator {
    /// Divides a file among `connections`. A range has `range_bytes` at least, except for the
    /// remainder of a returned one.
    pub(super) fn new(connections: usize, range_bytes: u64) -> Self {
        Self {
            least: range_bytes.div_ceil(SPAN_BYTES).clamp(1, MAX_VALUES as u64 / 2),
            connections: connections.max(1) as u64,
        }
    }

    /// Returns the number of connections.
    pub(super) const fn connections(&self) -> u64 {
        self.connections
    }

    /// Takes the next range from what is `left`, for a connection that already `has` this many;
    /// `None` if it has enough, or nothing is left. The length is a multiple of `unit` spans, or
    /// the range ends where a run of spans that are left ends.
    pub(super) fn next(&self, left: &mut Ranges, unit: u64, has: usize) -> Option<Range<u64>> {
        let in_units = |spans: u64| spans.div_ceil(unit) * unit;
        let longest = MAX_VALUES as u64 / unit * unit;
        let least = in_units(self.least).min(longest);
        let all: u64 = left.iter().map(|range| range.end - range.start).sum();
        let share = all / (PART * self.connections);
        let ahead = if share > least { AHEAD } else { 1 };
        if has >= ahead {
            return None;
        }
        let first = left.iter().next()?.clone();
        let rest = first.end - first.start;
        let len = in_units(share.clamp(least, MAX_SPANS.max(least)));
        // a remainder too short for a range is added to this one
        let len = if rest < len + least { rest } else { len };
        let spans = first.start..first.start + len.min(longest);
        left.remove(&spans);
        Some(spans)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The ranges that one of two connections takes of this many spans.
    fn ranges(spans: u64, least: u64, unit: u64) -> Vec<Range<u64>> {
        let allocator = RangeAllocator::new(2, least * SPAN_BYTES);
        let mut left = Ranges::default();
        left.insert(&(0..spans));
        std::iter::from_fn(|| allocator.next(&mut left, unit, 0)).collect()
    }

    #[test]
    fn ranges_cover_a_file_in_units_and_are_no_longer_than_a_message_holds() {
        let longest = MAX_VALUES as u64;
        for (spans, least, unit) in [
            (1, 1, 1),
            (203, 1, 8),
            (203, 64, 8),
            (5000, 10, 7),
            (40_000, 1, 1000),
            (70_000, 1, longest),
        ] {
            let ranges = ranges(spans, least, unit);
            assert_eq!((ranges[0].start, ranges[ranges.len() - 1].end), (0, spans));
            assert!(ranges.windows(2).all(|pair| pair[0].end == pair[1].start), "{ranges:?}");
            assert!(ranges.iter().all(|range| range.start.is_multiple_of(unit)), "{ranges:?}");
            assert!(ranges.iter().all(|range| range.end - range.start <= longest), "{ranges:?}");
        }
    }

    #[test]
    fn a_connection_has_two_ranges_at_once_while_there_are_many() {
        let allocator = RangeAllocator::new(2, 8 * SPAN_BYTES);
        let mut left = Ranges::default();
        assert_eq!(allocator.next(&mut left, 8, 0), None, "nothing is left");
        left.insert(&(0..80));
        assert_eq!(allocator.next(&mut left, 8, 2), None);
        assert_eq!(allocator.next(&mut left, 8, 1), Some(0..16));
        // a fourth of a half is no more than the least
        assert_eq!(allocator.next(&mut left, 8, 1), None);
        assert_eq!(allocator.next(&mut left, 8, 0), Some(16..24));
    }
}
