//! Files that are being removed, in a store several at once.

use headroom_transfer_proto::path::RelPath;

use super::error::Error;
use super::root::Root;
use super::store;

/// A file that is being removed, or that was.
#[derive(Debug)]
pub(super) struct Removing {
    path: RelPath,
    state: State,
}

#[derive(Debug)]
enum State {
    Ended(Result<(), Error>),
    Running(store::Running<Result<(), Error>>),
}

impl Removing {
    /// Removes a file, and does not wait for a store.
    pub(super) fn begin(root: &Root, path: RelPath) -> Self {
        let state = match root {
            Root::Disk(root) => State::Ended(root.remove(&path)),
            Root::Store(root) => State::Running(root.begin_removal(&path)),
        };
        Self { path, state }
    }

    /// Pretends to have removed a file.
    pub(super) fn pretend(path: RelPath) -> Self {
        Self { path, state: State::Ended(Ok(())) }
    }

    /// Waits for the end.
    pub(super) fn wait(self) -> (RelPath, Result<(), Error>) {
        let removed = match self.state {
            State::Ended(removed) => removed,
            State::Running(running) => running
                .wait()
                .unwrap_or_else(|kind| Err(Error::new(self.path.as_bytes(), "removed", kind))),
        };
        (self.path, removed)
    }
}
