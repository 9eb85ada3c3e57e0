//! Results of work that runs ahead on other threads, in the order in which it was begun.

use std::collections::VecDeque;

use super::threads::Running;
use crate::files::error::ErrorKind;

/// Results in order, of which some are not there yet.
#[derive(Debug)]
pub(super) struct Ahead<T>(VecDeque<Slot<T>>);

#[derive(Debug)]
enum Slot<T> {
    Ready(T),
    Running(Running<T>),
}

impl<T> Ahead<T> {
    pub(super) fn new() -> Self {
        Self(VecDeque::new())
    }

    /// Returns how many results were not taken yet.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Adds a result.
    pub(super) fn push(&mut self, result: T) {
        self.0.push_back(Slot::Ready(result));
    }

    /// Adds work that runs.
    pub(super) fn push_running(&mut self, running: Running<T>) {
        self.0.push_back(Slot::Running(running));
    }

    /// Takes the first result, and waits for it if necessary; `None` if there is none.
    pub(super) fn pop(&mut self) -> Option<Result<T, ErrorKind>> {
        Some(match self.0.pop_front()? {
            Slot::Ready(result) => Ok(result),
            Slot::Running(running) => running.wait(),
        })
    }
}
