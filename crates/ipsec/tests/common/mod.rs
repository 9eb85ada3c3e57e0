//! Two engines that are each other's peer, and packets to send between them.
#![allow(dead_code, unreachable_pub)]

use std::net::IpAddr;
use std::time::Duration;

use headroom_ipsec::spec::{Action, Direction, Mode, Padding, Protection, Secrets, Selector};
use headroom_ipsec::{
    Engine, FlowCache, Headers, OpenScratch, Opened, Outer, PolicySpec, Reason, SaSpec, Verdict,
};
use headroom_packet::ip::Ip;
use headroom_suite::{Key, Mac, Suite};

/// How the two are joined.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    pub kind: Kind,
    pub mode: Mode,
    pub suite: Suite,
    pub mac: Mac,
    pub outer_v6: bool,
    pub extended: bool,
    pub udp: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Esp,
    Ah,
    AhEsp,
    QEsp,
}

/// The ends' outer addresses.
pub fn ends(v6: bool) -> (IpAddr, IpAddr) {
    if v6 {
        ("fd00::1".parse().expect("an address"), "fd00::2".parse().expect("an address"))
    } else {
        ("192.0.2.1".parse().expect("an address"), "192.0.2.2".parse().expect("an address"))
    }
}

pub fn key(len: usize, seed: u8) -> Key {
    Key::from_bytes(&(0..len).map(|n| seed.wrapping_add(n as u8 * 37)).collect::<Vec<_>>())
}

impl Shape {
    pub fn esp(suite: Suite) -> Self {
        Self {
            kind: Kind::Esp,
            mode: Mode::Tunnel,
            suite,
            mac: Mac::HmacSha256,
            outer_v6: false,
            extended: true,
            udp: false,
        }
    }

    fn secrets(&self) -> Secrets {
        let mac_key = match self.suite {
            Suite::Aead(_) => None,
            Suite::Separate(..) => Some(key(self.suite.mac_key_len(), 3)),
        };
        Secrets { suite: self.suite, key: key(self.suite.key_len(), 1), mac_key }
    }

    /// Associations from the first end to the second, as one of them has them.
    pub fn associations(&self, direction: Direction) -> Vec<SaSpec> {
        let ends = ends(self.outer_v6);
        let make = |name: &str, mode, spi, protection| {
            let mut sa = SaSpec::new(name, direction, mode, spi, ends, protection);
            sa.extended_sequence = self.extended;
            sa
        };
        let ah = |mode| {
            let protection = Protection::Ah { mac: self.mac, key: key(self.mac.key_len(), 9) };
            make("ah", mode, 0x2000, protection)
        };
        let mut cipher = match self.kind {
            Kind::QEsp => {
                let protection = Protection::QEsp { number: 253, secrets: self.secrets() };
                make("esp", self.mode, 0x1000, protection)
            }
            _ => make("esp", self.mode, 0x1000, Protection::Esp(self.secrets())),
        };
        cipher.udp =
            self.udp.then_some(headroom_ipsec::spec::UdpPorts { source: 4500, destination: 4500 });
        match self.kind {
            Kind::Esp | Kind::QEsp => vec![cipher],
            Kind::Ah => vec![ah(self.mode)],
            Kind::AhEsp => vec![cipher, ah(Mode::Transport)],
        }
    }

    fn names(&self) -> Vec<String> {
        self.associations(Direction::Out).into_iter().map(|sa| sa.name).collect()
    }

    pub fn sender(&self) -> Engine {
        let action = Action::Protect { out: self.names(), inbound: Vec::new() };
        engine(self.associations(Direction::Out), action)
    }

    pub fn receiver(&self) -> Engine {
        let action = Action::Protect { out: Vec::new(), inbound: self.names() };
        engine(self.associations(Direction::In), action)
    }
}

pub fn engine(associations: Vec<SaSpec>, action: Action) -> Engine {
    let policy = PolicySpec { name: "all".into(), selector: Selector::ANY, action };
    let engine = Engine::new(associations, vec![policy], None, Duration::ZERO).expect("an engine");
    for sa in engine.associations() {
        sa.sequence().grant(u64::MAX);
    }
    engine
}

/// Protects a packet.
pub fn seal(engine: &Engine, packet: &[u8]) -> Result<Vec<u8>, Reason> {
    let headers = Headers::read(&Ip::parse(packet).expect("a good packet"));
    let bundle = match engine.decide(&headers, &mut FlowCache::default()) {
        Verdict::Protect(_, bundle) => bundle,
        Verdict::Bypass(_) => return Ok(packet.to_vec()),
        Verdict::Discard(_, reason) => return Err(reason),
    };
    let mut reservation = bundle.reserve(1, packet.len() as u64)?;
    let mut out = vec![0xee; 70_000];
    let write = |room: &mut [u8]| room.copy_from_slice(packet);
    let len = bundle.seal(&mut reservation, &headers, packet.len(), &mut out, write)?;
    let least = bundle.sealed_len(packet.len(), headers.security_offset);
    let padded = bundle.associations().any(|sa| sa.spec().padding != Padding::None);
    assert!(len == least || (padded && len > least), "{len} bytes, at least {least}");
    out.truncate(len);
    Ok(out)
}

/// Opens a whole outer packet and returns the packet in it.
pub fn open(engine: &Engine, packet: &[u8]) -> Result<Vec<u8>, Reason> {
    open_with(engine, packet, |opened, body| {
        [opened.header, &body[opened.payload.clone()]].concat()
    })
}

pub fn open_with<T>(
    engine: &Engine,
    packet: &[u8],
    then: impl FnOnce(&Opened<'_>, &[u8]) -> T,
) -> Result<T, Reason> {
    let ip = Ip::parse(packet).map_err(|_| Reason::Malformed)?;
    let (header, rest) = packet[..ip.total_len()].split_at(ip.upper_offset());
    let mut outer = Outer {
        source: ip.source(),
        destination: ip.destination(),
        tos: ip.tos(),
        header,
        udp: None,
    };
    let (mut protocol, mut body) = (ip.upper(), rest.to_vec());
    if protocol == 17 {
        outer.udp = ip.ports();
        outer.header = &[];
        protocol = 50;
        body.drain(..8.min(body.len()));
    }
    let mut room = OpenScratch::default();
    let opened = engine.open(&outer, protocol, &mut body, &mut room)?;
    Ok(then(&opened, &body))
}
