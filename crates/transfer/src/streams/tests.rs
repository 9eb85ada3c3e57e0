//! QUIC connections over a simulated link: quinn's protocol without sockets, and time that is
//! simulated.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use quinn::congestion::{Controller, ControllerFactory, CubicConfig};
use quinn::{EndpointConfig, ServerConfig};
use quinn_proto::{
    Connection, ConnectionHandle, DatagramEvent, Dir, Endpoint, Event, StreamEvent, StreamId,
};
use rustls::version::TLS13;

use super::*;
use crate::access::AccessControl;
use crate::identity::Identity;
use crate::quic::{ALPN, quic_client, quic_server, transport};
use crate::trust::{Access, AccessPolicy, AuthorizedKeys, HostKeys, ServerVerifier, provider};

const MS: Duration = Duration::from_millis(1);
/// Bytes of IP and UDP ahead of a datagram, and those of Ethernet.
const HEADERS: usize = 28 + 14;
/// One-way delay.
const DELAY: Duration = Duration::from_millis(25);

/// A connection that sends as fast as it may, from its client to its server.
struct Flow {
    ends: [End; 2],
    stream: Option<StreamId>,
    received: u64,
    starts: Instant,
}

struct End {
    endpoint: Endpoint,
    connection: Option<(ConnectionHandle, Connection)>,
}

/// A bottleneck with a queue that drops what finds it full, towards the servers; towards the
/// clients there is only delay.
struct Link {
    bytes_per_second: f64,
    /// Seconds of data.
    queue: f64,
    /// Share of datagrams that are lost besides.
    lost: f64,
    chance: u64,
    free_at: Instant,
}

struct World {
    now: Instant,
    start: Instant,
    flows: Vec<Flow>,
    link: Link,
    under_way: BinaryHeap<Reverse<Datagram>>,
    sent: u64,
}

/// A datagram on its way, in the order of arrival.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Datagram {
    arrives: Instant,
    number: u64,
    flow: usize,
    /// The end that it goes to.
    to: usize,
    bytes: Vec<u8>,
}

impl World {
    /// A link of `mbps` with a round trip of 50 ms and a queue of `bdps` bandwidth-delay products.
    fn new(mbps: f64, bdps: f64) -> Self {
        let start = Instant::now();
        let link = Link {
            bytes_per_second: mbps * 1e6 / 8.0,
            queue: bdps * 2.0 * DELAY.as_secs_f64(),
            lost: 0.0,
            chance: 1,
            free_at: start,
        };
        let under_way = BinaryHeap::new();
        Self { now: start, start, flows: Vec::new(), link, under_way, sent: 0 }
    }

    fn add(&mut self, congestion: Arc<dyn ControllerFactory + Send + Sync>, starts: Duration) {
        self.flows.push(Flow::new(congestion, self.start + starts));
    }

    fn run(&mut self, until: Duration) {
        let until = self.start + until;
        while self.now < until {
            while self.under_way.peek().is_some_and(|Reverse(next)| next.arrives <= self.now) {
                let Some(Reverse(datagram)) = self.under_way.pop() else { break };
                let Datagram { flow, to, bytes, .. } = datagram;
                self.flows[flow].ends[to].receive(self.now, address(1 - to), &bytes);
            }
            let mut next = until;
            for nth in 0..self.flows.len() {
                let (wake, datagrams) = self.flows[nth].advance(self.now);
                next = next.min(wake.unwrap_or(until));
                for (end, bytes) in datagrams {
                    self.send(nth, end, bytes);
                }
            }
            if let Some(Reverse(arrival)) = self.under_way.peek() {
                next = next.min(arrival.arrives);
            }
            self.now = next.max(self.now + Duration::from_micros(1));
        }
    }

    fn send(&mut self, flow: usize, to: usize, bytes: Vec<u8>) {
        self.sent += 1;
        let link = &mut self.link;
        let mut leaves = self.now;
        if to == 1 {
            leaves = leaves.max(link.free_at);
            if (leaves - self.now).as_secs_f64() > link.queue || link.loses() {
                return;
            }
            let takes = (bytes.len() + HEADERS) as f64 / link.bytes_per_second;
            leaves += Duration::from_secs_f64(takes);
            link.free_at = leaves;
        }
        let (arrives, number) = (leaves + DELAY, self.sent);
        self.under_way.push(Reverse(Datagram { arrives, number, flow, to, bytes }));
    }

