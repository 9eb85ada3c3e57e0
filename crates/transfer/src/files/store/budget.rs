//! Bounds the memory that requests of all transfers take together.

use std::sync::{Arc, Condvar, Mutex, PoisonError};

use headroom_mutex::lock;

/// A number of bytes that may be taken.
#[derive(Debug)]
pub(super) struct Budget {
    most: u64,
    taken: Mutex<u64>,
    given_back: Condvar,
}

/// Bytes of a budget, until this is dropped.
#[derive(Debug)]
pub(super) struct Taken {
    of: Arc<Budget>,
    bytes: u64,
}

impl Budget {
    pub(super) fn new(most: u64) -> Arc<Self> {
        Arc::new(Self { most, taken: Mutex::new(0), given_back: Condvar::new() })
    }

    /// Takes bytes, and waits until there are that many. More than all there are count as all.
    pub(super) fn take(self: &Arc<Self>, bytes: u64) -> Taken {
        let bytes = bytes.min(self.most);
        let taken = lock(&self.taken);
        let mut taken = self
            .given_back
            .wait_while(taken, |taken| *taken + bytes > self.most)
            .unwrap_or_else(PoisonError::into_inner);
        *taken += bytes;
        Taken { of: Arc::clone(self), bytes }
    }

    /// Takes bytes, if there are that many now.
    pub(super) fn try_take(self: &Arc<Self>, bytes: u64) -> Option<Taken> {
        self.try_take_below(self.most, bytes)
    }

    /// Takes bytes, if no more than half of all are taken then.
    pub(super) fn try_take_of_half(self: &Arc<Self>, bytes: u64) -> Option<Taken> {
        self.try_take_below(self.most / 2, bytes)
    }

    fn try_take_below(self: &Arc<Self>, most: u64, bytes: u64) -> Option<Taken> {
        let mut taken = lock(&self.taken);
        if bytes > most.saturating_sub(*taken) {
            return None;
        }
        *taken += bytes;
        Some(Taken { of: Arc::clone(self), bytes })
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        *lock(&self.of.taken) -= self.bytes;
        self.of.given_back.notify_all();
    }
}
