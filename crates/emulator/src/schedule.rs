//! Holds frames in transit and releases them at their times and in order, except those
//! held back until three later frames have passed them.

use std::collections::VecDeque;

/// Frames that overtake one that is held back.
const OVERTAKEN_BY: u32 = 3;
/// Longest time that a frame is held back beyond its due time.
const MAX_HELD_NS: u64 = 10_000_000;

/// Items due at times that never decrease.
#[derive(Debug)]
pub struct Schedule<T> {
    due: VecDeque<Entry<T>>,
    held: VecDeque<Held<T>>,
    next_number: u64,
}

#[derive(Debug)]
struct Entry<T> {
    at_ns: u64,
    number: u64,
    item: T,
}

#[derive(Debug)]
struct Held<T> {
    entry: Entry<T>,
    passed_by: u32,
}

impl<T> Default for Schedule<T> {
    fn default() -> Self {
        Self { due: VecDeque::new(), held: VecDeque::new(), next_number: 0 }
    }
}

impl<T> Schedule<T> {
    /// Adds an item that is due at `at_ns`, no earlier than the items added before.
    pub fn push(&mut self, at_ns: u64, item: T, held_back: bool) {
        let entry = Entry { at_ns, number: self.next_number, item };
        self.next_number += 1;
        if held_back {
            let at_ns = at_ns.saturating_add(MAX_HELD_NS);
            self.held.push_back(Held { entry: Entry { at_ns, ..entry }, passed_by: 0 });
        } else {
            self.due.push_back(entry);
        }
    }

    /// Returns when the next item is due.
    pub fn next_ns(&self) -> Option<u64> {
        let due = self.due.front().map(|entry| entry.at_ns);
        due.into_iter().chain(self.held.front().map(|held| held.entry.at_ns)).min()
    }

    /// Removes and returns the next item if it is due at `now_ns`, with its due time.
    pub fn pop(&mut self, now_ns: u64) -> Option<(u64, T)> {
        let at_ns = self.next_ns().filter(|at| *at <= now_ns)?;
        if self.held.front().is_some_and(|held| held.entry.at_ns <= at_ns) {
            return self.held.pop_front().map(|held| (at_ns, held.entry.item));
        }
        let next = self.due.pop_front()?;
        for held in self.held.iter_mut().take_while(|held| held.entry.number < next.number) {
            held.passed_by += 1;
            if held.passed_by == OVERTAKEN_BY {
                held.entry.at_ns = at_ns; // released next
            }
        }
        Some((at_ns, next.item))
    }

    /// Returns the number of items.
    pub fn len(&self) -> usize {
        self.due.len() + self.held.len()
    }

    /// Tells whether there are no items.
    pub fn is_empty(&self) -> bool {
        self.due.is_empty() && self.held.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn drain(schedule: &mut Schedule<u32>, now_ns: u64) -> Vec<(u64, u32)> {
        std::iter::from_fn(|| schedule.pop(now_ns)).collect()
    }

    #[test]
    fn three_frames_overtake_one_that_is_held_back() {
        let mut schedule = Schedule::default();
        for n in 0..6 {
            schedule.push(u64::from(n) * 100, n, n == 1);
        }
        let order: Vec<u32> = drain(&mut schedule, 1_000).into_iter().map(|(_, n)| n).collect();
        assert_eq!(order, [0, 2, 3, 4, 1, 5]);
        assert!(schedule.is_empty());
    }

    #[test]
    fn releases_a_held_frame_after_ten_milliseconds() {
        let mut schedule = Schedule::default();
        schedule.push(100, 0, true);
        schedule.push(200, 1, false);
        assert_eq!(drain(&mut schedule, 10_000_000), [(200, 1)]);
        assert_eq!(schedule.next_ns(), Some(10_000_100));
        assert_eq!(drain(&mut schedule, 10_000_100), [(10_000_100, 0)]);
    }

    #[test]
    fn earlier_frames_do_not_count_as_overtaking() {
        let mut schedule = Schedule::default();
        for n in 0..3 {
            schedule.push(100, n, false);
        }
        schedule.push(100, 3, true); // of one train, at one time
        assert_eq!(drain(&mut schedule, 100).len(), 3);
        assert_eq!(schedule.next_ns(), Some(10_000_100));
    }

    proptest! {
        #[test]
        fn releases_everything_and_nothing_early(items in proptest::collection::vec((0u64..100_000, any::<bool>()), 1..200), step in 1u64..5_000_000) {
            let mut schedule = Schedule::default();
            let mut at = 0;
            let mut due = Vec::new();
            for (n, &(gap, held)) in items.iter().enumerate() {
                at += gap;
                due.push(at);
                schedule.push(at, n as u32, held);
            }
            let mut out = Vec::new();
            let mut now = 0;
            while !schedule.is_empty() {
                now += step;
                let batch = drain(&mut schedule, now);
                prop_assert!(batch.iter().all(|(at, n)| *at <= now && *at >= due[*n as usize]));
                out.extend(batch);
            }
            prop_assert!(out.is_sorted_by_key(|(at, _)| *at));
            prop_assert!(out.iter().all(|(at, n)| *at <= due[*n as usize] + MAX_HELD_NS));
            let plain: Vec<u32> = out.iter().map(|o| o.1).filter(|n| !items[*n as usize].1).collect();
            prop_assert!(plain.is_sorted());
            let mut all: Vec<u32> = out.iter().map(|o| o.1).collect();
            all.sort_unstable();
            prop_assert_eq!(all, (0..items.len() as u32).collect::<Vec<_>>());
        }
    }
}
