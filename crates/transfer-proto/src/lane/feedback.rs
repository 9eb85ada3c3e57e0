//! Feedback from the receiver of data to its sender: which packets arrived, how many bytes, and
//! when. Feedback may be lost: each one repeats everything.

use std::ops::RangeInclusive;

use super::header::Number;
use super::limits::MAX_PACKET;
use super::varint;

/// Bytes ahead of the ranges.
const HEAD: usize = 34;

/// One feedback. Counts run from the lane's beginning and wrap; times are microseconds of the
/// receiver's own clock, with an arbitrary origin.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Feedback<R> {
    /// The highest packet number that arrived.
    pub largest: Number,
    /// When it arrived.
    pub arrived_us: u64,
    /// How long before the feedback that was.
    pub age_us: u32,
    /// Bytes of all packets that arrived, as UDP payload.
    pub bytes: u64,
    /// Packets that were marked Congestion Experienced (RFC 3168).
    pub congested: u32,
    /// The packet numbers that arrived, in ranges, the highest first, `largest` in the first.
    pub ranges: R,
}

/// Validated ranges of packet numbers, the highest first.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Ranges<'a> {
    /// The first number of the previous range; `None` before the first range.
    before: Option<u64>,
    largest: u64,
    left: u16,
    bytes: &'a [u8],
}

impl<'a> Feedback<Ranges<'a>> {
    /// Reads a feedback without its type. Bytes after the last range are ignored, for later
    /// versions.
    pub fn parse(bytes: &'a [u8]) -> Option<Self> {
        let (head, bytes) = bytes.split_first_chunk::<HEAD>()?;
        let largest = Number::new(u64::from_be_bytes(part(head, 0)))?;
        let left = u16::from_be_bytes(part(head, 32));
        let ranges = Ranges { before: None, largest: largest.get(), left, bytes };
        // all are checked first, so that half of an invalid feedback has no effect
        if left == 0 || ranges.clone().count() != usize::from(left) {
            return None;
        }
        Some(Self {
            largest,
            arrived_us: u64::from_be_bytes(part(head, 8)),
            age_us: u32::from_be_bytes(part(head, 16)),
            bytes: u64::from_be_bytes(part(head, 20)),
            congested: u32::from_be_bytes(part(head, 28)),
            ranges,
        })
    }
}

impl<R: Iterator<Item = RangeInclusive<u64>>> Feedback<R> {
    /// Writes the feedback without its type, with as many ranges as fit into `out`, and returns its
    /// length. `ranges` begins with the range that `largest` ends, and no two are adjacent.
    pub fn write(self, out: &mut [u8]) -> usize {
        let len = out.len().min(MAX_PACKET);
        let (head, mut rest) = out[..len].split_at_mut(HEAD);
        head[..8].copy_from_slice(&self.largest.get().to_be_bytes());
        head[8..16].copy_from_slice(&self.arrived_us.to_be_bytes());
        head[16..20].copy_from_slice(&self.age_us.to_be_bytes());
        head[20..28].copy_from_slice(&self.bytes.to_be_bytes());
        head[28..32].copy_from_slice(&self.congested.to_be_bytes());
        let (mut written, mut before): (u16, Option<u64>) = (0, None);
        for range in self.ranges {
            let (first, last) = range.into_inner();
            let gap = before.map(|before| before - last - 2);
            let needed = gap.map_or(0, varint::len) + varint::len(last - first);
            if needed > rest.len() {
                break;
            }
            for value in gap.into_iter().chain([last - first]) {
                rest = varint::write(value, rest).unwrap_or_default();
            }
            before = Some(first);
            written += 1;
        }
        head[32..].copy_from_slice(&written.to_be_bytes());
        len - rest.len()
    }
}

