//! Opens captured packets, whatever carries them: frames, fragments, UDP, trains.

use std::collections::HashMap;
use std::io::Read;
use std::net::IpAddr;
use std::time::Duration;

use headroom_ipsec::{Protocol, Reason, esp};
use headroom_packet::fragment::{Limits, Reassembler};
use headroom_packet::{Ip, protocol, udp};

use super::attempt::{Sealed, rebuild};
use super::capture::{Capture, Frame};
use super::link::{FramePayload, GRE, encapsulated, frame_payload};
use super::packet_report::{PacketReport, layer};
use super::report::{Inner, Outcome, Packet, Summary, protocol_name};
use super::sa_decoder::{SaDecoder, Search};
use crate::config::Config;

/// Fragments that are kept until the others have come.
const FRAGMENTS: Limits = Limits { datagrams: 4096, octets: 64 << 20 };
/// Tunnels without encryption, one in the other, that are followed.
const MAX_ENCAPSULATIONS: u32 = 4;
/// The port of ESP in UDP (RFC 3948).
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

/// Opens captured packets with the keys of a configuration.
#[derive(Debug)]
pub struct Decoder {
    pub(super) known: Vec<SaDecoder>,
    pub(super) search: Search,
    /// By SPI and protocol number; several differ in their destination.
    pub(super) by_spi: HashMap<(u32, u8), Vec<usize>>,
    qesp: Vec<u8>,
    /// Ports of ESP in UDP.
    ports: Vec<u16>,
    fragments: Reassembler,
    /// The latest time of a frame: the clock of the fragments.
    now: Duration,
    pub(super) summary: Summary,
}

impl Decoder {
    /// Makes the keys of a configuration ready.
    ///
    /// # Errors
    /// A key that its suite refuses, with the association's name.
    pub fn new(config: Config, search: Search) -> Result<Self, String> {
        let mut decoder = Self {
            known: Vec::new(),
            search,
            by_spi: HashMap::new(),
            qesp: Vec::new(),
            ports: vec![NAT_TRAVERSAL],
            fragments: Reassembler::new(FRAGMENTS),
            now: Duration::ZERO,
            summary: Summary::default(),
        };
        for association in config.associations {
            let spec = association.spec;
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
            decoder.known.push(SaDecoder::new(spec).map_err(|error| format!("`{name}`: {error}"))?);
        }
        decoder.ports.sort_unstable();
        decoder.ports.dedup();
        Ok(decoder)
    }

    /// Reads a capture to its end.
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

