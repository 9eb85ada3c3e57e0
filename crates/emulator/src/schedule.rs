//! Frames under way: out they come at their times, in their order, except those
//! that are held back until three later ones have passed them.

use std::collections::VecDeque;

/// Frames that pass one that is held back.
const PASSED_BY: u32 = 3;
/// Longest time a frame is held back beyond its own time.
const HELD_AT_MOST_NS: u64 = 10_000_000;

/// Things due at times that never decrease.
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
    /// Adds what is due at `at_ns`, not before anything added earlier.
    pub fn push(&mut self, at_ns: u64, item: T, held_back: bool) {
        let entry = Entry { at_ns, number: self.next_number, item };
        self.next_number += 1;
        if held_back {
            let at_ns = at_ns.saturating_add(HELD_AT_MOST_NS);
            self.held.push_back(Held { entry: Entry { at_ns, ..entry }, passed_by: 0 });
        } else {
            self.due.push_back(entry);
        }
    }

    /// When the next one is due.
    pub fn next_ns(&self) -> Option<u64> {
        let due = self.due.front().map(|entry| entry.at_ns);
        due.into_iter().chain(self.held.front().map(|held| held.entry.at_ns)).min()
    }

    /// Takes the next one if it is due at `now_ns`, with the time it was due.
    pub fn pop(&mut self, now_ns: u64) -> Option<(u64, T)> {
        let at_ns = self.next_ns().filter(|at| *at <= now_ns)?;
        if self.held.front().is_some_and(|held| held.entry.at_ns <= at_ns) {
            return self.held.pop_front().map(|held| (at_ns, held.entry.item));
        }
        let next = self.due.pop_front()?;
        for held in self.held.iter_mut().take_while(|held| held.entry.number < next.number) {
            held.passed_by += 1;
            if held.passed_by == PASSED_BY {
                held.entry.at_ns = at_ns; // comes out next
            }
        }
        Some((at_ns, next.item))
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.due.len() + self.held.len()
    }

    /// Whether there is none.
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
    fn three_pass_the_one_that_is_held_back() {
        let mut schedule = Schedule::default();
        for n in 0..6 {
            schedule.push(u64::from(n) * 100, n, n == 1);
        }
        let order: Vec<u32> = drain(&mut schedule, 1_000).into_iter().map(|(_, n)| n).collect();
        assert_eq!(order, [0, 2, 3, 4, 1, 5]);
        assert!(schedule.is_empty());
    }

    #[test]
    fn ten_milliseconds_are_enough() {
        let mut schedule = Schedule::default();
        schedule.push(100, 0, true);
        schedule.push(200, 1, false);
        assert_eq!(drain(&mut schedule, 10_000_000), [(200, 1)]);
        assert_eq!(schedule.next_ns(), Some(10_000_100));
        assert_eq!(drain(&mut schedule, 10_000_100), [(10_000_100, 0)]);
    }

    #[test]
    fn what_came_before_does_not_pass() {
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
        fn nothing_is_lost_or_early(items in proptest::collection::vec((0u64..100_000, any::<bool>()), 1..200), step in 1u64..5_000_000) {
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
            prop_assert!(out.iter().all(|(at, n)| *at <= due[*n as usize] + HELD_AT_MOST_NS));
            let plain: Vec<u32> = out.iter().map(|o| o.1).filter(|n| !items[*n as usize].1).collect();
            prop_assert!(plain.is_sorted());
            let mut all: Vec<u32> = out.iter().map(|o| o.1).collect();
            all.sort_unstable();
            prop_assert_eq!(all, (0..items.len() as u32).collect::<Vec<_>>());
        }
    }
}
