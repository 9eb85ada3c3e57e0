//! Specifications of security associations and policies, of which an engine is built.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::ops::RangeInclusive;

use headroom_suite::{Key, Mac, Suite};

/// Protocol number of ESP (RFC 4303).
pub const ESP: u8 = 50;
/// Protocol number of AH (RFC 4302).
pub const AH: u8 = 51;
/// The protocol number that Q-ESP has where no other is configured (RFC 3692:
/// for experiments).
pub const QESP: u8 = 253;

/// A security association (RFC 4301, section 4.4.2), one direction.
#[derive(Debug)]
pub struct SaSpec {
    /// A unique name.
    pub name: String,
    /// The direction that it protects.
    pub direction: Direction,
    /// Transport or tunnel.
    pub mode: Mode,
    /// Security parameters index, 256 and above (RFC 4303, section 2.1).
    pub spi: u32,
    /// Outer source address.
    pub source: IpAddr,
    /// Outer destination address, of the same family.
    pub destination: IpAddr,
    /// How packets are protected, and with which keys.
    pub protection: Protection,
    /// Sequence numbers of 64 bits (ESN, RFC 4303, section 2.2.1).
    pub extended_sequence: bool,
    /// Size of the anti-replay window in packets, 64 to 8192; without meaning outbound.
    pub window: u32,
    /// Its lifetime.
    pub lifetime: Lifetime,
    /// ESP in UDP (RFC 3948) between these ports.
    pub udp: Option<UdpPorts>,
    /// For inbound ESP in UDP in tunnel mode: packets to the peer go where its newest packet came from.
    pub follow_peer: bool,
    /// Associations in UDP between the same addresses share the peer that is followed if they have the same
    /// number: with key management, peers may have one address after another.
    pub peer_group: u64,
    /// The DSCP of the outer header when sending, and of the inner one when receiving.
    pub dscp: Dscp,
    /// ECN's normal mode (RFC 6040, section 4.1); else compatibility mode.
    pub ecn: bool,
    /// The DF bit of the outer IPv4 header; tunnel mode.
    pub dont_fragment: DontFragment,
    /// Traffic flow confidentiality padding (RFC 4303, section 2.7); tunnel mode.
    pub padding: Padding,
    /// The DSCP values that it carries, bit `n` for DSCP `n` (one association per traffic class, RFC 4301,
    /// section 4.1).
    pub classes: u64,
    /// The queue whose packets prefer it (RFC 9611), when sending. A packet whose queue has none takes one
    /// without a queue, else the first that carries its DSCP.
    pub queue: Option<u32>,
    /// The alignment of AH over IPv4: 4 bytes (RFC 4302, section 2.6), or 8 for Linux without `align4`.
    pub ah_alignment: usize,
}

impl SaSpec {
    /// Makes an association with the usual options: extended numbers, a window of 4096 packets, no limits,
    /// no UDP, a fixed peer, DSCP and ECN copied outbound and the inner DSCP kept inbound, DF copied, no
    /// padding, all traffic classes.
    pub fn new(
        name: impl Into<String>,
        direction: Direction,
        mode: Mode,
        spi: u32,
        (source, destination): (IpAddr, IpAddr),
        protection: Protection,
    ) -> Self {
        Self {
            name: name.into(),
            direction,
            mode,
            spi,
            source,
            destination,
            protection,
            extended_sequence: true,
            window: 4096,
            lifetime: Lifetime::default(),
            udp: None,
            follow_peer: false,
            peer_group: 0,
            dscp: if direction == Direction::Out { Dscp::Copy } else { Dscp::Keep },
            ecn: true,
            dont_fragment: DontFragment::Copy,
            padding: Padding::None,
            classes: u64::MAX,
            queue: None,
            ah_alignment: 4,
        }
    }

    /// Returns the same association, keys included.
    #[must_use]
    pub fn copy(&self) -> Self {
        self.between((self.source, self.destination), self.udp)
    }

    /// Returns the same association, keys included, between other addresses (RFC 4555, section 3.5). An
    /// engine goes on with its numbers and its window.
    #[must_use]
    pub fn between(&self, (source, destination): (IpAddr, IpAddr), udp: Option<UdpPorts>) -> Self {
        let Self { direction, mode, spi, extended_sequence, window, follow_peer, .. } = *self;
        let Self { peer_group, ecn, classes, queue, ah_alignment, .. } = *self;
        Self {
            name: self.name.clone(),
            protection: self.protection.copy(),
            lifetime: self.lifetime,
            dscp: self.dscp.clone(),
            dont_fragment: self.dont_fragment,
            padding: self.padding,
            direction,
            mode,
            spi,
            source,
            destination,
            extended_sequence,
            window,
            udp,
            follow_peer: follow_peer && udp.is_some(),
            peer_group,
            ecn,
            classes,
            queue,
            ah_alignment,
        }
    }
}

impl Selector {
    /// Matches all packets.
    pub const ANY: Self = Self {
        local: Addresses::Any,
        remote: Addresses::Any,
        protocol: None,
        local_port: Ports::Any,
        remote_port: Ports::Any,
        icmp: None,
    };
}

/// The direction that an association protects, seen from this host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Direction {
    /// Outbound.
    Out,
    /// Inbound.
    In,
}

/// The part of a packet that is protected (RFC 4301, section 4.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mode {
    /// The payload of its IP header.
    Transport,
    /// The whole packet, in a new outer packet.
    Tunnel,
}

/// How an association protects.
#[derive(Debug)]
pub enum Protection {
    /// RFC 4303.
    Esp(Secrets),
    /// RFC 4302.
    Ah {
        /// The integrity algorithm.
        mac: Mac,
        /// Its key.
        key: Key,
    },
    /// docs/qesp.md.
    QEsp {
        /// IP protocol number.
        number: u8,
        /// Suite and keys.
        secrets: Secrets,
    },
}

