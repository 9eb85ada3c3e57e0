//! A security association in force: its bound keys, counters, window and lifetime.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use headroom_mutex::lock;
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
    /// The peer, if its address is followed: updated by inbound packets, used by outbound ones.
    pub(crate) peer: Option<Arc<Peer>>,
    pub(crate) state: Arc<State>,
}

/// Lengths of the parts that ESP, Q-ESP or AH adds to a packet, in bytes.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Sizes {
    /// The header of ESP or Q-ESP; 0 for AH.
    pub(crate) header: usize,
    pub(crate) iv: usize,
    /// The unit to which the payload is padded, a power of two.
    pub(crate) block: usize,
    pub(crate) icv: usize,
}

/// The state that survives a reload: numbers, window, counters.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) sequence: SequenceCounter,
    packets: AtomicU64,
    bytes: AtomicU64,
    received: Mutex<ReceiveState>,
    /// Inbound packets that failed.
    pub(crate) failures: Counters,
    loaded_at: Duration,
    stage: AtomicU8,
    expired: AtomicBool,
}

/// The inbound packets accepted.
#[derive(Debug)]
pub(crate) struct ReceiveState {
    window: Window,
    packets: u64,
    bytes: u64,
}

/// The stage of an association's lifetime.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// In use.
    Active,
    /// A soft limit is reached: new keys are due.
    Soft,
    /// A hard limit is reached: the association is out of use.
    Expired,
}

/// A change that the user should know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// An association has reached a limit.
    Lifetime {
        /// Its name.
        sa: String,
        /// The stage it reached.
        stage: Stage,
    },
    /// A peer has moved.
    PeerMoved(PeerMoved),
}

/// Identifies an association across reloads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Identity {
    direction: Direction,
    protocol: Protocol,
    spi: u32,
    extended: bool,
    key: Fingerprint,
    /// The key of a separate integrity algorithm; with the null cipher the only key.
    mac_key: Option<Fingerprint>,
}

impl Sa {
    /// Makes an association. `peer` is given if its address is followed, `kept` if an earlier engine
    /// had the same association.
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
        assert!(sizes.block.is_power_of_two(), "a cipher's block is 4, 8 or 16 bytes");
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
        let SaSpec { direction, spi, extended_sequence: extended, .. } = *spec;
        let protocol = spec.protection.protocol();
        let key = fingerprint(&spec.protection);
        let mac_key = match &spec.protection {
            Protection::Esp(secrets) | Protection::QEsp { secrets, .. } => secrets.mac_key.as_ref(),
            Protection::Ah { .. } => None,
        };
        let mac_key = mac_key.map(headroom_suite::Key::fingerprint);
        Identity { direction, protocol, spi, extended, key, mac_key }
    }

    /// Returns the specification.
    pub fn spec(&self) -> &SaSpec {
        &self.spec
    }

    /// Returns the peer, if its address is followed.
    pub fn peer(&self) -> Option<&Peer> {
        self.peer.as_deref()
    }

    /// Returns the destination of outbound packets: the peer's current address, if it is followed. The
    /// port is 0 without ESP in UDP.
    pub fn remote(&self) -> SocketAddr {
        let configured = || {
            let port = self.spec.udp.map_or(0, |ports| ports.destination);
            SocketAddr::new(self.spec.destination, port)
        };
        self.peer.as_ref().map_or_else(configured, |peer| peer.now())
    }

    /// Returns the sequence number counter, which has no meaning inbound.
    pub fn sequence(&self) -> &SequenceCounter {
        &self.state.sequence
    }

    /// Returns the highest sequence number accepted, which has no meaning outbound.
    pub fn highest_accepted(&self) -> u64 {
        self.state.received().window.top()
    }

    /// Treats every number up to `top` as accepted before: an earlier run may have accepted it.
    pub fn accepted_up_to(&self, top: u64) {
        let mut received = self.state.received();
        if top > received.window.top() {
            received.window = Window::new(self.spec.window, top);
        }
    }

    /// Returns the number of packets protected or accepted.
    pub fn packets(&self) -> u64 {
        self.state.packets.load(Ordering::Relaxed) + self.state.received().packets
    }

    /// Returns the bytes of those packets, without the overhead of protection.
    pub fn bytes(&self) -> u64 {
        self.state.bytes.load(Ordering::Relaxed) + self.state.received().bytes
    }

    /// Returns the inbound packets that failed, by reason.
    pub fn failures(&self) -> &Counters {
        &self.state.failures
    }

    /// Returns the stage of the lifetime.
    pub fn stage(&self) -> Stage {
        match self.state.stage.load(Ordering::Relaxed) {
            0 => Stage::Active,
            1 => Stage::Soft,
            _ => Stage::Expired,
        }
    }

    /// Returns when the association was loaded, on the caller's clock.
    pub fn loaded_at(&self) -> Duration {
        self.state.loaded_at
    }

    /// Checks the limits. Hard limits of packets and bytes hold between two calls as well; the others
    /// take effect here.
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

    /// Counts outbound packets, and refuses those beyond the hard limits.
    pub(crate) fn count_outbound(&self, packets: u64, bytes: u64) -> Result<(), Reason> {
        let before = self.state.packets.fetch_add(packets, Ordering::Relaxed);
        let before_bytes = self.state.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.within_limits(before + packets, before_bytes + bytes).inspect_err(|_| {
            self.state.packets.fetch_sub(packets, Ordering::Relaxed);
            self.state.bytes.fetch_sub(bytes, Ordering::Relaxed);
        })
    }

    /// Checks the sequence number of an inbound packet, given its low half. The result holds the lock of
    /// the window, so no other packet of this association is checked meanwhile: associations are spread
    /// over threads, the packets of one are not.
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

/// An inbound packet whose number is checked and whose check value is not yet verified.
pub(crate) struct PendingPacket<'s> {
    sa: &'s Sa,
    received: MutexGuard<'s, ReceiveState>,
    /// Its whole sequence number.
    pub(crate) sequence: u64,
}

impl PendingPacket<'_> {
    /// Records a verified packet with a payload of `bytes` bytes. Returns whether it moved the peer. An
    /// older packet, which may have been held back on another path, does not.
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

    /// Locks the receive state. A thread that panicked while it held the lock left it consistent.
    fn received(&self) -> MutexGuard<'_, ReceiveState> {
        lock(&self.received)
    }

    fn resize(&self, size: u32) {
        let mut received = self.received();
        if received.window.size() != u64::from(size).next_multiple_of(64) {
            received.window = received.window.resize(size);
        }
    }
}
