//! The report on one packet, and the summary of all packets.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;

use headroom_ipsec::{Headers, Reason};
use headroom_packet::Ip;
use serde::Serialize;

use super::ike::{IkeMessage, IkeTally};

/// One packet of a capture. A frame with a train of segments has several.
#[derive(Debug, Clone, Serialize)]
pub struct Packet {
    /// The position of the frame in the capture, from 1.
    pub frame: u64,
    /// The time of the capture, in seconds since 1970.
    pub time: f64,
    /// The exact time of the capture.
    #[serde(skip)]
    pub captured: std::time::Duration,
    /// Source address of the outermost IP header.
    pub source: Option<IpAddr>,
    /// Destination address of the outermost IP header.
    pub destination: Option<IpAddr>,
    /// The IPsec headers, the outermost first.
    pub layers: Vec<Layer>,
    /// What the packet is.
    #[serde(flatten)]
    pub outcome: Outcome,
    /// Remarks about the packet.
    pub notes: Vec<String>,
}

/// An IPsec header.
#[derive(Debug, Clone, Serialize)]
pub struct Layer {
    /// `ESP`, `AH` or `Q-ESP`.
    pub protocol: String,
    /// Security parameters index.
    pub spi: u32,
    /// The full sequence number if known, otherwise its lower half.
    pub sequence: u64,
    /// UDP ports of ESP in UDP.
    pub udp: Option<(u16, u16)>,
    /// The clear fields of Q-ESP.
    pub clear: Option<Clear>,
    /// The name of the SA.
    pub sa: Option<String>,
}

/// The clear fields of Q-ESP, which routers can read.
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
    /// The packet was opened.
    Opened {
        /// The inner packet.
        inner: Inner,
        /// The reason why the IPsec in the inner packet was not opened: no SA of the
        /// configuration has it.
        #[serde(skip_serializing_if = "Option::is_none")]
        nested: Option<&'static str>,
    },
    /// A dummy packet (RFC 4303, section 2.6).
    Dummy,
    /// The packet cannot be opened.
    Failed {
        /// The reason's name.
        reason: &'static str,
        /// The reason in words.
        description: &'static str,
        /// Changes that would make the packet valid.
        findings: Vec<String>,
    },
    /// The capture has only a part of the packet.
    Truncated {
        /// Captured bytes.
        captured: usize,
        /// Bytes of the whole packet.
        original: usize,
    },
    /// A fragment, kept until its datagram is complete.
    Fragment,
    /// A message of IKE, with or without the non-ESP marker (RFC 3948, section 2.2).
    Ike(Box<IkeMessage>),
    /// A NAT keepalive (RFC 3948, section 2.3).
    Keepalive,
    /// Something else.
    NotIpsec {
        /// A description.
        what: String,
    },
}

/// An inner packet.
#[derive(Debug, Clone, Serialize)]
pub struct Inner {
    /// Source address.
    pub source: IpAddr,
    /// Destination address.
    pub destination: IpAddr,
    /// Protocol number after extension headers.
    pub protocol: u8,
    /// Source port, if the protocol has ports.
    pub source_port: Option<u16>,
    /// Destination port, if the protocol has ports.
    pub destination_port: Option<u16>,
    /// Length of the packet in bytes.
    pub bytes: usize,
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
            bytes: ip.total_len(),
        }
    }
}

impl Outcome {
    /// Checks whether the packet should have been opened, and was not.
    pub fn is_failure(&self) -> bool {
        match self {
            Self::Failed { .. } | Self::Truncated { .. } => true,
            Self::Ike(message) => message.is_failure(),
            _ => false,
        }
    }

    pub(super) fn failed(reason: Reason, findings: Vec<String>) -> Self {
        Self::Failed { reason: reason.name(), description: reason.description(), findings }
    }
}

/// Counts of all packets.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Summary {
    /// Frames read.
    pub frames: u64,
    /// Packets opened.
    pub opened: u64,
    /// Opened packets with IPsec inside that no SA of the configuration can open.
    pub nested: u64,
    /// Packets that failed.
    pub failed: u64,
    /// Packets of which the capture has only a part.
    pub truncated: u64,
    /// Fragments that did not complete a datagram.
    pub fragments: u64,
    /// Datagrams with missing fragments.
    pub fragments_left: u64,
    /// Packets that are not IPsec, including keepalives, without IKE.
    pub others: u64,
    /// Messages of IKE.
    pub ike: IkeTally,
    /// Counts by SA, for SAs with packets.
    pub associations: Vec<Tally>,
    /// Packets by SPI, for SPIs that no SA has.
    pub unknown: BTreeMap<String, u64>,
    /// Why the capture was not read to its end.
    pub ended_by: Option<String>,
}

