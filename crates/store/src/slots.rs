//! How many requests are in flight: fewer when the store asks for less.

use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use headroom_mutex::lock;
use tokio::sync::{Semaphore, SemaphorePermit};

/// Requests at a time, at most.
const MAX: usize = 128;

/// A burst of refusals counts once: they answer requests that were in flight together.
const BURST: Duration = Duration::from_secs(1);

/// Slots for requests. Their number halves when the store asks for less, and grows by one after
/// as many answers as there are slots.
#[derive(Debug)]
pub(crate) struct Slots {
    free: Semaphore,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// How many requests may be in flight.
    limit: usize,
    /// How many slots in use vanish when they are free again.
    surplus: usize,
    /// Answers since the limit changed.
    answers: usize,
    reduced: Option<Instant>,
}

/// One slot in use.
#[derive(Debug)]
pub(crate) struct Slot<'a> {
    slots: &'a Slots,
    permit: Option<SemaphorePermit<'a>>,
}

impl Slots {
    /// Makes as many slots as there ever are.
    pub(crate) fn new() -> Self {
        Self {
            free: Semaphore::new(MAX),
            state: Mutex::new(State { limit: MAX, surplus: 0, answers: 0, reduced: None }),
        }
    }

    /// Waits for a free slot.
    pub(crate) async fn acquire(&self) -> Slot<'_> {
        Slot {
            slots: self,
            // nobody closes the semaphore
            permit: self.free.acquire().await.ok(),
        }
    }

    /// The store answered.
    pub(crate) fn answered(&self) {
        let mut state = self.state();
        state.answers += 1;
        if state.answers < state.limit || state.limit == MAX {
            return;
        }
        state.answers = 0;
        state.limit += 1;
        if state.surplus > 0 {
            state.surplus -= 1;
        } else {
            self.free.add_permits(1);
        }
    }

    /// The store asked for less.
    pub(crate) fn slowed(&self, now: Instant) {
        let mut state = self.state();
        state.answers = 0;
        if state.reduced.is_some_and(|at| now.saturating_duration_since(at) < BURST) {
            return;
        }
        state.reduced = Some(now);
        let limit = (state.limit / 2).max(1);
        let less = state.limit - limit;
        state.limit = limit;
        state.surplus += less - self.free.forget_permits(less);
    }

    /// How many requests may be in flight.
    #[cfg(test)]
    pub(crate) fn limit(&self) -> usize {
        self.state().limit
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        let mut state = self.slots.state();
        if state.surplus > 0
            && let Some(permit) = self.permit.take()
        {
            state.surplus -= 1;
            permit.forget();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_once_a_burst_and_grows_slowly() {
        let slots = Slots::new();
        let begin = Instant::now();
        slots.slowed(begin);
        slots.slowed(begin + Duration::from_millis(500));
        assert_eq!(slots.limit(), 64);
        slots.slowed(begin + Duration::from_secs(1));
        assert_eq!((slots.limit(), slots.free.available_permits()), (32, 32));
        for _ in 0..31 {
            slots.answered();
        }
        assert_eq!(slots.limit(), 32);
        slots.answered();
        assert_eq!((slots.limit(), slots.free.available_permits()), (33, 33));
    }

    #[test]
    fn never_falls_below_one() {
        let slots = Slots::new();
        let begin = Instant::now();
        for second in 0..20 {
            slots.slowed(begin + Duration::from_secs(second));
        }
        assert_eq!((slots.limit(), slots.free.available_permits()), (1, 1));
    }

    #[tokio::test]
    async fn slots_in_use_vanish_when_they_are_free_again() {
        let slots = Slots::new();
        let mut used = Vec::new();
        for _ in 0..MAX {
            used.push(slots.acquire().await);
        }
        slots.slowed(Instant::now());
        assert_eq!(slots.free.available_permits(), 0);
        used.truncate(64);
        assert_eq!(slots.free.available_permits(), 0);
        used.clear();
        assert_eq!(slots.free.available_permits(), 64);
    }
}
