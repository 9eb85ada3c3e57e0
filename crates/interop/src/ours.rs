//! Implements our side of a case: an engine with its associations and one policy.

use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use headroom_ipsec::spec::{
    self, Action, Addresses, Direction, DontFragment, Dscp, Lifetime, Mode, Padding, PolicySpec,
    Ports, SaSpec, Secrets, Selector, UdpPorts,
};
use headroom_ipsec::{Engine, FlowCache, Headers, OpenScratch, Outer, Policy, Reason, Verdict};
use headroom_packet::ip::Ip;

use crate::case::{Association, Case, Guard, Side, UDP_PORT};
use crate::ping;

const UDP: u8 = 17;
const UDP_HEADER_LEN: usize = 8;
/// Bytes of a buffer, longer than any packet here.
const ROOM: usize = 4096;

/// An engine for one case.
#[derive(Debug)]
pub struct Ours {
    engine: Engine,
    cache: FlowCache,
}

impl Ours {
    /// Makes the case's engine, whose next sequence numbers are `first` in both directions.
    ///
    /// # Errors
    /// The engine's error.
    pub fn new(case: &Case, first: u64) -> Result<Self> {
        Self::padded(case, first, Padding::None)
    }

    /// Makes an engine that pads against traffic analysis.
    ///
    /// # Errors
    /// The engine's error.
    pub fn padded(case: &Case, first: u64, padding: Padding) -> Result<Self> {
        let mut associations = Vec::new();
        let mut names = [Vec::new(), Vec::new()];
        for (way, from) in [Side::Ours, Side::Theirs].into_iter().enumerate() {
            for sa in case.associations(from) {
                let spec = SaSpec { padding, ..spec(case, sa)? };
                names[way].push(spec.name.clone());
                associations.push(spec);
            }
        }
        let [out, inbound] = names;
        let only = |side| {
            let address = case.inner_address(side);
            Addresses::Range(address, address)
        };
        let policy = PolicySpec {
            name: "peer".to_owned(),
            selector: Selector {
                local: only(Side::Ours),
                remote: only(Side::Theirs),
                protocol: None,
                local_port: Ports::Any,
                remote_port: Ports::Any,
                icmp: None,
            },
            action: Action::Protect { out, inbound },
        };
        let engine = Engine::new(associations, vec![policy], None, Duration::ZERO)?;
        for sa in engine.associations() {
            sa.sequence().skip_to(first);
            sa.sequence().grant(first + 1000);
            if first > 1 {
                sa.accepted_up_to(first - 1);
            }
        }
        let cache = FlowCache::default();
        Ok(Self { engine, cache })
    }

    /// Protects a packet and returns the outer IP packet.
    ///
    /// # Errors
    /// The engine rejects it.
    pub fn seal(&mut self, packet: &[u8]) -> Result<Vec<u8>> {
        let ip = Ip::parse(packet)?;
        let headers = Headers::read(&ip);
        let bundle = match self.engine.decide(&headers, &mut self.cache) {
            Verdict::Protect(_, bundle) => bundle,
            other => bail!("our policy does not protect it: {other:?}"),
        };
        let mut reservation = bundle.reserve(1, packet.len() as u64)?;
        let mut out = vec![0; ROOM];
        let write = |room: &mut [u8]| room.copy_from_slice(packet);
        let length = bundle.seal(&mut reservation, &headers, packet.len(), &mut out, write)?;
        out.truncate(length);
        if bundle.udp().is_some() {
            ping::sum_udp(&mut out);
        }
        Ok(out)
    }

    /// Makes a dummy packet to the peer, as long as a packet of `len` bytes.
    ///
    /// # Errors
    /// The engine rejects it.
    pub fn dummy(&mut self, len: usize) -> Result<Vec<u8>> {
        let bundles = self.engine.policies().iter().flat_map(Policy::bundles);
        let bundle = bundles.into_iter().next().context("no bundle")?;
        let mut reservation = bundle.reserve(1, 0)?;
        let mut out = vec![0; ROOM];
        let length = bundle.seal_dummy(&mut reservation, len, &mut out)?;
        out.truncate(length);
        Ok(out)
    }

    /// Opens an outer IP packet as a gateway does. For ESP in UDP there is no header
    /// to keep: the socket removes it.
    ///
    /// # Errors
    /// The engine's reason.
    pub fn open(&self, packet: &[u8]) -> Result<Vec<u8>, Reason> {
        let ip = Ip::parse(packet).map_err(|_| Reason::Malformed)?;
        let packet = ip.bytes();
        let (number, at) = (ip.upper(), ip.upper_offset());
        let mut outer = Outer {
            source: ip.source(),
            destination: ip.destination(),
            tos: ip.tos(),
            header: &packet[..at],
            udp: None,
        };
        let mut body = packet[at..].to_vec();
        let mut protocol = number;
        if number == UDP {
            outer.header = &[];
            outer.udp = ip.ports();
            body.drain(..UDP_HEADER_LEN.min(body.len()));
            protocol = spec::ESP;
        }
        let mut room = OpenScratch::default();
        let opened = self.engine.open(&outer, protocol, &mut body, &mut room)?;
        Ok([opened.header, &body[opened.payload]].concat())
    }
}

fn spec(case: &Case, sa: Association) -> Result<SaSpec> {
    let (direction, way, to) = match sa.from {
        Side::Ours => (Direction::Out, "out", Side::Theirs),
        Side::Theirs => (Direction::In, "in", Side::Ours),
    };
    let key = sa.guard.key();
    let (protocol, protection) = match sa.guard {
        Guard::Esp(suite, _, mac_key) => {
            let mac_key = (!mac_key.is_empty()).then(|| headroom_suite::Key::from_bytes(&mac_key));
            ("esp", spec::Protection::Esp(Secrets { suite, key, mac_key }))
        }
        Guard::Ah(mac, _) => ("ah", spec::Protection::Ah { mac, key }),
    };
    Ok(SaSpec {
        name: format!("{protocol}-{way}"),
        direction,
        mode: sa.mode,
        spi: sa.spi,
        source: case.outer_address(sa.from),
        destination: case.outer_address(to),
        protection,
        extended_sequence: case.extended,
        window: 128,
        lifetime: Lifetime::default(),
        udp: case.udp.then_some(UdpPorts { source: UDP_PORT, destination: UDP_PORT }),
        follow_peer: false,
        peer_group: 0,
        dscp: Dscp::Copy,
        ecn: true,
        dont_fragment: DontFragment::Copy,
        padding: Padding::None,
        classes: u64::MAX,
        queue: None,
        ah_alignment: case.ah_alignment,
    })
}

/// Checks a packet that was in UDP in transport mode: payload and addresses must be
/// unchanged, under a rebuilt header.
///
/// # Errors
/// Describes the difference.
pub fn same_apart_from_header(packet: &[u8], original: &[u8]) -> Result<()> {
    let [one, other] = [packet, original].map(Ip::parse);
    let (one, other) = (one?, other?);
    let about = |ip: &Ip<'_>| (ip.source(), ip.destination(), ip.upper());
    if about(&one) != about(&other) {
        return Err(anyhow!("its header says {:?}, not {:?}", about(&one), about(&other)));
    }
    if one.payload() != other.payload() {
        bail!("its payload is another one");
    }
    Ok(())
}

/// Tells whether encapsulation in UDP removed a header.
pub fn header_is_made_anew(case: &Case) -> bool {
    case.udp && case.mode == Mode::Transport
}
