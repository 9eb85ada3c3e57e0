//! Collects protected packets in one buffer, and sends them together.

use std::io::{self, IoSlice};
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;

use headroom_ipsec::Bundle;
use headroom_netio::udp::{MAX_SEGMENTS, MAX_TRAIN, Train};
use headroom_packet::{ipv4, ipv6, protocol, udp};

use super::device::WireTx;

/// Size of the buffer in bytes: several trains, and smaller than a core's L2 cache.
const BUFFER: usize = 512 * 1024;
/// The longest packet.
const LONGEST: usize = 65_535;
/// The most whole IP packets in a batch.
const MAX_PACKETS: usize = 256;

/// How a batch is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Transmit {
    /// As UDP payloads from a socket, without the IP and UDP headers in the buffer.
    Datagrams {
        source: IpAddr,
        destination: SocketAddr,
        port: u16,
        tos: u8,
        dont_fragment: bool,
        /// Length of the IP and UDP headers.
        skip: usize,
    },
    /// As whole IP packets.
    Packets { source: IpAddr, destination: IpAddr },
}

/// A batch that could not be sent.
#[derive(Debug)]
pub(crate) struct Unsent {
    pub(crate) packets: usize,
    pub(crate) destination: IpAddr,
    pub(crate) error: io::Error,
}

/// A send buffer and the ranges of the present batch.
#[derive(Debug)]
pub(crate) struct Outbox {
    buffer: Vec<u8>,
    /// The offset of the next packet.
    end: usize,
    packets: Vec<Range<usize>>,
    transmit: Option<Transmit>,
    /// Length of each datagram of the batch but the last.
    segment_len: usize,
    bytes: usize,
    /// The last datagram is shorter than the others: none can follow.
    closed: bool,
}

impl Outbox {
    pub(crate) fn new() -> Self {
        Self {
            buffer: vec![0; BUFFER],
            end: 0,
            packets: Vec::with_capacity(MAX_PACKETS),
            transmit: None,
            segment_len: 0,
            bytes: 0,
            closed: false,
        }
    }

    /// Returns space for the longest packet. [`Outbox::add`] adds what was written there; else it is
    /// overwritten.
    pub(crate) fn space(&mut self, to: &mut impl WireTx) -> Result<&mut [u8], Unsent> {
        let sent = if self.buffer.len() - self.end < LONGEST { self.flush(to) } else { Ok(()) };
        sent.map(|()| &mut self.buffer[self.end..])
    }

    /// Adds the packet of `len` bytes that was written into the space. Sends the batch first if the packet
    /// cannot join it.
    pub(crate) fn add(
        &mut self,
        len: usize,
        transmit: Transmit,
        to: &mut impl WireTx,
    ) -> Result<(), Unsent> {
        let start = self.end;
        let sent = if self.joins(len, &transmit) { Ok(()) } else { self.send(to) };
        if self.packets.is_empty() {
            self.transmit = Some(transmit);
            self.segment_len = len;
            self.bytes = 0;
            self.closed = false;
        }
        self.closed = len < self.segment_len;
        self.bytes += len;
        self.packets.push(start..start + len);
        self.end = start + len;
        sent
    }

    /// Sends the batch.
    pub(crate) fn flush(&mut self, to: &mut impl WireTx) -> Result<(), Unsent> {
        let sent = self.send(to);
        self.end = 0;
        sent
    }

    /// Whether a packet can join the batch.
    fn joins(&self, len: usize, transmit: &Transmit) -> bool {
        if self.packets.is_empty() {
            return true;
        }
        if self.transmit != Some(*transmit) {
            return false;
        }
        match transmit {
            Transmit::Datagrams { .. } => {
                let fits = !self.closed && len <= self.segment_len;
                fits && self.packets.len() < MAX_SEGMENTS && self.bytes + len <= MAX_TRAIN
            }
            Transmit::Packets { .. } => self.packets.len() < MAX_PACKETS,
        }
    }

    fn send(&mut self, to: &mut impl WireTx) -> Result<(), Unsent> {
        let Some(transmit) = self.transmit.take() else { return Ok(()) };
        let count = self.packets.len();
        let mut slices = [IoSlice::new(&[]); MAX_PACKETS];
        let skip = if let Transmit::Datagrams { skip, .. } = transmit { skip } else { 0 };
        for (slice, packet) in slices.iter_mut().zip(&self.packets) {
            *slice = IoSlice::new(&self.buffer[packet.start + skip..packet.end]);
        }
        let slices = &slices[..count];
        let (destination, sent) = match transmit {
            Transmit::Datagrams { source, destination, port, tos, dont_fragment, .. } => {
                let source = Some(source);
                let train = Train { destination, source, tos, dont_fragment, datagrams: slices };
                (destination.ip(), to.send_datagrams(port, &train))
            }
            Transmit::Packets { destination, .. } => (destination, to.send_packets(slices)),
        };
        self.packets.clear();
        sent.map_err(|(went, error)| Unsent { packets: count - went, destination, error })
    }
}

/// Returns how to send a packet that was sealed for the peer `to`.
pub(crate) fn transmit_of(bundle: &Bundle, to: SocketAddr, sealed: &[u8]) -> Transmit {
    let destination = to.ip();
    let (tos, dont_fragment, ip_len, bare) = if destination.is_ipv4() {
        (sealed[1], sealed[6] & 0x40 != 0, ipv4::MIN_HEADER_LEN, sealed[0] == 0x45)
    } else {
        let tos = sealed[0] << 4 | sealed[1] >> 4;
        (tos, true, ipv6::HEADER_LEN, sealed[6] == protocol::UDP)
    };
    match bundle.udp() {
        // a transport mode packet with IP options is sent whole
        Some(ports) if bare => Transmit::Datagrams {
            source: bundle.source(),
            destination: to,
            port: ports.source,
            tos,
            dont_fragment,
            skip: ip_len + udp::HEADER_LEN,
        },
        _ => Transmit::Packets { source: bundle.source(), destination },
    }
}
