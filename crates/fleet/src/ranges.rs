//! Divides a large file into ranges, which are items of their own.

use std::ops::Range;

/// What ranges begin at multiples of: the spans by which a transfer verifies files.
const SPAN_BYTES: u64 = 1 << 20;
/// The most ranges of a file: a run starts no more workers.
const MAX_RANGES: u64 = 256;

/// Returns how many ranges of about `range_bytes` a file has; 0 if it has less than two and is
/// copied in one piece.
pub(crate) fn count(size: u64, range_bytes: u64) -> u32 {
    if size / 2 < range_bytes {
        return 0;
    }
    let spans = size.div_ceil(SPAN_BYTES);
    let of_range = range_bytes.div_ceil(SPAN_BYTES).max(spans.div_ceil(MAX_RANGES)).max(1);
    match u32::try_from(spans.div_ceil(of_range)) {
        Ok(count) if count > 1 => count,
        _ => 0,
    }
}

/// Returns the bytes of one of `count` ranges of a file. There is none of an index beyond them.
pub(crate) fn bytes(size: u64, count: u32, index: u32) -> Range<u64> {
    let of_range = size.div_ceil(SPAN_BYTES).div_ceil(u64::from(count.max(1)));
    let of_range = of_range.saturating_mul(SPAN_BYTES);
    let start = of_range.saturating_mul(u64::from(index)).min(size);
    start..start.saturating_add(of_range).min(size)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_file_is_divided_if_it_has_two_ranges() {
        const GIB: u64 = 1 << 30;
        for (size, range_bytes, expected) in [
            (0, GIB, 0),
            (2 * GIB - 1, GIB, 0),
            (2 * GIB, GIB, 2),
            (10 * GIB + 1, GIB, 11),
            (1 << 50, GIB, 256),
            (u64::MAX, GIB, 256),
            (1 << 20, 1 << 19, 0),
            (u64::MAX, u64::MAX, 0),
        ] {
            assert_eq!(count(size, range_bytes), expected, "{size} {range_bytes}");
        }
    }

    proptest! {
        #[test]
        fn ranges_are_not_empty_and_are_together_the_file(
            size in any::<u64>(),
            shift in 0..50_u32,
            range_bytes in (1_u64 << 20)..(1 << 34),
        ) {
            let size = size >> shift;
            let count = count(size, range_bytes);
            let mut end = 0;
            for index in 0..count {
                let range = bytes(size, count, index);
                prop_assert_eq!(range.start, end);
                prop_assert!(range.start.is_multiple_of(SPAN_BYTES) && range.start < range.end);
                end = range.end;
            }
            prop_assert!(count == 0 || end == size);
            prop_assert!(bytes(size, count, count).is_empty() || count == 0);
        }
    }
}