    /// Returns the Mbit/s that arrived of each flow from now to a time.
    fn mbps(&mut self, until: Duration) -> Vec<f64> {
        let (from, before) = (self.now, self.flows.iter().map(|flow| flow.received));
        let before: Vec<u64> = before.collect();
        self.run(until);
        let seconds = (self.now - from).as_secs_f64();
        let after = self.flows.iter().map(|flow| flow.received).zip(before);
        after.map(|(after, before)| (after - before) as f64 * 8e-6 / seconds).collect()
    }
}

impl Link {
    /// Whether chance loses a datagram: a generator of Lehmer's, the same in each run.
    fn loses(&mut self) -> bool {
        self.chance = self.chance * 48_271 % 0x7fff_ffff;
        (self.chance as f64) < self.lost * f64::from(0x7fff_ffff)
    }
}

impl Flow {
    fn new(congestion: Arc<dyn ControllerFactory + Send + Sync>, starts: Instant) -> Self {
        let [identity, own] = [(); 2].map(|()| Identity::ephemeral().expect("a key"));
        let mut keys = AuthorizedKeys::default();
        keys.insert(own.public(), Access::default());
        let access_control = AccessControl::new(AccessPolicy { keys, ..AccessPolicy::default() });
        let (certificates, key) = identity.credentials();
        let tls = rustls::ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&TLS13])
            .expect("TLS 1.3")
            .with_client_cert_verifier(access_control)
            .with_single_cert(certificates, key)
            .expect("a certificate");
        let mut server: ServerConfig = quic_server(tls, &[ALPN]).expect("a configuration");
        let mut parameters = transport();
        server.transport_config(Arc::new(parameters));
        let host_keys = HostKeys::Keys(vec![identity.public()]);
        let (certificates, key) = own.credentials();
        let tls = rustls::ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&TLS13])
            .expect("TLS 1.3")
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(ServerVerifier::new(host_keys, None)))
            .with_client_auth_cert(certificates, key)
            .expect("a certificate");
        let mut client = quic_client(tls).expect("a configuration");
        parameters = transport();
        parameters.congestion_controller_factory(congestion);
        client.transport_config(Arc::new(parameters));
        let endpoint = |server| {
            let config = Arc::new(EndpointConfig::default());
            Endpoint::new(config, server, false, Some([1; 32]))
        };
        let mut ends = [None, Some(Arc::new(server))]
            .map(|server| End { endpoint: endpoint(server), connection: None });
        let connecting = ends[0].endpoint.connect(starts, client, address(1), "server");
        ends[0].connection = Some(connecting.expect("a connection"));
        Self { ends, stream: None, received: 0, starts }
    }

    /// Does what is due; returns when something is due next, and datagrams with the ends that
    /// they go to.
    fn advance(&mut self, now: Instant) -> (Option<Instant>, Vec<(usize, Vec<u8>)>) {
        if now < self.starts {
            return (Some(self.starts), Vec::new());
        }
        let mut datagrams = Vec::new();
        for (nth, end) in self.ends.iter_mut().enumerate() {
            end.settle(now);
            let Some((_, connection)) = &mut end.connection else { continue };
            while let Some(event) = connection.poll() {
                match event {
                    Event::ConnectionLost { reason } => panic!("lost: {reason}"),
                    Event::Connected if nth == 0 => {
                        self.stream = connection.streams().open(Dir::Uni);
                    }
                    Event::Stream(StreamEvent::Opened { .. }) => {
                        self.stream = connection.streams().accept(Dir::Uni).or(self.stream);
                    }
                    _ => {}
                }
            }
            match (nth, self.stream) {
                (0, Some(stream)) => {
                    while connection.send_stream(stream).write(&[0; 16_384]).is_ok() {}
                }
                (_, Some(stream)) => self.received += read(connection, stream),
                _ => {}
            }
            let mut buffer = Vec::new();
            while let Some(transmit) = connection.poll_transmit(now, 10, &mut buffer) {
                let segment = transmit.segment_size.unwrap_or(transmit.size);
                let bytes = buffer.chunks(segment).map(|bytes| (1 - nth, bytes.to_vec()));
                datagrams.extend(bytes);
                buffer.clear();
            }
        }
        let wakes = self.ends.iter_mut().filter_map(|end| end.connection.as_mut());
        (wakes.filter_map(|(_, connection)| connection.poll_timeout()).min(), datagrams)
    }
}

fn read(connection: &mut Connection, stream: StreamId) -> u64 {
    let mut bytes = 0;
    let mut receiving = connection.recv_stream(stream);
    let Ok(mut chunks) = receiving.read(true) else { return 0 };
    while let Ok(Some(chunk)) = chunks.next(usize::MAX) {
        bytes += chunk.bytes.len() as u64;
    }
    let _ = chunks.finalize();
    bytes
}