impl Iterator for Ranges<'_> {
    type Item = RangeInclusive<u64>;

    /// As in RFC 9000, section 19.3.1: the length less one, and before it, except
    /// in the first range, the missing numbers less one.
    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let mut bytes = self.bytes;
        let last = match self.before {
            None => self.largest,
            Some(before) => {
                let (gap, behind) = varint::read(bytes)?;
                bytes = behind;
                before.checked_sub(gap.checked_add(2)?)?
            }
        };
        let (length, behind) = varint::read(bytes)?;
        let first = last.checked_sub(length)?;
        self.bytes = behind;
        self.before = Some(first);
        Some(first..=last)
    }
}

fn part<const N: usize>(head: &[u8; HEAD], at: usize) -> [u8; N] {
    let mut part = [0; N];
    part.copy_from_slice(&head[at..at + N]);
    part
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn feedback(
        ranges: Vec<RangeInclusive<u64>>,
    ) -> Feedback<std::vec::IntoIter<RangeInclusive<u64>>> {
        Feedback {
            largest: Number::new(*ranges[0].end()).expect("48 bits"),
            arrived_us: 1,
            age_us: 2,
            bytes: 3,
            congested: 4,
            ranges: ranges.into_iter(),
        }
    }

    #[test]
    fn the_encoding_is_that_of_the_document() {
        let mut out = [0xff; 100];
        let len = feedback(vec![98..=100, 90..=95, 7..=7]).write(&mut out);
        let mut expected = Vec::new();
        expected.extend(100_u64.to_be_bytes());
        expected.extend(1_u64.to_be_bytes());
        expected.extend(2_u32.to_be_bytes());
        expected.extend(3_u64.to_be_bytes());
        expected.extend(4_u32.to_be_bytes());
        expected.extend(3_u16.to_be_bytes());
        // 98..=100; 96 and 97 are missing; 90..=95; 8..=89 are missing; 7
        expected.extend([2, 1, 5, 0x40, 81, 0]);
        assert_eq!(out[..len], expected);
        assert!(Feedback::parse(&out[..len - 1]).is_none(), "the last range is cut");
    }

    #[test]
    fn a_range_below_zero_is_no_feedback() {
        let mut out = [0; 100];
        let len = feedback(vec![0..=3]).write(&mut out);
        assert!(Feedback::parse(&out[..len]).is_some());
        out[len - 1] = 4;
        assert!(Feedback::parse(&out[..len]).is_none());
    }

    /// Ranges below `top` with gaps between them.
    fn ranges() -> impl Strategy<Value = Vec<RangeInclusive<u64>>> {
        let part = (0_u64..5_000, 0_u64..5_000);
        (1_u64 << 40..1 << 48, proptest::collection::vec(part, 1..300)).prop_map(|(top, parts)| {
            let mut last = top - 1;
            parts
                .into_iter()
                .map(|(length, gap)| {
                    let range = last - length..=last;
                    last -= length + gap + 2;
                    range
                })
                .collect()
        })
    }

    proptest! {
        #[test]
        fn what_fits_is_read_again(ranges in ranges(), room in HEAD + 8..1200_usize) {
            let mut out = vec![0; room];
            let len = feedback(ranges.clone()).write(&mut out);
            let read = Feedback::parse(&out[..len]).expect("a feedback");
            let found: Vec<_> = read.ranges.collect();
            prop_assert_eq!(&found[..], &ranges[..found.len()]);
            prop_assert!(found.len() == ranges.len() || room - len < 4);
            prop_assert_eq!((read.arrived_us, read.age_us, read.bytes, read.congested), (1, 2, 3, 4));
        }

        #[test]
        fn any_bytes_give_falling_ranges_or_none(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut bytes = bytes;
            if bytes.len() > HEAD {
                bytes[..2].fill(0);
                bytes[32] = 0;
            }
            let Some(read) = Feedback::parse(&bytes) else { return Ok(()) };
            let mut below = read.largest.get() + 2;
            for range in read.ranges {
                prop_assert!(range.start() <= range.end() && range.end() + 1 < below);
                below = *range.start();
            }
        }
    }
}
