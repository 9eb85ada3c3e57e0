//! The anti-replay window against a set of all numbers ever accepted.

use std::collections::HashSet;

use headroom_ipsec::Reason;
use headroom_ipsec::replay::Window;
use proptest::prelude::*;

/// What RFC 4303, section 3.4.3, demands, said with a set.
struct Oracle {
    size: u64,
    /// All up to it was seen before.
    mark: u64,
    top: u64,
    seen: HashSet<u64>,
}

impl Oracle {
    fn check(&self, number: u64) -> Result<(), Reason> {
        if number == 0 || (number <= self.top && self.top - number >= self.size) {
            return Err(Reason::Stale);
        }
        if number <= self.mark || self.seen.contains(&number) {
            Err(Reason::Replay)
        } else {
            Ok(())
        }
    }

    fn accept(&mut self, number: u64) -> Result<(), Reason> {
        self.check(number)?;
        self.seen.insert(number);
        self.top = self.top.max(number);
        Ok(())
    }
}

proptest! {
    #[test]
    fn agrees_with_a_set(
        size in prop_oneof![Just(64u32), Just(128), Just(1024), Just(8192), 64..8193u32],
        start in prop_oneof![Just(0u64), Just(u64::from(u32::MAX) - 50), Just(u64::MAX - 40_000)],
        mark in prop_oneof![Just(0), 1..20_000u64, Just(u64::MAX - 60_000)],
        steps in proptest::collection::vec((-9000i64..9000, 0..20u8), 1..300),
    ) {
        let mut window = Window::new(size, mark);
        let size = u64::from(size).next_multiple_of(64);
        let mut oracle = Oracle { size, mark, top: mark, seen: HashSet::new() };
        if start > 0 {
            prop_assert_eq!(window.accept(start), oracle.accept(start));
        }
        for (step, kind) in steps {
            // mostly forward by little, as packets come; else anywhere around
            let step = if kind < 12 { step.rem_euclid(3) } else { step };
            let number = window.top().saturating_add_signed(step);
            prop_assert_eq!(window.check(number), oracle.check(number), "{} at {}", number, oracle.top);
            prop_assert_eq!(window.accept(number), oracle.accept(number), "{} at {}", number, oracle.top);
            prop_assert_eq!(window.top(), oracle.top);
        }
    }

    #[test]
    fn the_high_half_is_found_for_every_number_near_the_window(
        size in prop_oneof![Just(64u32), Just(4096), Just(8192)],
        top in prop_oneof![1..20_000u64, (1u64 << 32) - 10_000..(1 << 32) + 10_000, (7u64 << 32) - 10_000..(7 << 32) + 10_000, 1..u64::MAX - (1 << 33)],
        offset in 0..1u64 << 31,
        left in any::<bool>(),
    ) {
        let mut window = Window::new(size, 0);
        window.accept(top).expect("the first");
        // inside the window, or right of it by less than what the low half can say
        let offset = if left { offset % u64::from(size) } else { offset };
        let number = if left { top.saturating_sub(offset).max(1) } else { top + offset };
        prop_assert_eq!(window.infer(number as u32, true), Some(number));
        prop_assert_eq!(window.infer(number as u32, false), Some(number & 0xffff_ffff));
    }
}

#[test]
fn a_window_that_begins_with_a_mark_refuses_all_up_to_it() {
    let mut window = Window::new(64, 1000);
    for number in 937..=1000 {
        assert_eq!(window.accept(number), Err(Reason::Replay), "{number}");
    }
    assert_eq!(window.accept(936), Err(Reason::Stale));
    assert_eq!(window.accept(1001), Ok(()));
    assert_eq!(window.accept(1001), Err(Reason::Replay));
    assert_eq!(window.accept(1000), Err(Reason::Replay));
}

#[test]
fn after_a_mark_what_was_overtaken_is_no_replay() {
    for mark in 1..200 {
        let mut window = Window::new(64, mark);
        assert_eq!(window.accept(mark + 40), Ok(()));
        for number in mark + 1..mark + 40 {
            assert_eq!(window.accept(number), Ok(()), "{number} after {mark}");
            assert_eq!(window.accept(number), Err(Reason::Replay), "{number} after {mark}");
        }
    }
}

#[test]
fn the_last_number_is_accepted_once() {
    let mut window = Window::new(64, 0);
    assert_eq!(window.accept(u64::MAX), Ok(()));
    assert_eq!(window.accept(u64::MAX), Err(Reason::Replay));
    assert_eq!(window.infer(5, true), Some((u64::from(u32::MAX) << 32) | 5));
}

/// RFC 4303, appendix A2.2: near the first number the window's left part lies in
/// half -1, in which there are none.
#[test]
fn a_low_half_left_of_the_first_number_is_of_no_number() {
    let mut window = Window::new(64, 0);
    window.accept(1).expect("the first");
    for low in [0xffff_fff0, u32::MAX, u32::MAX - 61] {
        assert_eq!(window.infer(low, true), None, "{low:#x}");
    }
    assert_eq!(window.infer(u32::MAX - 62, true), Some(u64::from(u32::MAX) - 62));
    // from where the window lies in one half alone, it is the next half that is meant
    window.accept(64).expect("a later one");
    assert_eq!(window.infer(u32::MAX, true), Some(u64::from(u32::MAX)));
}
