//! Records the decision about each packet, and its reason, and what IKE does, for `tunnel trace`. Without a reader a
//! packet costs one load of a flag.

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use headroom_ipsec::spec::Direction;
use headroom_ipsec::{Headers, Reason};
use headroom_mutex::lock;
use serde::{Serialize, Serializer};

use super::ike_record::IkeRecord;

/// The most records that wait for a slow reader. Further ones are dropped and counted.
const BACKLOG: usize = 4096;

/// A record of one packet, or of one train with a common decision.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Record {
    /// The time since the gateway started.
    pub time: Duration,
    /// Out: from the hosts to the wire. In: from the wire to the hosts.
    #[serde(serialize_with = "as_text")]
    pub direction: Direction,
    /// The decision.
    pub decision: Decision,
    /// The reason of a drop: a name of `headroom_ipsec::Reason`.
    pub reason: Option<&'static str>,
    /// Source address of the inner packet, if known, else of the outer one.
    pub source: Option<IpAddr>,
    /// Destination address, likewise.
    pub destination: Option<IpAddr>,
    /// Upper-layer protocol.
    pub protocol: Option<u8>,
    /// Source and destination port.
    pub ports: Option<(u16, u16)>,
    /// The number of packets.
    pub packets: usize,
    /// Their total length, of the inner packets if known.
    pub bytes: usize,
    /// The policy.
    pub policy: Option<String>,
    /// The associations, from the innermost to the outermost.
    pub associations: Vec<String>,
    /// The sequence number of the first packet.
    pub sequence: Option<u64>,
    /// The peer's new address, if this packet moved it.
    pub moved_to: Option<SocketAddr>,
}

/// What readers get.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Entry {
    /// Of packets.
    Packet(Record),
    /// Of IKE.
    Ike(Box<IkeRecord>),
}

/// The decision about a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Decision {
    /// Protected and sent, or opened and delivered.
    Protect,
    /// Sent in clear.
    Bypass,
    /// Dropped.
    Drop,
}

fn as_text<S: Serializer>(direction: &Direction, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(direction)
}

impl Record {
    /// Makes a record with a direction and a decision only.
    pub(crate) fn new(time: Duration, direction: Direction, decision: Decision) -> Self {
        Self {
            time,
            direction,
            decision,
            reason: None,
            source: None,
            destination: None,
            protocol: None,
            ports: None,
            packets: 1,
            bytes: 0,
            policy: None,
            associations: Vec::new(),
            sequence: None,
            moved_to: None,
        }
    }

    pub(crate) fn with_packet(mut self, headers: &Headers, packets: usize, bytes: usize) -> Self {
        self.source = Some(headers.source);
        self.destination = Some(headers.destination);
        self.protocol = Some(headers.protocol);
        self.ports = headers.ports;
        self.packets = packets;
        self.bytes = bytes;
        self
    }

    pub(crate) fn with_reason(mut self, reason: Reason) -> Self {
        self.reason = Some(reason.name());
        self
    }
}

/// Passes records to readers.
#[derive(Debug, Default)]
pub struct Tracer {
    on: AtomicBool,
    readers: Mutex<Vec<Reader>>,
}

#[derive(Debug)]
struct Reader {
    to: SyncSender<Entry>,
    dropped: Arc<AtomicU64>,
}

/// Receives the records of one reader.
#[derive(Debug)]
pub struct Trace {
    from: Receiver<Entry>,
    dropped: Arc<AtomicU64>,
}

impl Tracer {
    /// Passes a record to all readers. Builds it only if there is one, and never waits.
    pub(crate) fn record(&self, record: impl FnOnce() -> Record) {
        self.record_some(|| Some(Entry::Packet(record())));
    }

    /// The same, of what may be nothing.
    pub(crate) fn record_some(&self, record: impl FnOnce() -> Option<Entry>) {
        if !self.on.load(Ordering::Relaxed) {
            return;
        }
        let Some(record) = record() else { return };
        let mut readers = self.readers();
        readers.retain(|reader| match reader.to.try_send(record.clone()) {
            Ok(()) => true,
            Err(TrySendError::Full(_)) => {
                reader.dropped.fetch_add(1, Ordering::Relaxed);
                true
            }
            Err(TrySendError::Disconnected(_)) => false,
        });
        self.on.store(!readers.is_empty(), Ordering::Relaxed);
    }

    /// Returns the records from now on, until the result is dropped.
    pub fn subscribe(&self) -> Trace {
        let (to, from) = sync_channel(BACKLOG);
        let dropped = Arc::new(AtomicU64::new(0));
        let mut readers = self.readers();
        readers.push(Reader { to, dropped: Arc::clone(&dropped) });
        self.on.store(true, Ordering::Relaxed);
        Trace { from, dropped }
    }

    fn readers(&self) -> MutexGuard<'_, Vec<Reader>> {
        lock(&self.readers)
    }
}

impl Trace {
    /// Returns the next record, or none if none comes within `timeout`.
    ///
    /// # Errors
    /// The gateway has ended.
    pub fn next(&self, timeout: Duration) -> Result<Option<Entry>, RecvTimeoutError> {
        match self.from.recv_timeout(timeout) {
            Ok(record) => Ok(Some(record)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns how many records were dropped since the last call, because the reader was too slow.
    pub fn dropped(&self) -> u64 {
        self.dropped.swap(0, Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> Record {
        Record::new(Duration::ZERO, Direction::Out, Decision::Drop).with_reason(Reason::NoPolicy)
    }

    #[test]
    fn builds_records_only_while_there_is_a_reader() {
        let tracer = Tracer::default();
        tracer.record(|| unreachable!("there is no reader"));
        let trace = tracer.subscribe();
        tracer.record(record);
        assert_eq!(trace.next(Duration::ZERO), Ok(Some(Entry::Packet(record()))));
        assert_eq!(trace.next(Duration::ZERO), Ok(None));
        drop(trace);
        tracer.record(record);
        tracer.record(|| unreachable!("there is no reader any more"));
    }

    #[test]
    fn drops_records_of_a_slow_reader() {
        let tracer = Tracer::default();
        let trace = tracer.subscribe();
        for _ in 0..BACKLOG + 7 {
            tracer.record(record);
        }
        assert_eq!((trace.dropped(), trace.dropped()), (7, 0));
        let waiting = std::iter::from_fn(|| trace.next(Duration::ZERO).ok().flatten());
        assert_eq!(waiting.count(), BACKLOG);
    }
}
