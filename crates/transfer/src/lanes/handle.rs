//! A lane from a transfer's view: negotiated, opened when it is needed, fed, and given up if it
//! does not work.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use headroom_mutex::lock;
use headroom_netio::UdpSocket;
use headroom_netio::udp::{Options, mtu_towards};
use headroom_transfer_proto::lane::{
    Chunk, Cipher, Direction, Lane, LaneConfig, LaneId, MAX_PACKET, MIN_MTU, Piece, TransferId,
};
use headroom_transfer_proto::message::{LanesAnswer, LanesOffer};
use headroom_transfer_proto::rate::{Priority, RateConfig};
use quinn::Connection;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::Instant;

use super::engine::{Command, Engine};
use super::exporter::Exporter;
use super::feed::{Closed, Feed, Part};
use super::flow::{Flow, LaneState, LaneStatus};
use super::ids::OwnId;
use super::options::LaneOptions;
use super::sink::Sink;
use crate::error::Error;

/// How long a lane may take to open, from when it is needed.
const OPENING: Duration = Duration::from_secs(1);
/// The same if there is no fallback to streams.
const OPENING_ALONE: Duration = Duration::from_secs(10);
/// Bytes of headers ahead of a packet.
const IPV4_UDP: usize = 28;
const IPV6_UDP: usize = 48;

/// A client's offer of a lane.
#[derive(Debug)]
pub(crate) struct LaneOffer {
    connection: Connection,
    transfer: TransferId,
    id: OwnId,
    socket: UdpSocket,
    lane_options: LaneOptions,
}

impl LaneOffer {
    /// Makes an offer; `None` if there is no socket.
    pub(crate) fn new(connection: &Connection) -> Option<Self> {
        let server = connection.remote_address();
        let socket = socket_towards(server).ok()?;
        let mut transfer = [0; 16];
        aws_lc_rs::rand::fill(&mut transfer).ok()?;
        let (transfer, id) = (TransferId(transfer), OwnId::draw(server)?);
        let connection = connection.clone();
        Some(Self { connection, transfer, id, socket, lane_options: LaneOptions::default() })
    }

    /// Sets options.
    pub(crate) fn with_options(self, lane_options: LaneOptions) -> Self {
        Self { lane_options, ..self }
    }

    /// Returns the offer as a message.
    pub(crate) fn message(&self) -> LanesOffer {
        let suites = self.lane_options.ciphers().iter().map(|cipher| cipher.number()).collect();
        let receive_buffer = Some(self.socket.receive_buffer() as u64);
        let chunk = self.lane_options.chunk.map(Chunk::bytes);
        LanesOffer {
            transfer: self.transfer.0,
            lanes: vec![self.id.id().0],
            suites,
            receive_buffer,
            chunk,
        }
    }

    /// Makes the lane that the server accepted.
    ///
    /// # Errors
    /// The answer does not match the offer.
    pub(crate) fn accepted(self, answer: &LanesAnswer) -> Result<LaneHandle, Error> {
        let LanesAnswer { suite, receive_buffer: peer_buffer, chunk, port } = *answer;
        let not_offered =
            |what: &str| Error::Protocol(format!("it chooses {what} that was not offered"));
        let offered = self.lane_options.ciphers();
        let cipher = Cipher::numbered(suite).filter(|cipher| offered.contains(cipher));
        let cipher = cipher.ok_or_else(|| not_offered("a cipher"))?;
        if chunk != self.lane_options.chunk.map(Chunk::bytes) {
            return Err(not_offered("a chunk"));
        }
        if port == Some(0) {
            return Err(Error::Protocol("it names port 0 for lanes".to_owned()));
        }
        let port = port.unwrap_or(self.connection.remote_address().port());
        let params = LaneParams { cipher, chunk: self.lane_options.chunk, port };
        let negotiated =
            Negotiated { transfer: self.transfer, lane: self.id.id(), params, peer_buffer };
        let driver = Driver::Socket(self.socket);
        Ok(LaneHandle::new(self.connection, negotiated, driver, Some(self.id)))
    }
}

/// The parameters of a lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LaneParams {
    pub(crate) cipher: Cipher,
    pub(crate) chunk: Option<Chunk>,
    /// The server's UDP port.
    pub(crate) port: u16,
}

impl LaneParams {
    /// Whether this is for measurement only.
    pub(crate) const fn is_measurement(&self) -> bool {
        !self.cipher.is_secure() || self.chunk.is_some()
    }
}

