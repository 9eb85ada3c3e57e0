//! A worker's share of the limit of a job.
//!
//! Workers that have items share it. A worker counts them by itself, at each of its reports: so it
//! has a lower share within one of them after another worker has taken an item. A share grows only
//! after several reports, because between two items a worker has none for a moment, and because a
//! request cannot change its limit: it is interrupted.

use std::collections::VecDeque;

/// A share grows when so many reports in a row allow it.
pub(crate) const MEMORY: usize = 6;
/// A share that changes by no more than this part of it interrupts nothing.
const SAME: u64 = 50;
/// Nor does one that grows by no more than this part of it because fewer workers share the limit.
const LITTLE_MORE: u64 = 4;

/// A limit, and among how many workers it is divided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Division {
    /// The limit for all of them together, in bits per second.
    pub rate_bps: u64,
    /// How many workers share it.
    pub workers: u64,
}

impl Division {
    /// Returns the share of one worker, in bits per second.
    #[must_use]
    pub fn share_bps(&self) -> u64 {
        (self.rate_bps / self.workers.max(1)).max(1)
    }

    /// Whether a request that has its share of `before` continues. One that cannot be resumed is not
    /// interrupted for a larger share.
    pub(crate) fn is_near(&self, before: &Self, can_resume: bool) -> bool {
        let (now_bps, before_bps) = (self.share_bps(), before.share_bps());
        let is_given_back = self.rate_bps == before.rate_bps && now_bps > before_bps;
        if is_given_back && !can_resume {
            return true;
        }
        let part = if is_given_back { LITTLE_MORE } else { SAME };
        now_bps.abs_diff(before_bps) <= before_bps / part
    }
}

/// By how many a worker has divided the limit lately.
#[derive(Debug)]
pub(crate) struct Sharers {
    counts: VecDeque<u64>,
    /// How many reports ago the worker had an item; at most [`MEMORY`].
    idle: usize,
}

impl Default for Sharers {
    /// Those of a worker that has had no item yet.
    fn default() -> Self {
        Self { counts: VecDeque::with_capacity(MEMORY), idle: MEMORY }
    }
}

impl Sharers {
    /// Returns the division that applies after this one was reported to the worker.
    pub(crate) fn steady(
        &mut self,
        reported: Option<Division>,
        has_item: bool,
    ) -> Option<Division> {
        let Division { rate_bps, workers } = reported?;
        self.idle = if has_item { 0 } else { MEMORY.min(self.idle + 1) };
        // between two items the report is that of a worker that waits
        if has_item || self.idle == MEMORY || self.counts.is_empty() {
            if self.counts.len() == MEMORY {
                self.counts.pop_front();
            }
            self.counts.push_back(workers);
        }
        let workers = self.counts.iter().copied().fold(1, u64::max);
        Some(Division { rate_bps, workers })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn among(workers: u64) -> Division {
        Division { rate_bps: 90_000_000, workers }
    }

    /// Returns by how many a worker divides after each report: workers, and whether it has an item.
    fn steadied(sharers: &mut Sharers, reported: &[(u64, bool)]) -> Vec<u64> {
        let steady = |&(workers, has_item): &(u64, bool)| {
            sharers.steady(Some(among(workers)), has_item).expect("a limit").workers
        };
        reported.iter().map(steady).collect()
    }

    #[test]
    fn a_share_is_never_nothing() {
        assert_eq!(among(3).share_bps(), 30_000_000);
        assert_eq!(Division { rate_bps: 2, workers: 3 }.share_bps(), 1);
        assert_eq!(Division { rate_bps: 2, workers: 0 }.share_bps(), 2);
    }

    #[test]
    fn a_request_continues_unless_its_share_changes_much() {
        for (now, before, is_near) in [
            (2, 2, true),
            (101, 100, true),
            (103, 100, false),
            (3, 2, false),
            (4, 5, true),
            (3, 4, false),
            (1, 2, false),
        ] {
            assert_eq!(among(now).is_near(&among(before), true), is_near, "{now} after {before}");
        }
        assert!(among(1).is_near(&among(9), false) && !among(9).is_near(&among(1), false));
        // what the user has set applies at once
        let more = Division { rate_bps: 99_000_000, workers: 2 };
        assert!(!more.is_near(&among(2), true) && !more.is_near(&among(2), false));
    }

    #[test]
    fn a_share_falls_at_once_and_grows_after_several_reports() {
        let mut sharers = Sharers::default();
        assert_eq!(steadied(&mut sharers, &[(3, true), (4, true), (3, true)]), [3, 4, 4]);
        let fewer = steadied(&mut sharers, &[(3, true); MEMORY]);
        assert_eq!((fewer[0], fewer[MEMORY - 3], fewer[MEMORY - 2]), (4, 4, 3));
        // what was between two items of another one is no reason to grow
        let short = [(2, true), (3, true), (2, true), (3, true)];
        assert_eq!(steadied(&mut sharers, &short), [3, 3, 3, 3]);
    }

    #[test]
    fn a_worker_keeps_its_share_between_two_items_and_loses_it_when_it_waits() {
        let mut sharers = Sharers::default();
        let begun = steadied(&mut sharers, &[(9, false), (9, false), (1, true)]);
        assert_eq!(begun, [9, 9, 9]);
        assert_eq!(steadied(&mut sharers, &[(1, true); MEMORY]).last(), Some(&1));
        assert_eq!(steadied(&mut sharers, &[(9, false), (9, false), (1, true)]), [1, 1, 1]);
        assert_eq!(steadied(&mut sharers, &[(9, false); MEMORY - 1]), [1; MEMORY - 1]);
        assert_eq!(steadied(&mut sharers, &[(9, false)]), [9]);
    }

    #[test]
    fn another_limit_applies_at_once() {
        let mut sharers = Sharers::default();
        steadied(&mut sharers, &[(2, true); MEMORY]);
        let other = Division { rate_bps: 10, workers: 2 };
        assert_eq!(sharers.steady(Some(other), true), Some(other));
        assert_eq!(sharers.steady(None, true), None);
    }
}
