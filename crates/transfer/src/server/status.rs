//! The state of a server and what it has counted, for those who watch it.

use std::time::Duration;

use super::Server;
use super::counters::{RequestCount, Traffic};
use super::record::Direction;
use crate::admission::RejectionCounts;
use crate::files::Requests;
use crate::lanes::{DropCounts, Port};

/// The state of a server, and its counts since its start. Nothing in it names a client or a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    /// How long it has served.
    pub uptime: Duration,
    /// Whether it shuts down.
    pub is_draining: bool,
    /// QUIC connections, those of browsers and handshakes included.
    pub connections: usize,
    /// TCP connections, of browsers.
    pub tcp_connections: usize,
    /// Handshakes in progress or waiting, and sessions of clients that are not authenticated.
    pub handshakes: usize,
    /// Sessions of authenticated clients.
    pub sessions: u64,
    /// Such sessions that have begun.
    pub sessions_started: u64,
    /// What came from clients.
    pub received: Traffic,
    /// What went to clients.
    pub sent: Traffic,
    /// Requests that have ended, for each operation and outcome, also where there were none.
    pub requests: Vec<RequestCount>,
    /// What was rejected.
    pub rejections: RejectionCounts,
    /// What lanes have dropped.
    pub dropped: DropCounts,
    /// The requests that an object store has answered; `None` if a directory is served.
    pub store: Option<Requests>,
}

impl Server {
    /// Reads the server's state and counts.
    #[must_use]
    pub fn status(&self) -> Status {
        let shared = &self.shared;
        let (sessions, sessions_started) = shared.counters.sessions();
        Status {
            uptime: shared.started.elapsed(),
            is_draining: self.is_draining(),
            connections: self.connections(),
            tcp_connections: shared.admission.tcp_connections(),
            handshakes: shared.admission.handshakes(),
            sessions,
            sessions_started,
            received: shared.counters.traffic(Direction::Received),
            sent: shared.counters.traffic(Direction::Sent),
            requests: shared.counters.requests(),
            rejections: self.rejections(),
            dropped: shared.lanes.as_ref().map(Port::drop_counts).unwrap_or_default(),
            store: shared.root.requests(),
        }
    }
}
