//! A session that brings data of a transfer, and how much has arrived on it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use headroom_transfer_proto::message::Message;

use crate::connection::Connection;

/// How often a sender is told what has arrived.
const TELLS: Duration = Duration::from_millis(50);

/// A session that brings data.
#[derive(Debug)]
pub(crate) struct DataSession {
    pub(super) connection: Connection,
    pub(super) arrived: Arrived,
}

/// What has arrived on the data streams of a session. Clones are cheap and share it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Arrived(Arc<Counts>);

#[derive(Debug, Default)]
struct Counts {
    bytes: AtomicU64,
    streams: AtomicU64,
}

/// A data stream. Once this is dropped, the stream and all its bytes count as arrived, however it
/// ended: nothing more comes.
#[derive(Debug)]
pub(super) struct Arriving {
    of: Arrived,
    left: u64,
}

impl DataSession {
    pub(crate) fn new(connection: Connection) -> Self {
        Self { connection, arrived: Arrived::default() }
    }

    pub(crate) fn arrived(&self) -> Arrived {
        self.arrived.clone()
    }
}

impl Arrived {
    /// Begins with a stream of this many bytes.
    pub(super) fn begin(&self, bytes: u64) -> Arriving {
        Arriving { of: self.clone(), left: bytes }
    }

    /// Waits until more has arrived than was told, and makes the message that tells it.
    pub(crate) async fn news(&self, told: &mut (u64, u64)) -> Message {
        loop {
            tokio::time::sleep(TELLS).await;
            let streams = self.0.streams.load(Ordering::Acquire);
            let bytes = self.0.bytes.load(Ordering::Relaxed);
            if (bytes, streams) != *told {
                *told = (bytes, streams);
                return Message::Arrived { bytes, streams };
            }
        }
    }
}

impl Arriving {
    pub(super) fn add(&mut self, bytes: u64) {
        let bytes = bytes.min(self.left);
        self.left -= bytes;
        self.of.0.bytes.fetch_add(bytes, Ordering::Relaxed);
    }
}

impl Drop for Arriving {
    fn drop(&mut self) {
        self.add(self.left);
        self.of.0.streams.fetch_add(1, Ordering::Release);
    }
}
