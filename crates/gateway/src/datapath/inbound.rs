//! Moves packets from the wire to the hosts, with one thread per queue.

use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use headroom_ipsec::spec::{Direction, ESP};
use headroom_ipsec::{Engine, OpenScratch, Opened, Outer, Reason};
use headroom_netio::{Inbox, Received, Stop, errors, wait_readable};
use headroom_packet::{Coalescer, Ip, Offload, mss, protocol};

use super::device::{SocketKind, TunDevice, WireRx};
use super::settings::{IKE_PORT, IkeDatagram};
use super::shared::Shared;
use super::tracer::{Decision, Record};

/// Messages per system call: a UDP train of 64 KiB is one.
const UDP_BATCH: usize = 8;
/// Raw IP packets per system call.
const IP_BATCH: usize = 64;
/// The number of socket errors in a row after which the thread pauses at each, and the pause.
const MANY_ERRORS: u32 = 1000;
const PAUSE: Duration = Duration::from_millis(1);
/// RFC 3948, section 2.3: one byte, 0xff.
const KEEPALIVE: u8 = 0xff;
/// RFC 3948, section 2.2: four zero bytes where ESP has its SPI.
const NON_ESP_MARKER: [u8; 4] = [0; 4];
/// The longest datagram of IKE: messages that are longer are fragmented (RFC 7383).
const MAX_IKE: usize = 16 * 1024;

/// The state of an inbound thread.
#[derive(Debug)]
pub struct Inbound<T, A> {
    shared: Arc<Shared>,
    tun: T,
    sources: Vec<(A, Inbox)>,
    /// Errors since the last packet.
    errors: u32,
}

impl<T: TunDevice, A: WireRx> Inbound<T, A> {
    /// Makes the state for sockets and a queue of the TUN.
    pub(crate) fn new(shared: Arc<Shared>, tun: T, sources: Vec<A>) -> Self {
        let with_inbox = |source: A| {
            let slots =
                if matches!(source.kind(), SocketKind::Udp(_)) { UDP_BATCH } else { IP_BATCH };
            (source, Inbox::new(slots))
        };
        Self { shared, tun, sources: sources.into_iter().map(with_inbox).collect(), errors: 0 }
    }

    /// Runs until `stop` is set.
    ///
    /// # Errors
    /// The kernel's error while waiting.
    pub(crate) fn run(&mut self, stop: &Stop) -> io::Result<()> {
        // the sockets that may have packets; bit 0 is the stop
        let mut ready = u64::MAX;
        while !stop.is_set() {
            let mut more = 0;
            for index in 0..self.sources.len() {
                let bit = 2 << index;
                if ready & bit != 0 && self.turn(index) {
                    more |= bit;
                }
            }
            ready = more;
            if ready == 0 {
                let sockets = self.sources.iter().filter_map(|(source, _)| source.wait_on());
                let all: Vec<_> = std::iter::once(stop as &dyn AsFd).chain(sockets).collect();
                ready = wait_readable(&all, None)?;
            }
        }
        Ok(())
    }

    /// Handles one batch of a socket. Returns whether there may be more.
    pub(crate) fn turn(&mut self, index: usize) -> bool {
        let (source, inbox) = &mut self.sources[index];
        let engine = self.shared.engine.load();
        match source.receive(inbox) {
            Ok(0) => {
                // readable, but empty: an ICMP error about an earlier packet
                if let Some(socket) = source.wait_on() {
                    read_socket_errors(&self.shared, &socket);
                }
                false
            }
            Ok(_) => {
                self.errors = 0;
                let more = inbox.is_full();
                let kind = source.kind();
                deliver(&self.shared, &engine, &self.tun, inbox, kind);
                more
            }
            Err(_) => {
                // an ICMP error shows once here, and in detail in the error queue
                if let Some(socket) = source.wait_on() {
                    read_socket_errors(&self.shared, &socket);
                }
                self.errors = self.errors.saturating_add(1);
                if self.errors > MANY_ERRORS {
                    std::thread::sleep(PAUSE); // a socket that only fails
                }
                true
            }
        }
    }
}

/// Reads the error queue of a socket, and learns path MTUs from it.
fn read_socket_errors(shared: &Shared, socket: &dyn AsFd) {
    const AT_ONCE: usize = 64;
    for _ in 0..AT_ONCE {
        match errors::read(&socket) {
            Ok(Some(answer)) if answer.mtu.is_some() => {
                shared.paths.query(answer.destination.ip());
            }
            Ok(Some(_)) => {}
            Ok(None) | Err(_) => return,
        }
    }
}

/// Opens the packets of one batch and writes them to the TUN.
fn deliver<T: TunDevice>(
    shared: &Shared,
    engine: &Engine,
    tun: &T,
    inbox: &mut Inbox,
    kind: SocketKind,
) {
    let joined =
        Coalescer::new(tun.takes_udp_trains(), |offload: Offload, parts: &[IoSlice<'_>]| {
            if tun.write(&offload, parts).is_err() {
                // a train has its head and one slice per packet
                let packets = parts.len().saturating_sub(1).max(1);
                engine.counters().add(Reason::DeliverFailed, packets as u64);
            }
        });
    let mut scratch = OpenScratch::default();
    let mut batch = Batch { shared, engine, joined };
    for received in inbox.packets() {
        if received.truncated {
            batch.drop(&received, Reason::ReceiveTruncated);
            continue;
        }
        let outer = Outer {
            source: received.source.ip(),
            destination: received.destination,
            tos: received.tos,
            header: received.header,
            udp: match kind {
                SocketKind::Udp(port) => Some((received.source.port(), port)),
                SocketKind::Ip(_) => None,
            },
        };
        match kind {
            SocketKind::Udp(IKE_PORT) => {
                for datagram in received.body.chunks(received.segment_len.max(1)) {
                    batch.ike(&outer, datagram);
                }
            }
            SocketKind::Udp(_) => {
                batch.datagrams(&outer, received.body, received.segment_len, &mut scratch);
            }
            SocketKind::Ip(protocol) => batch.packet(&outer, protocol, received.body, &mut scratch),
        }
    }
    batch.joined.finish();
}

