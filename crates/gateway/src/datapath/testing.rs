//! A TUN and a wire that exist in memory only, and two gateways on it.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use headroom_ipsec::spec::{
    Action, Direction, Mode, Protection, Protocol, SaSpec, Secrets, Selector, UdpPorts,
};
use headroom_ipsec::{Engine, PolicySpec};
use headroom_netio::udp::Train;
use headroom_netio::{Inbox, Received};
use headroom_packet::offload::SHORT_LEN;
use headroom_packet::{Offload, ip, udp};
use headroom_suite::{Key, Suite};

use super::device::{SocketKind, TunDevice, WireRx, WireTx};
use super::inbound::Inbound;
use super::outbound::Outbound;
use super::paths::Paths;
use super::tracer::Tracer;
use super::{Settings, Shared};

pub(super) const PATH_MTU: usize = 1500;

/// A packet or train that was written to a TUN.
pub(super) type Written = (Offload, Vec<u8>);

/// A TUN: what the host wrote and has not been read, what it is to receive.
#[derive(Debug, Clone, Default)]
pub(super) struct FakeTun {
    pub(super) from_host: Arc<Mutex<VecDeque<Vec<u8>>>>,
    pub(super) to_host: Arc<Mutex<Vec<Written>>>,
}

impl FakeTun {
    /// The host sends this packet.
    pub(super) fn send(&self, offload: Offload, packet: &[u8]) {
        let mut octets = offload.encode()[..SHORT_LEN].to_vec();
        octets.extend_from_slice(packet);
        lock(&self.from_host).push_back(octets);
    }

    /// What the host has received since the last call.
    pub(super) fn received(&self) -> Vec<Written> {
        std::mem::take(&mut *lock(&self.to_host))
    }
}

impl TunDevice for FakeTun {
    fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let Some(packet) = lock(&self.from_host).pop_front() else { return Ok(0) };
        buffer[..packet.len()].copy_from_slice(&packet);
        Ok(packet.len())
    }

    fn write(&self, offload: &Offload, parts: &[IoSlice<'_>]) -> io::Result<()> {
        let packet = parts.iter().flat_map(|part| part.to_vec()).collect();
        lock(&self.to_host).push((*offload, packet));
        Ok(())
    }

    fn takes_udp_trains(&self) -> bool {
        true
    }

    fn wait_on(&self) -> Option<&dyn AsFd> {
        None
    }
}

/// What is on the wire.
#[derive(Debug, Clone)]
pub(super) enum Sent {
    /// One train: local port, destination, DSCP and ECN, datagrams.
    Datagrams(u16, SocketAddr, u8, Vec<Vec<u8>>),
    /// One whole IP packet.
    Packet(Vec<u8>),
}

/// A wire towards one peer.
#[derive(Debug, Clone, Default)]
pub(super) struct FakeWire(pub(super) Arc<Mutex<VecDeque<Sent>>>);

impl FakeWire {
    /// What was sent since the last call.
    pub(super) fn sent(&self) -> Vec<Sent> {
        lock(&self.0).drain(..).collect()
    }
}

impl WireTx for FakeWire {
    fn send_datagrams(&mut self, port: u16, train: &Train<'_>) -> Result<(), (usize, io::Error)> {
        let datagrams: Vec<Vec<u8>> = train.datagrams.iter().map(|part| part.to_vec()).collect();
        let (last, others) = datagrams.split_last().expect("a train of something");
        assert!(others.iter().all(|one| one.len() == others[0].len()), "a train of equals");
        assert!(last.len() <= datagrams[0].len(), "and perhaps a shorter last");
        lock(&self.0).push_back(Sent::Datagrams(port, train.destination, train.tos, datagrams));
        Ok(())
    }

