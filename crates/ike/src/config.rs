//! What the caller decides: whom to talk to, with which algorithms, when and how much.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use headroom_suite::Key;

use crate::certificate::{Authorities, Credential};
use crate::eap::EapMethod;
use crate::identity::Identity;
use crate::proposal::{ChildProposal, IkeProposal};
use crate::virtual_address::VirtualAddresses;
use crate::wire::TrafficSelector;

/// The settings of an [`Endpoint`](crate::Endpoint).
#[derive(Debug)]
pub struct Config {
    /// The peers. A responder takes the first connection that fits.
    pub connections: Vec<Arc<Connection>>,
    /// The port where messages have the non-ESP marker (RFC 3948 §2.2).
    pub nat_port: u16,
    /// Whether to pretend to be behind a NAT, so that both ends put ESP into UDP.
    pub force_encapsulation: bool,
    /// The length above which a message is fragmented, if the peer supports it (RFC 7383), in bytes
    /// without IP and UDP headers and marker.
    pub max_message_len: usize,
    /// Timers.
    pub timing: Timing,
    /// Bounds on what peers cause before they are authenticated.
    pub limits: Limits,
    /// Whether [`Event::Keys`](crate::Event::Keys) reports the keys of IKE SAs, to decrypt captures.
    pub export_keys: bool,
    /// Whether [`Event::Message`](crate::Event::Message) reports each message.
    pub report_messages: bool,
}

/// Timers.
#[derive(Clone, Debug)]
pub struct Timing {
    /// The time before the first retransmission; it doubles for each next one.
    pub retransmit: Duration,
    /// The longest time between retransmissions.
    pub retransmit_max: Duration,
    /// The number of retransmissions after which the peer is taken for dead.
    pub retransmissions: u32,
    /// The time after which a peer that sent nothing is asked whether it is alive, where its
    /// connection does not say another.
    pub liveness: Option<Duration>,
    /// The part of an age by which rekeying is earlier, at most and at random, in percent.
    pub jitter_percent: u32,
    /// The time after which what a peer temporarily refused is asked again.
    pub retry: Duration,
    /// The time for which packets of a removed CHILD SA are still accepted: the reordering of the
    /// network.
    pub reorder: Duration,
    /// The time for which a responder keeps what its initiator does not finish.
    pub half_open: Duration,
}

/// Bounds on what peers cause.
#[derive(Clone, Debug)]
pub struct Limits {
    /// The number of half-open IKE SAs above which a responder demands cookies (RFC 7296 §2.6).
    pub cookie_threshold: usize,
    /// The most half-open IKE SAs as responder.
    pub half_open: usize,
    /// The most of them that one source has: an IPv4 address, or an IPv6 network of 64 bits. More than
    /// `cookie_threshold`, so that nobody who writes another's address fills what that one may have.
    pub half_open_of_source: usize,
    /// The most IKE SAs.
    pub sessions: usize,
    /// The most CHILD SAs of an IKE SA that a peer makes, besides those of single resources
    /// ([`ChildConfig::per_resource`]); as many again may replace them.
    pub children: usize,
    /// The number of requests of either end after which an IKE SA is rekeyed; after twice as many it
    /// is deleted, for message IDs must not repeat (RFC 7296 §2.2). At most 2³⁰.
    pub requests: u32,
}

