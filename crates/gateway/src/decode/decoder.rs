//! Opens captured packets in frames, fragments, UDP and segment trains.

use std::collections::HashMap;
use std::io::Read;
use std::net::IpAddr;
use std::time::Duration;

use headroom_ipsec::{Protocol, Reason, esp};
use headroom_packet::fragment::{Limits, Reassembler};
use headroom_packet::{Ip, protocol, udp};

use super::attempt::{Sealed, rebuild};
use super::capture::{Capture, Frame};
use super::ike::IkeDecoder;
use super::link::{FramePayload, GRE, encapsulated, frame_payload};
use super::packet_report::{PacketReport, layer};
use super::report::{Inner, Outcome, Packet, Summary, protocol_name};
use super::sa_decoder::{SaDecoder, Search};
use crate::config::Config;
use crate::wireshark::KeyTables;

/// The most fragments kept until their datagram is complete.
const FRAGMENTS: Limits = Limits { datagrams: 4096, bytes: 64 << 20 };
/// The most unencrypted tunnels followed, one inside the other.
const MAX_ENCAPSULATIONS: u32 = 4;
/// The port of IKE (RFC 7296, section 2).
const IKE: u16 = 500;
/// The port of ESP in UDP (RFC 3948), and of IKE behind a marker.
const NAT_TRAVERSAL: u16 = 4500;

/// Receives the decoder's reports.
pub trait PacketSink {
    /// Takes the report on a packet, and the inner packet if it was opened.
    fn packet(&mut self, packet: &Packet, clear: Option<&[u8]>);
}

impl<F: FnMut(&Packet, Option<&[u8]>)> PacketSink for F {
    fn packet(&mut self, packet: &Packet, clear: Option<&[u8]>) {
        self(packet, clear);
    }
}

/// Opens captured packets with the keys of a configuration and of a log.
#[derive(Debug)]
pub struct Decoder {
    pub(super) known: Vec<SaDecoder>,
    pub(super) search: Search,
    /// By SPI and protocol number; several SAs differ in their destination.
    pub(super) by_spi: HashMap<(u32, u8), Vec<usize>>,
    qesp: Vec<u8>,
    /// UDP ports that carry ESP.
    ports: Vec<u16>,
    fragments: Reassembler,
    ike: IkeDecoder,
    /// The latest time of a frame; fragments expire by it.
    now: Duration,
    pub(super) summary: Summary,
}

impl Decoder {
    /// Prepares the keys of a configuration, those that are not negotiated, and of a log.
    ///
    /// # Errors
    /// A key that its suite refuses; the text begins with the SA's name.
    pub fn new(config: Option<Config>, tables: KeyTables, search: Search) -> Result<Self, String> {
        let KeyTables { ike, esp, were_read, .. } = tables;
        let mut decoder = Self {
            known: Vec::new(),
            search,
            by_spi: HashMap::new(),
            qesp: Vec::new(),
            ports: vec![NAT_TRAVERSAL],
            fragments: Reassembler::new(FRAGMENTS),
            ike: IkeDecoder::new(ike, were_read),
            now: Duration::ZERO,
            summary: Summary::default(),
        };
        let configured = config.into_iter().flat_map(|config| config.associations);
        let configured = configured.filter(|one| !one.negotiated).map(|one| one.spec);
        let certain = configured.map(|spec| (spec, false));
        for (spec, is_from_table) in certain.chain(esp.into_iter().map(|spec| (spec, true))) {
            let protocol = spec.protection.protocol();
            if let Protocol::QEsp(number) = protocol
                && !decoder.qesp.contains(&number)
            {
                decoder.qesp.push(number);
            }
            if let Some(ports) = spec.udp {
                decoder.ports.extend([ports.source, ports.destination]);
            }
            let index = decoder.known.len();
            decoder.by_spi.entry((spec.spi, protocol.number())).or_default().push(index);
            let name = spec.name.clone();
            let sa = SaDecoder::new(spec, is_from_table);
            decoder.known.push(sa.map_err(|error| format!("`{name}`: {error}"))?);
        }
        decoder.ports.sort_unstable();
        decoder.ports.dedup();
        Ok(decoder)
    }

    /// Decodes a capture to its end.
    pub fn capture(
        mut self,
        mut capture: Capture<impl Read>,
        sink: &mut impl PacketSink,
    ) -> Summary {
        loop {
            match capture.next_frame() {
                Ok(Some(frame)) => self.frame(&frame, sink),
                Ok(None) => return self.finish(),
                Err(error) => {
                    self.summary.ended_by = Some(error.to_string());
                    return self.finish();
                }
            }
        }
    }

