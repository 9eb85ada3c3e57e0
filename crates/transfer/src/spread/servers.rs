//! Several servers of one store, and what one of them does, or another one when it is lost.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Instant;

use headroom_transfer_proto::message::MAX_INLINE;

use crate::client::Client;
use crate::delivery::Observer;
use crate::error::Error;
use crate::retry::{FIRST_PAUSE, GOOD, MAX_PAUSE, Retry, jittered};

/// The least bytes of a range of a file that is divided among servers. A range costs its server a
/// request, or a message on one that is open, and the client up to a round trip without data where
/// little is left: at 1 Gbit/s and 100 ms these are 0.1 s beside the 0.54 s of 64 MiB.
pub const RANGE_BYTES: u64 = 64 << 20;

/// A connection that is being made.
pub type Connecting<'a> = Pin<Box<dyn Future<Output = Result<Client, Error>> + 'a>>;

/// Several servers of one store: they have the same files, whichever of them stores or reads one.
/// They share no more than these.
///
/// The connections of a transfer are driven by one task: where `connect` asks the user something
/// and blocks, no other asks meanwhile.
pub struct Servers<'a, O> {
    /// How many there are.
    pub count: usize,
    /// Connects to one of them, by its number from 0, and sets options of requests but for a limit
    /// of the rate. An address is that at which another session with this server is connected: this
    /// one has to lead to the same server.
    pub connect: Box<dyn Fn(usize, Option<SocketAddr>) -> Connecting<'a> + 'a>,
    /// The most sessions with each server, at least 1. Each has a socket and threads of its own at
    /// both ends, and congestion control of its own. Those behind the first are connected when there
    /// is something to do for them.
    pub lanes: usize,
    /// How long to try to connect again while no server is connected. Others are tried again as
    /// long as one is.
    pub retry: Retry,
    /// The limit of all servers together, in bits of file content per second.
    pub rate_bps: Option<u64>,
    /// The least bytes of a range: files of at least twice as many are divided among all sessions, in
    /// uploads if the servers have an object store, or there is one server. [`RANGE_BYTES`] is the
    /// usual value; with [`u64::MAX`] no file is divided.
    pub range_bytes: u64,
    /// Receives events of all connections.
    pub observer: Arc<O>,
}

/// Receives what is reported of several servers, beside the events of their transfers.
pub trait SpreadObserver: Observer {
    /// A server is connected, and all others are, too, or cannot be reached.
    fn connected(&self);
    /// The server of this number was lost, cannot be reached, or refuses. With `is_final` it takes
    /// no further part.
    fn lost(&self, server: usize, error: &Error, is_final: bool);
    /// Something that was reported is offered again to another server.
    fn returned(&self, returned: Returned);
    /// Everything is offered again to another server.
    fn restarted(&self);
}

/// What is offered again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Returned {
    /// Files that were offered.
    pub files: u64,
    /// Their bytes.
    pub offered: u64,
    /// Bytes of them that were reported as moved, kept or a hole.
    pub done: u64,
}

impl<O> Servers<'_, O> {
    /// Returns how many sessions may take part.
    pub(super) const fn sessions(&self) -> usize {
        self.count * self.lanes
    }
}

impl<O: SpreadObserver + 'static> Servers<'_, O> {
    /// Connects to the first server that accepts this client.
    ///
    /// # Errors
    /// That of the last server, if none does.
    pub async fn connect_any(&self) -> Result<Client, Error> {
        let mut failure = no_server();
        for server in 0..self.count {
            match (self.connect)(server, None).await {
                Ok(mut client) => {
                    client.limit(self.rate_bps);
                    self.observer.connected();
                    return Ok(client);
                }
                Err(error) => {
                    if server + 1 < self.count {
                        self.observer.lost(server, &error, true);
                    }
                    failure = error;
                }
            }
        }
        Err(failure)
    }