/// Counts of one SA's packets.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Tally {
    /// The name of the SA.
    pub name: String,
    /// Packets with the SPI.
    pub packets: u64,
    /// Opened packets.
    pub opened: u64,
    /// Packets not opened, by reason.
    pub failed: BTreeMap<&'static str, u64>,
    /// The lowest sequence number opened.
    pub first: Option<u64>,
    /// The highest sequence number opened.
    pub last: Option<u64>,
    /// Sequence numbers between `first` and `last` without a packet.
    pub missing: u64,
    /// Packets opened after one with a higher number.
    pub reordered: u64,
    /// The largest distance of a reordered packet behind the highest number.
    pub furthest_behind: u64,
    /// Opened packets whose number was opened before.
    pub replayed: u64,
    /// Opened packets left of the anti-replay window, which a receiver drops.
    pub stale: u64,
}

impl Summary {
    /// Checks that packets of IPsec or messages of IKE were opened, that none failed, and that the
    /// capture was read to its end.
    pub fn all_opened(&self) -> bool {
        self.opened + self.ike.opened > 0
            && self.failed + self.ike.failed + self.ike.incomplete == 0
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
        if let Outcome::Ike(message) = &self.outcome {
            message.payloads.iter().try_for_each(|one| write!(f, "\n{:24}  {one}", ""))?;
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
                write!(f, "{inner}, with IPsec inside that no SA can open ({reason})")
            }
            Self::Dummy => write!(f, "dummy packet"),
            Self::Failed { reason, description, .. } => {
                write!(f, "FAILED {reason}: {description}")
            }
            Self::Truncated { captured, original } => {
                write!(
                    f,
                    "TRUNCATED by the capture: {captured} of {original} bytes (capture with -s 0)"
                )
            }
            Self::Fragment => write!(f, "fragment"),
            Self::Ike(message) => write!(f, "{message}"),
            Self::Keepalive => write!(f, "NAT keepalive"),
            Self::NotIpsec { what } => write!(f, "not IPsec: {what}"),
        }
    }
}

impl fmt::Display for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { source, destination, protocol, bytes, .. } = self;
        let end = |address: &IpAddr, port: Option<u16>| match (address, port) {
            (address, None) => address.to_string(),
            (IpAddr::V4(address), Some(port)) => format!("{address}:{port}"),
            (IpAddr::V6(address), Some(port)) => format!("[{address}]:{port}"),
        };
        let (from, to) = (end(source, self.source_port), end(destination, self.destination_port));
        write!(f, "{} {from} → {to}, {bytes} bytes", protocol_name(*protocol))
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { frames, opened, nested, failed, truncated, fragments_left, others, .. } = self;
        write!(f, "{frames} frames: {opened} opened, {failed} failed, {others} not IPsec")?;
        for (count, what) in [
            (nested, "with IPsec inside that no SA can open"),
            (truncated, "truncated by the capture"),
            (fragments_left, "datagrams with missing fragments"),
        ] {
            if *count > 0 {
                write!(f, ", {count} {what}")?;
            }
        }
        for tally in &self.associations {
            write!(f, "\n  {tally}")?;
        }
        for (spi, packets) in &self.unknown {
            write!(f, "\n  {spi}: {packets} packets, no such SA")?;
        }
        let ike = &self.ike;
        if ike.messages > 0 {
            write!(f, "\n  {ike}")?;
        } else if *opened == 0 && *failed == 0 && *truncated == 0 && *fragments_left == 0 {
            write!(f, "\n  the capture has no IPsec packet")?;
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
            write!(f, "; sequence numbers {first} to {last}")?;
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

/// Returns the name of a protocol, such as `TCP`, or its number.
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
        59 => "no next header",
        132 => "SCTP",
        136 => "UDP-Lite",
        other => return format!("protocol {other}"),
    };
    name.to_owned()
}