/// A batch that is being opened.
struct Batch<'b, 'p, S> {
    shared: &'b Shared,
    engine: &'b Engine,
    joined: Coalescer<'p, S>,
}

impl<'p, S: FnMut(Offload, &[IoSlice<'_>])> Batch<'_, 'p, S> {
    fn datagrams(
        &mut self,
        outer: &Outer<'_>,
        body: &'p mut [u8],
        segment_len: usize,
        scratch: &mut OpenScratch,
    ) {
        for datagram in body.chunks_mut(segment_len.max(1)) {
            match datagram {
                [KEEPALIVE] => self.engine.counters().add(Reason::Keepalive, 1),
                [a, b, c, d, ..] if [*a, *b, *c, *d] == NON_ESP_MARKER => {
                    self.ike(outer, datagram);
                }
                _ => self.packet(outer, ESP, datagram, scratch),
            }
        }
    }

    /// Passes a datagram to IKE. What finds its inbox full is lost, as anywhere on the way.
    fn ike(&self, outer: &Outer<'_>, datagram: &[u8]) {
        let ike = self.shared.settings.ike.as_ref();
        let passed =
            ike.zip(outer.udp).filter(|_| datagram.len() <= MAX_IKE).map(|(ike, ports)| {
                ike.inbox.try_send(IkeDatagram {
                    from: SocketAddr::new(outer.source, ports.0),
                    to: (outer.destination, ports.1),
                    bytes: datagram.to_vec(),
                })
            });
        if !matches!(passed, Some(Ok(()))) {
            self.note_drop(outer, datagram.len(), Reason::NonEsp);
            self.engine.counters().add(Reason::NonEsp, 1);
        }
    }

    fn packet(
        &mut self,
        outer: &Outer<'_>,
        protocol: u8,
        body: &'p mut [u8],
        scratch: &mut OpenScratch,
    ) {
        let len = body.len();
        match self.engine.open(outer, protocol, body, scratch) {
            Ok(opened) => {
                // a whole packet, as in tunnel mode
                if opened.header.is_empty() && opened.headers.protocol == protocol::TCP {
                    self.clamp(&opened, &mut body[opened.payload.clone()]);
                }
                let payload = &body[opened.payload.clone()];
                self.note_opened(outer, &opened, payload.len());
                self.joined.push(opened.header, payload);
            }
            Err(reason) => self.note_drop(outer, len, reason), // counted by the engine
        }
    }

    /// Lowers the MSS in a TCP SYN to what passes in the other direction.
    fn clamp(&self, opened: &Opened<'_>, packet: &mut [u8]) {
        let transport = packet.get(opened.headers.security_offset..);
        if !transport.is_some_and(mss::may_be_syn) {
            return;
        }
        let Ok(ip) = Ip::parse(packet) else { return };
        let answers = opened.policy.bundles().iter().filter_map(|bundle| {
            let path_mtu = self.shared.paths.mtu(bundle.destination());
            self.shared.largest_segment(bundle, &ip, path_mtu)
        });
        if let Some(largest) = answers.min() {
            mss::clamp(packet, largest);
        }
    }

    fn drop(&self, received: &Received<'_>, reason: Reason) {
        self.engine.counters().add(reason, 1);
        self.shared.tracer.record(|| {
            let mut record = Record::new(self.shared.now(), Direction::In, Decision::Drop);
            record.source = Some(received.source.ip());
            record.destination = Some(received.destination);
            record.bytes = received.body.len();
            record.with_reason(reason)
        });
    }

    fn note_drop(&self, outer: &Outer<'_>, bytes: usize, reason: Reason) {
        self.shared.tracer.record(|| {
            let mut record = Record::new(self.shared.now(), Direction::In, Decision::Drop);
            record.source = Some(outer.source);
            record.destination = Some(outer.destination);
            record.bytes = bytes;
            record.with_reason(reason)
        });
    }

    fn note_opened(&self, outer: &Outer<'_>, opened: &Opened<'_>, payload_len: usize) {
        self.shared.tracer.record(|| {
            let bytes = opened.header.len() + payload_len;
            let record = Record::new(self.shared.now(), Direction::In, Decision::Protect);
            let mut record = record.with_packet(opened.headers, 1, bytes);
            record.policy = Some(opened.policy.name.clone());
            let names = opened.associations.iter().rev().flatten();
            record.associations = names.map(|sa| sa.spec().name.clone()).collect();
            record.sequence = Some(opened.sequence);
            let from = outer.udp.filter(|_| opened.moved);
            record.moved_to = from.map(|(port, _)| SocketAddr::new(outer.source, port));
            record
        });
    }
}
