//! Ranges of a receiver's old file that the new one has, too.

/// Bytes that are in both files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CopyRange {
    /// The offset in the old file.
    pub(super) from: u64,
    /// The offset in the new one.
    pub(super) to: u64,
    pub(super) len: u64,
}

/// Copies in the order of the new file, where they do not overlap.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Copies(Vec<CopyRange>);

impl Copies {
    /// Adds a copy behind all others.
    pub(super) fn add(&mut self, copy: CopyRange) {
        match self.0.last_mut() {
            Some(last) if last.from + last.len == copy.from && last.to + last.len == copy.to => {
                last.len += copy.len;
            }
            _ => self.0.push(copy),
        }
    }

    /// Joins them with others of other parts of the file.
    pub(super) fn and(self, others: Self) -> Self {
        let mut all = self.0;
        all.extend(others.0);
        all.sort_unstable_by_key(|copy| copy.to);
        let mut joined = Self::default();
        all.into_iter().for_each(|copy| joined.add(copy));
        joined
    }

    /// Returns how many bytes they have.
    pub(super) fn bytes(&self) -> u64 {
        self.0.iter().map(|copy| copy.len).sum()
    }

    /// Returns how many there are.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns them in order.
    pub(super) fn iter(&self) -> std::slice::Iter<'_, CopyRange> {
        self.0.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_that_continue_others_are_one() {
        let copy = |from, to, len| CopyRange { from, to, len };
        let mut copies = Copies::default();
        for (from, to) in [(100, 0), (110, 10), (130, 20), (50, 40)] {
            copies.add(copy(from, to, 10));
        }
        let mut others = Copies::default();
        others.add(copy(140, 30, 10));
        others.add(copy(60, 50, 5));
        let all = copies.and(others);
        let expected = [copy(100, 0, 20), copy(130, 20, 20), copy(50, 40, 15)];
        assert_eq!(all.iter().copied().collect::<Vec<_>>(), expected);
        assert_eq!((all.bytes(), all.len(), all.is_empty()), (55, 3, false));
    }
}
