//! Searches the path's MTU (RFC 8899, DPLPMTUD), and detects a path that has become a black
//! hole for packets it carried before.

use std::time::Duration;

use super::limits::MIN_MTU;

/// RFC 8899, section 5.1.2.
const MAX_PROBES: u32 = 3;
/// Precision of the search in bytes: a smaller gap is not worth a probe.
const PRECISION: usize = 8;
/// RFC 8899, section 5.1.1: PMTU_RAISE_TIMER.
const RAISE: Duration = Duration::from_secs(600);
/// Long packets lost in a row, with short ones arriving, that make the path suspicious (the
/// third sign of RFC 8899, section 4.3).
const SUSPICIOUS: u32 = 3;

/// The state of the search; lengths are UDP payload.
#[derive(Clone, Debug)]
pub(crate) struct MtuSearch {
    current: usize,
    most: usize,
    /// Whether a measurement fixes the length.
    fixed: bool,
    /// The shortest length that is known to be too long.
    above: usize,
    probe: Option<usize>,
    failed: u32,
    again_at: Duration,
    long_lost: u32,
    /// The newest long packet that arrived.
    long_arrived: Option<u64>,
}

impl MtuSearch {
    /// Starts a search between [`MIN_MTU`] and `most`.
    pub(crate) fn new(most: usize) -> Self {
        let most = most.max(MIN_MTU);
        Self {
            current: MIN_MTU,
            most,
            fixed: false,
            above: most + 1,
            probe: None,
            failed: 0,
            again_at: Duration::ZERO,
            long_lost: 0,
            long_arrived: None,
        }
    }

    /// Fixes the length; there is no search.
    pub(crate) fn fixed(len: usize) -> Self {
        Self { current: len, most: len, fixed: true, ..Self::new(len) }
    }

    /// Restarts the search, on another path.
    pub(crate) fn restart(&mut self) {
        *self = if self.fixed { Self::fixed(self.current) } else { Self::new(self.most) };
    }

    /// Returns the longest packet known to pass.
    pub(crate) fn current(&self) -> usize {
        self.current
    }

    /// Returns the length of a probe to send now.
    pub(crate) fn probe(&mut self, now: Duration) -> Option<usize> {
        if self.probe.is_some() || now < self.again_at || self.current >= self.most {
            return None;
        }
        if self.above - self.current <= PRECISION {
            // found; look again later, for the path may change
            self.again_at = now + RAISE;
            self.above = self.most + 1;
            return None;
        }
        // the longest first: most paths carry it
        let size = if self.above > self.most {
            self.most
        } else {
            self.current + (self.above - self.current) / 2
        };
        self.probe = Some(size);
        Some(size)
    }

    /// Packet `number`, of data or a probe of `len`, arrived.
    pub(crate) fn arrived(&mut self, len: usize, number: u64) {
        if len > MIN_MTU && self.long_arrived < Some(number) {
            self.long_arrived = Some(number);
            self.long_lost = 0;
        }
        if self.probe == Some(len) {
            self.probe = None;
            self.failed = 0;
            self.current = self.current.max(len);
        }
    }

    /// A probe of `len` was lost.
    pub(crate) fn probe_lost(&mut self, len: usize) {
        if self.probe == Some(len) {
            self.probe = None;
            self.failed += 1;
            if self.failed >= MAX_PROBES {
                self.failed = 0;
                self.above = len;
            }
        }
    }

    /// Packet `number`, of data of `len`, was lost.
    pub(crate) fn data_lost(&mut self, len: usize, number: u64) {
        if len > MIN_MTU && self.long_arrived < Some(number) {
            self.long_lost += 1;
        }
    }

    /// Notes that only short packets arrived. Returns whether the path has become a black hole for
    /// longer ones: the search then begins again below what was lost.
    pub(crate) fn short_arrived(&mut self) -> bool {
        let shrinks = self.current > MIN_MTU && !self.fixed;
        let black_hole = shrinks && self.long_lost >= SUSPICIOUS;
        if black_hole {
            *self = Self { above: self.current, ..Self::new(self.most) };
        }
        black_hole
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Searches on a path that carries `carries`, and counts probes.
    fn search(search: &mut MtuSearch, carries: usize) -> usize {
        let mut probes = 0;
        while let Some(len) = search.probe(Duration::ZERO) {
            probes += 1;
            if len <= carries { search.arrived(len, 0) } else { search.probe_lost(len) }
        }
        probes
    }

    #[test]
    fn every_path_s_mtu_is_found() {
        for carries in MIN_MTU..=1472 {
            let mut mtu = MtuSearch::new(1472);
            let probes = search(&mut mtu, carries);
            assert!(mtu.current() <= carries && carries - mtu.current() < PRECISION, "{carries}");
            assert!(probes <= 3 * 8, "{probes} for {carries}");
        }
        let mut mtu = MtuSearch::new(1472);
        assert_eq!(search(&mut mtu, 1472), 1, "Ethernet's takes one probe");
    }

    #[test]
    fn a_length_that_is_given_stays() {
        for len in [247, 1200, 4047] {
            let mut mtu = MtuSearch::fixed(len);
            assert_eq!(mtu.probe(RAISE), None);
            (1..9).for_each(|number| mtu.data_lost(len, number));
            assert!(!mtu.short_arrived(), "{len}");
            mtu.restart();
            assert_eq!((mtu.current(), mtu.probe(Duration::ZERO)), (len, None));
        }
    }

    #[test]
    fn a_path_that_grows_is_found_later() {
        let mut mtu = MtuSearch::new(1472);
        search(&mut mtu, 1300);
        assert_eq!(mtu.probe(RAISE - Duration::from_secs(1)), None);
        assert_eq!(mtu.probe(RAISE), Some(1472));
    }

    #[test]
    fn a_path_that_drops_long_packets_shrinks_the_mtu_and_random_loss_does_not() {
        let mut mtu = MtuSearch::new(1472);
        search(&mut mtu, 1472);
        mtu.data_lost(1472, 11);
        mtu.data_lost(1472, 12);
        mtu.arrived(1472, 13);
        mtu.data_lost(1472, 14);
        assert!(!mtu.short_arrived(), "one arrived between");
        mtu.data_lost(1472, 12);
        assert!(!mtu.short_arrived(), "lost before the last that arrived");
        mtu.data_lost(1472, 15);
        mtu.data_lost(1472, 16);
        assert!(mtu.short_arrived());
        assert_eq!(mtu.current(), MIN_MTU);
        search(&mut mtu, 1400);
        assert!((1392..=1400).contains(&mtu.current()));
    }
}
