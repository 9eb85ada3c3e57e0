//! Outages, address changes and lost connections in the middle of a transfer: judged by
//! what happened and what went which way, not by time.

use std::collections::HashMap;
use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::*;
use crate::client::TIMEOUT;
use crate::quic::{ClientProof, with_last};
use crate::retry::{Retry, with_retries};

const MIB: u64 = 1 << 20;
const SIZE: u64 = 30 * MIB + 4321;
/// Something happens when so much was moved.
const MIDDLE: u64 = 8 * MIB;

/// A router between client and server, with a NAT: it can drop the packets of lanes and
/// of QUIC, and forget its mappings.
struct Router {
    address: SocketAddr,
    state: Arc<RouterState>,
}

#[derive(Default)]
struct RouterState {
    drops_lanes: AtomicBool,
    drops_quic: AtomicBool,
    /// While QUIC's packets are dropped: how often a client was silent and sent again, and
    /// after how often they pass.
    client: Mutex<Silences>,
    silences: AtomicU64,
    passes_after: AtomicU64,
    /// Which mappings hold: what comes back on older ones is dropped.
    mappings: AtomicU64,
    ended: AtomicBool,
}

/// The last packet of somebody.
#[derive(Default)]
struct Silences(Option<Instant>);

/// Longer than a burst is, and shorter than the interval of pings.
const A_SILENCE: Duration = Duration::from_millis(400);

impl RouterState {
    /// Counts the silences of a client in an outage, and ends it after as many as asked for.
    fn note_client(&self) {
        let after = self.passes_after.load(Ordering::SeqCst);
        if after == 0 || !self.drops_quic.load(Ordering::SeqCst) {
            return;
        }
        let last = self.client.lock().expect("nobody panicked").0.replace(Instant::now());
        if last.is_some_and(|last| last.elapsed() > A_SILENCE)
            && self.silences.fetch_add(1, Ordering::SeqCst) + 1 >= after
        {
            self.drops_quic.store(false, Ordering::SeqCst);
        }
    }

    fn drops(&self, packet: &[u8]) -> bool {
        // the upper bits tell QUIC from lanes (RFC 9443)
        let is_quic = packet.first().is_some_and(|first| first & 0xc0 != 0);
        let drops = if is_quic { &self.drops_quic } else { &self.drops_lanes };
        drops.load(Ordering::SeqCst)
    }
}

impl Router {
    fn new(server: &Server) -> Self {
        let outer = Arc::new(UdpSocket::bind("127.0.0.1:0").expect("a socket"));
        let address = outer.local_addr().expect("an address");
        let server = server.address().expect("an address");
        let state = Arc::<RouterState>::default();
        let shared = Arc::clone(&state);
        outer.set_read_timeout(Some(Duration::from_millis(100))).expect("a time-out");
        std::thread::spawn(move || {
            let mut mappings: HashMap<(SocketAddr, u64), Arc<UdpSocket>> = HashMap::new();
            let mut buffer = vec![0; 1 << 16];
            while !shared.ended.load(Ordering::SeqCst) {
                let Ok((len, client)) = outer.recv_from(&mut buffer) else { continue };
                shared.note_client();
                if shared.drops(&buffer[..len]) {
                    continue;
                }
                let mapping = shared.mappings.load(Ordering::SeqCst);
                let inner = mappings.entry((client, mapping)).or_insert_with(|| {
                    let inner = Arc::new(UdpSocket::bind("127.0.0.1:0").expect("a socket"));
                    inner.connect(server).expect("a peer");
                    let back = (Arc::clone(&inner), Arc::clone(&outer), Arc::clone(&shared));
                    std::thread::spawn(move || return_packets(&back, client, mapping));
                    inner
                });
                let _ = inner.send(&buffer[..len]);
            }
        });
        Self { address, state }
    }

