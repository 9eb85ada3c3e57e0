//! Moves packets from the hosts to the wire, with one thread per queue.

use std::hash::RandomState;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

use headroom_ipsec::spec::Direction;
use headroom_ipsec::{Bundle, Engine, FlowCache, Headers, Policy, Reason, Verdict};
use headroom_netio::tun::{MAX_READ, VNET_HEADER_LEN};
use headroom_netio::{Stop, wait_readable};
use headroom_packet::{Offload, Segmenter, mss};

use super::device::{TunDevice, WireTx};
use super::icmp_rate_limit::IcmpRateLimit;
use super::outbox::{Outbox, Transmit, Unsent, transmit_of};
use super::paths::LastPath;
use super::queue_sender::QueueSender;
use super::shared::Shared;
use super::tracer::{Decision, Record};

/// The most packets or trains that are read before the result is sent: small packets share a system
/// call while more are available, and no packet waits for one that is not.
const TURN: usize = 32;

/// The state of an outbound thread.
#[derive(Debug)]
pub struct Outbound<T, D> {
    shared: Arc<Shared>,
    pub(super) tun: T,
    pub(super) wire: D,
    buffer: Vec<u8>,
    pub(super) outbox: Outbox,
    cache: FlowCache,
    path: LastPath,
    pub(super) icmp_limit: IcmpRateLimit,
    /// The number of packets fragmented, and the hasher that makes identifications of it.
    pub(super) fragments: u64,
    pub(super) hasher: RandomState,
}

impl<T: TunDevice> Outbound<T, QueueSender> {
    /// Makes the state for a queue of the TUN, with sockets of its own.
    pub(crate) fn new(shared: Arc<Shared>, tun: T, queue: usize) -> io::Result<Self> {
        let wire = QueueSender::open(Arc::clone(&shared), queue)?;
        let cache = FlowCache::of_queue(u32::try_from(queue).unwrap_or(0));
        Ok(Self { cache, ..Self::between(shared, tun, wire) })
    }
}

impl<T: TunDevice, D: WireTx> Outbound<T, D> {
    pub(crate) fn between(shared: Arc<Shared>, tun: T, wire: D) -> Self {
        Self {
            shared,
            tun,
            wire,
            buffer: vec![0; MAX_READ],
            outbox: Outbox::new(),
            cache: FlowCache::default(),
            path: LastPath::default(),
            icmp_limit: IcmpRateLimit::default(),
            fragments: 0,
            hasher: RandomState::new(),
        }
    }

