//! Moves packets between the hosts and the wire (docs/datapath.md).
//!
//! No thread hands a packet to another. Each queue has an [`outbound`] thread, which reads trains from
//! the TUN, decides once per train, seals its segments into one buffer and sends them in one system
//! call, and an [`inbound`] thread, which receives batches, opens each packet in place, joins segments
//! and writes trains to the TUN. One [`housekeeping`] thread handles timers. Threads read the engine
//! through one atomic pointer, which a reload swaps.

pub mod device;
mod held;
pub mod housekeeping;
mod icmp_rate_limit;
mod ike_record;
pub mod inbound;
#[cfg(test)]
mod mtu_tests;
pub mod outbound;
mod outbox;
mod oversize;
pub mod paths;
mod queue_sender;
mod settings;
mod shared;
mod sockets;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
pub mod tracer;

use std::collections::HashSet;
use std::io::{self, IoSlice};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use headroom_ipsec::{Engine, Event, Reason};
use headroom_mutex::lock;
use headroom_netio::udp::Train;
use headroom_netio::{Stop, Tun};

use self::held::{Held, Waited};
use self::inbound::Inbound;
use self::outbound::Outbound;
use self::paths::Paths;
use self::shared::Shared;
use self::sockets::{Endpoints, Sockets};
use self::tracer::{Entry, Tracer};

pub use self::ike_record::{IkeEvent, IkeMessageRecord, IkeRecord};
pub use self::settings::{DEFAULT_MARK, IKE_PORT, Ike, IkeDatagram, NAT_PORT, Settings};

/// Runs the threads that move packets, until it is dropped.
#[derive(Debug)]
pub struct Datapath {
    shared: Arc<Shared>,
    tuns: Vec<Arc<Tun>>,
    stop: Stop,
    threads: Mutex<Vec<JoinHandle<io::Result<()>>>>,
}