    async fn connect(&self, ground: &Ground) -> Client {
        let host = Host::new(&self.address.ip().to_string(), self.address.port());
        let hosts = ground.hosts(&host);
        let trust = Trust { hosts: &hosts, authority: None, fingerprint: None };
        Client::connect(&host, &ground.client, trust).await.expect("a connection")
    }
}

impl Drop for Router {
    fn drop(&mut self) {
        self.state.ended.store(true, Ordering::SeqCst);
    }
}

fn return_packets(
    (inner, outer, state): &(Arc<UdpSocket>, Arc<UdpSocket>, Arc<RouterState>),
    client: SocketAddr,
    mapping: u64,
) {
    inner.set_read_timeout(Some(Duration::from_millis(100))).expect("a time-out");
    let mut buffer = vec![0; 1 << 16];
    while !state.ended.load(Ordering::SeqCst) {
        let Ok(len) = inner.recv(&mut buffer) else { continue };
        if state.mappings.load(Ordering::SeqCst) == mapping && !state.drops(&buffer[..len]) {
            let _ = outer.send_to(&buffer[..len], client);
        }
    }
}

/// Does something to the router in the middle of the transfer, and when lanes are silent
/// or back.
struct Disturbs<F: Fn(&RouterState, Moment) + Send + Sync> {
    router: Arc<RouterState>,
    moved: AtomicU64,
    moments: Mutex<Vec<Moment>>,
    act: F,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Moment {
    Middle,
    Later,
    Silent,
    Back,
    /// Something was moved after lanes were back.
    Flows,
}

impl<F: Fn(&RouterState, Moment) + Send + Sync> Disturbs<F> {
    fn new(router: &Router, act: F) -> Arc<Self> {
        let router = Arc::clone(&router.state);
        Arc::new(Self { router, moved: AtomicU64::new(0), moments: Mutex::default(), act })
    }

    fn note(&self, moment: Moment) {
        self.moments.lock().expect("nobody panicked").push(moment);
        (self.act)(&self.router, moment);
    }

