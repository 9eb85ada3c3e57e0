//! Receives files on lanes.

use std::sync::{Arc, Weak};

use tokio::sync::mpsc;

use super::incoming::{Incoming, Writing};
use super::shared::{Shared, WorkerEvent};
use crate::delivery::event::Event;
use crate::lanes::{LaneHandle, Sink, Target};

/// The lanes of a transfer, and where their data goes.
pub(super) struct Lanes {
    pub(super) handle: LaneHandle,
    pub(super) sink: Arc<LaneSink>,
}

impl Lanes {
    pub(super) fn start(&self) {
        self.handle.start(Some(Arc::clone(&self.sink) as Arc<dyn Sink>));
    }
}

/// Receives files on lanes.
pub(super) struct LaneSink {
    pub(super) shared: Arc<Shared>,
    /// Weak, because the worker ends when all senders are gone.
    pub(super) events: mpsc::WeakSender<WorkerEvent>,
}

impl Sink for LaneSink {
    fn target(&self, file: u32) -> Option<Arc<dyn Target>> {
        let id = u64::from(file);
        let incoming = Arc::clone(self.shared.open().get(&id)?);
        let size = incoming.partial.spans().size();
        let (shared, events) = (Arc::clone(&self.shared), self.events.clone());
        let incoming = Arc::downgrade(&incoming);
        Some(Arc::new(LaneTarget { id, size, incoming, shared, events }))
    }
}

/// A file that arrives on lanes.
struct LaneTarget {
    id: u64,
    size: u64,
    /// Weak, so that queued data does not keep the file locked after its transfer.
    incoming: Weak<Incoming>,
    shared: Arc<Shared>,
    events: mpsc::WeakSender<WorkerEvent>,
}

impl Target for LaneTarget {
    fn size(&self) -> u64 {
        self.size
    }

    fn write(&self, offset: u64, bytes: &[u8]) {
        let Some(incoming) = self.incoming.upgrade() else { return };
        let len = bytes.len() as u64;
        if !incoming.is_asked_for(offset, len) {
            if let Some(events) = self.events.upgrade() {
                let _ = events.blocking_send(WorkerEvent::NotAsked(offset));
            }
            return;
        }
        let writing = Writing::begin(&incoming);
        let written = incoming.partial.write_at(offset, bytes);
        if let Ok(bytes) = written {
            self.shared.counts.add(|counts| {
                counts.moved += bytes;
                counts.on_lanes += bytes;
            });
            self.shared.observer.event(Event::Moved { bytes });
            incoming.wrote(len, bytes);
        }
        drop(writing);
        let news = match written {
            Ok(_) => incoming.is_whole().then_some(WorkerEvent::PieceStored(self.id)),
            Err(error) => Some(WorkerEvent::WriteFailed(self.id, error)),
        };
        drop(incoming);
        if let Some(news) = news
            && let Some(events) = self.events.upgrade()
        {
            let _ = events.blocking_send(news);
        }
    }
}
