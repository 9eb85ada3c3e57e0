//! Security associations and policies as they are asked for; who reads a
//! configuration makes these, the engine is built of them.

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
    /// What people call it; unique.
    pub name: String,
    /// Which way it protects.
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
    /// Packets of the anti-replay window, 64 to 8192; of no meaning outbound.
    pub window: u32,
    /// When it is to be replaced, and when it ends.
    pub lifetime: Lifetime,
    /// ESP in UDP (RFC 3948) between these ports.
    pub udp: Option<UdpPorts>,
    /// Of ESP in UDP, inbound, in tunnel mode: what is sent back to the peer
    /// follows it to where its newest packet came from.
    pub follow_peer: bool,
    /// The DSCP of the outer header, and of the inner one afterwards.
    pub dscp: Dscp,
    /// ECN's normal mode (RFC 6040, section 4.1); else compatibility mode.
    pub ecn: bool,
    /// The DF bit of the outer IPv4 header; tunnel mode.
    pub dont_fragment: DontFragment,
    /// Traffic flow confidentiality padding (RFC 4303, section 2.7); tunnel mode.
    pub padding: Padding,
    /// The DSCP values that it serves, bit `n` for DSCP `n` (one association
    /// for each class of traffic, RFC 4301, section 4.1).
    pub classes: u64,
    /// AH over IPv4 is padded to a multiple of 4 octets (RFC 4302, section
    /// 2.6) or, as Linux does unless told `align4`, of 8.
    pub ah_alignment: usize,
}

impl SaSpec {
    /// An association with what most have: extended numbers, a window of 4096
    /// packets, no limits, not in UDP, a peer that stays, DSCP and ECN copied out and the inner DSCP
    /// left alone, DF as inside, no padding, all classes of traffic.
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
            dscp: if direction == Direction::Out { Dscp::Copy } else { Dscp::Keep },
            ecn: true,
            dont_fragment: DontFragment::Copy,
            padding: Padding::None,
            classes: u64::MAX,
            ah_alignment: 4,
        }
    }
}

impl Selector {
    /// Everything.
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
    /// What leaves.
    Out,
    /// What arrives.
    In,
}

/// What is protected of a packet (RFC 4301, section 4.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mode {
    /// What stands behind its IP header.
    Transport,
    /// All of it, in a packet of its own.
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

/// A security protocol, as the IP header names it.
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
    /// The number in the IP header.
    pub fn number(self) -> u8 {
        match self {
            Self::Esp => ESP,
            Self::Ah => AH,
            Self::QEsp(number) => number,
        }
    }

    /// Octets before the IV; none for AH.
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
    /// The protocol.
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

/// Limits of an association (RFC 4301, section 4.4.2.1). At the soft one a
/// replacement is due, at the hard one it ends.
#[derive(Debug, Clone, Copy, Default)]
pub struct Lifetime {
    /// When a replacement is due.
    pub soft: Limits,
    /// When it ends.
    pub hard: Limits,
}

/// Amounts that are never exceeded, where given.
#[derive(Debug, Clone, Copy, Default)]
pub struct Limits {
    /// Octets of protected packets, without what protection adds.
    pub bytes: Option<u64>,
    /// Packets.
    pub packets: Option<u64>,
    /// Seconds since it was loaded.
    pub seconds: Option<u64>,
}

/// What becomes of the DSCP (RFC 2983).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Dscp {
    /// Out: the outer header has the inner one's. In: the inner one gets the
    /// outer one's (uniform model).
    Copy,
    /// Out: none. In: the inner header is left alone (pipe model).
    Keep,
    /// Out: the outer header has this one.
    Set(u8),
    /// Out: the outer header has what the inner one's is mapped to, or the
    /// inner one's.
    Map(BTreeMap<u8, u8>),
}

/// The DF bit of the outer header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DontFragment {
    /// As in the inner header; set over IPv6.
    Copy,
    /// Set.
    Set,
    /// Clear.
    Clear,
}

/// What is added so that lengths tell less.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Padding {
    /// Nothing.
    None,
    /// The inner packet is padded to a multiple of this many octets.
    Multiple(u16),
    /// The outer packet is padded to this many octets.
    Outer(u16),
}

/// A policy (RFC 4301, section 4.4.1). The first that matches decides.
#[derive(Debug, Clone)]
pub struct PolicySpec {
    /// What people call it; unique.
    pub name: String,
    /// Which packets.
    pub selector: Selector,
    /// What is done with them.
    pub action: Action,
}

/// What a policy does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Protects by associations, named from the inside to the outside: an AH
    /// behind an ESP or Q-ESP is put over it; a further ESP, Q-ESP or lone AH
    /// begins an alternative, for other classes of traffic.
    Protect {
        /// For what leaves.
        out: Vec<String>,
        /// For what arrives.
        inbound: Vec<String>,
    },
    /// Lets pass in clear.
    Bypass,
    /// Throws away.
    Discard,
}

/// Which packets a policy is for (RFC 4301, section 4.4.1.1).
#[derive(Debug, Clone, PartialEq, Eq)]
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
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Addresses {
    /// Of both families.
    Any,
    /// From the first to the last.
    Range(IpAddr, IpAddr),
}

/// Ports of a selector.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ports {
    /// Any port, and packets that show none.
    Any,
    /// Only packets that show none: fragments but the first (RFC 4301, 4.4.1.1).
    Opaque,
    /// Only packets that show one of these.
    Range(RangeInclusive<u16>),
}
