//! A set of bytes as sorted ranges that neither touch nor overlap.

use std::ops::Range;

/// A set of bytes of a file.
#[derive(Debug, Default, Clone)]
pub(crate) struct Ranges(Vec<Range<u64>>);

impl Ranges {
    /// Adds a range.
    pub(crate) fn insert(&mut self, range: &Range<u64>) {
        if range.is_empty() {
            return;
        }
        // most arrive in order
        match self.0.last_mut() {
            Some(last) if last.end == range.start => {
                last.end = range.end;
                return;
            }
            _ => {}
        }
        // merges ranges that overlap or touch it
        let first = self.0.partition_point(|other| other.end < range.start);
        let behind = self.0.partition_point(|other| other.start <= range.end);
        let joined = match self.0.get(first..behind) {
            Some([one, ..]) if first < behind => {
                one.start.min(range.start)..self.0[behind - 1].end.max(range.end)
            }
            _ => range.clone(),
        };
        self.0.splice(first..behind, [joined]);
    }

    /// Removes a range.
    pub(crate) fn remove(&mut self, range: &Range<u64>) {
        if range.is_empty() {
            return;
        }
        let first = self.0.partition_point(|other| other.end <= range.start);
        let behind = self.0.partition_point(|other| other.start < range.end);
        let rest: Vec<_> = self.0[first..behind]
            .iter()
            .flat_map(|other| [other.start..range.start, range.end..other.end])
            .filter(|rest| !rest.is_empty())
            .collect();
        self.0.splice(first..behind, rest);
    }

    /// Returns the missing parts of a range, in order.
    pub(crate) fn gaps(&self, range: &Range<u64>) -> Vec<Range<u64>> {
        let first = self.0.partition_point(|other| other.end <= range.start);
        let mut gaps = Vec::new();
        let mut at = range.start;
        for other in self.0[first..].iter().take_while(|other| other.start < range.end) {
            if at < other.start {
                gaps.push(at..other.start);
            }
            at = other.end;
        }
        if at < range.end {
            gaps.push(at..range.end);
        }
        gaps
    }

    /// Returns the end of the contiguous bytes from `from` on.
    pub(crate) fn reach(&self, from: u64) -> u64 {
        let first = self.0.partition_point(|other| other.end <= from);
        self.0.get(first).filter(|other| other.start <= from).map_or(from, |other| other.end)
    }

    /// Whether it covers all bytes from 0 to `end`.
    pub(crate) fn covers(&self, end: u64) -> bool {
        matches!(self.0[..], [ref all] if all.start == 0 && all.end >= end)
    }

    /// Returns the ranges in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Range<u64>> {
        self.0.iter()
    }

    /// Returns the number of ranges.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn as_a_list_of_bytes_would_say(
            steps in prop::collection::vec((any::<bool>(), 0..60_u64, 0..12_u64), 0..40),
            (start, len) in (0..60_u64, 0..30_u64),
        ) {
            let mut ranges = Ranges::default();
            let mut bytes = [false; 100];
            for (there, start, len) in steps {
                let range = start..start + len;
                if there { ranges.insert(&range) } else { ranges.remove(&range) }
                bytes[start as usize..(start + len) as usize].fill(there);
            }
            for pair in ranges.0.windows(2) {
                prop_assert!(pair[0].end < pair[1].start, "{:?}", ranges);
            }
            prop_assert!(ranges.0.iter().all(|range| !range.is_empty()));
            let all: Vec<_> = ranges.0.iter().cloned().flatten().collect();
            let there: Vec<_> = (0..100).filter(|at| bytes[*at as usize]).collect();
            prop_assert_eq!(all, there);
            let gaps: Vec<_> = ranges.gaps(&(start..start + len)).into_iter().flatten().collect();
            let missing: Vec<_> = (start..start + len).filter(|at| !bytes[*at as usize]).collect();
            prop_assert_eq!(gaps, missing);
            let reach = (start..100).find(|at| !bytes[*at as usize]).expect("an end");
            prop_assert_eq!(ranges.reach(start), reach);
        }
    }
}
