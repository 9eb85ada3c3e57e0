//! The settings of a datapath.

use std::net::{IpAddr, SocketAddr};
use std::sync::mpsc::SyncSender;
use std::time::Duration;

/// The settings of a datapath, beside its engine.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The mark (`SO_MARK`) of the gateway's own packets, which routes them past the TUN.
    pub mark: u32,
    /// The path MTU; none: asks the kernel.
    pub path_mtu: Option<usize>,
    /// The interval of NAT keepalives on ESP in UDP (RFC 3948, section 4); zero: none.
    pub keepalive: Duration,
    /// Dummy packets per second while an association has nothing else to send, by name.
    pub dummies_per_second: Vec<(String, u32)>,
    /// Lowers the MSS in TCP SYNs to what passes the tunnel, and to packets of this many bytes; none:
    /// leaves SYNs alone.
    pub clamp_mss: Option<usize>,
    /// Whether the threads of a queue are pinned to one CPU.
    pub pinned: bool,
    /// Receives IKE; none: drops it.
    pub ike: Option<Ike>,
}

/// Where datagrams of IKE go.
#[derive(Debug, Clone)]
pub struct Ike {
    /// Takes datagrams; those that find it full are dropped and counted.
    pub inbox: SyncSender<IkeDatagram>,
    /// Whether to listen on IPv4 and on IPv6.
    pub families: [bool; 2],
}

/// A datagram of IKE.
#[derive(Debug)]
pub struct IkeDatagram {
    /// The peer's address.
    pub from: SocketAddr,
    /// This host's address.
    pub to: (IpAddr, u16),
    /// The payload of UDP, on port 4500 with the non-ESP marker (RFC 3948, section 2.2).
    pub bytes: Vec<u8>,
}

impl IkeDatagram {
    /// Makes one of nobody, which wakes the reader.
    #[must_use]
    pub fn wake() -> Self {
        let nowhere = SocketAddr::from(([0; 4], 0));
        Self { from: nowhere, to: (nowhere.ip(), 0), bytes: Vec::new() }
    }
}

/// The ports of IKE (RFC 7296, section 2).
pub const IKE_PORT: u16 = 500;
/// The port of IKE and ESP in UDP (RFC 3948).
pub const NAT_PORT: u16 = 4500;

impl Default for Settings {
    fn default() -> Self {
        Self {
            mark: DEFAULT_MARK,
            path_mtu: None,
            keepalive: Duration::from_secs(20),
            dummies_per_second: Vec::new(),
            clamp_mss: Some(usize::MAX),
            pinned: false,
            ike: None,
        }
    }
}

/// The default mark: "qesp".
pub const DEFAULT_MARK: u32 = 0x7165_7370;