    /// Runs until `stop` is set.
    ///
    /// # Errors
    /// The TUN is gone.
    pub(crate) fn run(&mut self, stop: &Stop) -> io::Result<()> {
        while !stop.is_set() {
            match self.turn() {
                Ok(0) => match self.tun.wait_on() {
                    Some(tun) => drop(wait_readable(&[tun, stop], None)?),
                    None => return Ok(()),
                },
                Ok(_) => {}
                // the interface is down, for now
                Err(error) if error.raw_os_error() == Some(libc::EIO) => {
                    wait_readable(&[stop], Some(Duration::from_millis(50)))?;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Handles the packets that the TUN has now. Returns the number of packets or trains.
    pub(crate) fn turn(&mut self) -> io::Result<usize> {
        let shared = Arc::clone(&self.shared);
        let engine = shared.engine.load();
        let mut buffer = std::mem::take(&mut self.buffer);
        let mut took = 0;
        let read = loop {
            match self.tun.read(&mut buffer) {
                Ok(0) => break Ok(took),
                Ok(len) => self.packet(&engine, &buffer[..len]),
                Err(error) => break Err(error),
            }
            took += 1;
            if took == TURN {
                break Ok(took);
            }
        };
        self.buffer = buffer;
        if let Err(unsent) = self.outbox.flush(&mut self.wire) {
            self.count_unsent(&engine, &unsent);
        }
        read
    }

    /// Handles one packet or train with its `virtio_net_hdr`.
    fn packet(&mut self, engine: &Engine, read: &[u8]) {
        let segmenter = read
            .split_at_checked(VNET_HEADER_LEN)
            .ok_or(headroom_packet::Error::Truncated("virtio"))
            .and_then(|(header, packet)| Segmenter::new(packet, Offload::decode(header)?));
        let Ok(segmenter) = segmenter else {
            return self.drop_unread(engine, read.len());
        };
        let ip = segmenter.ip();
        let headers = Headers::read(ip);
        if is_link_housekeeping(&headers) {
            return self.drop_read(engine, &headers, &segmenter, None, Reason::OwnTraffic);
        }
        match engine.decide(&headers, &mut self.cache) {
            Verdict::Protect(policy, bundle) => {
                self.protect(engine, &headers, &segmenter, policy, bundle);
            }
            Verdict::Bypass(policy) => self.bypass(engine, &headers, &segmenter, policy),
            Verdict::Discard(Some(policy), Reason::NoAssociation)
                if self.shared.keep(&policy.name, read) => {}
            Verdict::Discard(policy, reason) => {
                self.drop_read(engine, &headers, &segmenter, policy, reason);
            }
        }
    }

    fn protect(
        &mut self,
        engine: &Engine,
        headers: &Headers,
        segmenter: &Segmenter<'_>,
        policy: &Policy,
        bundle: &Bundle,
    ) {
        let (segments, bytes) = size_of(segmenter);
        let longest = segmenter.head_len() + segmenter.payload(0).len();
        let path_mtu = self.path.mtu(&self.shared.paths, bundle.destination());
        if bundle.sealed_len(longest, headers.security_offset) > path_mtu {
            return self.protect_oversize(engine, segmenter, policy, bundle, path_mtu);
        }
        let largest = self.shared.largest_segment(bundle, segmenter.ip(), path_mtu);
        let mut reservation = match bundle.reserve(segments as u64, bytes as u64) {
            Ok(reservation) => reservation,
            Err(reason) => return self.drop_read(engine, headers, segmenter, Some(policy), reason),
        };
        for index in 0..segments {
            let len = segmenter.head_len() + segmenter.payload(index).len();
            let added = match self.outbox.space(&mut self.wire) {
                Ok(space) => {
                    // padding ends at the path MTU
                    let limit = path_mtu.min(space.len());
                    let space = &mut space[..limit];
                    let sealed = bundle.seal(&mut reservation, headers, len, space, |place| {
                        // the slice has exactly the segment's length
                        let _ = segmenter.copy(index, place);
                        if let Some(largest) = largest {
                            mss::clamp(place, largest);
                        }
                    });
                    match sealed {
                        Ok(len) => {
                            let transmit =
                                transmit_of(bundle, reservation.destination(), &space[..len]);
                            self.outbox.add(len, transmit, &mut self.wire)
                        }
                        Err(reason) => {
                            engine.counters().add(reason, 1);
                            Ok(())
                        }
                    }
                }
                Err(unsent) => Err(unsent),
            };
            if let Err(unsent) = added {
                self.count_unsent(engine, &unsent);
            }
        }
        self.shared.tracer.record(|| {
            let record = Record::new(self.shared.now(), Direction::Out, Decision::Protect);
            let mut record = record.with_packet(headers, segments, bytes);
            record.policy = Some(policy.name.clone());
            record.associations = bundle.associations().map(|sa| sa.spec().name.clone()).collect();
            record
        });
    }

    /// Sends in clear.
    fn bypass(
        &mut self,
        engine: &Engine,
        headers: &Headers,
        segmenter: &Segmenter<'_>,
        policy: &Policy,
    ) {
        let (segments, bytes) = size_of(segmenter);
        let longest = segmenter.head_len() + segmenter.payload(0).len();
        let path_mtu = self.path.mtu(&self.shared.paths, headers.destination);
        if longest > path_mtu {
            return self.bypass_oversize(engine, segmenter, policy, path_mtu);
        }
        let transmit =
            Transmit::Packets { source: headers.source, destination: headers.destination };
        for index in 0..segments {
            let added = match self.outbox.space(&mut self.wire) {
                Ok(space) => match segmenter.copy(index, space) {
                    Ok(len) => self.outbox.add(len, transmit, &mut self.wire),
                    Err(_) => {
                        engine.counters().add(Reason::Malformed, 1);
                        Ok(())
                    }
                },
                Err(unsent) => Err(unsent),
            };
            if let Err(unsent) = added {
                self.count_unsent(engine, &unsent);
            }
        }
        self.shared.tracer.record(|| {
            let record = Record::new(self.shared.now(), Direction::Out, Decision::Bypass);
            let mut record = record.with_packet(headers, segments, bytes);
            record.policy = Some(policy.name.clone());
            record
        });
    }

    fn drop_read(
        &self,
        engine: &Engine,
        headers: &Headers,
        segmenter: &Segmenter<'_>,
        policy: Option<&Policy>,
        reason: Reason,
    ) {
        self.drop_whole(engine, headers, size_of(segmenter), policy, reason);
    }

    /// Counts and records dropped packets.
    pub(super) fn drop_whole(
        &self,
        engine: &Engine,
        headers: &Headers,
        (packets, bytes): (usize, usize),
        policy: Option<&Policy>,
        reason: Reason,
    ) {
        engine.counters().add(reason, packets as u64);
        self.shared.tracer.record(|| {
            let record = Record::new(self.shared.now(), Direction::Out, Decision::Drop);
            let mut record = record.with_packet(headers, packets, bytes).with_reason(reason);
            record.policy = policy.map(|policy| policy.name.clone());
            record
        });
    }

    fn drop_unread(&self, engine: &Engine, bytes: usize) {
        engine.counters().add(Reason::Malformed, 1);
        self.shared.tracer.record(|| {
            let record = Record::new(self.shared.now(), Direction::Out, Decision::Drop);
            Record { bytes, ..record.with_reason(Reason::Malformed) }
        });
    }

    pub(super) fn count_unsent(&self, engine: &Engine, unsent: &Unsent) {
        let reason = match unsent.error.raw_os_error() {
            Some(libc::EMSGSIZE) => {
                self.shared.paths.query(unsent.destination);
                Reason::TooBig
            }
            Some(libc::ENETUNREACH | libc::EHOSTUNREACH | libc::EACCES) => Reason::NoRoute,
            _ => Reason::SendFailed,
        };
        engine.counters().add(reason, unsent.packets as u64);
        self.shared.tracer.record(|| {
            let record = Record::new(self.shared.now(), Direction::Out, Decision::Drop);
            let mut record = record.with_reason(reason);
            record.destination = Some(unsent.destination);
            record.packets = unsent.packets;
            record
        });
    }
}

/// Returns the number of packets and their total length.
fn size_of(segmenter: &Segmenter<'_>) -> (usize, usize) {
    let segments = segmenter.segments();
    let payload = segmenter.ip().total_len() - segmenter.head_len();
    (segments, segments * segmenter.head_len() + payload)
}

/// Whether a packet is one that a Linux host sends on every interface that is up: a router
/// solicitation or a multicast listener report (docs/datapath.md).
fn is_link_housekeeping(headers: &Headers) -> bool {
    const IGMP: u8 = 2;
    const ALL_REPORTERS: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 22);
    match headers.destination {
        IpAddr::V4(to) => headers.protocol == IGMP && to == ALL_REPORTERS,
        IpAddr::V6(to) => {
            let link_scope = to.octets()[..2] == [0xff, 0x02];
            let kind = headers.icmp.map(|icmp| icmp >> 8);
            let from = headers.source == Ipv6Addr::UNSPECIFIED
                || matches!(headers.source, IpAddr::V6(from) if from.is_unicast_link_local());
            link_scope && from && matches!(kind, Some(130..=133 | 143))
        }
    }
}
