//! The sessions of a transfer, one or more with each server, which do the work of its queue.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::Poll;
use std::time::{Duration, Instant};

use headroom_mutex::lock;

use super::batch::Batcher;
use super::large::{BegunFile, Divided};
use super::losses::{Losses, Sessions};
use super::queue::{Queue, Work};
use super::record::{Record, Told, Totals};
use super::servers::{Servers, SpreadObserver, no_server};
use crate::client::Client;
use crate::delivery::Event;
use crate::error::Error;
use crate::files::{Excludes, Remaining, Root};
use crate::retry::{FIRST_PAUSE, GOOD, MAX_PAUSE, Retry, jittered};

/// How files are copied.
#[derive(Debug, Clone, Copy)]
pub(super) enum Job<'a> {
    /// Sent, into this directory of the servers.
    Put {
        /// As it is written behind `HOST:`.
        to: &'a [u8],
    },
    /// Sent as far as they differ.
    SyncTo {
        /// As it is written behind `HOST:`.
        to: &'a [u8],
    },
    /// Fetched, into this directory.
    Get {
        /// The directory.
        to: &'a Root,
        /// Whether only what differs is fetched.
        is_sync: bool,
        /// Names that are not fetched.
        excludes: &'a Excludes,
    },
}

/// The part of a transfer in which all servers copy files.
pub(super) struct Phase<'a, 's, O> {
    pub(super) servers: &'a Servers<'s, O>,
    pub(super) job: Job<'a>,
    pub(super) fsync: bool,
    pub(super) queue: Arc<Queue>,
    pub(super) told: Arc<Told>,
    /// Files that the last request has to copy, where it does not compare all.
    pub(super) remaining: Arc<Mutex<Remaining>>,
    /// Divides what listings find.
    batcher: Mutex<Batcher>,
    totals: Mutex<Totals>,
    losses: Mutex<Losses>,
}

/// Something that is done beside others, in one task: what asks the user a question makes the
/// others wait.
type Task<'a> = Pin<Box<dyn Future<Output = ()> + 'a>>;