    /// Decodes one frame.
    pub fn frame(&mut self, frame: &Frame<'_>, sink: &mut impl PacketSink) {
        self.summary.frames += 1;
        let (number, time) = (frame.number, frame.time);
        let mut context = FrameContext { frame: number, time, ends: None, encapsulations: 0 };
        let what = match frame_payload(frame.link, frame.data) {
            FramePayload::Other(what) => what,
            FramePayload::Ip(packet) => match Ip::parse(packet) {
                Ok(ip) => return self.outer(&ip, &mut context, sink),
                Err(_) => match Ip::parse_train(packet) {
                    Ok(ip) => return self.truncated(&ip, frame, &mut context, sink),
                    Err(_) if frame.data.len() < frame.original_len => "a truncated frame",
                    Err(_) => "an IP packet with a malformed header",
                },
            },
        };
        self.emit(&context, PacketReport::new(Outcome::NotIpsec { what: what.into() }), sink);
    }

    /// Returns the counts so far.
    pub fn finish(mut self) -> Summary {
        let lost = self.fragments.given_up().saturating_add(self.fragments.datagrams() as u64);
        self.summary.fragments_left = lost;
        let tallies =
            self.known.iter_mut().map(SaDecoder::finish).filter(|tally| tally.packets > 0);
        self.summary.associations = tallies.collect();
        self.summary.ike = self.ike.finish();
        self.summary
    }

    /// Returns the security protocol with this number in the configuration.
    pub(super) fn protocol(&self, number: u8) -> Option<Protocol> {
        match number {
            protocol::ESP => Some(Protocol::Esp),
            protocol::AH => Some(Protocol::Ah),
            number => self.qesp.contains(&number).then_some(Protocol::QEsp(number)),
        }
    }

    /// Decodes an IP packet as it was captured.
    fn outer(&mut self, ip: &Ip<'_>, context: &mut FrameContext, sink: &mut impl PacketSink) {
        context.ends = Some((ip.source(), ip.destination()));
        let security = self.protocol(ip.upper());
        // Extension headers may continue in a later fragment (RFC 8200, section 4.5): only the
        // whole datagram shows what follows them.
        let hidden = protocol::is_extension(ip.upper());
        let carries = [protocol::UDP, GRE].contains(&ip.upper());
        if ip.fragment().is_some() && (security.is_some() || hidden || carries) {
            return self.fragment(ip, context, sink);
        }
        if security.is_some() {
            let report = self.layers(ip.bytes(), None);
            return self.emit(context, report, sink);
        }
        let datagram =
            (ip.upper() == protocol::UDP).then(|| udp::Packet::new(ip.payload()).ok()).flatten();
        let ours = datagram.filter(|datagram| {
            let ports = [datagram.source_port(), datagram.destination_port()];
            ports.contains(&IKE)
                || ports.iter().any(|port| self.ports.binary_search(port).is_ok())
                || self.begins_with_an_spi(datagram.payload(), ip.destination())
        });
        match ours {
            Some(datagram) => self.datagram(ip, &datagram, context, sink),
            None => {
                if context.encapsulations < MAX_ENCAPSULATIONS
                    && let Some(inner) = encapsulated(ip)
                    && let Ok(inner) = Ip::parse(inner)
                {
                    context.encapsulations += 1;
                    return self.outer(&inner, context, sink);
                }
                let what = Inner::of(ip).to_string();
                self.emit(context, PacketReport::new(Outcome::NotIpsec { what }), sink);
            }
        }
    }

    /// Checks whether the SPI is that of an ESP SA to `destination`, on ports that the
    /// configuration does not name.
    fn begins_with_an_spi(&self, body: &[u8], destination: IpAddr) -> bool {
        let Ok(header) = esp::Header::read(body) else { return false };
        let found = self.by_spi.get(&(header.spi, protocol::ESP)).into_iter().flatten();
        found.map(|index| &self.known[*index].spec).any(|spec| spec.destination == destination)
    }

    /// Adds a fragment of a datagram that may be IPsec (RFC 4303, section 3.4.1).
    fn fragment(&mut self, ip: &Ip<'_>, context: &mut FrameContext, sink: &mut impl PacketSink) {
        self.now = self.now.max(context.time);
        let note = match self.fragments.push(ip, self.now) {
            Ok(Some(whole)) => {
                let whole = Ip::parse(&whole).ok().filter(|whole| whole.fragment().is_none());
                return whole.map_or((), |whole| self.outer(&whole, context, sink));
            }
            Ok(None) => None,
            Err(rejected) => Some(format!("the fragment is dropped: {rejected}")),
        };
        let notes = note.into_iter().collect();
        self.emit(context, PacketReport { notes, ..PacketReport::new(Outcome::Fragment) }, sink);
    }

