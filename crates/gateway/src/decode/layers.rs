//! Opens one security header after the other, from the outside to the packet inside.

use headroom_ipsec::{Headers, Mode, Reason, qesp};
use headroom_packet::{Ip, protocol};

use super::attempt::{Sealed, rebuild};
use super::decoder::Decoder;
use super::open::open;
use super::packet_report::{PacketReport, layer};
use super::report::{Inner, Layer, Outcome, protocol_name};
use super::sa_decoder::{Decrypted, Failure, SaDecoder};

/// The most unknown SPIs counted one by one.
const MAX_UNKNOWN: usize = 1000;

/// The most IPsec headers opened one inside the other.
const MAX_LAYERS: usize = 4;

impl Decoder {
    /// Opens an IP packet whose upper protocol is a security protocol, then the packet inside, as
    /// long as that is one too.
    pub(super) fn layers(&mut self, packet: &[u8], udp: Option<(u16, u16)>) -> PacketReport {
        let mut report = PacketReport::new(Outcome::Dummy);
        let mut packet = packet.to_vec();
        // Whether `packet` came out of a tunnel and has its own IP header.
        let mut out_of_tunnel = false;
        loop {
            let Ok(ip) = Ip::parse(&packet) else {
                report.outcome = Outcome::failed(Reason::BadInner, Vec::new());
                return report;
            };
            let deep = report.layers.len() == MAX_LAYERS || ip.fragment().is_some();
            let Some(protocol) = self.protocol(ip.upper()).filter(|_| !deep) else {
                report.outcome = Outcome::Opened { inner: Inner::of(&ip), nested: None };
                report.clear = Some(packet);
                return report;
            };
            let sealed =
                Sealed::new(&packet, &ip, protocol, udp.filter(|_| report.layers.is_empty()));
            let layers = report.layers.len();
            let opened = self.remove_header(&sealed, &mut report.layers, &mut report.notes);
            match opened {
                Ok(Some(inside)) => (packet, out_of_tunnel) = (inside.packet, inside.has_header),
                Ok(None) => return report,
                Err((reason, findings)) => {
                    let foreign = report.layers.get(layers).is_none_or(|layer| layer.sa.is_none());
                    // Another host's IPsec inside this tunnel; the tunnel was opened.
                    report.outcome = if out_of_tunnel && foreign {
                        report.notes.extend(findings);
                        Outcome::Opened { inner: Inner::of(&ip), nested: Some(reason.name()) }
                    } else {
                        Outcome::failed(reason, findings)
                    };
                    report.clear = out_of_tunnel.then_some(packet);
                    return report;
                }
            }
        }
    }

    /// Removes one header; None: a dummy packet.
    fn remove_header(
        &mut self,
        sealed: &Sealed<'_>,
        layers: &mut Vec<Layer>,
        notes: &mut Vec<String>,
    ) -> Result<Option<Inside>, Failure> {
        let (spi, low) = sealed.numbers().map_err(|reason| (reason, Vec::new()))?;
        let place = layers.len();
        layers.push(layer(sealed, spi, low.into(), None));
        let Some(index) = self.find(sealed, spi, notes) else {
            return Err((Reason::UnknownSpi, self.report_unknown_spi(sealed, spi)));
        };
        let Self { known, search, .. } = self;
        let opened = open(known, index, sealed, low, search, notes);
        let known = &mut self.known[index];
        layers[place].sa = Some(known.spec.name.clone());
        known.tally.packets += 1;
        let opened = opened.and_then(|Decrypted { next_header, payload, number }| {
            layers[place].sequence = number;
            if next_header == protocol::NO_NEXT_HEADER {
                return Ok(None);
            }
            let inside = inside(sealed, known, next_header, payload, notes)?;
            let ip = Ip::parse(&inside.packet).map_err(|_| (Reason::BadInner, Vec::new()))?;
            require_true_ports(sealed, &ip)?;
            Ok(Some(inside))
        });
        match &opened {
            Ok(_) => known.tally.opened += 1,
            Err((reason, _)) => *known.tally.failed.entry(reason.name()).or_default() += 1,
        }
        opened
    }

    /// Finds the SA of an SPI, preferring the one with the packet's destination.
    fn find(&self, sealed: &Sealed<'_>, spi: u32, notes: &mut Vec<String>) -> Option<usize> {
        let candidates = self.by_spi.get(&(spi, sealed.protocol.number()))?;
        let exact = candidates
            .iter()
            .find(|index| self.known[**index].spec.destination == sealed.destination);
        let index = *exact.or(candidates.first())?;
        let SaDecoder { spec, is_from_table: false, .. } = &self.known[index] else {
            return Some(index);
        };
        if exact.is_none() {
            notes.push(format!(
                "`{}` has this SPI, but its destination is {}: a receiver would not find the SA",
                spec.name, spec.destination
            ));
        }
        let configured = spec.udp.is_some();
        if let (Some(ports), Some((_, to))) = (spec.udp, sealed.udp)
            && ports.destination != to
        {
            notes.push(format!(
                "the packet has UDP destination port {to}, but `{}` has {}: a receiver would not get it",
                spec.name, ports.destination
            ));
        }
        if configured != sealed.udp.is_some() {
            let words = if configured {
                "has `udp`, but the packet is not in UDP"
            } else {
                "has no `udp`, but the packet is in UDP"
            };
            notes.push(format!(
                "`{}` {words}: a receiver would drop it (wrong-encapsulation)",
                spec.name
            ));
        }
        Some(index)
    }