impl Datapath {
    /// Opens the sockets that the associations need, and starts one pair of threads per queue of the TUN.
    /// The housekeeping thread calls `on_event` when a lifetime ends or a peer moves.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn start(
        tuns: Vec<Tun>,
        engine: Engine,
        settings: Settings,
        on_event: impl Fn(Event) + Send + 'static,
    ) -> io::Result<Self> {
        let tuns: Vec<_> = tuns.into_iter().map(Arc::new).collect();
        let endpoints = Endpoints::of(&engine).with_ike(&settings);
        let opened = Sockets::open(&endpoints, tuns.len(), &settings)?;
        let shared = Arc::new(Shared {
            engine: ArcSwap::from_pointee(engine),
            sockets: ArcSwap::from_pointee(opened),
            paths: Paths::new(settings.mark, settings.path_mtu),
            tracer: Tracer::default(),
            held: Held::default(),
            settings,
            started: Instant::now(),
        });
        let datapath = Self { shared, tuns, stop: Stop::new()?, threads: Mutex::default() };
        for (queue, tun) in datapath.tuns.iter().enumerate() {
            let shared = Arc::clone(&datapath.shared);
            let mut outbound = Outbound::new(shared, Arc::clone(tun), queue)?;
            let stop = datapath.stop.clone();
            datapath.spawn(&format!("out-{queue}"), queue, move || outbound.run(&stop))?;
        }
        datapath.listen(&datapath.shared.sockets.load())?;
        let (shared, stop) = (Arc::clone(&datapath.shared), datapath.stop.clone());
        datapath.spawn("clock", 0, move || housekeeping::run(&shared, &stop, on_event))?;
        Ok(datapath)
    }

    /// Returns the engine in force.
    #[must_use]
    pub fn engine(&self) -> Arc<Engine> {
        self.shared.engine.load_full()
    }

    /// Returns the time since the start, which is the engine's clock.
    #[must_use]
    pub fn now(&self) -> Duration {
        self.shared.now()
    }

    /// Replaces the engine by one that was made with the present one as its predecessor. No packet is
    /// lost.
    ///
    /// # Errors
    /// The kernel's error, if the new associations need further sockets. Then the present engine stays.
    pub fn reload(&self, engine: Engine) -> io::Result<()> {
        let endpoints = Endpoints::of(&engine);
        let present = self.shared.sockets.load_full();
        let missing = present.missing(&endpoints);
        if !missing.is_empty() {
            let more = Sockets::open(&missing, self.tuns.len(), &self.shared.settings)?;
            self.listen(&more)?;
            self.shared.sockets.store(Arc::new(present.with(&more)));
        }
        self.shared.engine.store(Arc::new(engine));
        Ok(())
    }

    /// Sends a datagram of IKE from one of its ports.
    ///
    /// # Errors
    /// The kernel's error; `NotConnected` if the port is not open.
    pub fn send_ike(&self, from: SocketAddr, to: SocketAddr, bytes: &[u8]) -> io::Result<()> {
        let sockets = self.shared.sockets.load();
        let socket =
            sockets.udp(0, to.is_ipv6(), from.port()).ok_or(io::ErrorKind::NotConnected)?;
        let source = Some(from.ip()).filter(|ip| !ip.is_unspecified());
        let datagrams = [IoSlice::new(bytes)];
        let train =
            Train { destination: to, source, tos: 0, dont_fragment: false, datagrams: &datagrams };
        socket.send(&train).map_err(|(_, error)| error)
    }

    /// Returns the address from which the gateway's own packets to `peer` leave.
    ///
    /// # Errors
    /// The kernel's error: `ENETUNREACH` if there is no route.
    pub fn source_towards(&self, peer: IpAddr) -> io::Result<IpAddr> {
        headroom_netio::route::source_towards(peer, Some(self.shared.settings.mark))
    }

    /// Keeps packets of these policies that find no association, until it is negotiated; the inbox of
    /// IKE gets an empty datagram for each.
    pub fn set_traps(&self, policies: HashSet<String>) {
        self.shared.held.set_traps(policies);
    }

    /// Returns the policies for which packets wait.
    #[must_use]
    pub fn waiting(&self) -> Vec<String> {
        self.shared.held.policies()
    }

    /// Protects and sends the packets that wait for a policy, but for those that are too old.
    ///
    /// # Errors
    /// The kernel's error; then the packets are lost.
    pub fn send_waiting(&self, policy: &str) -> io::Result<()> {
        let (packets, old) = self.shared.held.take(policy);
        self.count_unprotected(old);
        let Some(tun) = self.tuns.first().filter(|_| !packets.is_empty()) else { return Ok(()) };
        let waited = Waited { packets: Mutex::new(packets), tun: Arc::clone(tun) };
        let mut outbound = Outbound::new(Arc::clone(&self.shared), waited, 0)?;
        while outbound.turn()? > 0 {}
        Ok(())
    }

    /// Drops the packets that wait for a policy.
    pub fn drop_waiting(&self, policy: &str) {
        let (packets, old) = self.shared.held.take(policy);
        self.count_unprotected(packets.len() + old);
    }

    fn count_unprotected(&self, packets: usize) {
        if packets > 0 {
            self.engine().counters().add(Reason::NoAssociation, packets as u64);
        }
    }

    /// Passes a record of IKE to those who follow it, if there are any.
    pub(crate) fn trace_ike(&self, record: impl FnOnce() -> Option<IkeRecord>) {
        self.shared.tracer.record_some(|| {
            let time = self.shared.now();
            record().map(|record| Entry::Ike(Box::new(IkeRecord { time, ..record })))
        });
    }

    /// Returns the records of packets and of IKE from now on, until the result is dropped.
    #[must_use]
    pub fn trace(&self) -> tracer::Trace {
        self.shared.tracer.subscribe()
    }

    /// Returns the error of the first thread that has ended; none while all run.
    pub fn failure(&self) -> Option<io::Error> {
        let mut threads = lock(&self.threads);
        let index = threads.iter().position(JoinHandle::is_finished)?;
        let name = threads[index].thread().name().unwrap_or("?").to_owned();
        Some(match threads.swap_remove(index).join() {
            Ok(Err(error)) => error,
            Ok(Ok(())) => io::Error::other(format!("the thread {name} has ended")),
            Err(_) => io::Error::other(format!("the thread {name} has panicked")),
        })
    }

    /// Starts the threads that receive from `sockets`.
    fn listen(&self, sockets: &Sockets) -> io::Result<()> {
        for (queue, tun) in self.tuns.iter().enumerate() {
            let arrivals = sockets.arrivals(queue);
            if arrivals.is_empty() {
                continue;
            }
            let shared = Arc::clone(&self.shared);
            let mut inbound = Inbound::new(shared, Arc::clone(tun), arrivals);
            let stop = self.stop.clone();
            self.spawn(&format!("in-{queue}"), queue, move || inbound.run(&stop))?;
        }
        Ok(())
    }

    fn spawn(
        &self,
        name: &str,
        queue: usize,
        work: impl FnOnce() -> io::Result<()> + Send + 'static,
    ) -> io::Result<()> {
        let cpu = self.shared.settings.pinned.then_some(queue);
        let builder = std::thread::Builder::new().name(format!("headroom-{name}"));
        let thread = builder.spawn(move || {
            if let Some(queue) = cpu {
                let cpus = headroom_netio::affinity::allowed()?;
                if let Some(cpu) = cpus.get(queue % cpus.len().max(1)) {
                    headroom_netio::affinity::pin_to(*cpu)?;
                }
            }
            work()
        })?;
        lock(&self.threads).push(thread);
        Ok(())
    }
}

impl Drop for Datapath {
    fn drop(&mut self) {
        self.stop.set();
        let threads = std::mem::take(&mut *lock(&self.threads));
        for thread in threads {
            let _ = thread.join(); // its error does not matter any more
        }
    }
}
