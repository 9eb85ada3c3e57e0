//! Work that waits for another machine, on other threads, so that the worker does not wait for
//! each.

use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};

use tokio::sync::mpsc::WeakSender;
use tokio::task::spawn_blocking;

use super::shared::WorkerEvent;
use crate::error::Error;

/// Work in flight from which on more waits.
const MAX: usize = 64;

/// What the worker does when work is done.
pub(super) type Done<W> = Box<dyn FnOnce(&mut W) -> Result<(), Error> + Send>;

/// The work of a worker that is in flight.
pub(super) struct InFlight<W> {
    running: usize,
    /// Files that are being opened or finished.
    pub(super) files: usize,
    done: (Sender<Done<W>>, Receiver<Done<W>>),
    /// Weak, because the worker ends when all senders are gone.
    events: WeakSender<WorkerEvent>,
}

impl<W: 'static> InFlight<W> {
    pub(super) fn new(events: WeakSender<WorkerEvent>) -> Self {
        Self { running: 0, files: 0, done: channel(), events }
    }

    /// Returns where the worker's events go.
    pub(super) fn events(&self) -> WeakSender<WorkerEvent> {
        self.events.clone()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.running == 0
    }

    pub(super) fn is_full(&self) -> bool {
        self.running >= MAX
    }

    /// Runs work on another thread.
    pub(super) fn run(&mut self, work: impl FnOnce() -> Done<W> + Send + 'static) {
        self.running += 1;
        let mut report = Report { done: Some(self.done.0.clone()), events: self.events.clone() };
        drop(spawn_blocking(move || report.send(work())));
    }

    /// Takes work that is done, if there is some.
    pub(super) fn take(&mut self) -> Option<Done<W>> {
        let done = self.done.1.try_recv().ok()?;
        self.running -= 1;
        Some(done)
    }

    /// Waits for work that is done; `None` if none runs.
    pub(super) fn wait(&mut self) -> Option<Done<W>> {
        if self.running == 0 {
            return None;
        }
        let done = self.done.1.recv().ok()?;
        self.running -= 1;
        Some(done)
    }
}

/// Reports the end of work, also of work that panicked.
struct Report<W: 'static> {
    done: Option<Sender<Done<W>>>,
    events: WeakSender<WorkerEvent>,
}

impl<W: 'static> Report<W> {
    fn send(&mut self, report: Done<W>) {
        let Some(done) = self.done.take() else { return };
        // nobody waits for it if the transfer has ended
        let _ = done.send(report);
        // a worker that has events looks at what is done anyway
        if let Some(events) = self.events.upgrade() {
            let _ = events.try_send(WorkerEvent::WorkDone);
        }
    }
}

impl<W: 'static> Drop for Report<W> {
    fn drop(&mut self) {
        if self.done.is_some() {
            let doing = "store a file".to_owned();
            let cause = io::Error::other("its thread ended without a result");
            self.send(Box::new(|_| Err(Error::System { doing, cause })));
        }
    }
}
