//! What goes into an endpoint and what comes out of it.

use std::net::SocketAddr;
use std::sync::Arc;

use headroom_suite::Suite;
use thiserror::Error;

use crate::certificate::CertificateError;
use crate::config::{ChildConfig, Mode};
use crate::crypto::{ChildSecrets, IkeKeys, Spis};
use crate::eap::EapError;
use crate::identity::Identity;
use crate::virtual_address::Assigned;
use crate::wire::{ExchangeType, NotifyType, TrafficSelector};

/// An IKE SA and those that replaced it by rekeying.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct SessionId(pub u64);

/// A CHILD SA; the one that replaces it has another.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct ChildId(pub u64);

/// A datagram to send.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Transmit {
    /// Our address and port.
    pub from: SocketAddr,
    /// The peer's.
    pub to: SocketAddr,
    /// The payload of UDP, with the non-ESP marker where it belongs.
    pub datagram: Vec<u8>,
}

/// What the caller wants.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Command {
    /// Make a CHILD SA of this configuration, besides those that exist.
    CreateChild(SessionId, String),
    /// Replace a CHILD SA, because of its age or what it carried.
    RekeyChild(ChildId),
    /// Remove a CHILD SA.
    CloseChild(ChildId),
    /// Replace the IKE SA.
    Rekey(SessionId),
    /// Replace an IKE SA that we began by a new one, so that both prove again who they are, and with it
    /// its CHILD SAs. The new ones are set up before the old ones are removed.
    Reauthenticate(SessionId),
    /// Remove the IKE SA and its CHILD SAs.
    Close(SessionId),
    /// Ask whether the peer is alive.
    CheckLiveness(SessionId),
    /// Go on between other addresses (RFC 4555): ours, and the peer's.
    Move(SessionId, SocketAddr, SocketAddr),
    /// The peer's ESP arrives from this address now. Messages follow a peer behind a NAT (RFC 7296 §2.23).
    Follow(SessionId, SocketAddr),
    /// Tells that a packet arrived on the CHILD SA: the peer uses it, so we may.
    Heard(ChildId),
}

/// A command names a session, a CHILD SA or a configuration that does not exist.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
#[error("there is no such {0}")]
pub struct NoSuch(pub &'static str);

/// What happened. The order matters: a packet path that follows it loses no packet to a rekey.
#[derive(Debug)]
pub enum Event {
    /// An IKE SA stands, and both peers are authenticated.
    Established {
        /// Which.
        session: SessionId,
        /// The name of its connection.
        connection: String,
        /// The peer's name.
        remote: Identity,
        /// Our address.
        local_address: SocketAddr,
        /// The peer's address.
        remote_address: SocketAddr,
        /// Whether its key exchange resists quantum computers.
        post_quantum: bool,
        /// Where both ends agreed on a post-quantum pre-shared key, if they did.
        ppk: Option<UsedPpk>,
        /// The addresses that the responder assigned to the initiator.
        assigned: Assigned,
    },
    /// The IKE SA was replaced.
    Rekeyed {
        /// Which.
        session: SessionId,
        /// Whether the new key exchange resists quantum computers.
        post_quantum: bool,
    },
    /// A new IKE SA is being set up that is to replace one; the new one is another session.
    Reauthenticating {
        /// The one that is to be replaced.
        session: SessionId,
        /// The new one.
        successor: SessionId,
        /// Our address.
        local_address: SocketAddr,
        /// The peer's address.
        remote_address: SocketAddr,
    },
    /// A CHILD SA is to be installed in both directions; packets are sent on it when
    /// [`Event::Switch`] says so.
    Install(Box<ChildSa>),
    /// From now on packets are sent on this CHILD SA, no more on the one that it replaces.
    Switch(ChildId),
    /// No packet may be sent on this CHILD SA any more; packets that arrive are still accepted.
    StopSending(ChildId),
    /// The CHILD SA is gone in both directions.
    Remove(ChildId),
    /// No CHILD SA was made; the IKE SA is unharmed.
    ChildFailed {
        /// Of which IKE SA.
        session: SessionId,
        /// The name of the configuration, if one was found.
        name: Option<String>,
        /// Why.
        reason: Reason,
    },
    /// Packets go between other addresses: an end has another, or a NAT another mapping.
    Moved {
        /// Of which IKE SA.
        session: SessionId,
        /// Our address.
        local_address: SocketAddr,
        /// The peer's new address.
        remote_address: SocketAddr,
        /// Whether ESP goes in UDP now.
        in_udp: bool,
    },
    /// An IKE SA has new keys. Reported only if the configuration exports them.
    Keys {
        /// Of which session.
        session: SessionId,
        /// The SPIs of its messages.
        spis: Spis,
        /// A copy of the keys.
        keys: Box<IkeKeys>,
    },
    /// A message was sent or taken. Reported only if the configuration wants it.
    Message {
        /// Of which session.
        session: SessionId,
        /// The peer's address.
        remote_address: SocketAddr,
        /// The message.
        message: MessageReport,
    },
    /// The IKE SA is gone, or was never made.
    Closed {
        /// Which.
        session: SessionId,
        /// The peer's address.
        remote_address: SocketAddr,
        /// Why.
        reason: Reason,
    },
}

/// What a post-quantum pre-shared key is mixed into.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum UsedPpk {
    /// The keys of the IKE SA and of all CHILD SAs (RFC 9867).
    All,
    /// The keys of CHILD SAs, and of IKE SAs after the first (RFC 8784).
    AllButFirst,
}

