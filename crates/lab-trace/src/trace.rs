//! Records the frames of a transfer, in the order of their capture.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;

use headroom_packet::ethernet::Frame;
use headroom_packet::tcp::Timestamps;
use headroom_packet::{Datagram as Udp, Segment};
use serde::{Deserialize, Serialize};

use crate::totals::{ClientSide, Totals};

/// All frames of a transfer, in the order of their capture.
#[derive(Debug)]
pub struct Trace {
    client: ClientSide,
    /// Restricts the trace to ports of the server, on hosts with other traffic.
    only: Option<(IpAddr, RangeInclusive<u16>)>,
    /// Number and first sequence number of each connection.
    index: HashMap<(SocketAddr, SocketAddr), (u32, u32)>,
    /// Server port of each connection.
    pub(crate) connections: Vec<u16>,
    pub(crate) packets: Vec<Packet>,
    /// Frames other than TCP; behind a tunnel, all frames.
    pub(crate) datagrams: Vec<Datagram>,
    totals: Totals,
}

/// The first header of captured frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Framing {
    /// Ethernet.
    Ethernet,
    /// IP, as on the inner interface of a tunnel.
    Ip,
}

impl Trace {
    /// Makes an empty trace.
    pub fn new(client: impl Into<ClientSide>) -> Self {
        let client = client.into();
        Self {
            client,
            only: None,
            index: HashMap::new(),
            connections: Vec::new(),
            packets: Vec::new(),
            datagrams: Vec::new(),
            totals: Totals::new(client),
        }
    }

    /// Tells whether each connection has ended, by both sides or by a reset.
    pub fn is_over(&self) -> bool {
        let mut ends = vec![[false; 2]; self.connections.len()];
        for packet in self.packets.iter().filter(|packet| packet.fin || packet.rst) {
            let end = &mut ends[packet.connection as usize];
            end[usize::from(packet.from_client)] = true;
            end[usize::from(!packet.from_client)] |= packet.rst;
        }
        ends.into_iter().all(|end| end == [true; 2])
    }

    /// Makes an empty trace that records only TCP and UDP to these ports of the server.
    pub fn only(client: IpAddr, server: IpAddr, ports: RangeInclusive<u16>) -> Self {
        Self { only: Some((server, ports)), ..Self::new(client) }
    }

    /// Makes an empty trace with the same restrictions.
    pub fn fresh(&self) -> Self {
        Self { only: self.only.clone(), ..Self::new(self.client) }
    }

    fn concerns(&self, server: SocketAddr) -> bool {
        self.only.as_ref().is_none_or(|(address, ports)| {
            server.ip() == *address && ports.contains(&server.port())
        })
    }

    /// Adds a captured frame. Of frames other than TCP it keeps time, length and direction.
    pub fn push(&mut self, framing: Framing, time_ns: u64, head: &[u8], wire_len: u32) {
        if self.only.is_none() {
            self.totals.add(head, wire_len);
        }
        let segment = match framing {
            Framing::Ethernet => Segment::parse(head, wire_len as usize),
            Framing::Ip => Segment::parse_ip(head, wire_len as usize),
        };
        let Ok(segment) = segment else {
            self.push_datagram(framing, time_ns, head, wire_len);
            return;
        };
        let from_client = self.client.has(segment.source.ip());
        let (client, server) = if from_client {
            (segment.source, segment.destination)
        } else {
            (segment.destination, segment.source)
        };
        if !self.concerns(server) {
            return;
        }
        let opens = segment.tcp.syn() && !segment.tcp.ack();
        let seq = segment.tcp.sequence();
        let connection = match self.index.get(&(client, server)) {
            // a SYN may be retransmitted
            Some(&(known, first)) if !opens || seq == first => known,
            // the end of an earlier transfer's connection, whose SYN is not in this trace
            None if !opens => return,
            _ => {
                let new = self.connections.len() as u32;
                self.connections.push(server.port());
                self.index.insert((client, server), (new, seq));
                new
            }
        };
        let timestamps = segment.tcp.timestamps();
        self.packets.push(Packet {
            time_ns,
            connection,
            wire_len,
            payload_len: u32::try_from(segment.payload_len).unwrap_or(u32::MAX),
            seq,
            ts_value: timestamps.map_or(0, |t| t.value),
            ts_echo: timestamps.map_or(0, |t| t.echo),
            timestamped: timestamps.is_some(),
            from_client,
            syn: segment.tcp.syn(),
            fin: segment.tcp.fin(),
            rst: segment.tcp.rst(),
            head: classify(segment.payload),
        });
    }

