//! A windowed maximum.

use std::collections::VecDeque;

/// The largest value within a span of an arbitrary clock.
#[derive(Debug, Clone)]
pub(crate) struct MaxFilter {
    span: u64,
    /// Falling values with rising times: the first is the largest.
    values: VecDeque<(u64, f64)>,
}

impl MaxFilter {
    pub(crate) fn new(span: u64) -> Self {
        Self { span, values: VecDeque::new() }
    }

    /// Adds a value at time `at`, which never decreases.
    pub(crate) fn push(&mut self, at: u64, value: f64) {
        while self.values.back().is_some_and(|&(_, last)| last <= value) {
            self.values.pop_back();
        }
        // of two at the same time the larger is kept
        if self.values.back().is_none_or(|&(last, _)| last < at) {
            self.values.push_back((at, value));
        }
        while self.values.front().is_some_and(|&(first, _)| first + self.span < at) {
            self.values.pop_front();
        }
    }

    /// Returns the largest; 0 before the first.
    pub(crate) fn get(&self) -> f64 {
        self.values.front().map_or(0.0, |&(_, value)| value)
    }

    /// Replaces everything by `value`.
    pub(crate) fn reset(&mut self, at: u64, value: f64) {
        self.values.clear();
        self.push(at, value);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_is_the_largest_of_the_span(steps in proptest::collection::vec((0_u64..4, 0_u32..50), 1..200)) {
            let (mut max, mut all, mut now) = (MaxFilter::new(10), Vec::new(), 0);
            for (step, value) in steps {
                now += step;
                all.push((now, f64::from(value)));
                max.push(now, f64::from(value));
                let largest = all.iter().filter(|(at, _)| at + 10 >= now).map(|&(_, value)| value);
                prop_assert_eq!(max.get(), largest.fold(0.0, f64::max));
                prop_assert!(max.values.len() <= 11);
            }
        }
    }
}