/// A suite and its keys.
#[derive(Debug)]
pub struct Secrets {
    /// The suite.
    pub suite: Suite,
    /// The key of the cipher.
    pub key: Key,
    /// The key of a separate integrity algorithm.
    pub mac_key: Option<Key>,
}

/// A security protocol with its IP protocol number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// RFC 4303.
    Esp,
    /// RFC 4302.
    Ah,
    /// docs/qesp.md; the number is configured.
    QEsp(u8),
}

impl Protocol {
    /// Returns the IP protocol number.
    pub fn number(self) -> u8 {
        match self {
            Self::Esp => ESP,
            Self::Ah => AH,
            Self::QEsp(number) => number,
        }
    }

    /// Returns the length of the header before the IV in bytes; 0 for AH.
    pub(crate) fn cipher_header_len(self) -> usize {
        match self {
            Self::Esp => crate::esp::HEADER_LEN,
            Self::Ah => 0,
            Self::QEsp(_) => crate::qesp::HEADER_LEN,
        }
    }
}

impl std::fmt::Display for Direction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Out => "out",
            Self::In => "in",
        })
    }
}

impl std::fmt::Display for Mode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Transport => "transport",
            Self::Tunnel => "tunnel",
        })
    }
}

impl std::fmt::Display for Protocol {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Esp => "ESP",
            Self::Ah => "AH",
            Self::QEsp(_) => "Q-ESP",
        })
    }
}

impl Protection {
    /// Returns the same with copies of the keys.
    fn copy(&self) -> Self {
        let key = |key: &Key| Key::from_bytes(key.as_bytes());
        let secrets = |from: &Secrets| Secrets {
            suite: from.suite,
            key: key(&from.key),
            mac_key: from.mac_key.as_ref().map(key),
        };
        match self {
            Self::Esp(from) => Self::Esp(secrets(from)),
            Self::QEsp { number, secrets: from } => {
                Self::QEsp { number: *number, secrets: secrets(from) }
            }
            Self::Ah { mac, key: from } => Self::Ah { mac: *mac, key: key(from) },
        }
    }

    /// Returns the protocol.
    pub fn protocol(&self) -> Protocol {
        match self {
            Self::Esp(_) => Protocol::Esp,
            Self::Ah { .. } => Protocol::Ah,
            Self::QEsp { number, .. } => Protocol::QEsp(*number),
        }
    }
}

/// Source and destination port of ESP in UDP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UdpPorts {
    /// Source port.
    pub source: u16,
    /// Destination port.
    pub destination: u16,
}

/// The lifetime of an association (RFC 4301, section 4.4.2.1).
#[derive(Debug, Clone, Copy, Default)]
pub struct Lifetime {
    /// Limits at which new keys are due.
    pub soft: Limits,
    /// Limits at which the association ends.
    pub hard: Limits,
}

/// Limits; none: unlimited.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of packets, without the overhead of protection.
    pub bytes: Option<u64>,
    /// Packets.
    pub packets: Option<u64>,
    /// Seconds since it was loaded.
    pub seconds: Option<u64>,
}

/// The treatment of the DSCP (RFC 2983).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Dscp {
    /// Out: copies it to the outer header. In: copies the outer one to the inner header (uniform model).
    Copy,
    /// Out: 0. In: keeps the inner one (pipe model).
    Keep,
    /// Out: this value.
    Set(u8),
    /// Out: the value to which the inner one is mapped, or the inner one.
    Map(BTreeMap<u8, u8>),
}

/// The DF bit of the outer header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DontFragment {
    /// Copies that of the inner header; set for IPv6.
    Copy,
    /// Set.
    Set,
    /// Clear.
    Clear,
}

/// Padding against traffic analysis, which hides packet lengths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Padding {
    /// None.
    None,
    /// Pads the inner packet to a multiple of this many bytes.
    Multiple(u16),
    /// Pads the outer packet to this many bytes.
    Outer(u16),
}

/// A policy (RFC 4301, section 4.4.1). The first that matches decides.
#[derive(Debug, Clone)]
pub struct PolicySpec {
    /// A unique name.
    pub name: String,
    /// The packets that it covers.
    pub selector: Selector,
    /// What it does with them.
    pub action: Action,
}

/// The action of a policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Protects with associations, named from the innermost to the outermost. An AH after an ESP or Q-ESP
    /// goes over it; a further ESP, Q-ESP or lone AH begins an alternative for other traffic classes.
    Protect {
        /// Outbound associations.
        out: Vec<String>,
        /// Inbound associations.
        inbound: Vec<String>,
    },
    /// Sends in clear.
    Bypass,
    /// Drops.
    Discard,
}

/// The selector of a policy (RFC 4301, section 4.4.1.1).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Selector {
    /// Addresses on this side.
    pub local: Addresses,
    /// Addresses on the other.
    pub remote: Addresses,
    /// Upper-layer protocol; none: any.
    pub protocol: Option<u8>,
    /// Ports on this side.
    pub local_port: Ports,
    /// Ports on the other.
    pub remote_port: Ports,
    /// ICMP type and code as `type << 8 | code` (RFC 4301, section 4.4.1.1).
    pub icmp: Option<RangeInclusive<u16>>,
}

/// A range of addresses of one family, or all.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Addresses {
    /// Of both families.
    Any,
    /// From the first to the last.
    Range(IpAddr, IpAddr),
}

/// Ports of a selector.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Ports {
    /// Any port, and packets that show none.
    Any,
    /// Only packets that show none: fragments but the first (RFC 4301, 4.4.1.1).
    Opaque,
    /// Only packets that show one of these.
    Range(RangeInclusive<u16>),
}