/// What both ends have negotiated.
#[derive(Debug, Clone, Copy)]
pub(super) struct Negotiated {
    pub(super) transfer: TransferId,
    pub(super) lane: LaneId,
    pub(super) params: LaneParams,
    /// The size of the peer's receive buffer.
    pub(super) peer_buffer: Option<u64>,
}

/// What drives a lane.
pub(super) enum Driver {
    /// A client's own socket, until its engine starts.
    Socket(UdpSocket),
    Engine(Arc<Engine>),
    None,
}

/// A lane of one transfer. It ends when this is dropped.
pub(crate) struct LaneHandle {
    connection: Connection,
    negotiated: Negotiated,
    /// A client's ID, as long as the lane is open.
    _own_id: Option<OwnId>,
    is_server: bool,
    driver: Mutex<Driver>,
    started: Mutex<bool>,
    feed: Arc<Feed>,
    status: Arc<LaneStatus>,
    state: watch::Receiver<LaneState>,
    /// One task feeds it at a time, so that files are sent one after the other.
    turn: Arc<Semaphore>,
    wanted_since: Mutex<Option<Instant>>,
    /// The limit in bits of file content per second; 0 is none.
    limit_bps: AtomicU64,
    priority: Mutex<Priority>,
}

impl LaneHandle {
    /// Makes a lane, driven by a server's engine or on a client's socket.
    pub(super) fn new(
        connection: Connection,
        negotiated: Negotiated,
        driver: Driver,
        own_id: Option<OwnId>,
    ) -> Self {
        let (sender, state) = watch::channel(LaneState::Idle);
        Self {
            connection,
            negotiated,
            _own_id: own_id,
            is_server: matches!(driver, Driver::Engine(_)),
            driver: Mutex::new(driver),
            started: Mutex::new(false),
            feed: Arc::default(),
            status: Arc::new(LaneStatus { state: sender, lost: AtomicU64::new(0) }),
            state,
            turn: Arc::new(Semaphore::new(1)),
            wanted_since: Mutex::default(),
            limit_bps: AtomicU64::new(0),
            priority: Mutex::default(),
        }
    }

    /// Returns its parameters.
    pub(crate) const fn params(&self) -> LaneParams {
        self.negotiated.params
    }

    /// Its name.
    #[cfg(test)]
    pub(crate) const fn name(&self) -> LaneId {
        self.negotiated.lane
    }

    /// Limits the rate of file content, in bits per second. Call it before [`Self::start`].
    pub(crate) fn limit(&self, rate_bps: Option<u64>) {
        self.limit_bps.store(rate_bps.unwrap_or(0), Ordering::Relaxed);
    }

    /// Sets its share beside others. Call it before [`Self::start`].
    pub(crate) fn prioritize(&self, priority: Priority) {
        *lock(&self.priority) = priority;
    }

    /// Opens it, once. Received data goes to `sink`.
    pub(crate) fn start(&self, sink: Option<Arc<dyn Sink>>) {
        let mut started = lock(&self.started);
        if std::mem::replace(&mut *started, true) {
            return;
        }
        self.status.state.send_replace(LaneState::Opening);
        if let Err(error) = self.open(sink) {
            tracing::debug!("no lane to {}: {error}", self.connection.remote_address());
            self.feed.close(Vec::new());
            self.status.state.send_replace(LaneState::GivenUp);
        }
    }

    fn open(&self, sink: Option<Arc<dyn Sink>>) -> io::Result<()> {
        let Negotiated { transfer, lane: id, params, peer_buffer } = self.negotiated;
        let mut peer = self.connection.remote_address();
        let headers = if peer.ip().to_canonical().is_ipv4() { IPV4_UDP } else { IPV6_UDP };
        let towards = SocketAddr::new(peer.ip().to_canonical(), peer.port());
        let mtu = mtu_towards(towards).unwrap_or(MIN_MTU + headers);
        let mut seed = [0; 32];
        aws_lc_rs::rand::fill(&mut seed).map_err(io::Error::other)?;
        let limit = match self.limit_bps.load(Ordering::Relaxed) {
            0 => None,
            // headers and tags are not file content
            limit_bps => Some(limit_bps as f64 / 8.0 * 1.1),
        };
        let priority = *lock(&self.priority);
        // QUIC has validated its own port only
        let is_known = params.port == peer.port();
        // the destination of a client; a server answers
        peer.set_port(params.port);
        let whole = mtu.saturating_sub(headers);
        let config = LaneConfig {
            transfer,
            lane: id,
            sends: if self.is_server { Direction::ToClient } else { Direction::ToServer },
            peer: (!self.is_server).then_some(peer),
            is_known,
            awaits_data: sink.is_some(),
            max_packet: whole.clamp(MIN_MTU, MAX_PACKET),
            chunk: params.chunk,
            rtt: Some(self.connection.rtt()),
            rate: RateConfig { peer_buffer, limit, priority, ..RateConfig::default() },
            seed,
        };
        let exporter = Exporter { connection: self.connection.clone(), cipher: params.cipher };
        let lane = Lane::new(&config, exporter).map_err(io::Error::other)?;
        let feed = Arc::clone(&self.feed);
        let mut flow = Flow::new((id, lane), feed, sink, Arc::clone(&self.status));
        flow.whole = params.chunk.map(|_| whole);
        let mut driver = lock(&self.driver);
        let engine = match std::mem::replace(&mut *driver, Driver::None) {
            Driver::Socket(socket) => Arc::new(Engine::start(socket)?),
            Driver::Engine(engine) => engine,
            Driver::None => return Err(io::ErrorKind::NotConnected.into()),
        };
        engine.command(Command::Open(Box::new(flow)));
        *driver = Driver::Engine(engine);
        Ok(())
    }