/// A message that was sent or taken.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct MessageReport {
    /// Whether we sent it.
    pub is_sent: bool,
    /// What the exchange is for.
    pub exchange: ExchangeType,
    /// Whether it is a response.
    pub response: bool,
    /// The number of the exchange among those of its requester.
    pub message_id: u32,
    /// Whether it was sent before.
    pub is_repeated: bool,
    /// The error that it brings, or COOKIE.
    pub error: Option<NotifyType>,
}

/// A CHILD SA with its keys.
#[derive(Debug)]
pub struct ChildSa {
    /// Which.
    pub child: ChildId,
    /// Of which IKE SA.
    pub session: SessionId,
    /// Its configuration.
    pub config: Arc<ChildConfig>,
    /// The CHILD SA that it replaces.
    pub replaces: Option<ChildId>,
    /// The algorithms of both directions.
    pub suite: Suite,
    /// Whether sequence numbers have 64 bits.
    pub extended_sequence: bool,
    /// Transport or tunnel.
    pub mode: Mode,
    /// How its packets look.
    pub format: PacketFormat,
    /// The packets that we may send.
    pub local: Vec<TrafficSelector>,
    /// The packets that the peer may send.
    pub remote: Vec<TrafficSelector>,
    /// The resource of this host that it is for; none: for any.
    pub resource: Option<u32>,
    /// What we receive.
    pub inbound: HalfSa,
    /// What we send.
    pub outbound: HalfSa,
}

/// How packets of a CHILD SA look, between the addresses of the IKE SA.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum PacketFormat {
    /// ESP (RFC 4303).
    Esp,
    /// ESP in UDP, on the ports of the IKE SA (RFC 3948).
    EspInUdp,
    /// Q-ESP, with this IP protocol number.
    QEsp(u8),
}

/// One direction of a CHILD SA.
#[derive(Debug)]
pub struct HalfSa {
    /// Its SPI.
    pub spi: u32,
    /// Its keys. They were never used: sequence numbers start at 1.
    pub secrets: ChildSecrets,
}

impl Reason {
    /// Tells whether the peer did not prove who it is.
    #[must_use]
    pub fn is_failed_authentication(&self) -> bool {
        matches!(
            self,
            Self::Identity(_)
                | Self::Authentication(_)
                | Self::Certificate { .. }
                | Self::Eap(_)
                | Self::NoPpk
                | Self::OtherPpk
        )
    }
}

/// Why something failed or ended, for a log. What a peer is told says less.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
pub enum Reason {
    /// The caller asked for it.
    #[error("closed by command")]
    Command,
    /// The peer asked for it.
    #[error("closed by the peer")]
    Peer,
    /// The peer started again and forgot the IKE SA (INITIAL_CONTACT).
    #[error("replaced after the peer's restart")]
    Restarted,
    /// Both have proved again who they are, and a new IKE SA has taken its place.
    #[error("replaced by an IKE SA with new proofs of identity")]
    Reauthenticated,
    /// The time is over in which both had to prove again who they are.
    #[error("the peers did not authenticate again in time")]
    NotReauthenticated,
    /// The peer does not answer.
    #[error("no answer after {0} transmissions")]
    Timeout(u32),
    /// The peer refused, with an authenticated message.
    #[error("the peer refused: {0}")]
    Refused(NotifyType),
    /// Somebody refused, with a message that anybody could have sent; no better answer came.
    #[error("no answer but {0}")]
    Unauthenticated(NotifyType),
    /// The algorithms of both sides have nothing in common.
    #[error("no common algorithms")]
    NoProposal,
    /// Q-ESP is required, and the peer or the path does not have it.
    #[error("the peer does not use Q-ESP, or there is a NAT between")]
    NoQEsp,
    /// The traffic selectors of both sides have nothing in common.
    #[error("no common traffic selectors")]
    NoTraffic,
    /// A post-quantum pre-shared key is required, and the peer does not use it.
    #[error("the peer does not use the post-quantum pre-shared key")]
    NoPpk,
    /// The peer used a post-quantum pre-shared key that is not its connection's.
    #[error("the peer uses another peer's post-quantum pre-shared key")]
    OtherPpk,
    /// The responder assigned no address, and we asked for one.
    #[error("no virtual address was assigned")]
    NoAddress,
    /// The initiator needs an address of ours, and asked for none.
    #[error("the peer asked for no virtual address")]
    AddressNotRequested,
    /// All addresses that an initiator may have are in use.
    #[error("the pool has no free address of an IP version that the peer asked for")]
    PoolExhausted,
    /// The peer has a name that no connection expects.
    #[error("the peer calls itself {0}, which no connection expects")]
    Identity(String),
    /// There is no CHILD SA to set up, and the peer makes no IKE SA without one (RFC 6023).
    #[error("no child is configured, and the peer makes no IKE SA without one")]
    NotChildless,
    /// The peer refuses each key exchange method for another, and has come back to one of them.
    #[error("the peer refuses one key exchange method for the other and takes none")]
    KeyExchange,
    /// The message IDs of the IKE SA are used up, and it could not be rekeyed.
    #[error("the IKE SA has had too many exchanges and could not be rekeyed")]
    MessageIds,
    /// The peer's proof is wrong.
    #[error("{0} did not prove its identity: its secret is not the one that is configured here")]
    Authentication(String),
    /// A certificate or a signature is not accepted.
    #[error("{peer} did not prove its identity: {why}")]
    Certificate {
        /// Who.
        peer: String,
        /// Why.
        why: Box<CertificateError>,
    },
    /// A user is not accepted.
    #[error("{0}")]
    Eap(EapError),
    /// The peer broke the protocol.
    #[error("protocol violation: {0}")]
    Protocol(&'static str),
    /// Too many of them exist.
    #[error("too many {0}")]
    Limit(&'static str),
}
