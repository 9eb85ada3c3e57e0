//! A server that shuts down gently: it takes no sessions, ends those that are idle, and lets
//! running requests finish for a limited time.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use super::Server;

/// Whether the server drains, and the sessions that it waits for.
#[derive(Debug)]
pub(super) struct Drain {
    /// How long running requests have, once it has begun.
    limit: watch::Sender<Option<Duration>>,
    /// The number of sessions that have not ended.
    open: Arc<watch::Sender<usize>>,
}

/// A session that a drain waits for, until this is dropped.
#[derive(Debug)]
pub(super) struct OpenSession(Arc<watch::Sender<usize>>);

impl Drain {
    pub(super) fn new() -> Self {
        Self { limit: watch::Sender::new(None), open: Arc::new(watch::Sender::new(0)) }
    }

    pub(super) fn has_begun(&self) -> bool {
        self.limit.borrow().is_some()
    }

    /// Waits until it begins; returns how long running requests have from then on.
    pub(super) async fn begun(&self) -> Duration {
        let mut limit = self.limit.subscribe();
        // the sender lives as long as this
        let begun = limit.wait_for(Option::is_some).await.ok().and_then(|limit| *limit);
        match begun {
            Some(limit) => limit,
            None => std::future::pending().await,
        }
    }

    pub(super) fn open_session(&self) -> OpenSession {
        self.open.send_modify(|open| *open += 1);
        OpenSession(Arc::clone(&self.open))
    }

    /// Waits until no session is open.
    async fn sessions_ended(&self) {
        let mut open = self.open.subscribe();
        let _ = open.wait_for(|open| *open == 0).await;
    }
}

impl Drop for OpenSession {
    fn drop(&mut self) {
        self.0.send_modify(|open| *open -= 1);
    }
}

impl Server {
    /// Begins to shut down: from now on sessions are refused with a reason, those without a running
    /// request end, and the others end after their request. When none is left, and after `limit` at
    /// the latest, [`Self::serve`] returns. A second call changes nothing; [`Self::stop`] ends
    /// everything at once.
    pub fn drain(&self, limit: Duration) {
        self.shared.drain.limit.send_if_modified(|begun| {
            let is_first = begun.is_none();
            *begun = begun.or(Some(limit));
            is_first
        });
    }

    /// Whether [`Self::drain`] was called.
    #[must_use]
    pub fn is_draining(&self) -> bool {
        self.shared.drain.has_begun()
    }

    /// Waits until a drain has begun and come to its end.
    pub(super) async fn drained(&self) {
        let drain = &self.shared.drain;
        let limit = drain.begun().await;
        if tokio::time::timeout(limit, drain.sessions_ended()).await.is_err() {
            tracing::warn!("transfers still run after {limit:?}, and are interrupted");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drain_waits_for_the_sessions_that_are_open() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(async {
            let drain = Drain::new();
            let sessions = [drain.open_session(), drain.open_session()];
            let a_while = Duration::from_millis(50);
            assert!(tokio::time::timeout(a_while, drain.begun()).await.is_err());
            assert!(!drain.has_begun());
            drain.limit.send_replace(Some(a_while));
            assert!(drain.has_begun());
            assert_eq!(drain.begun().await, a_while);
            assert!(tokio::time::timeout(a_while, drain.sessions_ended()).await.is_err());
            drop(sessions);
            drain.sessions_ended().await;
        });
    }
}
