//! How an object is divided into parts.

use crate::error::Error;
use crate::journal::{self, Journal, StoredPart};
use crate::key::Key;
use crate::record::SPAN;

/// Bytes of a part at least. S3 takes 5 MiB.
const SMALLEST: u64 = 8 << 20;

/// Parts of an upload at most, and bytes of a part at most: the limits of S3.
/// <https://docs.aws.amazon.com/AmazonS3/latest/userguide/qfacts.html>
const MAX_PARTS: u64 = 10_000;
const LARGEST: u64 = 5 << 30;

/// The parts of an object: all of equal length but the last, as Cloudflare R2 wants them, and
/// aligned to spans.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Plan {
    /// Bytes of the object.
    pub(super) size: u64,
    /// Bytes of each part but the last.
    pub(super) part_bytes: u64,
    /// How many there are.
    pub(super) parts: u32,
}

impl Plan {
    /// Divides an object.
    ///
    /// # Errors
    ///
    /// [`Error::Misuse`]: nothing to divide. [`Error::TooLarge`]: more than 10 000 parts of
    /// 5 GiB.
    pub(super) fn new(key: &Key, size: u64) -> Result<Self, Error> {
        if size == 0 {
            return Err(Error::Misuse(format!(
                "{:?} is empty: it is stored in one request, not in parts",
                key.as_str()
            )));
        }
        let part_bytes = (size.div_ceil(MAX_PARTS).div_ceil(SPAN) * SPAN).max(SMALLEST);
        if part_bytes > LARGEST {
            return Err(Error::TooLarge(format!(
                "a store cannot hold {:?}: it has {size} bytes, and {MAX_PARTS} parts of {LARGEST} are possible",
                key.as_str()
            )));
        }
        Ok(Self {
            size,
            part_bytes,
            // at most MAX_PARTS
            parts: size.div_ceil(part_bytes) as u32,
        })
    }

    /// Bytes of its journal, at most.
    pub(super) fn most_journal_bytes(&self) -> u64 {
        journal::most_bytes(self.size, self.parts)
    }

    /// Bytes of a part.
    pub(super) fn bytes(&self, part: u32) -> u64 {
        // a journal may number a part as it likes
        let begin = u64::from(part).saturating_mul(self.part_bytes);
        self.size.saturating_sub(begin).min(self.part_bytes)
    }

    /// Checks what is to be stored as a part.
    pub(super) fn check(&self, part: u32, bytes: u64, values: u64) -> Result<(), Error> {
        let wanted = self.bytes(part);
        if part >= self.parts || bytes != wanted || values != wanted.div_ceil(SPAN) {
            return Err(Error::Misuse(format!(
                "part {part} of {} has {bytes} bytes and {values} values, and {wanted} and {} are right",
                self.parts,
                wanted.div_ceil(SPAN)
            )));
        }
        Ok(())
    }

    /// The parts that a journal has, each in its place; `None` if its parts have other sizes.
    pub(super) fn places(&self, journal: &Journal) -> Option<Vec<Option<StoredPart>>> {
        if (journal.size, journal.part_bytes) != (self.size, self.part_bytes) {
            return None;
        }
        let mut places = vec![None; self.parts as usize];
        for part in &journal.parts {
            if part.values.len() as u64 != self.bytes(part.number).div_ceil(SPAN) * 32 {
                return None;
            }
            *places.get_mut(part.number as usize)? = Some(part.clone());
        }
        Some(places)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(size: u64) -> Result<Plan, Error> {
        Plan::new(&Key::parse("", "a").expect("a name"), size)
    }

    #[test]
    fn parts_have_8_mib_while_10_000_are_enough() {
        let small = plan(1).expect("a division");
        assert_eq!((small.part_bytes, small.parts, small.bytes(0)), (SMALLEST, 1, 1));
        let exact = plan(2 * SMALLEST).expect("a division");
        assert_eq!((exact.parts, exact.bytes(1), exact.bytes(2)), (2, SMALLEST, 0));
        let most = plan(MAX_PARTS * SMALLEST).expect("a division");
        assert_eq!((most.part_bytes, most.parts), (SMALLEST, 10_000));
    }

    #[test]
    fn larger_objects_have_larger_parts() {
        for size in [MAX_PARTS * SMALLEST + 1, 1 << 40, 5 << 40, 48 << 40] {
            let plan = plan(size).expect("a division");
            assert_eq!(plan.part_bytes % SPAN, 0, "{size}");
            assert!(plan.parts <= 10_000, "{size}");
            let whole: u64 = (0..plan.parts).map(|part| plan.bytes(part)).sum();
            assert_eq!(whole, size);
        }
        assert!(matches!(plan(49 << 40), Err(Error::TooLarge(_))));
        assert!(matches!(plan(u64::MAX), Err(Error::TooLarge(_))));
        assert!(matches!(plan(0), Err(Error::Misuse(_))));
    }

    #[test]
    fn takes_parts_of_the_right_length_alone() {
        let plan = plan(SMALLEST + SPAN + 1).expect("a division");
        plan.check(0, SMALLEST, 8).expect("a division");
        plan.check(1, SPAN + 1, 2).expect("a division");
        for (part, bytes, values) in [(0, SMALLEST, 7), (0, SPAN, 1), (1, SMALLEST, 8), (2, 0, 0)] {
            assert!(plan.check(part, bytes, values).is_err(), "{part} {bytes} {values}");
        }
    }
}