    fn send_packets(&mut self, packets: &[IoSlice<'_>]) -> Result<(), (usize, io::Error)> {
        lock(&self.0).extend(packets.iter().map(|packet| Sent::Packet(packet.to_vec())));
        Ok(())
    }
}

/// One kind of packets that arrive from a wire.
#[derive(Debug)]
pub(super) struct FakeArrivals {
    pub(super) wire: FakeWire,
    pub(super) kind: SocketKind,
    pub(super) peer: IpAddr,
    pub(super) local: IpAddr,
}

impl WireRx for FakeArrivals {
    fn receive(&self, inbox: &mut Inbox) -> io::Result<usize> {
        inbox.clear();
        let mut count = 0;
        while let Some(sent) = lock(&self.wire.0).pop_front() {
            count += 1;
            match sent {
                Sent::Datagrams(port, _, tos, datagrams) => {
                    let segment_len = datagrams[0].len();
                    let mut body = datagrams.concat();
                    inbox.put(&Received {
                        source: SocketAddr::new(self.peer, port),
                        destination: self.local,
                        tos,
                        segment_len,
                        header: &[],
                        body: &mut body,
                        truncated: false,
                    });
                }
                Sent::Packet(mut packet) => {
                    let at = ip::Ip::parse(&packet).expect("an IP packet").security_offset();
                    let tos = packet[1];
                    let (header, body) = packet.split_at_mut(at);
                    inbox.put(&Received {
                        source: SocketAddr::new(self.peer, 0),
                        destination: self.local,
                        tos,
                        segment_len: body.len(),
                        header,
                        body,
                        truncated: false,
                    });
                }
            }
            if inbox.is_full() {
                break;
            }
        }
        Ok(count)
    }

    fn kind(&self) -> SocketKind {
        self.kind
    }

    fn wait_on(&self) -> Option<&dyn AsFd> {
        None
    }
}

/// One gateway without threads: a turn is made by calling it.
pub(super) struct Gateway {
    pub(super) shared: Arc<Shared>,
    pub(super) tun: FakeTun,
    pub(super) wire: FakeWire,
    pub(super) outbound: Outbound<FakeTun, FakeWire>,
    pub(super) inbound: Inbound<FakeTun, FakeArrivals>,
}

impl Gateway {
    /// Takes what the host has sent.
    pub(super) fn send_all(&mut self) {
        while self.outbound.turn().expect("a turn") > 0 {}
    }

    /// Takes what is on the wire.
    pub(super) fn receive_all(&mut self) {
        while self.inbound.turn(0) {}
    }

