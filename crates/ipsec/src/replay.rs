//! The anti-replay window (RFC 4303, section 3.4.3 and appendix A), as a ring of words (RFC 6479):
//! moving the window clears words and shifts none.

use crate::reason::Reason;

const BITS: u64 = 64;

/// Remembers the sequence numbers accepted, from the highest back by the window's size.
#[derive(Debug, Clone)]
pub struct Window {
    /// The highest number accepted; 0: none.
    top: u64,
    size: u64,
    /// At least one word more than the window needs, so that the word into which the top moves can be
    /// cleared; a power of two.
    words: Box<[u64]>,
}

impl Window {
    /// Makes a window of `size` packets, rounded up to a multiple of 64. Treats all numbers up to
    /// `top` as accepted before.
    pub fn new(size: u32, top: u64) -> Self {
        let words = u64::from(size).div_ceil(BITS).max(1);
        let seen = if top == 0 { 0 } else { u64::MAX };
        let ring = (words + 1).next_power_of_two() as usize;
        let mut window = Self { top, size: words * BITS, words: vec![seen; ring].into() };
        // bits above the top, in its word, are free
        let (word, bit) = window.slot(top);
        window.words[word] &= bit | (bit - 1);
        window
    }

    /// Returns the highest number accepted.
    pub fn top(&self) -> u64 {
        self.top
    }

    /// Returns the size in packets.
    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// Infers the whole number from its low half (RFC 4303, appendix A2.2); returns the number itself
    /// if it is not extended, and none if it would precede the first number.
    pub fn infer(&self, low: u32, extended: bool) -> Option<u64> {
        if !extended {
            return Some(u64::from(low));
        }
        let (top_high, top_low) = (self.top >> 32, self.top as u32);
        let below = (self.size - 1) as u32;
        let bottom = top_low.wrapping_sub(below);
        let high = if top_low >= below {
            // the window is within one half: a number left of it belongs to the next half
            if low >= bottom { top_high } else { top_high + 1 }
        } else if low >= bottom {
            // the window spans two halves, and the number belongs to the lower one
            top_high.checked_sub(1)?
        } else {
            top_high
        };
        // 2^64 - 1 is the last number
        Some((high.min(u64::from(u32::MAX)) << 32) | u64::from(low))
    }

    /// Checks whether a number may be new, before the packet is verified. Changes nothing.
    ///
    /// # Errors
    /// [`Reason::Replay`] for a number accepted before, [`Reason::Stale`] for one left of the window
    /// and for 0, which is never sent (RFC 4303, section 3.3.3).
    pub fn check(&self, number: u64) -> Result<(), Reason> {
        if number > self.top {
            return Ok(());
        }
        if number == 0 || self.top - number >= self.size {
            return Err(Reason::Stale);
        }
        let (word, bit) = self.slot(number);
        if self.words[word] & bit == 0 { Ok(()) } else { Err(Reason::Replay) }
    }

    /// Records the number of a verified packet.
    ///
    /// # Errors
    /// As [`Window::check`]: another packet with this number may have been accepted in between.
    pub fn accept(&mut self, number: u64) -> Result<(), Reason> {
        self.check(number)?;
        if number > self.top {
            let (from, to) = (self.top / BITS, number / BITS);
            let ring = self.words.len() as u64;
            for word in from + 1..=to.min(from.saturating_add(ring)) {
                self.words[(word & (ring - 1)) as usize] = 0;
            }
            self.top = number;
        }
        let (word, bit) = self.slot(number);
        self.words[word] |= bit;
        Ok(())
    }

    /// Returns a window of another size with the same numbers recorded, as far as they fit.
    pub(crate) fn resize(&self, size: u32) -> Self {
        let mut new = Self::new(size, self.top);
        for number in self.top.saturating_sub(new.size - 1).max(1)..=self.top {
            if self.check(number).is_ok() {
                let (word, bit) = new.slot(number);
                new.words[word] &= !bit;
            }
        }
        new
    }

    fn slot(&self, number: u64) -> (usize, u64) {
        // the ring's length is a power of two: no division per packet
        let word = (number / BITS) & (self.words.len() as u64 - 1);
        (word as usize, 1 << (number % BITS))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resized_window_remembers_accepted_numbers_only() {
        let mut window = Window::new(64, 0);
        for number in [65, 70] {
            assert_eq!(window.accept(number), Ok(()));
        }
        let mut resized = window.resize(1024);
        for (number, expected) in [
            (65, Err(Reason::Replay)),
            (70, Err(Reason::Replay)),
            (66, Ok(())),
            (6, Err(Reason::Replay)), // left of the old window
            (100, Ok(())),
            (71, Ok(())), // overtaken
        ] {
            assert_eq!(resized.accept(number), expected, "{number}");
        }
    }
}
