//! Locking where a panic of another thread does not matter.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex, also one whose holder panicked: a panic ends the work of its own thread, not
/// that of the others. For content that is whole after each statement of a holder.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locks_after_a_panic_of_the_holder() {
        let mutex = Mutex::new(1);
        let holder = || {
            let mut held = lock(&mutex);
            *held = 2;
            assert_eq!(*held, 1, "a holder that panics");
        };
        assert!(std::thread::scope(|scope| scope.spawn(holder).join()).is_err());
        assert!(mutex.is_poisoned());
        assert_eq!(*lock(&mutex), 2);
    }
}