/// One peer, or several with the same rules.
#[derive(Debug)]
pub struct Connection {
    /// A unique name.
    pub name: String,
    /// Our name.
    pub local: Identity,
    /// The peer's name; none for any that has the secret.
    pub remote: Option<Identity>,
    /// The address that a responder accepts; none for any.
    pub remote_address: Option<IpAddr>,
    /// How both prove who they are.
    pub auth: Auth,
    /// Algorithms of the IKE SA.
    pub ike: Vec<IkeProposal>,
    /// A key beside the key exchange, against quantum computers (RFC 8784, RFC 9867); not with EAP.
    pub ppk: Option<Ppk>,
    /// Whether an initiator may change its address (MOBIKE, RFC 4555).
    pub mobike: bool,
    /// Whether one end assigns addresses to the other.
    pub virtual_addresses: VirtualAddresses,
    /// The CHILD SAs that may exist; an initiator makes the first with the IKE SA.
    pub children: Vec<Arc<ChildConfig>>,
    /// The age at which the IKE SA is rekeyed; none: by command alone.
    pub rekey: Option<Duration>,
    /// The age at which an initiator sets up a new IKE SA in place of this one, so that both prove again
    /// who they are; a responder asks it to. One that is not replaced ends a tenth of it later, and a
    /// minute at least. None: never.
    pub reauthenticate: Option<Duration>,
    /// The time after which a peer that sent nothing is asked whether it is alive; none: as
    /// [`Timing::liveness`].
    pub liveness: Option<Duration>,
}

impl Connection {
    /// Decides whether a responder accepts a peer from this address.
    pub(crate) fn accepts(&self, from: IpAddr) -> bool {
        self.remote_address.is_none_or(|address| address == from)
    }
}

/// How both peers prove who they are. Each may do it in its own way (RFC 7296 §2.15).
#[derive(Debug)]
pub struct Auth {
    /// Our way.
    pub local: LocalAuth,
    /// The peer's.
    pub remote: RemoteAuth,
}

/// How we prove who we are.
#[derive(Debug)]
pub enum LocalAuth {
    /// By a pre-shared key.
    SharedKey(Key),
    /// By a signature of the key of our certificate.
    Certificate(Arc<Credential>),
}

/// How a peer proves who it is.
#[derive(Debug)]
pub enum RemoteAuth {
    /// By a pre-shared key.
    SharedKey(Key),
    /// By a signature of the key of a certificate of these authorities. The certificate must have
    /// the name that the peer shows.
    Certificate(Arc<Authorities>),
    /// By EAP, with the first of these methods that it has. We are the responder, and prove who we
    /// are by a certificate. The name of the connection's peer is that of the user.
    Eap(Vec<EapMethod>),
}

/// A CHILD SA that may exist.
#[derive(Debug)]
pub struct ChildConfig {
    /// A name, unique in its connection.
    pub name: String,
    /// The packets that we may send.
    pub local: Vec<TrafficSelector>,
    /// The packets that the peer may send.
    pub remote: Vec<TrafficSelector>,
    /// Transport or tunnel.
    pub mode: Mode,
    /// Algorithms.
    pub proposals: Vec<ChildProposal>,
    /// Whether packets may have Q-ESP's header; none: ESP alone.
    pub qesp: Option<QEsp>,
    /// The age at which it is rekeyed; none: by command alone.
    pub rekey: Option<Duration>,
    /// The number of resources of this host, such as queues, each of which has a CHILD SA of its own
    /// besides the first one (RFC 9611); 0: the first alone. The inbound SPI of that of resource `n`
    /// leaves the remainder `n` when it is divided by this number.
    pub per_resource: u32,
}

/// A post-quantum pre-shared key.
#[derive(Debug)]
pub struct Ppk {
    /// Its name, the same on both sides.
    pub id: Vec<u8>,
    /// The key: 32 random bytes or more.
    pub key: Key,
    /// Whether a peer that does not have it is refused.
    pub is_required: bool,
    /// The exchange in which both ends agree on it.
    pub exchange: PpkExchange,
}

/// The exchange in which both ends agree on a post-quantum pre-shared key.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum PpkExchange {
    /// IKE_INTERMEDIATE, or IKE_AUTH with a peer that does not have the other.
    #[default]
    Either,
    /// IKE_INTERMEDIATE (RFC 9867). The key protects all messages from IKE_AUTH on, with the names of
    /// both peers, and what is derived later: CHILD SAs, and the IKE SA when it is rekeyed.
    Intermediate,
    /// IKE_AUTH (RFC 8784). The key protects what is derived later, but not the first IKE SA.
    Auth,
}

