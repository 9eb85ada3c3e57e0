//! What is said of a packet, and of all of them.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;

use headroom_ipsec::{Headers, Reason};
use headroom_packet::Ip;
use serde::Serialize;

/// One packet of a capture. (A frame that holds a train of segments is several.)
#[derive(Debug, Clone, Serialize)]
pub struct Packet {
    /// The frame's place in the capture, from 1.
    pub frame: u64,
    /// When it was captured, in seconds since 1970.
    pub time: f64,
    /// The same, exactly.
    #[serde(skip)]
    pub captured: std::time::Duration,
    /// Source address of the outermost IP header.
    pub source: Option<IpAddr>,
    /// Destination address of the outermost IP header.
    pub destination: Option<IpAddr>,
    /// The IPsec headers, the outermost first.
    pub layers: Vec<Layer>,
    /// What it is.
    #[serde(flatten)]
    pub outcome: Outcome,
    /// What is remarkable about it, in sentences.
    pub notes: Vec<String>,
}

/// An IPsec header.
#[derive(Debug, Clone, Serialize)]
pub struct Layer {
    /// `ESP`, `AH` or `Q-ESP`.
    pub protocol: String,
    /// Security parameters index.
    pub spi: u32,
    /// The whole sequence number where it is known, else its lower half.
    pub sequence: u64,
    /// Ports of ESP in UDP.
    pub udp: Option<(u16, u16)>,
    /// What Q-ESP shows to routers.
    pub clear: Option<Clear>,
    /// The security association that it is of.
    pub sa: Option<String>,
}

/// What Q-ESP shows to routers.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Clear {
    /// Source port.
    pub source_port: u16,
    /// Destination port.
    pub destination_port: u16,
    /// Transport protocol.
    pub protocol: u8,
}

/// What a packet is.
#[derive(Debug, Clone, Serialize)]
#[serde(tag = "result", rename_all = "kebab-case")]
pub enum Outcome {
    /// Opened: this is inside.
    Opened {
        /// The packet inside.
        inner: Inner,
        /// Why the IPsec in that packet stays closed, by the reason's name: it is
        /// of no association here.
        #[serde(skip_serializing_if = "Option::is_none")]
        nested: Option<&'static str>,
    },
    /// A dummy packet (RFC 4303, section 2.6).
    Dummy,
    /// It cannot be opened.
    Failed {
        /// The reason's name.
        reason: &'static str,
        /// The reason as a sentence.
        sentence: &'static str,
        /// What would have made it right, in sentences.
        findings: Vec<String>,
    },
    /// The capture does not hold all of it.
    Truncated {
        /// Octets that are there.
        captured: usize,
        /// Octets that it had.
        original: usize,
    },
    /// A fragment that is kept until the others have come.
    Fragment,
    /// IKE on the port of ESP in UDP (RFC 3948, section 2.2).
    Ike,
    /// A keepalive of a NAT (RFC 3948, section 2.3).
    Keepalive,
    /// Something else.
    NotIpsec {
        /// What, in words.
        what: String,
    },
}

/// A packet that was protected.
#[derive(Debug, Clone, Serialize)]
pub struct Inner {
    /// Source address.
    pub source: IpAddr,
    /// Destination address.
    pub destination: IpAddr,
    /// Protocol number, behind extension headers.
    pub protocol: u8,
    /// Source port, where the packet shows one.
    pub source_port: Option<u16>,
    /// Destination port, where the packet shows one.
    pub destination_port: Option<u16>,
    /// Octets of the packet.
    pub octets: usize,
}

impl Inner {
    pub(super) fn of(ip: &Ip<'_>) -> Self {
        let headers = Headers::read(ip);
        let (source_port, destination_port) = headers.ports.unzip();
        Self {
            source: headers.source,
            destination: headers.destination,
            protocol: headers.protocol,
            source_port,
            destination_port,
            octets: ip.total_len(),
        }
    }
}

impl Outcome {
    pub(super) fn failed(reason: Reason, findings: Vec<String>) -> Self {
        Self::Failed { reason: reason.name(), sentence: reason.description(), findings }
    }
}

/// What became of all packets.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Summary {
    /// Frames read.
    pub frames: u64,
    /// Packets opened.
    pub opened: u64,
    /// Those of them in which there is somebody else's IPsec, which stays closed.
    pub nested: u64,
    /// Packets that failed.
    pub failed: u64,
    /// Packets that the capture does not hold whole.
    pub truncated: u64,
    /// Fragments that did not complete their datagram.
    pub fragments: u64,
    /// Datagrams of which fragments never came.
    pub fragments_left: u64,
    /// Packets that are not IPsec, keepalives and IKE included.
    pub others: u64,
    /// Each association of the configuration that had packets.
    pub associations: Vec<Tally>,
    /// SPIs that no association has, with their packets.
    pub unknown: BTreeMap<String, u64>,
    /// Why the capture could not be read to its end.
    pub ended_by: Option<String>,
}

/// What became of the packets of one association.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Tally {
    /// Its name.
    pub name: String,
    /// Packets with its SPI.
    pub packets: u64,
    /// Those that could be opened.
    pub opened: u64,
    /// Those that could not, by reason.
    pub failed: BTreeMap<&'static str, u64>,
    /// The lowest number opened.
    pub first: Option<u64>,
    /// The highest number opened.
    pub last: Option<u64>,
    /// Numbers between them that never came.
    pub missing: u64,
    /// Opened after one with a higher number.
    pub reordered: u64,
    /// How far behind the highest such a packet was, at most.
    pub furthest_behind: u64,
    /// Opened, with a number that was opened before.
    pub replayed: u64,
    /// Opened, left of the anti-replay window: a receiver drops it.
    pub stale: u64,
}

