//! The ends of the datapath as traits: real interfaces and sockets, or pretended
//! ones in tests.

use std::io::{self, IoSlice};
use std::os::fd::AsFd;
use std::sync::Arc;

use headroom_netio::udp::Train;
use headroom_netio::{Inbox, RawReceiver, Tun, UdpSocket};
use headroom_packet::Offload;
use headroom_packet::offload::SHORT_LEN;

/// Parts of a packet that is written: its head and the payloads that were joined.
pub const MAX_PARTS: usize = 80;

/// The hosts' side: packets with a `virtio_net_hdr` before each.
pub trait TunDevice: Send {
    /// Reads one packet, without waiting; 0 where there is none.
    ///
    /// # Errors
    /// The interface is gone or down.
    fn read(&self, buffer: &mut [u8]) -> io::Result<usize>;

    /// Writes one packet, given in parts, at most [`MAX_PARTS`].
    ///
    /// # Errors
    /// The interface did not take it.
    fn write(&self, offload: &Offload, parts: &[IoSlice<'_>]) -> io::Result<()>;

    /// Whether it takes trains of UDP datagrams.
    fn takes_udp_trains(&self) -> bool;

    /// What to wait for; none where there is nothing to wait for.
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

/// The wire's side, out.
pub trait WireTx: Send {
    /// Sends datagrams from the local UDP port.
    ///
    /// # Errors
    /// How many went, and why the next did not.
    fn send_datagrams(&mut self, port: u16, train: &Train<'_>) -> Result<(), (usize, io::Error)>;

    /// Sends whole IP packets, all to one address.
    ///
    /// # Errors
    /// How many went, and why the next did not.
    fn send_packets(&mut self, packets: &[IoSlice<'_>]) -> Result<(), (usize, io::Error)>;
}

/// The wire's side, in: one socket.
pub trait WireRx: Send {
    /// Fills the inbox, without waiting.
    ///
    /// # Errors
    /// What the kernel answered.
    fn receive(&self, inbox: &mut Inbox) -> io::Result<usize>;

    /// What kind of packets come.
    fn kind(&self) -> SocketKind;

    /// What to wait for; none where there is nothing to wait for.
    fn wait_on(&self) -> Option<&dyn AsFd>;
}

/// What comes from a socket.
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