    /// Transfers by one server, and when it is lost by the next one, as long as there is one, or
    /// retries are allowed. `transfer` closes the connection.
    ///
    /// # Errors
    /// Those of `transfer`; or no server can be reached, which is that of the last one.
    pub async fn with_one<T>(
        &self,
        mut transfer: impl AsyncFnMut(Client) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let mut is_again = false;
        let transfer = async |client: Client| {
            if std::mem::replace(&mut is_again, true) {
                self.observer.restarted();
            }
            self.observer.connected();
            transfer(client).await
        };
        self.by_any(None, transfer).await
    }

    /// Does what [`Self::with_one`] does, and reports lost servers alone. `gone`: this transfer has
    /// been connected before, so that a first attempt is repeated, too, and has given up these
    /// servers.
    pub(super) async fn by_any<T>(
        &self,
        gone: Option<&[usize]>,
        transfer: impl AsyncFnMut(Client) -> Result<T, Error>,
    ) -> Result<T, Error> {
        self.try_each(gone, false, transfer).await
    }

    /// Asks the first server that can be reached. Servers before it are not reported: what is done
    /// with the answer connects to them again.
    pub(super) async fn ask<T>(
        &self,
        transfer: impl AsyncFnMut(Client) -> Result<T, Error>,
    ) -> Result<T, Error> {
        self.try_each(None, true, transfer).await
    }

    /// Does it by one server after the other; `is_quiet`: reports servers only after a loss.
    async fn try_each<T>(
        &self,
        gone: Option<&[usize]>,
        is_quiet: bool,
        mut transfer: impl AsyncFnMut(Client) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let mut since = gone.map(|_| Instant::now());
        let gone = gone.unwrap_or_default();
        let mut is_told: Vec<_> = (0..self.count).map(|server| gone.contains(&server)).collect();
        let mut waiting: VecDeque<_> = (0..self.count).filter(|server| !is_told[*server]).collect();
        waiting.extend(gone);
        let (mut pause, mut attempts) = (FIRST_PAUSE, 0);
        let mut failure = no_server();
        while let Some(server) = waiting.pop_front() {
            let begun = Instant::now();
            let error = match (self.connect)(server, None).await {
                Ok(mut client) => {
                    client.limit(self.rate_bps);
                    is_told[server] = false;
                    let ended = client.gone();
                    let done = tokio::select! {
                        done = transfer(client) => done,
                        error = ended => Err(error),
                    };
                    match done {
                        Err(error) if error.is_temporary() => {
                            since = Some(Instant::now());
                            error
                        }
                        done => return done,
                    }
                }
                Err(error) => error,
            };
            let is_final = !error.is_temporary() || self.retry == Retry::Never;
            let is_last = is_final && waiting.is_empty();
            let is_reported = !is_last && (!is_quiet || since.is_some());
            if is_reported && !std::mem::replace(&mut is_told[server], true) {
                self.observer.lost(server, &error, is_final);
            }
            failure = error;
            if is_final {
                continue;
            }
            waiting.push_back(server);
            attempts += 1;
            if begun.elapsed() >= GOOD {
                (pause, attempts) = (FIRST_PAUSE, 0);
            }
            if attempts >= waiting.len() {
                match since {
                    Some(since) if self.retry.goes_on(since.elapsed()) => {}
                    // it is the first attempt, or took too long
                    _ => break,
                }
                tokio::time::sleep(jittered(pause)).await;
                (pause, attempts) = ((pause * 2).min(MAX_PAUSE), 0);
            }
        }
        Err(failure)
    }
}

/// Whether a file of `size` bytes is divided among `sessions`.
pub(super) const fn is_divided(size: u64, sessions: usize, range_bytes: u64) -> bool {
    // smaller ones travel with their names
    sessions > 1 && size / 2 >= range_bytes && size > MAX_INLINE as u64
}

/// Closes a connection after what was done over it, unless it is lost.
pub(super) async fn finish<T>(client: Client, done: Result<T, Error>) -> Result<T, Error> {
    if !done.as_ref().is_err_and(Error::is_temporary) {
        client.close().await;
    }
    done
}

/// Makes the error without any server.
pub(super) fn no_server() -> Error {
    Error::Usage("no server is named".to_owned())
}