impl<'a, 's, O: SpreadObserver + 'static> Phase<'a, 's, O> {
    pub(super) fn new(servers: &'a Servers<'s, O>, job: Job<'a>, fsync: bool) -> Self {
        Self {
            servers,
            job,
            fsync,
            queue: Arc::default(),
            told: Arc::default(),
            remaining: Arc::default(),
            batcher: Mutex::new(Batcher::new(servers.sessions())),
            totals: Mutex::default(),
            losses: Mutex::default(),
        }
    }

    fn losses(&self) -> MutexGuard<'_, Losses> {
        lock(&self.losses)
    }

    pub(super) fn totals(&self) -> MutexGuard<'_, Totals> {
        lock(&self.totals)
    }

    pub(super) fn batcher(&self) -> MutexGuard<'_, Batcher> {
        lock(&self.batcher)
    }

    pub(super) fn remaining(&self) -> MutexGuard<'_, Remaining> {
        lock(&self.remaining)
    }

    /// Returns the servers that were given up.
    pub(super) fn gone(&self) -> Vec<usize> {
        self.losses().gone.clone()
    }

    /// Returns the files that the last request has to copy.
    pub(super) fn take_remaining(&self) -> Remaining {
        std::mem::take(&mut *self.remaining())
    }

    /// Connects to all servers, and does the work of the queue, which `fill` fills meanwhile. A
    /// server that is lost is connected again as long as retries are allowed, and others do what it
    /// has not done.
    ///
    /// # Errors
    /// No server is left.
    pub(super) async fn run(&self, fill: impl Future<Output = ()>) -> Result<(), Error> {
        let count = self.servers.count;
        let mut clients: Vec<_> = (0..count).map(|_| None).collect();
        let connecting = clients.iter_mut().enumerate().map(|(server, client)| {
            let connecting =
                async move { *client = Some((self.servers.connect)(server, None).await) };
            Box::pin(connecting) as Task<'_>
        });
        all(connecting.collect()).await;
        let clients: Vec<Result<Client, Error>> = clients.into_iter().flatten().collect();
        if clients.iter().all(Result::is_err) {
            // an error that is not about the network says more
            let errors = clients.into_iter().filter_map(Result::err);
            let error = errors.reduce(|one, other| if one.is_temporary() { other } else { one });
            return Err(error.unwrap_or_else(no_server));
        }
        let lanes = self.servers.lanes;
        let sessions = clients.iter().map(|client| Sessions {
            connected: usize::from(client.is_ok()),
            left: lanes,
            address: client.as_ref().ok().map(Client::address),
        });
        *self.losses() = Losses { sessions: sessions.collect(), ..Losses::default() };
        let mut further = Vec::new();
        let mut tasks = vec![Box::pin(fill) as Task<'_>];
        for (server, client) in clients.into_iter().enumerate() {
            match client {
                Ok(client) => tasks.push(Box::pin(self.session(server, Some(client)))),
                Err(error) if self.is_tried_again(&error) => {
                    self.servers.observer.lost(server, &error, false);
                    tasks.push(Box::pin(self.session(server, None)));
                }
                Err(error) => {
                    self.losses().sessions[server].left = 1;
                    self.give_up(server, error);
                    continue;
                }
            }
            further.extend((1..lanes).map(|lane| (lane, server)));
        }
        further.sort_unstable();
        for (_, server) in further {
            tasks.push(Box::pin(self.further_session(server)));
        }
        self.servers.observer.connected();
        all(tasks).await;
        let mut losses = self.losses();
        let ended = match losses.error.take() {
            Some(error) if losses.left() == 0 && !self.queue.is_done() => Err(error),
            _ => Ok(()),
        };
        drop(losses);
        self.queue.close();
        ended
    }

    /// Whether a server is connected again after this error.
    fn is_tried_again(&self, error: &Error) -> bool {
        error.is_temporary() && self.servers.retry != Retry::Never
    }

    /// Does what [`Self::session`] does as soon as there is something that no other session takes.
    async fn further_session(&self, server: usize) {
        if !self.queue.has_spare().await {
            return;
        }
        let address = self.losses().connected_at(server);
        let connected = tokio::select! {
            connected = (self.servers.connect)(server, address) => connected,
            () = self.queue.ended() => return,
        };
        match connected {
            Ok(client) => {
                self.losses().find(server, client.address());
                self.session(server, Some(client)).await;
            }
            Err(error) if self.is_tried_again(&error) => self.session(server, None).await,
            Err(error) => {
                let is_one_less = self.losses().connected_at(server).is_some();
                if is_one_less {
                    let reason = format!("the transfer continues with one lane less: {error}");
                    self.servers.observer.event(Event::Warning { reason: &reason });
                }
                self.give_up(server, error);
            }
        }
    }

    /// Does work by one session, until none is left, or the session is given up.
    async fn session(&self, server: usize, first: Option<Client>) {
        let (mut next, mut pause) = (first, FIRST_PAUSE);
        loop {
            let connected = match next.take() {
                Some(client) => Some(client),
                None => self.reconnect(server, &mut pause).await,
            };
            let Some(mut client) = connected else { return };
            let begun = Instant::now();
            let worked = self.work(&mut client).await;
            client.close().await;
            let Err(error) = worked else { return };
            if begun.elapsed() >= GOOD {
                pause = FIRST_PAUSE;
            }
            let is_last = self.losses().lose(server);
            if !self.is_tried_again(&error) {
                return self.give_up(server, error);
            }
            if is_last {
                self.servers.observer.lost(server, &error, false);
            }
        }
    }

    /// Connects to a server again; `None` if that is given up, or not needed any more.
    async fn reconnect(&self, server: usize, pause: &mut Duration) -> Option<Client> {
        loop {
            tokio::select! {
                () = tokio::time::sleep(jittered(*pause)) => {}
                () = self.queue.ended() => return None,
            }
            *pause = (*pause * 2).min(MAX_PAUSE);
            let address = self.losses().connected_at(server);
            let connected = tokio::select! {
                connected = (self.servers.connect)(server, address) => connected,
                () = self.queue.ended() => return None,
            };
            let error = match connected {
                Ok(client) => {
                    self.losses().find(server, client.address());
                    return Some(client);
                }
                Err(error) => error,
            };
            let since = self.losses().since;
            let goes_on = since.is_none_or(|since| self.servers.retry.goes_on(since.elapsed()));
            if !error.is_temporary() || !goes_on {
                self.give_up(server, error);
                return None;
            }
        }
    }

    /// Notes that a session takes no further part. Without any, the transfer ends.
    fn give_up(&self, server: usize, error: Error) {
        let mut losses = self.losses();
        let sessions = &mut losses.sessions[server];
        sessions.left -= 1;
        let is_gone = sessions.left == 0;
        if is_gone {
            losses.gone.push(server);
        }
        if losses.left() == 0 {
            self.queue.stop();
        } else if is_gone {
            self.servers.observer.lost(server, &error, true);
        }
        losses.error = Some(error);
    }

    /// Does work until none is left.
    async fn work(&self, client: &mut Client) -> Result<(), Error> {
        let mut takes_ranges = client.takes_ranges();
        while let Some(work) = self.next_work(client, takes_ranges).await? {
            let gone = client.gone();
            match work {
                Work::Begin(large) => {
                    let begun = match self.job {
                        Job::Get { .. } => self.begin_large(client, large).await?,
                        Job::Put { .. } | Job::SyncTo { .. } => {
                            self.begin_upload(client, large).await?
                        }
                    };
                    if let Some(open) = begun {
                        takes_ranges = self.copy_ranges(client, open).await?;
                    }
                }
                Work::Ranges(open) => takes_ranges = self.copy_ranges(client, open).await?,
                Work::Complete(open, upload) => self.complete_upload(client, open, upload).await?,
                Work::Abandon(open) => self.abandon_large(open),
                Work::List(directory) => {
                    let listed = tokio::select! {
                        listed = self.list(client, &directory) => listed,
                        error = gone => Err(error),
                    };
                    match listed {
                        Ok((batches, directories)) => self.listed(batches, directories),
                        // the last request reports it
                        Err(error) if is_about_files(&error) => self.listed(vec![], vec![]),
                        Err(error) => {
                            self.queue.put_back(Work::List(directory));
                            return Err(error);
                        }
                    }
                }
                Work::Copy(batch) => {
                    client.limit(self.share_bps());
                    let observer = Arc::clone(&self.servers.observer);
                    let told = Arc::clone(&self.told);
                    let directory = batch.directory.as_ref().map(|below| below.path.clone());
                    let record = Record::new(observer, told, directory, &batch.files);
                    let copied = tokio::select! {
                        copied = self.copy(client, &batch, &record) => copied,
                        error = gone => Err(error),
                    };
                    self.settle(batch, &record, copied)?;
                }
            }
        }
        Ok(())
    }

    /// Takes what one server does next, and waits for it. A server that is lost meanwhile is
    /// reported and connected again, so that it is there when there is work.
    async fn next_work(&self, client: &Client, takes_ranges: bool) -> Result<Option<Work>, Error> {
        tokio::select! {
            // the loss of a server that is not needed any more is none
            biased;
            work = self.queue.take(takes_ranges) => Ok(work),
            error = client.lost() => Err(error),
        }
    }

    /// Copies ranges of a divided file by one server. Returns whether the server takes part.
    async fn copy_ranges(&self, client: &mut Client, open: Arc<BegunFile>) -> Result<bool, Error> {
        match open.file.clone() {
            Divided::Fetched(file) => self.fetch_ranges(client, open, &file).await,
            Divided::Sent(upload) => self.send_ranges(client, open, &upload).await,
        }
    }

    /// Returns the rate of one session, if there is a limit. They are limited together, also with
    /// those that are not needed yet.
    pub(super) fn share_bps(&self) -> Option<u64> {
        let left = self.losses().left().max(1) as u64;
        self.servers.rate_bps.map(|rate| (rate / left).max(1))
    }
}

/// A walk that waits for room ends, too, when the transfer is given up.
impl<O> Drop for Phase<'_, '_, O> {
    fn drop(&mut self) {
        self.queue.stop();
    }
}

/// Does all of this in one task, to the ends.
async fn all(mut tasks: Vec<Task<'_>>) {
    std::future::poll_fn(|context| {
        tasks.retain_mut(|task| task.as_mut().poll(context).is_pending());
        if tasks.is_empty() { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

/// Whether an error is about the files of a request, and not about the connection or the rights.
pub(super) const fn is_about_files(error: &Error) -> bool {
    matches!(error, Error::OnServer { .. } | Error::Files(_) | Error::System { .. })
}
