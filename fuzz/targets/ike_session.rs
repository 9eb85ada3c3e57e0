//! Any bytes as what an authenticated peer sends: payloads of requests and of responses, sealed with
//! the keys of the IKE SA.
#![no_main]

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use headroom_ike::crypto::{IkeKeys, Protector, Random, Sealer, Spis};
use headroom_ike::wire::{ExchangeType, Header, Message, PayloadType, TrafficSelector};
use headroom_ike::{
    Auth, ChildConfig, ChildProposal, Command, Config, Connection, Endpoint, Event, Identity,
    IkeProposal, Mode, PostQuantum, VirtualAddresses,
};
use headroom_suite::Key;
use libfuzzer_sys::fuzz_target;

struct Counter(u64);

impl Random for Counter {
    fn fill(&mut self, bytes: &mut [u8]) {
        self.0 += 1;
        // SPIs of CHILD SAs are above 255
        bytes.fill(7);
        let count = self.0.to_le_bytes();
        let len = bytes.len().min(3);
        bytes[..len].copy_from_slice(&count[..len]);
    }
}

struct Host {
    endpoint: Endpoint,
    address: SocketAddr,
    keys: Option<(Spis, Box<IkeKeys>)>,
    children: BTreeSet<headroom_ike::ChildId>,
    session: Option<headroom_ike::SessionId>,
}

impl Host {
    fn new(own: u8, other: u8, now: Instant) -> Self {
        let network = |last| vec![TrafficSelector::network(IpAddr::from([10, 0, last, 0]), 24)];
        let child = ChildConfig {
            name: "net".to_owned(),
            local: network(own),
            remote: network(other),
            mode: Mode::Tunnel,
            proposals: ChildProposal::default_offer(PostQuantum::Off),
            qesp: None,
            rekey: None,
            per_resource: 0,
        };
        let connection = Connection {
            name: "peer".to_owned(),
            local: Identity::from_text("host"),
            remote: None,
            remote_address: None,
            auth: Auth::shared_key(&Key::from_bytes(b"secret")),
            ike: IkeProposal::default_offer(PostQuantum::Off),
            ppk: None,
            mobike: true,
            virtual_addresses: VirtualAddresses::None,
            children: vec![Arc::new(child)],
            rekey: None,
            reauthenticate: None,
            liveness: None,
        };
        let mut config = Config::new(vec![connection]);
        config.export_keys = true;
        Self {
            endpoint: Endpoint::new(config, Box::new(Counter(u64::from(own) << 16)), now),
            address: SocketAddr::from(([192, 0, 2, own], 500)),
            keys: None,
            children: BTreeSet::new(),
            session: None,
        }
    }

    /// Follows the events; each CHILD SA is installed and removed once.
    fn follow(&mut self) {
        while let Some(event) = self.endpoint.event() {
            match event {
                Event::Keys { spis, keys, .. } if self.keys.is_none() => {
                    self.keys = Some((spis, keys));
                }
                Event::Established { session, .. } => self.session = Some(session),
                Event::Install(child) => assert!(self.children.insert(child.child)),
                Event::Switch(child) | Event::StopSending(child) => {
                    assert!(self.children.contains(&child));
                }
                Event::Remove(child) => assert!(self.children.remove(&child)),
                _ => {}
            }
        }
    }
}

fuzz_target!(|bytes: &[u8]| {
    let now = Instant::now();
    let [mut a, mut b] = [Host::new(1, 2, now), Host::new(2, 1, now)];
    a.endpoint.connect("peer", a.address, b.address, now).expect("a connection");
    for _ in 0..2 {
        while let Some(sent) = a.endpoint.transmit() {
            b.endpoint.handle(&sent.datagram, sent.from, sent.to, now);
        }
        while let Some(sent) = b.endpoint.transmit() {
            a.endpoint.handle(&sent.datagram, sent.from, sent.to, now);
        }
        a.follow();
        b.follow();
    }
    let (spis, keys) = a.keys.take().expect("keys");
    let protector = |key: &Key| Protector::new(keys.suite, key, &Key::from_bytes(&[]));
    let mut sealer = Sealer::new(protector(&keys.sk_ei).expect("an AEAD"));
    let (mut next, mut now) = (2, now);
    let mut rest = bytes;
    // [what][first payload][length][payloads]
    while let Some((&[what, first, length], tail)) = rest.split_first_chunk() {
        let (inner, tail) = tail.split_at(tail.len().min(4 * usize::from(length)));
        rest = tail;
        let session = b.session.expect("a session");
        match what >> 4 {
            1 => drop(b.endpoint.command(&Command::Rekey(session), now)),
            2 => {
                let oldest = b.children.first().copied();
                oldest.map(|child| b.endpoint.command(&Command::RekeyChild(child), now));
            }
            3 => drop(b.endpoint.command(&Command::CreateChild(session, "net".to_owned()), now)),
            4 => {
                now += Duration::from_secs(1 << (length % 8));
                b.endpoint.poll(now);
            }
            _ => {}
        }
        let exchange = match what & 7 {
            0 => ExchangeType::Informational,
            1 => ExchangeType::IkeFollowupKe,
            2 => ExchangeType::IkeAuth,
            3 => ExchangeType::IkeIntermediate,
            _ => ExchangeType::CreateChildSa,
        };
        let mut header = Header {
            spi_initiator: spis.initiator,
            spi_responder: spis.responder,
            exchange,
            from_initiator: true,
            response: what & 8 != 0,
            message_id: next,
        };
        let asked = std::iter::from_fn(|| b.endpoint.transmit()).last();
        if header.response {
            // of what it asked last
            let Some(asked) =
                asked.and_then(|one| Some(Message::parse(&one.datagram).ok()?.header))
            else {
                continue;
            };
            (header.exchange, header.message_id) = (asked.exchange, asked.message_id);
        } else {
            next += 1;
        }
        let max = (what & 0x80 != 0).then_some(600);
        let sealed = sealer.seal(&header, PayloadType::from(first), inner, max, &mut Counter(0));
        for datagram in sealed {
            b.endpoint.handle(&datagram, a.address, b.address, now);
        }
        b.follow();
        assert!(b.endpoint.sessions() <= 1 && b.endpoint.half_open() == 0);
        assert!(b.children.len() <= 32 + 2);
    }
    let mut answered = 0;
    while let Some(answer) = b.endpoint.transmit() {
        answered += answer.datagram.len();
    }
    assert!(answered < 64 * 1024);
    // all timers end
    for _ in 0..400 {
        let Some(next) = b.endpoint.next_deadline() else { break };
        now = now.max(next);
        b.endpoint.poll(now);
        while b.endpoint.transmit().is_some() {}
        b.follow();
    }
    assert!(b.endpoint.sessions() == 0 && b.children.is_empty(), "nobody answers: it is given up");
});