/// Q-ESP in place of ESP (docs/qesp.md). It needs a path without NAT.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct QEsp {
    /// Its IP protocol number, the same on both sides.
    pub protocol: u8,
    /// Whether a peer that does not agree has no CHILD SA, and not one of ESP.
    pub is_required: bool,
}

/// What a CHILD SA protects (RFC 4301 §4.1).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Mode {
    /// The payload of packets between the two hosts.
    Transport,
    /// Whole packets.
    Tunnel,
}

impl Config {
    /// Makes a configuration with the usual settings.
    #[must_use]
    pub fn new(connections: Vec<Connection>) -> Self {
        Self {
            connections: connections.into_iter().map(Arc::new).collect(),
            nat_port: 4500,
            force_encapsulation: false,
            // IPv6's least MTU of 1280, less IPv6 and UDP headers and the marker
            max_message_len: 1280 - 40 - 8 - 4,
            timing: Timing::default(),
            limits: Limits::default(),
            export_keys: false,
            report_messages: false,
        }
    }
}

impl Auth {
    /// Returns the pre-shared key of both.
    #[must_use]
    pub fn shared_key(key: &Key) -> Self {
        let copy = || Key::from_bytes(key.as_bytes());
        Self { local: LocalAuth::SharedKey(copy()), remote: RemoteAuth::SharedKey(copy()) }
    }

    /// Tells whether two prove the same in the same way. Two of EAP are never the same.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        let local = match (&self.local, &other.local) {
            (LocalAuth::SharedKey(one), LocalAuth::SharedKey(other)) => {
                one.fingerprint() == other.fingerprint()
            }
            (LocalAuth::Certificate(one), LocalAuth::Certificate(other)) => one.is_same(other),
            _ => false,
        };
        let remote = match (&self.remote, &other.remote) {
            (RemoteAuth::SharedKey(one), RemoteAuth::SharedKey(other)) => {
                one.fingerprint() == other.fingerprint()
            }
            (RemoteAuth::Certificate(one), RemoteAuth::Certificate(other)) => one.is_same(other),
            _ => false,
        };
        local && remote
    }
}

impl Ppk {
    /// Checks whether both are the same key by the same name.
    #[must_use]
    pub fn is_same_key(&self, other: &Self) -> bool {
        self.id == other.id && self.key.fingerprint() == other.key.fingerprint()
    }
}

impl PpkExchange {
    pub(crate) fn permits_intermediate(self) -> bool {
        matches!(self, Self::Either | Self::Intermediate)
    }

    pub(crate) fn permits_auth(self) -> bool {
        matches!(self, Self::Either | Self::Auth)
    }
}

impl RemoteAuth {
    /// Returns whose certificates it takes, if it takes any.
    pub(crate) fn authorities(&self) -> Option<&Authorities> {
        match self {
            Self::Certificate(authorities) => Some(authorities),
            Self::SharedKey(_) | Self::Eap(_) => None,
        }
    }
}

impl Timing {
    /// Returns the time after which a peer without answer is taken for dead: for so long the other
    /// end must answer retransmissions.
    pub(crate) fn exchange(&self) -> Duration {
        let (mut total, mut interval) = (self.retransmit, self.retransmit);
        for _ in 0..self.retransmissions {
            interval = (2 * interval).min(self.retransmit_max);
            total += interval;
        }
        total
    }
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            retransmit: Duration::from_millis(500),
            retransmit_max: Duration::from_secs(8),
            retransmissions: 8,
            liveness: Some(Duration::from_secs(30)),
            jitter_percent: 10,
            retry: Duration::from_secs(2),
            reorder: Duration::from_secs(2),
            half_open: Duration::from_secs(30),
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            cookie_threshold: 32,
            half_open: 1024,
            half_open_of_source: 64,
            sessions: 16 * 1024,
            children: 32,
            requests: 1 << 30,
        }
    }
}