    /// Decodes IKE, or ESP in UDP (RFC 3948).
    fn datagram(
        &mut self,
        ip: &Ip<'_>,
        datagram: &udp::Packet<'_>,
        context: &mut FrameContext,
        sink: &mut impl PacketSink,
    ) {
        const NON_ESP_MARKER: [u8; 4] = [0; 4];
        let ports = (datagram.source_port(), datagram.destination_port());
        let body = datagram.payload();
        let has_marker = |port| self.ports.binary_search(&port).is_ok();
        if [ports.0, ports.1].contains(&IKE) && !has_marker(ports.0) && !has_marker(ports.1) {
            return self.message(body, ports, context, sink);
        }
        if body == [0xff] {
            return self.emit(context, PacketReport::new(Outcome::Keepalive), sink);
        }
        if let Some(message) = body.strip_prefix(&NON_ESP_MARKER) {
            return self.message(message, ports, context, sink);
        }
        // The packet as it would be without UDP.
        let header = &ip.bytes()[..ip.upper_offset()];
        let packet = |body: &[u8]| rebuild(header, protocol::ESP, body);
        for segment in body.chunks(train_segment(body).unwrap_or(body.len()).max(1)) {
            let mut report = match packet(segment) {
                Some(packet) => self.layers(&packet, Some(ports)),
                None => PacketReport::new(Outcome::failed(Reason::Malformed, Vec::new())),
            };
            if segment.len() < body.len() {
                let len = body.len();
                report.notes.push(format!(
                    "part of a UDP GSO train of {len} bytes, captured on the sending host"
                ));
            }
            self.emit(context, report, sink);
        }
    }

    /// Decodes a message of IKE.
    fn message(
        &mut self,
        message: &[u8],
        ports: (u16, u16),
        context: &mut FrameContext,
        sink: &mut impl PacketSink,
    ) {
        let outcome = match self.ike.read(message, ports, context.frame) {
            Ok(message) => Outcome::Ike(Box::new(message)),
            Err(error) => {
                Outcome::NotIpsec { what: format!("a message that is no IKEv2: {error}") }
            }
        };
        self.emit(context, PacketReport::new(outcome), sink);
    }

    /// Reports a packet of which the capture has only a part.
    fn truncated(
        &mut self,
        ip: &Ip<'_>,
        frame: &Frame<'_>,
        context: &mut FrameContext,
        sink: &mut impl PacketSink,
    ) {
        context.ends = Some((ip.source(), ip.destination()));
        let outcome = match self.protocol(ip.upper()) {
            Some(_) if frame.data.len() >= frame.original_len => {
                let words = "the whole frame was captured, but the IP header has another length";
                Outcome::failed(Reason::Malformed, vec![words.into()])
            }
            Some(_) => {
                Outcome::Truncated { captured: frame.data.len(), original: frame.original_len }
            }
            None => Outcome::NotIpsec {
                what: format!("{}, truncated by the capture", protocol_name(ip.upper())),
            },
        };
        let layers = self.protocol(ip.upper()).and_then(|protocol| {
            let sealed = Sealed::new(ip.bytes(), ip, protocol, None);
            let (spi, sequence) = sealed.numbers().ok()?;
            Some(layer(&sealed, spi, sequence.into(), None))
        });
        self.emit(
            context,
            PacketReport { layers: layers.into_iter().collect(), ..PacketReport::new(outcome) },
            sink,
        );
    }

    fn emit(&mut self, context: &FrameContext, report: PacketReport, sink: &mut impl PacketSink) {
        let PacketReport { layers, outcome, notes, clear } = report;
        let summary = &mut self.summary;
        match &outcome {
            Outcome::Opened { nested, .. } => {
                summary.opened += 1;
                summary.nested += u64::from(nested.is_some());
            }
            Outcome::Dummy => summary.opened += 1,
            Outcome::Failed { .. } => summary.failed += 1,
            Outcome::Truncated { .. } => summary.truncated += 1,
            Outcome::Fragment => summary.fragments += 1,
            // IKE has counts of its own
            Outcome::Ike(_) => {}
            Outcome::Keepalive | Outcome::NotIpsec { .. } => summary.others += 1,
        }
        let (source, destination) = context.ends.unzip();
        let time = context.time.as_secs_f64();
        let FrameContext { frame, time: captured, .. } = *context;
        let packet = Packet { frame, time, captured, source, destination, layers, outcome, notes };
        sink.packet(&packet, clear.as_deref());
    }
}

/// What the reports of all packets of a frame share.
struct FrameContext {
    frame: u64,
    time: Duration,
    ends: Option<(IpAddr, IpAddr)>,
    /// The unencrypted tunnels around the packet.
    encapsulations: u32,
}

/// Returns the length of each segment, if a UDP payload is a train of ESP packets: the next segment
/// begins with the same SPI and the next sequence number.
fn train_segment(body: &[u8]) -> Option<usize> {
    /// Hosts make no trains of shorter segments.
    const SHORTEST: usize = 64;
    let header = esp::Header::read(body).ok()?;
    let mut next = [0; esp::HEADER_LEN];
    next[..4].copy_from_slice(&header.spi.to_be_bytes());
    next[4..].copy_from_slice(&header.sequence.checked_add(1)?.to_be_bytes());
    let rest = body.get(SHORTEST..)?;
    rest.windows(next.len()).position(|octets| octets == next).map(|at| at + SHORTEST)
}