    fn report_unknown_spi(&mut self, sealed: &Sealed<'_>, spi: u32) -> Vec<String> {
        let Self { known, summary, .. } = self;
        let name = format!("{} {spi:#x} to {}", sealed.protocol, sealed.destination);
        let counted = &mut summary.unknown;
        if counted.len() < MAX_UNKNOWN || counted.contains_key(&name) {
            *counted.entry(name).or_default() += 1;
        } else {
            *counted.entry("all further SPIs".into()).or_default() += 1;
        }
        const SHOWN: usize = 8;
        let mut findings = Vec::new();
        let named = known.iter().filter(|known| known.spec.spi == spi);
        findings.extend(named.take(SHOWN).map(|known| {
            let spec = &known.spec;
            format!(
                "`{}` has this SPI, but is {} to {}",
                spec.name,
                spec.protection.protocol(),
                spec.destination
            )
        }));
        if known.iter().any(|known| known.spec.spi == spi.swap_bytes()) {
            findings.push("an SA has this SPI with its bytes reversed: the SPI was written in the wrong byte order".into());
        }
        let same = known.iter().filter(|known| known.spec.protection.protocol() == sealed.protocol);
        let total = same.clone().count();
        let listed: Vec<String> = same
            .take(SHOWN)
            .map(|known| format!("{:#x} ({})", known.spec.spi, known.spec.name))
            .collect();
        findings.push(match total {
            0 => format!("the configuration has no SA for {}", sealed.protocol),
            _ => {
                let more = if total > SHOWN {
                    format!(" and {} more", total - SHOWN)
                } else {
                    String::new()
                };
                format!("SPIs configured for {}: {}{more}", sealed.protocol, listed.join(", "))
            }
        });
        findings
    }
}

/// A decrypted packet.
struct Inside {
    packet: Vec<u8>,
    /// Whether it has its own IP header, as in tunnel mode.
    has_header: bool,
}

/// Builds the inner IP packet.
fn inside(
    sealed: &Sealed<'_>,
    known: &SaDecoder,
    next_header: u8,
    payload: Vec<u8>,
    notes: &mut Vec<String>,
) -> Result<Inside, Failure> {
    let tunnel = matches!(next_header, protocol::IPV4 | protocol::IPV6);
    let words = match (tunnel, known.spec.mode) {
        _ if known.is_from_table => None,
        (true, Mode::Transport) => {
            Some("the payload is an IP packet, as in tunnel mode, but the SA has transport mode")
        }
        (false, Mode::Tunnel) => {
            Some("the payload is no IP packet, as in transport mode, but the SA has tunnel mode")
        }
        _ => None,
    };
    notes.extend(words.map(|words| format!("{words}: a receiver may drop it")));
    if !tunnel {
        let packet = rebuild(sealed.header, next_header, &payload);
        let packet = packet.ok_or((Reason::BadInner, Vec::new()))?;
        return Ok(Inside { packet, has_header: false });
    }
    let version = payload.first().map(|byte| byte >> 4);
    let stated = if next_header == protocol::IPV4 { 4 } else { 6 };
    if version != Some(stated) {
        let found = version.map_or("nothing".into(), |version| format!("version {version}"));
        let finding = format!("the trailer says IPv{stated}, but the packet begins with {found}");
        return Err((Reason::BadInner, vec![finding]));
    }
    Ok(Inside { packet: payload, has_header: true })
}

/// Compares the clear fields with the inner packet (docs/qesp.md, "Receiving", step 11).
fn require_true_ports(sealed: &Sealed<'_>, ip: &Ip<'_>) -> Result<(), Failure> {
    let Ok(Some(shown)) = sealed.clear() else { return Ok(()) };
    let real = qesp::Clear::of(&Headers::read(ip));
    if shown == real {
        return Ok(());
    }
    let words = |clear: qesp::Clear| {
        format!(
            "{} {}→{}",
            protocol_name(clear.protocol),
            clear.source_port,
            clear.destination_port
        )
    };
    Err((
        Reason::PortsMismatch,
        vec![format!("the clear fields say {}, but the packet is {}", words(shown), words(real))],
    ))
}