    fn moments(&self) -> Vec<Moment> {
        self.moments.lock().expect("nobody panicked").clone()
    }
}

impl<F: Fn(&RouterState, Moment) + Send + Sync> Observer for Disturbs<F> {
    fn event(&self, event: Event<'_>) {
        match event {
            Event::Moved { bytes } => {
                let before = self.moved.fetch_add(bytes, Ordering::SeqCst);
                if self.moments().last() == Some(&Moment::Back) {
                    self.note(Moment::Flows);
                }
                let passes = |mark| before < mark && before + bytes >= mark;
                if passes(MIDDLE) {
                    self.note(Moment::Middle);
                }
                if passes(2 * MIDDLE) {
                    self.note(Moment::Later);
                }
            }
            Event::LanesSilent => self.note(Moment::Silent),
            Event::LanesBack => {
                self.note(Moment::Back);
                if self.moved.load(Ordering::SeqCst) == SIZE {
                    // the rest was given to the lane before this was told
                    self.note(Moment::Flows);
                }
            }
            _ => {}
        }
    }
}

/// Transfers both ways through a router that `act` disturbs, checks what arrived, and
/// gives what happened.
fn both_ways(
    act: impl Fn(&RouterState, Moment) + Send + Sync + Copy + 'static,
) -> [(Summary, Vec<Moment>); 2] {
    let ground = Ground::new();
    let whole = content(SIZE as usize);
    write(&ground.here("big"), &whole);
    write(&ground.served("there"), &whole);
    run(async {
        let server = ground.start();
        let router = Router::new(&server);
        let mut client = router.connect(&ground).await;
        let events = Disturbs::new(&router, act);
        let put = client.put(&[ground.here("big")], b"big", false, events.clone()).await;
        let put = (put.expect("it is sent"), events.moments());
        assert!(std::fs::read(ground.served("big")).expect("it is there") == whole);

        let router = Router::new(&server);
        let mut client = router.connect(&ground).await;
        let events = Disturbs::new(&router, act);
        let to = ground.here("back");
        let got = client.get(&[b"there".to_vec()], &to, false, events.clone()).await;
        let got = (got.expect("it is fetched"), events.moments());
        assert!(std::fs::read(to).expect("it is there") == whole);
        for (summary, _) in [&put, &got] {
            assert_eq!((summary.stored, summary.failed, summary.moved), (1, 0, SIZE));
        }
        [put, got]
    })
}

#[test]
fn after_an_outage_lanes_are_used_again() {
    let ended = both_ways(|router, moment| match moment {
        Moment::Middle => {
            router.drops_lanes.store(true, Ordering::SeqCst);
            router.drops_quic.store(true, Ordering::SeqCst);
        }
        Moment::Silent => router.drops_lanes.store(false, Ordering::SeqCst),
        // lanes carry again before streams can
        Moment::Flows => router.drops_quic.store(false, Ordering::SeqCst),
        Moment::Back | Moment::Later => {}
    });
    for (summary, moments) in ended {
        let order = [Moment::Middle, Moment::Silent, Moment::Back, Moment::Flows];
        let first = moments.iter().filter(|moment| **moment != Moment::Later).take(4);
        assert!(first.eq(&order), "{moments:?}");
        assert!(summary.on_lanes >= SIZE - MIB, "{summary:?}");
    }
}

/// QUIC's probes alone would come ever more seldom (RFC 9002, section 6.2.1): seven in the
/// minute after which the connection is given up.
#[test]
fn a_connection_without_lanes_pings_in_an_outage_and_continues_after_it() {
    let ground = Ground::new();
    let whole = content(SIZE as usize);
    write(&ground.here("big"), &whole);
    run(async {
        let server = ground.start();
        let router = Router::new(&server);
        let mut client = router.connect(&ground).await;
        client.set_lanes(false);
        router.state.passes_after.store(10, Ordering::SeqCst);
        let events = Disturbs::new(&router, |router: &RouterState, moment| {
            if moment == Moment::Middle {
                router.drops_quic.store(true, Ordering::SeqCst);
            }
        });
        let put = client.put(&[ground.here("big")], b"big", false, events.clone()).await;
        let put = put.expect("it is sent");
        assert!(std::fs::read(ground.served("big")).expect("it is there") == whole);
        assert_eq!((put.stored, put.moved, put.on_lanes), (1, SIZE, 0), "{put:?}");
        assert_eq!(router.state.silences.load(Ordering::SeqCst), 10, "{:?}", events.moments());
    });
}

#[test]
fn streams_carry_data_while_lanes_are_silent() {
    let ended = both_ways(|router, moment| match moment {
        Moment::Middle => {
            router.drops_lanes.store(true, Ordering::SeqCst);
            router.drops_quic.store(true, Ordering::SeqCst);
        }
        Moment::Silent => router.drops_quic.store(false, Ordering::SeqCst),
        Moment::Back | Moment::Flows | Moment::Later => {}
    });
    for (summary, moments) in ended {
        assert!(moments.contains(&Moment::Silent), "{moments:?}");
        assert!(!moments.contains(&Moment::Back), "{moments:?}");
        assert!(summary.on_lanes > 0 && summary.on_lanes < SIZE, "{summary:?}");
    }
}

#[test]
fn a_nat_that_forgets_its_mappings_does_not_end_lanes() {
    let ended = both_ways(|router, moment| match moment {
        Moment::Middle => {
            router.mappings.fetch_add(1, Ordering::SeqCst);
            router.drops_quic.store(true, Ordering::SeqCst);
        }
        // what was moved since then went on lanes
        Moment::Later => router.drops_quic.store(false, Ordering::SeqCst),
        Moment::Silent | Moment::Back | Moment::Flows => {}
    });
    for (summary, moments) in ended {
        assert!(summary.on_lanes >= 2 * MIDDLE - MIB, "{summary:?} {moments:?}");
    }
}

/// Stops a server when so much was moved, once.
struct Stops {
    server: Server,
    moved: AtomicU64,
}

impl Observer for Stops {
    fn event(&self, event: Event<'_>) {
        if let Event::Moved { bytes } = event {
            let before = self.moved.fetch_add(bytes, Ordering::SeqCst);
            if before < 2 * MIDDLE && before + bytes >= 2 * MIDDLE {
                self.server.stop();
            }
        }
    }
}

#[test]
fn a_lost_connection_is_made_again_and_the_transfer_resumes() {
    let ground = Ground::new();
    let whole = content(SIZE as usize);
    write(&ground.here("big"), &whole);
    run(async {
        let servers = [ground.start(), ground.start()];
        let moved = AtomicU64::new(0);
        let observer = Arc::new(Stops { server: servers[0].clone(), moved });
        let (mut connected, mut lost) = (0, Vec::new());
        let summary = with_retries(
            Retry::Forever,
            |error| lost.push(error.to_string()),
            async || {
                connected += 1;
                ground.connect(&servers[connected - 1]).await
            },
            async |mut client| {
                client.put(&[ground.here("big")], b"big", false, observer.clone()).await
            },
        );
        let summary = summary.await.expect("it is sent");
        assert_eq!((connected, lost.len()), (2, 1), "{lost:?}");
        assert!(lost[0].contains("stopped"), "{lost:?}");
        assert!(summary.kept >= MIB && summary.kept + summary.moved == SIZE, "{summary:?}");
        assert!(std::fs::read(ground.served("big")).expect("it is there") == whole);
    });
}

/// Two servers have one name and one store.
#[test]
fn a_transfer_goes_on_with_another_server_of_the_name_when_one_stops() {
    let ground = Ground::new();
    let whole = content(SIZE as usize);
    write(&ground.here("big"), &whole);
    run(async {
        let servers = [ground.start(), ground.start()];
        let addresses = servers.each_ref().map(|server| server.address().expect("an address"));
        let host = Host::new("files.example.org", 4860);
        let hosts = ground.hosts(&host);
        let moved = AtomicU64::new(0);
        let observer = Arc::new(Stops { server: servers[0].clone(), moved });
        let mut connected = Vec::new();
        let summary = with_retries(
            Retry::Forever,
            |error| assert!(error.to_string().contains("stopped"), "{error}"),
            async || {
                let trust = Trust { hosts: &hosts, authority: None, fingerprint: None };
                let to = (&host, with_last(addresses.to_vec(), connected.last().copied()));
                let (by, own) = (ClientProof::Certificate, &ground.client);
                let client = Client::connect_by(by, TIMEOUT, to, own, trust).await?;
                connected.push(client.address());
                Ok(client)
            },
            async |mut client| {
                client.put(&[ground.here("big")], b"big", false, observer.clone()).await
            },
        );
        let summary = summary.await.expect("it is sent");
        assert_eq!(connected, addresses);
        assert!(summary.kept >= MIB && summary.kept + summary.moved == SIZE, "{summary:?}");
        assert!(std::fs::read(ground.served("big")).expect("it is there") == whole);
    });
}

#[test]
fn refusals_of_a_server_are_not_retried() {
    let ground = Ground::new();
    run(async {
        let server = ground.start();
        let mut connected = 0;
        let listed = with_retries(
            Retry::Forever,
            |error| panic!("{error}"),
            async || {
                connected += 1;
                ground.connect(&server).await
            },
            async |mut client| {
                let from = [b"missing".to_vec()];
                client.get(&from, &ground.here("x"), false, Arc::new(())).await?;
                client.list(b"missing", |_| {}).await
            },
        );
        let error = listed.await.expect_err("there is no such file");
        assert!(matches!(error, Error::OnServer { .. }), "{error}");
        assert_eq!(connected, 1);
    });
}
