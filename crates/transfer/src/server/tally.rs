//! What one request moves, for its record and for the server's counters.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::counters::Counters;
use super::record::Direction;
use crate::delivery::{Event, Observer};

/// Counts what a request moves, also if it fails.
#[derive(Debug)]
pub(super) struct Tally {
    pub(super) bytes: AtomicU64,
    /// Bytes of files that a CRC verified.
    pub(super) by_crc: AtomicU64,
    pub(super) stored: AtomicU64,
    pub(super) failed: AtomicU64,
    server: Arc<Counters>,
    /// `None` if it moves no files of its own.
    direction: Option<Direction>,
}

impl Tally {
    pub(super) fn new(server: &Arc<Counters>, direction: Option<Direction>) -> Arc<Self> {
        Arc::new(Self {
            bytes: AtomicU64::new(0),
            by_crc: AtomicU64::new(0),
            stored: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            server: Arc::clone(server),
            direction,
        })
    }

    /// Notes what is stored. Streams of unknown length have no event for it.
    pub(super) fn add_stored(&self, count: u64) {
        self.stored.fetch_add(count, Ordering::Relaxed);
        if let Some(direction) = self.direction {
            self.server.stored(direction, count);
        }
    }
}

impl Observer for Tally {
    fn event(&self, event: Event<'_>) {
        match event {
            Event::Moved { bytes } => {
                self.bytes.fetch_add(bytes, Ordering::Relaxed);
                if let Some(direction) = self.direction {
                    self.server.moved(direction, bytes);
                }
            }
            Event::Summed { bytes, .. } => {
                self.by_crc.fetch_add(bytes, Ordering::Relaxed);
            }
            Event::Stored { .. } => self.add_stored(1),
            _ => {}
        }
    }
}
