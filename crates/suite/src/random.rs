//! Random bytes for IVs, generated a page at a time.
//!
//! AWS-LC needs 350 ns for 16 bytes, as long as sealing a short packet, but only 880 ns for 4096
//! (measured as in `cbc`). Each thread therefore generates a page at a time. The bytes are sent in
//! clear anyway, and none is used twice. After a fork both processes would have the same page:
//! start other programs, or fork before sealing anything.

use std::cell::RefCell;

use crate::SealError;

const PAGE: usize = 4096;

struct RandomPage {
    bytes: [u8; PAGE],
    used: usize,
}

thread_local! {
    static RANDOM_PAGE: RefCell<RandomPage> = const { RefCell::new(RandomPage { bytes: [0; PAGE], used: PAGE }) };
}

/// Fills an IV of at most a page.
#[inline]
pub(crate) fn fill(iv: &mut [u8]) -> Result<(), SealError> {
    RANDOM_PAGE.with_borrow_mut(|page| page.take(iv))
}

impl RandomPage {
    #[inline]
    fn take(&mut self, iv: &mut [u8]) -> Result<(), SealError> {
        if PAGE - self.used < iv.len() {
            // Nothing is left if this fails, whatever has been written.
            self.used = PAGE;
            aws_lc_rs::rand::fill(&mut self.bytes).map_err(|_| SealError::Random)?;
            self.used = 0;
        }
        let end = self.used + iv.len();
        iv.copy_from_slice(&self.bytes[self.used..end]);
        self.used = end;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn no_iv_is_handed_out_twice() {
        let mut seen = HashSet::new();
        for round in 0..2000 {
            let mut iv = [0; 16];
            fill(&mut iv).expect("random numbers");
            assert!(seen.insert(iv), "a repeat in round {round}");
            // Another length, so that pages do not end with an IV.
            fill(&mut [0; 8]).expect("random numbers");
        }
    }

    #[test]
    fn threads_draw_apart() {
        let draw = || {
            let mut iv = [0; 16];
            fill(&mut iv).expect("random numbers");
            iv
        };
        assert_ne!(std::thread::spawn(draw).join().expect("a thread"), draw());
    }
}
