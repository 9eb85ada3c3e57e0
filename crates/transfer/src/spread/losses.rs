//! Which sessions with servers are there, and which were lost.

use std::net::SocketAddr;
use std::time::Instant;

use crate::error::Error;

/// How many sessions are there.
#[derive(Debug, Default)]
pub(super) struct Losses {
    /// By servers.
    pub(super) sessions: Vec<Sessions>,
    /// Servers that were given up.
    pub(super) gone: Vec<usize>,
    /// Since when none is connected.
    pub(super) since: Option<Instant>,
    /// Why the last session was lost.
    pub(super) error: Option<Error>,
}

/// The sessions with one server.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Sessions {
    /// Those that are connected.
    pub(super) connected: usize,
    /// Those, and sessions that are tried again or not needed yet.
    pub(super) left: usize,
    /// Where the last one was connected.
    pub(super) address: Option<SocketAddr>,
}

impl Losses {
    pub(super) fn left(&self) -> usize {
        self.sessions.iter().map(|sessions| sessions.left).sum()
    }

    /// Returns where a session with this server is connected, if there is one.
    pub(super) fn connected_at(&self, server: usize) -> Option<SocketAddr> {
        let Sessions { connected, address, .. } = self.sessions[server];
        address.filter(|_| connected > 0)
    }

    /// Notes the loss of a session. Returns whether it was the last one with its server.
    pub(super) fn lose(&mut self, server: usize) -> bool {
        self.sessions[server].connected -= 1;
        if self.sessions.iter().all(|sessions| sessions.connected == 0) {
            self.since = Some(Instant::now());
        }
        self.sessions[server].connected == 0
    }

    pub(super) fn find(&mut self, server: usize, address: SocketAddr) {
        let sessions = &mut self.sessions[server];
        sessions.connected += 1;
        sessions.address = Some(address);
        self.since = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_without_servers_begins_with_the_loss_of_the_last_one() {
        let address = SocketAddr::from(([192, 0, 2, 1], 4860));
        let sessions = |connected| Sessions { connected, left: 2, address: Some(address) };
        let sessions = vec![sessions(2), sessions(1)];
        let mut losses = Losses { sessions, ..Losses::default() };
        assert!(!losses.lose(0), "another session with it is there");
        assert_eq!(losses.connected_at(0), Some(address));
        assert!(losses.lose(0));
        assert_eq!((losses.connected_at(0), losses.since), (None, None));
        assert!(losses.lose(1) && losses.since.is_some());
        losses.find(1, address);
        assert!(losses.since.is_none());
    }
}
