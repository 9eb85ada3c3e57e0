//! What brings files on lanes.

use std::sync::{Arc, Weak};

use tokio::sync::mpsc;

use super::incoming::{Incoming, Writing};
use super::shared::{Shared, ToDo};
use crate::delivery::event::Event;
use crate::lanes::{Carrier, Sink, Target};

/// What may bring data beside streams, and where that goes.
pub(super) struct Lanes {
    pub(super) carrier: Carrier,
    pub(super) sink: Arc<LaneSink>,
}

impl Lanes {
    pub(super) fn start(&self) {
        self.carrier.start(Some(Arc::clone(&self.sink) as Arc<dyn Sink>));
    }
}

/// Takes in files that come on lanes.
pub(super) struct LaneSink {
    pub(super) shared: Arc<Shared>,
    /// The worker ends when nobody else has something for it.
    pub(super) to_do: mpsc::WeakSender<ToDo>,
}

impl Sink for LaneSink {
    fn target(&self, file: u32) -> Option<Arc<dyn Target>> {
        let id = u64::from(file);
        let incoming = Arc::clone(self.shared.open().get(&id)?);
        let size = incoming.partial.spans().size();
        let (shared, to_do) = (Arc::clone(&self.shared), self.to_do.clone());
        let incoming = Arc::downgrade(&incoming);
        Some(Arc::new(LaneTarget { id, size, incoming, shared, to_do }))
    }
}

/// A file that comes on lanes.
struct LaneTarget {
    id: u64,
    size: u64,
    /// What waits to be written does not keep the file locked when its delivery is over.
    incoming: Weak<Incoming>,
    shared: Arc<Shared>,
    to_do: mpsc::WeakSender<ToDo>,
}

impl Target for LaneTarget {
    fn size(&self) -> u64 {
        self.size
    }

    fn write(&self, offset: u64, octets: &[u8]) {
        let Some(incoming) = self.incoming.upgrade() else { return };
        let writing = Writing::begin(&incoming);
        let written = incoming.partial.write_at(offset, octets);
        if let Ok(octets) = written {
            self.shared.counts.add(|counts| {
                counts.moved += octets;
                counts.on_lanes += octets;
            });
            self.shared.observer.event(Event::Moved { octets });
        }
        drop(writing);
        let news = match written {
            Ok(_) => incoming.is_whole().then_some(ToDo::Came(self.id)),
            Err(error) => Some(ToDo::Broken(self.id, error)),
        };
        drop(incoming);
        if let Some(news) = news
            && let Some(to_do) = self.to_do.upgrade()
        {
            let _ = to_do.blocking_send(news);
        }
    }
}
