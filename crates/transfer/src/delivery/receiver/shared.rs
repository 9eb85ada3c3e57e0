//! What the tasks of a receiver share.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard};

use headroom_mutex::lock;
use headroom_transfer_proto::message::Message;

use super::incoming::Incoming;
use crate::delivery::event::Observer;
use crate::delivery::summary::Counts;
use crate::files;
use crate::rate::RateLimits;

pub(super) struct Shared {
    pub(super) open: Mutex<HashMap<u64, Arc<Incoming>>>,
    pub(super) observer: Arc<dyn Observer>,
    pub(super) counts: Counts,
    pub(super) limits: RateLimits,
    /// Set when the connection has ended, or when the task that waits for that has. Asking the
    /// connection takes a lock that its driver holds most of the time.
    pub(super) may_have_ended: AtomicBool,
}

impl Shared {
    pub(super) fn open(&self) -> MutexGuard<'_, HashMap<u64, Arc<Incoming>>> {
        lock(&self.open)
    }
}

/// Notes that the connection may have ended, when it is dropped.
pub(super) struct NoteEnd(pub(super) Arc<Shared>);

impl Drop for NoteEnd {
    fn drop(&mut self) {
        self.0.may_have_ended.store(true, SeqCst);
    }
}

/// An event for the worker.
pub(super) enum WorkerEvent {
    /// The sender sent a message.
    Message(Message),
    /// A piece of this file was written.
    PieceStored(u64),
    /// A piece of this file could not be written.
    WriteFailed(u64, files::Error),
    /// The sender sent bytes at this offset of a file that were not asked for.
    NotAsked(u64),
    /// Work in flight is done.
    WorkDone,
}