    fn push_datagram(&mut self, framing: Framing, time_ns: u64, head: &[u8], wire_len: u32) {
        let udp = match framing {
            Framing::Ethernet => Udp::parse(head, wire_len as usize),
            Framing::Ip => Udp::parse_ip(head, wire_len as usize),
        };
        let datagram = if let Ok(udp) = udp {
            let from_client = self.client.has(udp.source.ip());
            let server = if from_client { udp.destination } else { udp.source };
            self.concerns(server).then(|| Datagram {
                time_ns,
                wire_len,
                from_client,
                port: Some(server.port()),
                opens_quic: opens_quic(udp.payload),
            })
        } else {
            let counts = framing == Framing::Ethernet && self.only.is_none();
            let source = Frame::new(head).ok().and_then(|frame| frame.ip_source());
            source.filter(|_| counts).map(|source| Datagram {
                time_ns,
                wire_len,
                from_client: self.client.has(source),
                port: None,
                opens_quic: false,
            })
        };
        self.datagrams.extend(datagram);
    }

    /// Returns the totals of all frames, TCP or not.
    pub fn totals(&self) -> &Totals {
        &self.totals
    }
}

/// A frame other than TCP.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Datagram {
    pub(crate) time_ns: u64,
    pub(crate) wire_len: u32,
    pub(crate) from_client: bool,
    /// Server port, if it is UDP.
    pub(crate) port: Option<u16>,
    /// Whether it starts like a QUIC Initial packet.
    pub(crate) opens_quic: bool,
}

/// Tells whether a payload starts with a QUIC version 1 Initial header (RFC 9000 §17.2.2).
fn opens_quic(payload: &[u8]) -> bool {
    matches!(payload, [first, 0, 0, 0, 1, ..] if first & 0xf0 == 0xc0)
}

/// A TCP segment.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Packet {
    /// Nanoseconds since the epoch.
    pub(crate) time_ns: u64,
    /// Index into [`Trace::connections`].
    pub(crate) connection: u32,
    pub(crate) wire_len: u32,
    pub(crate) payload_len: u32,
    pub(crate) seq: u32,
    pub(crate) ts_value: u32,
    pub(crate) ts_echo: u32,
    pub(crate) timestamped: bool,
    pub(crate) from_client: bool,
    pub(crate) syn: bool,
    pub(crate) fin: bool,
    pub(crate) rst: bool,
    pub(crate) head: Head,
}

/// A transfer of 1 GiB has 1.5 million of them.
const _: () = assert!(size_of::<Packet>() <= 40);

impl Packet {
    /// Returns the timestamps of RFC 7323, if the connection uses them.
    pub(crate) fn timestamps(&self) -> Option<Timestamps> {
        self.timestamped.then_some(Timestamps { value: self.ts_value, echo: self.ts_echo })
    }
}

/// The kind of a payload by its first bytes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Head {
    Plain,
    /// A TLS handshake record in the clear; true for a ClientHello.
    TlsHandshake(bool),
    /// A change-cipher-spec with the encrypted Finished behind it, of TLS up to 1.2 (RFC 5246
    /// §7.3).
    TlsFinished,
    /// Encrypted TLS records, perhaps after a change-cipher-spec.
    TlsData,
    /// `SSH-2.0-…`, which starts a key exchange.
    SshVersion,
    /// `SSH_MSG_KEXINIT`, which each side sends without waiting for the other's (RFC 4253
    /// §7.1).
    SshKexInit,
    /// `SSH_MSG_NEWKEYS` (RFC 4253 §7.3), which ends it.
    SshNewKeys,
    /// A line that starts like an FTP server's negative reply: `500 …` (RFC 959 §4.2.1).
    FtpRefusal,
}

/// Classifies a payload by its first bytes.
pub(crate) fn classify(payload: &[u8]) -> Head {
    const CHANGE_CIPHER_SPEC: &[u8] = &[20, 3, 3, 0, 1, 1];
    // RFC 8446 §5: one such record may stand before any other, for middleboxes
    let changed = payload.strip_prefix(CHANGE_CIPHER_SPEC);
    let record = changed.unwrap_or(payload);
    match record {
        // TLS 1.3 has a second ClientHello there, which is in the clear
        [22, 3, 1..=4, ..] if changed.is_some() && !is_client_hello(record) => Head::TlsFinished,
        // type handshake, legacy version 3.x, length, ClientHello or other
        [22, 3, 1..=4, _, _, kind, ..] => Head::TlsHandshake(*kind == 1),
        [23, 3, 3, ..] => Head::TlsData,
        _ if payload.starts_with(b"SSH-2.0-") => Head::SshVersion,
        // RFC 4253 §6: length (4), padding length, then the message number
        [0, 0, _, _, _, 20, ..] => Head::SshKexInit,
        [0, 0, _, _, _, 21, ..] => Head::SshNewKeys,
        [b'5', b'0'..=b'5', b'0'..=b'9', b' ', ..] => Head::FtpRefusal,
        _ => Head::Plain,
    }
}

/// Tells whether a handshake record is a ClientHello alone: an encrypted one may begin with the
/// same type, but hardly with a length that is the record's.
fn is_client_hello(record: &[u8]) -> bool {
    let [22, _, _, high, low, 1, 0, length @ ..] = record else { return false };
    let of_record = usize::from(u16::from_be_bytes([*high, *low]));
    matches!(length, [high, low, ..] if usize::from(u16::from_be_bytes([*high, *low])) + 4 == of_record)
}