impl Summary {
    /// Whether there were IPsec packets, every one was opened, and the capture was
    /// read to its end.
    pub fn all_opened(&self) -> bool {
        self.opened > 0
            && self.failed == 0
            && self.truncated == 0
            && self.fragments_left == 0
            && self.ended_by.is_none()
    }
}

impl fmt::Display for Packet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:>6} {:>17.6}  ", self.frame, self.time)?;
        if let (Some(source), Some(destination)) = (self.source, self.destination) {
            write!(f, "{source} → {destination}  ")?;
        }
        for layer in &self.layers {
            write!(f, "{layer}  ")?;
        }
        write!(f, "{}", self.outcome)?;
        if let Outcome::Failed { findings, .. } = &self.outcome {
            findings.iter().try_for_each(|finding| write!(f, "\n{:24}  – {finding}", ""))?;
        }
        self.notes.iter().try_for_each(|note| write!(f, "\n{:24}  – {note}", ""))
    }
}

impl fmt::Display for Layer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:#x} #{}", self.protocol, self.spi, self.sequence)?;
        if let Some((source, destination)) = self.udp {
            write!(f, " in UDP {source}→{destination}")?;
        }
        if let Some(Clear { source_port, destination_port, protocol }) = self.clear {
            write!(f, " showing {} {source_port}→{destination_port}", protocol_name(protocol))?;
        }
        self.sa.as_ref().map_or(Ok(()), |sa| write!(f, " ({sa})"))
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Opened { inner, nested: None } => write!(f, "{inner}"),
            Self::Opened { inner, nested: Some(reason) } => {
                write!(f, "{inner}; the IPsec in it is somebody else's and stays closed ({reason})")
            }
            Self::Dummy => write!(f, "a dummy packet"),
            Self::Failed { reason, sentence, .. } => write!(f, "FAILED {reason}: {sentence}"),
            Self::Truncated { captured, original } => {
                write!(
                    f,
                    "CUT by the capture: {captured} of {original} octets are there (capture with -s 0)"
                )
            }
            Self::Fragment => write!(f, "a fragment"),
            Self::Ike => write!(f, "IKE (non-ESP marker)"),
            Self::Keepalive => write!(f, "a keepalive of a NAT"),
            Self::NotIpsec { what } => write!(f, "not IPsec: {what}"),
        }
    }
}

impl fmt::Display for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { source, destination, protocol, octets, .. } = self;
        let end = |address: &IpAddr, port: Option<u16>| match (address, port) {
            (address, None) => address.to_string(),
            (IpAddr::V4(address), Some(port)) => format!("{address}:{port}"),
            (IpAddr::V6(address), Some(port)) => format!("[{address}]:{port}"),
        };
        let (from, to) = (end(source, self.source_port), end(destination, self.destination_port));
        write!(f, "{} {from} → {to}, {octets} octets", protocol_name(*protocol))
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { frames, opened, nested, failed, truncated, fragments_left, others, .. } = self;
        write!(f, "{frames} frames: {opened} opened, {failed} failed, {others} not IPsec")?;
        for (count, what) in [
            (nested, "with somebody else's IPsec inside"),
            (truncated, "truncated by the capture"),
            (fragments_left, "datagrams with fragments missing"),
        ] {
            if *count > 0 {
                write!(f, ", {count} {what}")?;
            }
        }
        for tally in &self.associations {
            write!(f, "\n  {tally}")?;
        }
        for (spi, packets) in &self.unknown {
            write!(f, "\n  {spi}: {packets} packets of no association")?;
        }
        if *opened == 0 && *failed == 0 && *truncated == 0 && *fragments_left == 0 {
            write!(f, "\n  there is no IPsec packet in the capture")?;
        }
        self.ended_by.as_ref().map_or(Ok(()), |why| write!(f, "\n  {why}"))
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} packets, {} opened", self.name, self.packets, self.opened)?;
        for (reason, packets) in &self.failed {
            write!(f, ", {packets} {reason}")?;
        }
        if let (Some(first), Some(last)) = (self.first, self.last) {
            write!(f, "; numbers {first} to {last}")?;
        }
        for (count, what) in [
            (self.missing, "missing"),
            (self.reordered, "reordered"),
            (self.replayed, "replayed"),
            (self.stale, "left of the window"),
        ] {
            if count > 0 {
                write!(f, ", {count} {what}")?;
            }
        }
        if self.reordered > 0 {
            write!(f, " (at most {} behind)", self.furthest_behind)?;
        }
        Ok(())
    }
}

/// `TCP`, or the number.
pub(super) fn protocol_name(number: u8) -> String {
    let name = match number {
        1 => "ICMP",
        4 => "IPv4",
        6 => "TCP",
        17 => "UDP",
        33 => "DCCP",
        41 => "IPv6",
        47 => "GRE",
        50 => "ESP",
        51 => "AH",
        58 => "ICMPv6",
        59 => "nothing",
        132 => "SCTP",
        136 => "UDP-Lite",
        other => return format!("protocol {other}"),
    };
    name.to_owned()
}
