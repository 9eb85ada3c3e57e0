//! A security association in force: its keys made ready, and what it has done
//! so far.

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use headroom_suite::{Fingerprint, KeyError};

use crate::headers::Outer;
use crate::peer::{Peer, PeerMoved};
use crate::reason::{Counters, Reason};
use crate::replay::Window;
use crate::sequence_counter::SequenceCounter;
use crate::spec::{Direction, Limits, Protection, Protocol, SaSpec};
use crate::tos;
use crate::transform::SaTransform;

/// A security association (RFC 4301, section 4.4.2).
#[derive(Debug)]
pub struct Sa {
    pub(crate) spec: SaSpec,
    pub(crate) transform: SaTransform,
    pub(crate) sizes: Sizes,
    pub(crate) tos: tos::Rules,
    /// Where its address is followed: inbound it is heard, outbound it is sent to.
    pub(crate) peer: Option<Arc<Peer>>,
    pub(crate) state: Arc<State>,
}

/// Octets of the parts that ESP, Q-ESP or AH puts around a packet, asked once.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Sizes {
    /// ESP's or Q-ESP's header; none for AH.
    pub(crate) header: usize,
    pub(crate) iv: usize,
    /// What text is padded to, a power of two.
    pub(crate) block: usize,
    pub(crate) icv: usize,
}

/// What outlives a reload: numbers, window, counters.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) sequence: SequenceCounter,
    packets: AtomicU64,
    bytes: AtomicU64,
    received: Mutex<ReceiveState>,
    /// Packets that failed, inbound.
    pub(crate) failures: Counters,
    loaded_at: Duration,
    stage: AtomicU8,
    expired: AtomicBool,
}

/// What was accepted, inbound.
#[derive(Debug)]
pub(crate) struct ReceiveState {
    window: Window,
    packets: u64,
    bytes: u64,
}

/// How far an association's life has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// In use.
    Active,
    /// A soft limit is reached: a replacement is due.
    Soft,
    /// A hard limit is reached: it protects nothing any more.
    Expired,
}

/// What has just happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// An association has reached a limit.
    Lifetime {
        /// Its name.
        sa: String,
        /// What it has come to.
        stage: Stage,
    },
    /// A peer is elsewhere.
    PeerMoved(PeerMoved),
}

/// What makes two associations the same one, before and after a reload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Identity {
    direction: Direction,
    protocol: Protocol,
    spi: u32,
    source: IpAddr,
    destination: IpAddr,
    extended: bool,
    key: Fingerprint,
    /// Of a separate integrity algorithm: with the null cipher it is the only key.
    mac_key: Option<Fingerprint>,
}

impl Sa {
    /// `peer` is there where its address is followed, `kept` is what an earlier
    /// engine had of the same association.
    pub(crate) fn new(
        spec: SaSpec,
        peer: Option<Arc<Peer>>,
        kept: Option<Arc<State>>,
        now: Duration,
    ) -> Result<Self, KeyError> {
        let transform = SaTransform::bind(&spec.protection)?;
        let sizes = match &transform {
            SaTransform::Cipher(transform) => Sizes {
                header: spec.protection.protocol().cipher_header_len(),
                iv: transform.iv_len(),
                block: transform.block_len(),
                icv: transform.icv_len(),
            },
            SaTransform::Mac(mac) => Sizes { block: 1, icv: mac.icv_len(), ..Sizes::default() },
        };
        assert!(sizes.block.is_power_of_two(), "a cipher's block is 4, 8 or 16 octets");
        let tos = tos::Rules::new(&spec.dscp, spec.ecn);
        let state = match kept {
            Some(state) => {
                state.resize(spec.window);
                state
            }
            None => Arc::new(State::new(&spec, now)),
        };
        Ok(Self { spec, transform, sizes, tos, peer, state })
    }

    pub(crate) fn identity(spec: &SaSpec) -> Identity {
        let SaSpec { direction, spi, source, destination, extended_sequence: extended, .. } = *spec;
        let protocol = spec.protection.protocol();
        let key = fingerprint(&spec.protection);
        let mac_key = match &spec.protection {
            Protection::Esp(secrets) | Protection::QEsp { secrets, .. } => secrets.mac_key.as_ref(),
            Protection::Ah { .. } => None,
        };
        let mac_key = mac_key.map(headroom_suite::Key::fingerprint);
        Identity { direction, protocol, spi, source, destination, extended, key, mac_key }
    }

    /// What it was made of.
    pub fn spec(&self) -> &SaSpec {
        &self.spec
    }

    /// The peer, where its address is followed.
    pub fn peer(&self) -> Option<&Peer> {
        self.peer.as_deref()
    }

    /// Where outbound packets go: where the peer is now, if it is followed. The
    /// port is 0 where it is not ESP in UDP.
    pub fn remote(&self) -> SocketAddr {
        let configured = || {
            let port = self.spec.udp.map_or(0, |ports| ports.destination);
            SocketAddr::new(self.spec.destination, port)
        };
        self.peer.as_ref().map_or_else(configured, |peer| peer.now())
    }

    /// Its sequence numbers; of no meaning inbound.
    pub fn sequence(&self) -> &SequenceCounter {
        &self.state.sequence
    }

    /// The highest sequence number accepted; of no meaning outbound.
    pub fn highest_accepted(&self) -> u64 {
        self.state.received().window.top()
    }

    /// Takes every number up to `top` as accepted before: an earlier life of
    /// this association may have accepted them.
    pub fn accepted_up_to(&self, top: u64) {
        let mut received = self.state.received();
        if top > received.window.top() {
            received.window = Window::new(self.spec.window, top);
        }
    }

