//! Results of work that runs ahead on other threads, in the order in which it was begun.

use std::collections::VecDeque;

use super::threads::Running;
use crate::files::error::ErrorKind;

/// Results for which a thread waits together. They are begun together and arrive at about the same
/// time; to wake the thread for each costs more than it does with one.
const TOGETHER: usize = 8;

/// Results in order, of which some are not there yet.
#[derive(Debug)]
pub(super) struct Ahead<T>(VecDeque<Slot<T>>);

#[derive(Debug)]
enum Slot<T> {
    Ready(Result<T, ErrorKind>),
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
        self.0.push_back(Slot::Ready(Ok(result)));
    }

    /// Adds work that runs.
    pub(super) fn push_running(&mut self, running: Running<T>) {
        self.0.push_back(Slot::Running(running));
    }

    /// Takes the first result, and waits for it if necessary; `None` if there is none.
    pub(super) fn pop(&mut self) -> Option<Result<T, ErrorKind>> {
        if !self.0.front_mut()?.is_ready() {
            let last = self.0.len().min(TOGETHER) - 1;
            self.0[last].wait();
        }
        Some(match self.0.pop_front()? {
            Slot::Ready(result) => result,
            Slot::Running(running) => running.wait(),
        })
    }
}

impl<T> Slot<T> {
    /// Whether the result is there.
    fn is_ready(&mut self) -> bool {
        if let Self::Running(running) = self
            && let Some(result) = running.take()
        {
            *self = Self::Ready(result);
        }
        matches!(self, Self::Ready(_))
    }

    /// Waits until the result is there.
    fn wait(&mut self) {
        if let Self::Running(running) = self {
            *self = Self::Ready(running.wait());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Sender, channel};
    use std::thread;

    use super::super::tests::run;
    use super::super::threads::Threads;
    use super::*;

    /// Work that ends when something is sent.
    fn waiting(ahead: &mut Ahead<usize>, threads: &Threads, result: usize) -> Sender<()> {
        let (sender, receiver) = channel::<()>();
        ahead.push_running(threads.run(move || {
            receiver.recv().expect("it is told to end");
            result
        }));
        sender
    }

    #[test]
    fn results_come_in_order_whichever_ends_first() {
        run(|runtime| {
            let threads = Threads::new(runtime.clone());
            let mut ahead = Ahead::new();
            let mut ends = Vec::new();
            for n in 0..3 * TOGETHER {
                match n % 5 {
                    0 => ahead.push(n),
                    _ => ends.push(waiting(&mut ahead, &threads, n)),
                }
            }
            let ending = thread::spawn(move || {
                ends.iter().rev().for_each(|end| end.send(()).expect("it waits"));
            });
            let results = std::iter::from_fn(|| ahead.pop());
            let results: Vec<usize> = results.map(|result| result.expect("a result")).collect();
            assert_eq!(results, (0..3 * TOGETHER).collect::<Vec<_>>());
            ending.join().expect("no panic");
        });
    }

    #[test]
    fn a_result_that_is_there_waits_for_no_other() {
        run(|runtime| {
            let threads = Threads::new(runtime.clone());
            let mut ahead = Ahead::new();
            ahead.push(0);
            let end = waiting(&mut ahead, &threads, 1);
            assert_eq!(ahead.pop().expect("one").expect("a result"), 0);
            end.send(()).expect("it waits");
            assert_eq!(ahead.pop().expect("one").expect("a result"), 1);
            assert!(ahead.pop().is_none());
        });
    }

    #[test]
    fn work_that_panics_is_an_error() {
        fn fails() -> usize {
            panic!("as it should")
        }
        run(|runtime| {
            let threads = Threads::new(runtime.clone());
            let mut ahead = Ahead::new();
            ahead.push_running(threads.run(fails));
            ahead.push_running(threads.run_task(async { fails() }));
            assert!(ahead.pop().expect("one").is_err());
            assert!(ahead.pop().expect("one").is_err());
        });
    }
}
