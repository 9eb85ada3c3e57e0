//! What was decided about each packet and why, for whoever looks. While nobody
//! does, a packet pays for one load of a flag.

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use headroom_ipsec::{Headers, Reason};
use serde::Serialize;

/// Records that wait for a slow reader; what is beyond them is counted as missed.
const BACKLOG: usize = 4096;

/// One packet, or one train of them that was decided about together.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Record {
    /// Since the gateway started.
    pub time: Duration,
    /// Which way it went.
    pub way: Way,
    /// What was done.
    pub decision: Decision,
    /// Why it was not passed on: a name of `headroom_ipsec::Reason`.
    pub reason: Option<&'static str>,
    /// Source address: of the inner packet where it is known, else of the outer.
    pub source: Option<IpAddr>,
    /// Destination address, likewise.
    pub destination: Option<IpAddr>,
    /// Upper-layer protocol.
    pub protocol: Option<u8>,
    /// Source and destination port.
    pub ports: Option<(u16, u16)>,
    /// Packets.
    pub packets: usize,
    /// Octets of them together, unprotected where that is known.
    pub bytes: usize,
    /// The policy that decided.
    pub policy: Option<String>,
    /// The associations, from the inside to the outside.
    pub associations: Vec<String>,
    /// The sequence number of the first packet.
    pub sequence: Option<u64>,
    /// Where the peer is from this packet on, if that has changed.
    pub moved_to: Option<SocketAddr>,
}

/// Which way a packet went.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Way {
    /// From the hosts to the wire.
    Out,
    /// From the wire to the hosts.
    In,
}

/// What was done with a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Decision {
    /// Protected and sent, or opened and delivered.
    Protect,
    /// Sent in clear.
    Bypass,
    /// Not passed on.
    Drop,
}

impl Record {
    /// A record of nothing but its way and its end.
    pub(crate) fn new(time: Duration, way: Way, decision: Decision) -> Self {
        Self {
            time,
            way,
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

    pub(crate) fn of(mut self, headers: &Headers, packets: usize, bytes: usize) -> Self {
        self.source = Some(headers.source);
        self.destination = Some(headers.destination);
        self.protocol = Some(headers.protocol);
        self.ports = headers.ports;
        self.packets = packets;
        self.bytes = bytes;
        self
    }

    pub(crate) fn because(mut self, reason: Reason) -> Self {
        self.reason = Some(reason.name());
        self
    }
}

/// Where packets are recorded.
#[derive(Debug, Default)]
pub struct Tracer {
    on: AtomicBool,
    readers: Mutex<Vec<Reader>>,
}

#[derive(Debug)]
struct Reader {
    to: SyncSender<Record>,
    missed: Arc<AtomicU64>,
}

/// The records of one reader.
#[derive(Debug)]
pub struct Trace {
    from: Receiver<Record>,
    missed: Arc<AtomicU64>,
}

impl Tracer {
    /// Hands a record to those who look, if anyone does. Never waits.
    pub(crate) fn note(&self, record: impl FnOnce() -> Record) {
        if !self.on.load(Ordering::Relaxed) {
            return;
        }
        let record = record();
        let mut readers = self.readers();
        readers.retain(|reader| match reader.to.try_send(record.clone()) {
            Ok(()) => true,
            Err(TrySendError::Full(_)) => {
                reader.missed.fetch_add(1, Ordering::Relaxed);
                true
            }
            Err(TrySendError::Disconnected(_)) => false,
        });
        self.on.store(!readers.is_empty(), Ordering::Relaxed);
    }

    /// Records from now on, until the answer is dropped.
    pub fn subscribe(&self) -> Trace {
        let (to, from) = sync_channel(BACKLOG);
        let missed = Arc::new(AtomicU64::new(0));
        let mut readers = self.readers();
        readers.push(Reader { to, missed: Arc::clone(&missed) });
        self.on.store(true, Ordering::Relaxed);
        Trace { from, missed }
    }

    fn readers(&self) -> MutexGuard<'_, Vec<Reader>> {
        self.readers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Trace {
    /// The next record; none where there is none within `timeout`.
    ///
    /// # Errors
    /// The gateway has ended.
    pub fn next(&self, timeout: Duration) -> Result<Option<Record>, RecvTimeoutError> {
        match self.from.recv_timeout(timeout) {
            Ok(record) => Ok(Some(record)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Records that were not taken in time, and are not there, since the last
    /// call.
    pub fn missed(&self) -> u64 {
        self.missed.swap(0, Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> Record {
        Record::new(Duration::ZERO, Way::Out, Decision::Drop).because(Reason::NoPolicy)
    }

    #[test]
    fn records_are_made_only_while_somebody_looks() {
        let tracer = Tracer::default();
        tracer.note(|| unreachable!("nobody looks"));
        let trace = tracer.subscribe();
        tracer.note(record);
        assert_eq!(trace.next(Duration::ZERO), Ok(Some(record())));
        assert_eq!(trace.next(Duration::ZERO), Ok(None));
        drop(trace);
        tracer.note(record);
        tracer.note(|| unreachable!("nobody looks any more"));
    }

    #[test]
    fn a_reader_that_sleeps_holds_nobody_up() {
        let tracer = Tracer::default();
        let trace = tracer.subscribe();
        for _ in 0..BACKLOG + 7 {
            tracer.note(record);
        }
        assert_eq!((trace.missed(), trace.missed()), (7, 0));
        let waiting = std::iter::from_fn(|| trace.next(Duration::ZERO).ok().flatten());
        assert_eq!(waiting.count(), BACKLOG);
    }
}
