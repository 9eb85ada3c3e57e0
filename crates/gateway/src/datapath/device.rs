//! The datapath's devices as traits: real interfaces and sockets, or fakes in tests.

use std::io::{self, IoSlice};
use std::os::fd::AsFd;
use std::sync::Arc;

use headroom_netio::udp::Train;
use headroom_netio::{Inbox, RawReceiver, Tun, UdpSocket};
use headroom_packet::Offload;
use headroom_packet::offload::SHORT_LEN;

/// The most slices of a packet that is written: its head and the joined payloads.
pub const MAX_PARTS: usize = 80;

/// A TUN device, whose packets have a `virtio_net_hdr` before them.
pub trait TunDevice: Send {
    /// Reads one packet without waiting; returns 0 if there is none.
    ///
    /// # Errors
    /// The interface is gone or down.
    fn read(&self, buffer: &mut [u8]) -> io::Result<usize>;

    /// Writes one packet of at most [`MAX_PARTS`] slices.
    ///
    /// # Errors
    /// The interface refused it.
    fn write(&self, offload: &Offload, parts: &[IoSlice<'_>]) -> io::Result<()>;

    /// Whether it accepts trains of UDP datagrams.
    fn takes_udp_trains(&self) -> bool;

    /// Returns the descriptor to wait for, if any.
    fn wait_on(&self) -> Option<&dyn AsFd>;
}

impl TunDevice for Arc<Tun> {
    fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        Tun::read(self, buffer)
    }

    fn write(&self, offload: &Offload, parts: &[IoSlice<'_>]) -> io::Result<()> {
        let header = offload.encode();
        let mut all = [IoSlice::new(&header[..SHORT_LEN]); 1 + MAX_PARTS];
        let count = parts.len().min(MAX_PARTS);
        all[1..=count].copy_from_slice(&parts[..count]);
        Tun::write(self, &all[..=count])
    }

    fn takes_udp_trains(&self) -> bool {
        self.has_udp_trains()
    }

    fn wait_on(&self) -> Option<&dyn AsFd> {
        Some(&**self)
    }
}

/// Sends to the wire.
pub trait WireTx: Send {
    /// Sends datagrams from the local UDP port.
    ///
    /// # Errors
    /// The number of packets sent, and the error of the next.
    fn send_datagrams(&mut self, port: u16, train: &Train<'_>) -> Result<(), (usize, io::Error)>;

    /// Sends whole IP packets, all to one address.
    ///
    /// # Errors
    /// The number of packets sent, and the error of the next.
    fn send_packets(&mut self, packets: &[IoSlice<'_>]) -> Result<(), (usize, io::Error)>;
}

/// Receives from the wire: one socket.
pub trait WireRx: Send {
    /// Fills the inbox without waiting.
    ///
    /// # Errors
    /// The kernel's error.
    fn receive(&self, inbox: &mut Inbox) -> io::Result<usize>;

    /// Returns the kind of its packets.
    fn kind(&self) -> SocketKind;

    /// Returns the descriptor to wait for, if any.
    fn wait_on(&self) -> Option<&dyn AsFd>;
}

/// The kind of packets that a socket receives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SocketKind {
    /// UDP datagrams to this port.
    Udp(u16),
    /// IP packets of this protocol.
    Ip(u8),
}

/// A socket to receive from.
#[derive(Debug, Clone)]
pub enum Receiver {
    /// UDP.
    Udp(Arc<UdpSocket>),
    /// Raw IP of a protocol.
    Ip(Arc<RawReceiver>, u8),
}

impl WireRx for Receiver {
    fn receive(&self, inbox: &mut Inbox) -> io::Result<usize> {
        match self {
            Self::Udp(socket) => socket.receive(inbox),
            Self::Ip(socket, _) => socket.receive(inbox),
        }
    }

    fn kind(&self) -> SocketKind {
        match self {
            Self::Udp(socket) => SocketKind::Udp(socket.local().port()),
            Self::Ip(_, protocol) => SocketKind::Ip(*protocol),
        }
    }

    fn wait_on(&self) -> Option<&dyn AsFd> {
        match self {
            Self::Udp(socket) => Some(&**socket),
            Self::Ip(socket, _) => Some(&**socket),
        }
    }
}
