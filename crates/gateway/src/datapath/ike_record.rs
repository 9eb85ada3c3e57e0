//! What IKE does, for `tunnel trace`.

use std::net::SocketAddr;
use std::time::Duration;

use serde::Serialize;

/// A record of a message of IKE, or of what became of an SA.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct IkeRecord {
    /// The time since the gateway started.
    pub time: Duration,
    /// What happened.
    pub ike: IkeEvent,
    /// The name of the peer's `[[ike]]`, once it is known.
    pub peer: Option<String>,
    /// The peer's address.
    pub remote: Option<SocketAddr>,
    /// The message that was sent or taken.
    #[serde(flatten)]
    pub message: Option<IkeMessageRecord>,
    /// The name of the `[[child]]`.
    pub child: Option<String>,
    /// The SPIs of a CHILD SA, inbound and outbound.
    pub spis: Option<(u32, u32)>,
    /// Why.
    pub reason: Option<String>,
}

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum IkeEvent {
    /// A message was sent or taken.
    Message,
    /// An IKE SA stands.
    Established,
    /// An IKE SA was replaced.
    Rekeyed,
    /// The peer, or this host, has another address.
    Moved,
    /// An IKE SA is gone, or was never made.
    Closed,
    /// A CHILD SA was made.
    ChildInstalled,
    /// A CHILD SA was made that replaces another.
    ChildRekeyed,
    /// A CHILD SA is gone.
    ChildRemoved,
    /// A CHILD SA was not made.
    ChildFailed,
}

/// A message of IKE.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct IkeMessageRecord {
    /// `out` or `in`.
    pub direction: &'static str,
    /// The name of the exchange, or its number.
    pub exchange: String,
    /// `request` or `response`.
    pub kind: &'static str,
    /// The number of the exchange among those of its requester.
    pub message_id: u32,
    /// Whether it was sent before.
    pub repeated: bool,
    /// The error that it brings, or COOKIE.
    pub error: Option<String>,
}

impl IkeRecord {
    /// Makes a record without what only some have.
    pub(crate) fn new(ike: IkeEvent) -> Self {
        let (time, peer, remote, message) = (Duration::ZERO, None, None, None);
        Self { time, ike, peer, remote, message, child: None, spis: None, reason: None }
    }
}