    pub(super) fn drops(&self) -> Vec<(&'static str, u64)> {
        let engine = self.shared.engine.load();
        engine.counters().nonzero().map(|(reason, times)| (reason.name(), times)).collect()
    }
}

/// How two gateways protect what is between them.
#[derive(Debug, Clone, Copy)]
pub(super) struct Between {
    pub(super) mode: Mode,
    pub(super) protocol: Protocol,
    pub(super) udp: bool,
    /// Both sides follow the other's address.
    pub(super) follow: bool,
}

/// Two gateways, 192.0.2.1 and 192.0.2.2.
pub(super) fn pair(between: Between) -> (Gateway, Gateway) {
    let addresses = [1, 2].map(|last| IpAddr::from([192, 0, 2, last]));
    let engines = [0, 1].map(|me| engine(between, addresses, me));
    let kind =
        if between.udp { SocketKind::Udp(4500) } else { SocketKind::Ip(between.protocol.number()) };
    joined(engines, addresses, kind, PATH_MTU, [Some(usize::MAX); 2])
}

/// Two gateways with these engines and outer addresses, on a path that takes
/// packets of `path_mtu` bytes; each clamps TCP's segment size or not.
pub(super) fn joined(
    engines: [Engine; 2],
    addresses: [IpAddr; 2],
    kind: SocketKind,
    path_mtu: usize,
    clamp_mss: [Option<usize>; 2],
) -> (Gateway, Gateway) {
    let wires = [FakeWire::default(), FakeWire::default()];
    let make = |me: usize, engine: Engine| {
        let peer = 1 - me;
        let shared = Arc::new(Shared {
            engine: ArcSwap::from_pointee(engine),
            sockets: ArcSwap::default(),
            paths: Paths::new(0, Some(path_mtu)),
            tracer: Tracer::default(),
            held: Default::default(),
            settings: Settings { clamp_mss: clamp_mss[me], ..Settings::default() },
            started: Instant::now(),
        });
        let (tun, wire) = (FakeTun::default(), wires[me].clone());
        let (peer_wire, local) = (wires[peer].clone(), addresses[me]);
        let arrivals = FakeArrivals { wire: peer_wire, kind, peer: addresses[peer], local };
        Gateway {
            outbound: Outbound::between(Arc::clone(&shared), tun.clone(), wire.clone()),
            inbound: Inbound::new(Arc::clone(&shared), tun.clone(), vec![arrivals]),
            shared,
            tun,
            wire,
        }
    };
    let [here, there] = engines;
    (make(0, here), make(1, there))
}

fn engine(between: Between, addresses: [IpAddr; 2], me: usize) -> Engine {
    let sa = |name: &str, direction, from: usize| {
        let suite: Suite = "aes-128-gcm".parse().expect("a suite");
        let octet = format!("{:02x}", from + 1);
        let key = Key::from_hex(&octet.repeat(suite.key_len())).expect("a key");
        let secrets = Secrets { suite, key, mac_key: None };
        let protection = match between.protocol {
            Protocol::Esp => Protection::Esp(secrets),
            Protocol::QEsp(number) => Protection::QEsp { number, secrets },
            Protocol::Ah => Protection::Ah {
                mac: "hmac-sha256".parse().expect("a suite"),
                key: Key::from_hex(&octet.repeat(32)).expect("a key"),
            },
        };
        let spi = 0x1000 + from as u32;
        let ends = (addresses[from], addresses[1 - from]);
        let mut spec = SaSpec::new(name, direction, between.mode, spi, ends, protection);
        spec.udp = between.udp.then_some(UdpPorts { source: 4500, destination: 4500 });
        spec.follow_peer = between.follow && direction == Direction::In;
        spec
    };
    let associations = vec![sa("out", Direction::Out, me), sa("in", Direction::In, 1 - me)];
    let protect = Action::Protect { out: vec!["out".into()], inbound: vec!["in".into()] };
    let clear = Selector { protocol: Some(47), ..Selector::ANY };
    let policies = vec![
        PolicySpec { name: "clear".into(), selector: clear, action: Action::Bypass },
        PolicySpec { name: "all".into(), selector: Selector::ANY, action: protect },
    ];
    let engine = Engine::new(associations, policies, None, Duration::ZERO).expect("an engine");
    for sa in engine.associations() {
        sa.sequence().grant(u64::from(u32::MAX));
    }
    engine
}

/// A whole IPv4 packet with a UDP datagram of `len` bytes in it.
pub(super) fn datagram(tos: u8, dont_fragment: bool, len: usize) -> Vec<u8> {
    let (source, destination) = ([192, 0, 2, 1], [192, 0, 2, 2]);
    let mut packet = vec![0; 28 + len];
    let fresh = headroom_packet::header::IpHeader {
        source: IpAddr::from(source),
        destination: IpAddr::from(destination),
        tos,
        hop_limit: 64,
        protocol: headroom_packet::protocol::UDP,
        id: 7,
        dont_fragment,
        flow_label: 0,
    };
    fresh.write(8 + len, &mut packet).expect("an IPv4 header");
    for (n, octet) in packet[28..].iter_mut().enumerate() {
        *octet = n as u8;
    }
    packet[20..22].copy_from_slice(&5004u16.to_be_bytes());
    packet[22..24].copy_from_slice(&5005u16.to_be_bytes());
    packet[24..26].copy_from_slice(&((8 + len) as u16).to_be_bytes());
    let addresses = [source, destination].concat();
    udp::write_checksum(&addresses, &mut packet[20..]).expect("a checksum");
    packet
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("a test that has not panicked")
}
