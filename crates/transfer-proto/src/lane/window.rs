//! The anti-replay window, which feedback is also made of. A ring of words (RFC 6479): moving
//! it clears words and shifts none.

use std::ops::RangeInclusive;

use super::header::Number;

const BITS: u64 = 64;
const WORDS: usize = 256;

/// The accepted packet numbers, from the highest down to [`Window::SPAN`] below it.
#[derive(Clone, Debug)]
pub struct Window {
    /// The highest accepted number plus one; 0 is none.
    end: u64,
    words: Box<[u64; WORDS]>,
}

impl Default for Window {
    fn default() -> Self {
        Self { end: 0, words: Box::new([0; WORDS]) }
    }
}

impl Window {
    /// The packets that it spans: the word of the highest number does not count as a whole.
    pub const SPAN: u64 = (WORDS as u64 - 1) * BITS;

    /// Returns the highest accepted number.
    pub fn highest(&self) -> Option<Number> {
        self.end.checked_sub(1).and_then(Number::new)
    }

    /// Whether a packet of this number may be new. Checked before decryption.
    #[inline]
    pub fn is_new(&self, number: Number) -> bool {
        let number = number.get();
        number >= self.end || (number >= self.floor() && !self.holds(number))
    }

    /// Accepts an authenticated packet; returns false if it is not new.
    #[inline]
    pub fn accept(&mut self, number: Number) -> bool {
        if !self.is_new(number) {
            return false;
        }
        let number = number.get();
        if number >= self.end {
            // the first word after the one that `end - 1` is in
            let from = self.end.div_ceil(BITS);
            let to = number / BITS;
            for word in from..=to.min(from.saturating_add(WORDS as u64 - 1)) {
                self.words[word as usize % WORDS] = 0;
            }
            self.end = number + 1;
        }
        self.words[(number / BITS) as usize % WORDS] |= 1 << (number % BITS);
        true
    }

    /// Returns the ranges of accepted numbers that it still covers, the highest first.
    pub fn ranges(&self) -> impl Iterator<Item = RangeInclusive<u64>> + '_ {
        let (mut next, floor) = (self.end, self.floor());
        std::iter::from_fn(move || {
            let last = self.below(next, floor, true)?;
            let first = self.below(last, floor, false).map_or(floor, |missing| missing + 1);
            next = first;
            Some(first..=last)
        })
    }

    /// Finds the highest number below `end`, and not below `floor`, that is accepted or not, as
    /// `accepted` says.
    fn below(&self, end: u64, floor: u64, accepted: bool) -> Option<u64> {
        let mut at = end;
        while at > floor {
            let (word, used) = ((at - 1) / BITS, (at - 1) % BITS + 1);
            let word_bits = self.words[word as usize % WORDS];
            let bits = if accepted { word_bits } else { !word_bits };
            // the lowest `used` bits of the word
            let bits = bits << (BITS - used) >> (BITS - used);
            if bits != 0 {
                let found = word * BITS + u64::from(bits.ilog2());
                return (found >= floor).then_some(found);
            }
            at = word * BITS;
        }
        None
    }

    fn floor(&self) -> u64 {
        self.end.saturating_sub(Self::SPAN)
    }

    fn holds(&self, number: u64) -> bool {
        self.words[(number / BITS) as usize % WORDS] >> (number % BITS) & 1 == 1
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn number(number: u64) -> Number {
        Number::new(number).expect("48 bits")
    }

    #[test]
    fn a_packet_is_accepted_once_and_an_old_one_never() {
        let mut window = Window::default();
        assert_eq!((window.highest(), window.ranges().count()), (None, 0));
        assert!(window.accept(number(0)) && !window.accept(number(0)));
        assert!(window.accept(number(Window::SPAN)) && !window.accept(number(0)));
        assert!(window.accept(number(1)));
        assert_eq!(window.ranges().collect::<Vec<_>>(), [Window::SPAN..=Window::SPAN, 1..=1]);
        // a whole epoch ahead: nothing of the ring is left
        assert!(window.accept(number(1 << 24)));
        assert_eq!(window.ranges().collect::<Vec<_>>(), [1 << 24..=1 << 24]);
        assert!(!window.is_new(number(Window::SPAN)));
    }

    proptest! {
        #[test]
        fn it_agrees_with_a_set(
            steps in proptest::collection::vec((0_u64..3, 0_u64..40_000), 1..400),
        ) {
            let (mut window, mut set, mut end) = (Window::default(), BTreeSet::new(), 0_u64);
            for (kind, by) in steps {
                // near the top, somewhere behind, or far ahead
                let at = match kind {
                    0 => end + by % 5,
                    1 => end.saturating_sub(by % 20_000),
                    _ => end + by,
                };
                let floor = end.saturating_sub(Window::SPAN);
                let new = at >= end || (at >= floor && !set.contains(&at));
                prop_assert_eq!(window.is_new(number(at)), new);
                prop_assert_eq!(window.accept(number(at)), new);
                if new {
                    set.insert(at);
                    end = end.max(at + 1);
                }
            }
            let floor = end.saturating_sub(Window::SPAN);
            let known: Vec<u64> = window.ranges().flat_map(Iterator::rev).collect();
            let expected: Vec<u64> = set.iter().rev().copied().filter(|&at| at >= floor).collect();
            prop_assert_eq!(known, expected);
        }
    }
}
