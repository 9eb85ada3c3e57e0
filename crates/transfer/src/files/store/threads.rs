//! Runs requests on other threads, many at once.

use std::sync::mpsc::{Receiver, TryRecvError, sync_channel};

use tokio::runtime::Handle;

use crate::files::error::ErrorKind;

/// The threads of a runtime that may block.
#[derive(Debug, Clone)]
pub(super) struct Threads(Handle);

/// Work that runs on another thread, or as a task.
#[derive(Debug)]
pub(in crate::files) struct Running<T>(Receiver<T>);

impl Threads {
    pub(super) fn new(runtime: Handle) -> Self {
        Self(runtime)
    }

    /// Runs work on another thread. It runs to its end, also if nobody waits for it.
    pub(super) fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Running<T> {
        let (sender, receiver) = sync_channel(1);
        drop(self.0.spawn_blocking(move || {
            // nobody waits for it any longer
            let _ = sender.send(work());
        }));
        Running(receiver)
    }

    /// Runs work as a task, which must not block. It runs to its end, also if nobody waits for it.
    ///
    /// A request that a task waits for wakes no thread of its own: over a connection of the same
    /// runtime it saves several changes of threads.
    pub(super) fn run_task<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Running<T> {
        let (sender, receiver) = sync_channel(1);
        drop(self.0.spawn(async move {
            let done = work.await;
            // nobody waits for it any longer
            let _ = sender.send(done);
        }));
        Running(receiver)
    }
}

impl<T> Running<T> {
    /// Waits for the result, which it has once.
    ///
    /// # Errors
    /// It panicked, or the program ends.
    pub(in crate::files) fn wait(&self) -> Result<T, ErrorKind> {
        self.0.recv().map_err(|_| not_carried_out())
    }

    /// Takes the result, if it is there.
    pub(super) fn take(&self) -> Option<Result<T, ErrorKind>> {
        match self.0.try_recv() {
            Ok(result) => Some(Ok(result)),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => Some(Err(not_carried_out())),
        }
    }
}

/// Makes the error for work that panicked, or that the end of the program stopped.
pub(super) fn not_carried_out() -> ErrorKind {
    ErrorKind::Store("the request was not carried out".into())
}