    /// Whether data may flow. Waits until the lane is open or has failed to open in time: with
    /// `patient` as long as a lane may take to open, otherwise for a round trip, counted from the
    /// first time that somebody waits.
    pub(crate) async fn is_ready(&self, patient: bool) -> bool {
        // a measurement has no fallback to streams
        let opening = match patient {
            _ if self.negotiated.params.is_measurement() => OPENING_ALONE,
            true => OPENING,
            false => self.connection.rtt().min(OPENING),
        };
        let since = *lock(&self.wanted_since).get_or_insert_with(Instant::now);
        let mut state = self.state.clone();
        let known = state.wait_for(|state| !matches!(state, LaneState::Idle | LaneState::Opening));
        let _ = tokio::time::timeout_at(since + opening, known).await;
        *self.state.borrow() == LaneState::Ready
    }

    /// Waits for permission to feed it.
    pub(crate) async fn turn(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.turn).acquire_owned().await.ok()
    }

    /// Returns a buffer for a part; blocks until there is one.
    pub(crate) fn buffer(&self) -> Result<Vec<u8>, Closed> {
        self.feed.buffer()
    }

    /// Returns an unused buffer.
    pub(crate) fn recycle(&self, buffer: Vec<u8>) {
        self.feed.recycle(buffer);
    }

    /// Queues a part.
    pub(crate) fn push(&self, part: Part) -> Result<(), Closed> {
        if self.feed.push(part)? {
            self.command(Command::Fed(self.negotiated.lane, Arc::clone(&self.feed)));
        }
        Ok(())
    }

    /// Cancels a file.
    pub(crate) fn cancel(&self, file: u32) {
        self.command(Command::Cancel(self.negotiated.lane, Arc::clone(&self.feed), file));
    }

    /// Watches its state.
    pub(crate) fn states(&self) -> watch::Receiver<LaneState> {
        self.state.clone()
    }

    /// Whether it carries data now, or may do so later.
    pub(crate) fn may_recover(&self) -> bool {
        *self.state.borrow() != LaneState::GivenUp
    }

    /// Waits until data may flow; forever if the lane is given up.
    pub(crate) async fn ready(&self) {
        let mut state = self.state.clone();
        if state.wait_for(|state| *state == LaneState::Ready).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Waits for data that was not acknowledged when the lane fell silent or ended; `None` if it
    /// has ended and nothing is left.
    pub(crate) async fn undelivered(&self) -> Option<Vec<Piece>> {
        let mut state = self.state.clone();
        loop {
            let has_ended = *state.borrow_and_update() == LaneState::GivenUp;
            let left = self.feed.undelivered();
            if !left.is_empty() {
                return Some(left);
            }
            if has_ended || state.changed().await.is_err() {
                return None;
            }
        }
    }

    /// Returns the bytes of lost packets.
    pub(crate) fn lost(&self) -> u64 {
        self.status.lost.load(Ordering::Relaxed)
    }

    fn command(&self, command: Command) {
        if let Driver::Engine(engine) = &*lock(&self.driver) {
            engine.command(command);
        }
    }
}

impl Drop for LaneHandle {
    fn drop(&mut self) {
        self.feed.close(Vec::new());
        self.command(Command::Close(self.negotiated.lane, Arc::clone(&self.feed)));
    }
}

/// Opens a client's socket.
fn socket_towards(peer: SocketAddr) -> io::Result<UdpSocket> {
    let any: IpAddr = match peer.ip() {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let options = Options { ignore_errors: true, dual_stack: true, ..Options::default() };
    UdpSocket::bind(SocketAddr::new(any, 0), &options)
}
