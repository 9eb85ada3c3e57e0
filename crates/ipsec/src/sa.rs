//! A security association in force: its keys made ready, and what it has done
//! so far.

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use headroom_suite::{Authenticator, Fingerprint, KeyError, Transform};

use crate::headers::Outer;
use crate::numbers::Sequence;
use crate::peer::{Moved, Peer};
use crate::reason::{Counters, Reason};
use crate::replay::Window;
use crate::spec::{Direction, Limits, Protection, Protocol, SaSpec, Secrets};
use crate::tos;

/// A security association (RFC 4301, section 4.4.2).
#[derive(Debug)]
pub struct Sa {
    pub(crate) spec: SaSpec,
    pub(crate) guard: Guard,
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

/// The algorithms with their keys.
#[derive(Debug)]
pub(crate) enum Guard {
    /// ESP's and Q-ESP's.
    Cipher(Box<dyn Transform>),
    /// AH's.
    Mac(Authenticator),
}

/// What outlives a reload: numbers, window, counters.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) sequence: Sequence,
    packets: AtomicU64,
    bytes: AtomicU64,
    receipt: Mutex<Receipt>,
    /// Packets that failed, inbound.
    pub(crate) failures: Counters,
    born: Duration,
    stage: AtomicU8,
    expired: AtomicBool,
}

/// What was accepted, inbound.
#[derive(Debug)]
pub(crate) struct Receipt {
    window: Window,
    packets: u64,
    bytes: u64,
}

/// How far an association's life has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// In use.
    Young,
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
    Moved(Moved),
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
        let guard = match &spec.protection {
            Protection::Esp(secrets) | Protection::QEsp { secrets, .. } => {
                let Secrets { suite, key, mac_key } = secrets;
                Guard::Cipher(suite.bind(key, mac_key.as_ref())?)
            }
            Protection::Ah { mac, key } => Guard::Mac(mac.bind(key)?),
        };
        let sizes = match &guard {
            Guard::Cipher(transform) => Sizes {
                header: spec.protection.protocol().cipher_header_len(),
                iv: transform.iv_len(),
                block: transform.block_len(),
                icv: transform.icv_len(),
            },
            Guard::Mac(mac) => Sizes { block: 1, icv: mac.icv_len(), ..Sizes::default() },
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
        Ok(Self { spec, guard, sizes, tos, peer, state })
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
    pub fn goes_to(&self) -> SocketAddr {
        let configured = || {
            let port = self.spec.udp.map_or(0, |ports| ports.destination);
            SocketAddr::new(self.spec.destination, port)
        };
        self.peer.as_ref().map_or_else(configured, |peer| peer.now())
    }

    /// Its sequence numbers; of no meaning inbound.
    pub fn sequence(&self) -> &Sequence {
        &self.state.sequence
    }

    /// The highest sequence number accepted; of no meaning outbound.
    pub fn highest_accepted(&self) -> u64 {
        self.state.receipt().window.top()
    }

    /// Takes every number up to `top` as accepted before: an earlier life of
    /// this association may have accepted them.
    pub fn accepted_up_to(&self, top: u64) {
        let mut receipt = self.state.receipt();
        if top > receipt.window.top() {
            receipt.window = Window::new(self.spec.window, top);
        }
    }

    /// Packets protected or accepted.
    pub fn packets(&self) -> u64 {
        self.state.packets.load(Ordering::Relaxed) + self.state.receipt().packets
    }

    /// Octets of those, without what protection adds.
    pub fn bytes(&self) -> u64 {
        self.state.bytes.load(Ordering::Relaxed) + self.state.receipt().bytes
    }

    /// Packets that failed, by reason; inbound.
    pub fn failures(&self) -> &Counters {
        &self.state.failures
    }

    /// How far its life has come.
    pub fn stage(&self) -> Stage {
        match self.state.stage.load(Ordering::Relaxed) {
            0 => Stage::Young,
            1 => Stage::Soft,
            _ => Stage::Expired,
        }
    }

    /// When it was loaded, on the caller's clock.
    pub fn born(&self) -> Duration {
        self.state.born
    }

    /// Looks whether a limit is reached. The hard limits of packets and octets
    /// hold between two calls too; the others are noticed here.
    pub(crate) fn tick(&self, now: Duration) -> Option<Event> {
        let age = now.saturating_sub(self.state.born).as_secs();
        let reached = |limits: &Limits| {
            limits.bytes.is_some_and(|most| self.bytes() >= most)
                || limits.packets.is_some_and(|most| self.packets() >= most)
                || limits.seconds.is_some_and(|most| age >= most)
        };
        let stage = match &self.spec.lifetime {
            lifetime if reached(&lifetime.hard) => Stage::Expired,
            lifetime if reached(&lifetime.soft) => Stage::Soft,
            _ => Stage::Young,
        };
        if stage <= self.stage() {
            return None;
        }
        self.state.stage.store(stage as u8, Ordering::Relaxed);
        self.state.expired.store(stage == Stage::Expired, Ordering::Release);
        Some(Event::Lifetime { sa: self.spec.name.clone(), stage })
    }

    /// Notes packets that leave, and refuses those beyond the hard limits.
    pub(crate) fn account(&self, packets: u64, bytes: u64) -> Result<(), Reason> {
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
    pub(crate) fn receive(&self, low: u32) -> Result<Receiving<'_>, Reason> {
        let receipt = self.state.receipt();
        let sequence = receipt.window.infer(low, self.spec.extended_sequence);
        let sequence = sequence.ok_or(Reason::Stale)?;
        receipt.window.check(sequence)?;
        Ok(Receiving { sa: self, receipt, sequence })
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
pub(crate) struct Receiving<'s> {
    sa: &'s Sa,
    receipt: MutexGuard<'s, Receipt>,
    /// Its whole sequence number.
    pub(crate) sequence: u64,
}

impl Receiving<'_> {
    /// Notes that its check value was right, and that it protects `bytes` octets;
    /// says whether the peer has moved to where it came from. An older packet,
    /// which may have been held back on another path, moves nobody.
    #[inline(always)]
    pub(crate) fn accept(mut self, outer: &Outer<'_>, bytes: usize) -> Result<bool, Reason> {
        let newest = self.sequence > self.receipt.window.top();
        self.receipt.window.accept(self.sequence)?;
        let (packets, bytes) = (self.receipt.packets + 1, self.receipt.bytes + bytes as u64);
        self.sa.within_limits(packets, bytes)?;
        (self.receipt.packets, self.receipt.bytes) = (packets, bytes);
        Ok(match (&self.sa.peer, outer.udp) {
            (Some(peer), Some((port, _))) if newest => {
                peer.heard(SocketAddr::new(outer.source, port))
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
            sequence: Sequence::new(spec.extended_sequence),
            packets: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            receipt: Mutex::new(Receipt {
                window: Window::new(spec.window, 0),
                packets: 0,
                bytes: 0,
            }),
            failures: Counters::default(),
            born: now,
            stage: AtomicU8::new(Stage::Young as u8),
            expired: AtomicBool::new(false),
        }
    }

    /// What was accepted; whoever panicked with it in hand left it whole.
    fn receipt(&self) -> MutexGuard<'_, Receipt> {
        self.receipt.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn resize(&self, size: u32) {
        let mut receipt = self.receipt();
        if receipt.window.size() != u64::from(size).next_multiple_of(64) {
            receipt.window = receipt.window.resize(size);
        }
    }
}