    /// Takes one frame.
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
                    Err(_) if frame.data.len() < frame.original_len => "a frame that is cut short",
                    Err(_) => "an IP packet with a malformed header",
                },
            },
        };
        self.emit(&context, PacketReport::new(Outcome::NotIpsec { what: what.into() }), sink);
    }

    /// What became of all packets so far.
    pub fn finish(mut self) -> Summary {
        let lost = self.fragments.given_up().saturating_add(self.fragments.datagrams() as u64);
        self.summary.fragments_left = lost;
        let tallies =
            self.known.iter_mut().map(SaDecoder::finish).filter(|tally| tally.packets > 0);
        self.summary.associations = tallies.collect();
        self.summary
    }

    /// The security protocol of this number, as the configuration has it.
    pub(super) fn protocol(&self, number: u8) -> Option<Protocol> {
        match number {
            protocol::ESP => Some(Protocol::Esp),
            protocol::AH => Some(Protocol::Ah),
            number => self.qesp.contains(&number).then_some(Protocol::QEsp(number)),
        }
    }

    /// A packet as it was captured.
    fn outer(&mut self, ip: &Ip<'_>, context: &mut FrameContext, sink: &mut impl PacketSink) {
        context.ends = Some((ip.source(), ip.destination()));
        let security = self.protocol(ip.upper());
        // extension headers may stand in the part that is cut (RFC 8200, section
        // 4.5): what is behind them only the whole datagram shows
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
            ports.iter().any(|port| self.ports.binary_search(port).is_ok())
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

    /// Whether this is ESP of an association to `destination`, as far as its SPI
    /// says, on ports that the configuration does not name.
    fn begins_with_an_spi(&self, body: &[u8], destination: IpAddr) -> bool {
        let Ok(header) = esp::Header::read(body) else { return false };
        let found = self.by_spi.get(&(header.spi, protocol::ESP)).into_iter().flatten();
        found.map(|index| &self.known[*index].spec).any(|spec| spec.destination == destination)
    }

    /// A fragment of what may be IPsec (RFC 4303, section 3.4.1).
    fn fragment(&mut self, ip: &Ip<'_>, context: &mut FrameContext, sink: &mut impl PacketSink) {
        self.now = self.now.max(context.time);
        let note = match self.fragments.push(ip, self.now) {
            Ok(Some(whole)) => {
                let whole = Ip::parse(&whole).ok().filter(|whole| whole.fragment().is_none());
                return whole.map_or((), |whole| self.outer(&whole, context, sink));
            }
            Ok(None) => None,
            Err(rejected) => Some(format!("it is dropped: {rejected}")),
        };
        let notes = note.into_iter().collect();
        self.emit(context, PacketReport { notes, ..PacketReport::new(Outcome::Fragment) }, sink);
    }

    /// ESP in UDP (RFC 3948).
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
        if body == [0xff] {
            return self.emit(context, PacketReport::new(Outcome::Keepalive), sink);
        }
        if body.starts_with(&NON_ESP_MARKER) {
            return self.emit(context, PacketReport::new(Outcome::Ike), sink);
        }
        // as it would be without UDP
        let header = &ip.bytes()[..ip.upper_offset()];
        let packet = |body: &[u8]| rebuild(header, protocol::ESP, body);
        for segment in body.chunks(train_segment(body).unwrap_or(body.len()).max(1)) {
            let mut report = match packet(segment) {
                Some(packet) => self.layers(&packet, Some(ports)),
                None => PacketReport::new(Outcome::failed(Reason::Malformed, Vec::new())),
            };
            if segment.len() < body.len() {
                let octets = body.len();
                report.notes.push(format!("one of a train of {octets} octets, as a host captures what it sends with UDP GSO"));
            }
            self.emit(context, report, sink);
        }
    }

    /// A packet of which the capture has a part.
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
                let words = "the frame was captured whole, and the IP header says another length";
                Outcome::failed(Reason::Malformed, vec![words.into()])
            }
            Some(_) => {
                Outcome::Truncated { captured: frame.data.len(), original: frame.original_len }
            }
            None => Outcome::NotIpsec {
                what: format!("{}, cut by the capture", protocol_name(ip.upper())),
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
            Outcome::Ike | Outcome::Keepalive | Outcome::NotIpsec { .. } => summary.others += 1,
        }
        let (source, destination) = context.ends.unzip();
        let time = context.time.as_secs_f64();
        let FrameContext { frame, time: captured, .. } = *context;
        let packet = Packet { frame, time, captured, source, destination, layers, outcome, notes };
        sink.packet(&packet, clear.as_deref());
    }
}

/// What is said of every packet of a frame.
struct FrameContext {
    frame: u64,
    time: Duration,
    ends: Option<(IpAddr, IpAddr)>,
    /// Tunnels without encryption around it.
    encapsulations: u32,
}

/// Octets of each segment, where a UDP payload is a train of ESP packets: the
/// next one begins with the same SPI and the next number.
fn train_segment(body: &[u8]) -> Option<usize> {
    /// Below this nobody makes a train.
    const SHORTEST: usize = 64;
    let header = esp::Header::read(body).ok()?;
    let mut next = [0; esp::HEADER_LEN];
    next[..4].copy_from_slice(&header.spi.to_be_bytes());
    next[4..].copy_from_slice(&header.sequence.checked_add(1)?.to_be_bytes());
    let rest = body.get(SHORTEST..)?;
    rest.windows(next.len()).position(|octets| octets == next).map(|at| at + SHORTEST)
}