    /// Packets protected or accepted.
    pub fn packets(&self) -> u64 {
        self.state.packets.load(Ordering::Relaxed) + self.state.received().packets
    }

    /// Octets of those, without what protection adds.
    pub fn bytes(&self) -> u64 {
        self.state.bytes.load(Ordering::Relaxed) + self.state.received().bytes
    }

    /// Packets that failed, by reason; inbound.
    pub fn failures(&self) -> &Counters {
        &self.state.failures
    }

    /// How far its life has come.
    pub fn stage(&self) -> Stage {
        match self.state.stage.load(Ordering::Relaxed) {
            0 => Stage::Active,
            1 => Stage::Soft,
            _ => Stage::Expired,
        }
    }

    /// When it was loaded, on the caller's clock.
    pub fn loaded_at(&self) -> Duration {
        self.state.loaded_at
    }

    /// Looks whether a limit is reached. The hard limits of packets and octets
    /// hold between two calls too; the others are noticed here.
    pub(crate) fn tick(&self, now: Duration) -> Option<Event> {
        let age = now.saturating_sub(self.state.loaded_at).as_secs();
        let reached = |limits: &Limits| {
            limits.bytes.is_some_and(|most| self.bytes() >= most)
                || limits.packets.is_some_and(|most| self.packets() >= most)
                || limits.seconds.is_some_and(|most| age >= most)
        };
        let stage = match &self.spec.lifetime {
            lifetime if reached(&lifetime.hard) => Stage::Expired,
            lifetime if reached(&lifetime.soft) => Stage::Soft,
            _ => Stage::Active,
        };
        if stage <= self.stage() {
            return None;
        }
        self.state.stage.store(stage as u8, Ordering::Relaxed);
        self.state.expired.store(stage == Stage::Expired, Ordering::Release);
        Some(Event::Lifetime { sa: self.spec.name.clone(), stage })
    }

    /// Notes packets that leave, and refuses those beyond the hard limits.
    pub(crate) fn count_outbound(&self, packets: u64, bytes: u64) -> Result<(), Reason> {
        let before = self.state.packets.fetch_add(packets, Ordering::Relaxed);
        let before_bytes = self.state.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.within_limits(before + packets, before_bytes + bytes).inspect_err(|_| {
            self.state.packets.fetch_sub(packets, Ordering::Relaxed);
            self.state.bytes.fetch_sub(bytes, Ordering::Relaxed);
        })
    }

    /// Looks at the sequence number of a packet that arrived, of which the lower
    /// half is `low`. While what is returned is held, no other packet of this
    /// association is looked at: associations are spread over threads, not the
    /// packets of one.
    #[inline(always)]
    pub(crate) fn receive(&self, low: u32) -> Result<PendingPacket<'_>, Reason> {
        let received = self.state.received();
        let sequence = received.window.infer(low, self.spec.extended_sequence);
        let sequence = sequence.ok_or(Reason::Stale)?;
        received.window.check(sequence)?;
        Ok(PendingPacket { sa: self, received, sequence })
    }

    #[inline(always)]
    fn within_limits(&self, packets: u64, bytes: u64) -> Result<(), Reason> {
        let Limits { bytes: most_bytes, packets: most_packets, .. } = self.spec.lifetime.hard;
        let over = |amount: u64, most: Option<u64>| most.is_some_and(|most| amount > most);
        let expired = self.state.expired.load(Ordering::Acquire);
        if expired || over(packets, most_packets) || over(bytes, most_bytes) {
            return Err(Reason::Expired);
        }
        Ok(())
    }
}

/// A packet between the look at its number and the verdict on its check value.
pub(crate) struct PendingPacket<'s> {
    sa: &'s Sa,
    received: MutexGuard<'s, ReceiveState>,
    /// Its whole sequence number.
    pub(crate) sequence: u64,
}

impl PendingPacket<'_> {
    /// Notes that its check value was right, and that it protects `bytes` octets;
    /// says whether the peer has moved to where it came from. An older packet,
    /// which may have been held back on another path, moves nobody.
    #[inline(always)]
    pub(crate) fn accept(mut self, outer: &Outer<'_>, bytes: usize) -> Result<bool, Reason> {
        let newest = self.sequence > self.received.window.top();
        self.received.window.accept(self.sequence)?;
        let (packets, bytes) = (self.received.packets + 1, self.received.bytes + bytes as u64);
        self.sa.within_limits(packets, bytes)?;
        (self.received.packets, self.received.bytes) = (packets, bytes);
        Ok(match (&self.sa.peer, outer.udp) {
            (Some(peer), Some((port, _))) if newest => {
                peer.learn(SocketAddr::new(outer.source, port))
            }
            _ => false,
        })
    }
}

fn fingerprint(protection: &Protection) -> Fingerprint {
    match protection {
        Protection::Esp(secrets) | Protection::QEsp { secrets, .. } => secrets.key.fingerprint(),
        Protection::Ah { key, .. } => key.fingerprint(),
    }
}

impl State {
    fn new(spec: &SaSpec, now: Duration) -> Self {
        Self {
            sequence: SequenceCounter::new(spec.extended_sequence),
            packets: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            received: Mutex::new(ReceiveState {
                window: Window::new(spec.window, 0),
                packets: 0,
                bytes: 0,
            }),
            failures: Counters::default(),
            loaded_at: now,
            stage: AtomicU8::new(Stage::Active as u8),
            expired: AtomicBool::new(false),
        }
    }

    /// What was accepted; whoever panicked with it in hand left it whole.
    fn received(&self) -> MutexGuard<'_, ReceiveState> {
        self.received.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn resize(&self, size: u32) {
        let mut received = self.received();
        if received.window.size() != u64::from(size).next_multiple_of(64) {
            received.window = received.window.resize(size);
        }
    }
}
