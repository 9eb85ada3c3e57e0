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
use super::known::{Known, Search};
use super::link::{Carried, GRE, carried, encapsulated};
use super::report::{Inner, Layer, Outcome, Packet, Summary, protocol_name};
use super::said::{Said, layer};
use crate::config::Config;

/// Fragments that are kept until the others have come.
const FRAGMENTS: Limits = Limits { datagrams: 4096, octets: 64 << 20 };
/// Tunnels without encryption, one in the other, that are followed.
const MOST_ENCAPSULATIONS: u32 = 4;
/// The port of ESP in UDP (RFC 3948).
const NAT_TRAVERSAL: u16 = 4500;

/// Who is told of packets.
pub trait Audience {
    /// A packet, and where it was opened the packet that was inside.
    fn packet(&mut self, packet: &Packet, clear: Option<&[u8]>);
}

impl<F: FnMut(&Packet, Option<&[u8]>)> Audience for F {
    fn packet(&mut self, packet: &Packet, clear: Option<&[u8]>) {
        self(packet, clear);
    }
}

/// Opens packets.
#[derive(Debug)]
pub struct Decoder {
    pub(super) known: Vec<Known>,
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
            decoder.known.push(Known::new(spec).map_err(|error| format!("`{name}`: {error}"))?);
        }
        decoder.ports.sort_unstable();
        decoder.ports.dedup();
        Ok(decoder)
    }

    /// Reads a capture to its end.
    pub fn capture(
        mut self,
        mut capture: Capture<impl Read>,
        audience: &mut impl Audience,
    ) -> Summary {
        loop {
            match capture.next_frame() {
                Ok(Some(frame)) => self.frame(&frame, audience),
                Ok(None) => return self.finish(),
                Err(error) => {
                    self.summary.ended_by = Some(error.to_string());
                    return self.finish();
                }
            }
        }
    }

    /// Takes one frame.
    pub fn frame(&mut self, frame: &Frame<'_>, audience: &mut impl Audience) {
        self.summary.frames += 1;
        let (number, time) = (frame.number, frame.time);
        let mut told = Told { frame: number, time, ends: None, encapsulations: 0 };
        let what = match carried(frame.link, frame.data) {
            Carried::Other(what) => what,
            Carried::Ip(packet) => match Ip::parse(packet) {
                Ok(ip) => return self.outer(&ip, &mut told, audience),
                Err(_) => match Ip::parse_train(packet) {
                    Ok(ip) => return self.cut(&ip, frame, &mut told, audience),
                    Err(_) if frame.data.len() < frame.original_len => "a frame that is cut short",
                    Err(_) => "an IP packet with a malformed header",
                },
            },
        };
        self.tell(&told, Said::bare(Outcome::NotIpsec { what: what.into() }), audience);
    }

    /// What became of all packets so far.
    pub fn finish(mut self) -> Summary {
        let lost = self.fragments.given_up().saturating_add(self.fragments.datagrams() as u64);
        self.summary.fragments_left = lost;
        let tallies = self.known.iter_mut().map(Known::finish).filter(|tally| tally.packets > 0);
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
    fn outer(&mut self, ip: &Ip<'_>, told: &mut Told, audience: &mut impl Audience) {
        told.ends = Some((ip.source(), ip.destination()));
        let security = self.protocol(ip.upper());
        // extension headers may stand in the part that is cut (RFC 8200, section
        // 4.5): what is behind them only the whole datagram shows
        let hidden = protocol::is_extension(ip.upper());
        let carries = [protocol::UDP, GRE].contains(&ip.upper());
        if ip.fragment().is_some() && (security.is_some() || hidden || carries) {
            return self.fragment(ip, told, audience);
        }
        if security.is_some() {
            let said = self.layers(ip.bytes(), None);
            return self.tell(told, said, audience);
        }
        let datagram =
            (ip.upper() == protocol::UDP).then(|| udp::Packet::new(ip.payload()).ok()).flatten();
        let ours = datagram.filter(|datagram| {
            let ports = [datagram.source_port(), datagram.destination_port()];
            ports.iter().any(|port| self.ports.binary_search(port).is_ok())
                || self.begins_with_an_spi(datagram.payload(), ip.destination())
        });
        match ours {
            Some(datagram) => self.datagram(ip, &datagram, told, audience),
            None => {
                if told.encapsulations < MOST_ENCAPSULATIONS
                    && let Some(inner) = encapsulated(ip)
                    && let Ok(inner) = Ip::parse(inner)
                {
                    told.encapsulations += 1;
                    return self.outer(&inner, told, audience);
                }
                let what = Inner::of(ip).to_string();
                self.tell(told, Said::bare(Outcome::NotIpsec { what }), audience);
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
    fn fragment(&mut self, ip: &Ip<'_>, told: &mut Told, audience: &mut impl Audience) {
        self.now = self.now.max(told.time);
        let note = match self.fragments.push(ip, self.now) {
            Ok(Some(whole)) => {
                let whole = Ip::parse(&whole).ok().filter(|whole| whole.fragment().is_none());
                return whole.map_or((), |whole| self.outer(&whole, told, audience));
            }
            Ok(None) => None,
            Err(rejected) => Some(format!("it is dropped: {rejected}")),
        };
        let notes = note.into_iter().collect();
        self.tell(told, Said { notes, ..Said::bare(Outcome::Fragment) }, audience);
    }

    /// ESP in UDP (RFC 3948).
    fn datagram(
        &mut self,
        ip: &Ip<'_>,
        datagram: &udp::Packet<'_>,
        told: &mut Told,
        audience: &mut impl Audience,
    ) {
        const NON_ESP_MARKER: [u8; 4] = [0; 4];
        let ports = (datagram.source_port(), datagram.destination_port());
        let body = datagram.payload();
        if body == [0xff] {
            return self.tell(told, Said::bare(Outcome::Keepalive), audience);
        }
        if body.starts_with(&NON_ESP_MARKER) {
            return self.tell(told, Said::bare(Outcome::Ike), audience);
        }
        // as it would be without UDP
        let header = &ip.bytes()[..ip.upper_offset()];
        let packet = |body: &[u8]| rebuild(header, protocol::ESP, body);
        for segment in body.chunks(train_segment(body).unwrap_or(body.len()).max(1)) {
            let mut said = match packet(segment) {
                Some(packet) => self.layers(&packet, Some(ports)),
                None => Said::bare(Outcome::failed(Reason::Malformed, Vec::new())),
            };
            if segment.len() < body.len() {
                let octets = body.len();
                said.notes.push(format!("one of a train of {octets} octets, as a host captures what it sends with UDP GSO"));
            }
            self.tell(told, said, audience);
        }
    }

    /// A packet of which the capture has a part.
    fn cut(
        &mut self,
        ip: &Ip<'_>,
        frame: &Frame<'_>,
        told: &mut Told,
        audience: &mut impl Audience,
    ) {
        told.ends = Some((ip.source(), ip.destination()));
        let outcome = match self.protocol(ip.upper()) {
            Some(_) if frame.data.len() >= frame.original_len => {
                let words = "the frame was captured whole, and the IP header says another length";
                Outcome::failed(Reason::Malformed, vec![words.into()])
            }
            Some(_) => Outcome::Cut { captured: frame.data.len(), original: frame.original_len },
            None => Outcome::NotIpsec {
                what: format!("{}, cut by the capture", protocol_name(ip.upper())),
            },
        };
        let layers = self.protocol(ip.upper()).and_then(|protocol| {
            let sealed = Sealed::new(ip.bytes(), ip, protocol, None);
            let (spi, sequence) = sealed.numbers().ok()?;
            Some(layer(&sealed, spi, sequence.into(), None))
        });
        self.tell(
            told,
            Said { layers: layers.into_iter().collect(), ..Said::bare(outcome) },
            audience,
        );
    }

    fn tell(&mut self, told: &Told, said: Said, audience: &mut impl Audience) {
        let Said { layers, outcome, notes, clear } = said;
        let summary = &mut self.summary;
        match &outcome {
            Outcome::Opened { nested, .. } => {
                summary.opened += 1;
                summary.nested += u64::from(nested.is_some());
            }
            Outcome::Dummy => summary.opened += 1,
            Outcome::Failed { .. } => summary.failed += 1,
            Outcome::Cut { .. } => summary.cut += 1,
            Outcome::Fragment => summary.fragments += 1,
            Outcome::Ike | Outcome::Keepalive | Outcome::NotIpsec { .. } => summary.others += 1,
        }
        let (source, destination) = told.ends.unzip();
        let time = told.time.as_secs_f64();
        let Told { frame, time: captured, .. } = *told;
        let packet = Packet { frame, time, captured, source, destination, layers, outcome, notes };
        audience.packet(&packet, clear.as_deref());
    }
}

/// What is said of every packet of a frame.
struct Told {
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