impl End {
    fn receive(&mut self, now: Instant, from: SocketAddr, bytes: &[u8]) {
        let mut answer = Vec::new();
        let event = self.endpoint.handle(now, from, None, None, BytesMut::from(bytes), &mut answer);
        match event {
            Some(DatagramEvent::ConnectionEvent(_, event)) => {
                let (_, connection) = self.connection.as_mut().expect("its connection");
                connection.handle_event(event);
            }
            Some(DatagramEvent::NewConnection(incoming)) => {
                let accepted = self.endpoint.accept(incoming, now, &mut answer, None);
                self.connection = Some(accepted.expect("it is accepted"));
            }
            Some(DatagramEvent::Response(_)) | None => {}
        }
    }

    /// Handles timers, and what connection and endpoint tell each other.
    fn settle(&mut self, now: Instant) {
        let Some((handle, connection)) = &mut self.connection else { return };
        if connection.poll_timeout().is_some_and(|at| at <= now) {
            connection.handle_timeout(now);
        }
        while let Some(event) = connection.poll_endpoint_events() {
            if let Some(event) = self.endpoint.handle_event(*handle, event) {
                connection.handle_event(event);
            }
        }
    }
}

/// The address of a client (0) or a server (1).
fn address(end: usize) -> SocketAddr {
    SocketAddr::new(Ipv4Addr::new(192, 0, 2, end as u8).into(), 4860)
}

fn streams() -> Arc<dyn ControllerFactory + Send + Sync> {
    Arc::new(Congestion)
}

fn cubic() -> Arc<dyn ControllerFactory + Send + Sync> {
    Arc::new(CubicConfig::default())
}

/// The handshake takes one round trip, in which the client shows its certificate.
#[test]
fn data_of_a_client_arrives_one_and_a_half_round_trips_after_it_begins() {
    let mut world = World::new(1000.0, 1.0);
    world.add(streams(), Duration::ZERO);
    // the packets themselves take some ten microseconds each
    world.run(3 * DELAY + MS);
    assert!(world.flows[0].received > 0);
}

#[test]
fn beside_cubic_each_gets_a_share() {
    for bdps in [0.5, 1.0, 4.0] {
        for starts in [[0, 2000], [2000, 0]] {
            let mut world = World::new(40.0, bdps);
            world.add(streams(), starts[0] * MS);
            world.add(cubic(), starts[1] * MS);
            world.run(6000 * MS);
            let mbps = world.mbps(26_000 * MS);
            let share = mbps[0] / (mbps[0] + mbps[1]);
            assert!((0.15..0.8).contains(&share), "{bdps} {starts:?}: {mbps:.1?}");
        }
    }
}

#[test]
fn random_loss_slows_streams_little() {
    for (lost, least) in [(0.003, 36.0), (0.02, 35.0), (0.05, 34.0)] {
        let mut world = World::new(40.0, 1.0);
        world.link.lost = lost;
        world.add(streams(), Duration::ZERO);
        world.run(1000 * MS);
        let mbps = world.mbps(6000 * MS)[0];
        assert!(mbps > least, "{lost}: {mbps:.1}");
    }
}

/// quinn ends a connection whose receiver must remember more than a thousand gaps.
#[test]
fn streams_survive_a_fifth_of_all_packets_lost() {
    let mut world = World::new(40.0, 4.0);
    world.link.lost = 0.2;
    world.add(streams(), Duration::ZERO);
    world.run(1000 * MS);
    let mbps = world.mbps(10_000 * MS)[0];
    assert!(mbps > 10.0, "{mbps:.1}");
}

#[test]
fn alone_streams_fill_the_link() {
    for bdps in [0.25, 1.0, 4.0] {
        let mut world = World::new(40.0, bdps);
        world.add(streams(), Duration::ZERO);
        world.run(1000 * MS);
        let mbps = world.mbps(6000 * MS)[0];
        assert!(mbps > 34.0, "{bdps}: {mbps:.1}");
    }
}

#[test]
fn a_ping_passes_a_full_window_once() {
    let now = Instant::now();
    let mut path = OnPath::new(now, 1200);
    let window = path.window();
    let full = window + 10 * 1200;
    path.on_sent(now, full, 1);
    assert_eq!(path.window(), window, "nothing more is sent");
    // the connection hands out copies
    let copy = path.clone_box().into_any().downcast::<OnPath>().expect("a controller of ours");
    copy.expect_ping();
    assert_eq!(path.window(), full + 4 * 1200);
    path.on_sent(now, 1200, 2);
    assert_eq!(path.window(), window, "it was sent");
}
