//! A connection to NATS, which all handles of a process share, and what is asked over it.
//!
//! An engine's methods block, and the client is asynchronous: it runs on a thread of its own. What
//! is asked is asked again until it is answered, with pauses: servers may be lost and come back,
//! and a stream has no leader for seconds after one was killed. So everything that is asked may
//! have been done before, unseen, and must be of no effect then.

use std::collections::HashMap;
use std::fmt::Display;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use async_nats::jetstream::message::{PublishMessage, StreamMessage};
use async_nats::jetstream::stream::{LastRawMessageErrorKind, RawMessageError};
use async_nats::jetstream::{self, Context, ErrorCode};
use async_nats::{Client, ConnectErrorKind, ConnectOptions, Message, Request, Subject};
use headroom_mutex::lock;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;

use super::names::{CONSUMER, Names};
use super::record::WorkHead;
use crate::entry::Entry;
use crate::error::Error;
use crate::job::NatsServers;
use crate::stop::Stop;

/// How long to wait for one answer.
const ANSWER: Duration = Duration::from_secs(3);
/// Until when an item is put back that comes too late for its request, as it does if that has waited
/// for a server that was lost.
const LATE: Duration = Duration::from_secs(60);
/// Asks for one item, if there is one now.
const NEXT: &[u8] = br#"{"batch":1,"no_wait":true}"#;
/// Puts an item back.
const NAK: &[u8] = b"-NAK";
/// The pause before asking again: at first, and at most.
const PAUSE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));
/// How long it may take to return what one has, after the end was requested.
const GRACE: Duration = Duration::from_secs(5);
/// How long a server may take to notice that a client is gone, and a client that a server is.
const PING: Duration = Duration::from_secs(5);
/// The least `max_payload` of the servers, in bytes: a settlement fits into that.
const MIN_PAYLOAD: usize = 768 << 10;
/// Environment variables for credentials, as the `nats` command has them: two files, a user with a
/// password, and a token.
const CREDENTIALS: [&str; 5] =
    ["NATS_CREDS", "NATS_NKEY", "NATS_USER", "NATS_PASSWORD", "NATS_TOKEN"];

/// How long to ask for what is not answered.
#[derive(Debug, Clone)]
pub(super) enum Patience {
    /// Until somebody requests the end.
    Until {
        stop: Stop,
        /// How long the first connection may take, if not as long.
        first: Option<Duration>,
    },
    /// So long.
    For(Duration),
}

/// A connection.
pub(super) struct Link {
    /// `None` while this is dropped.
    runtime: Option<Runtime>,
    client: Client,
    js: Context,
    pub(super) names: Names,
    /// The servers, for errors.
    pub(super) servers: String,
    patience: Patience,
    /// The items that this process has, by lease: item and take.
    held: Mutex<HashMap<(i64, i64), Held>>,
    /// Whether another run has taken the job away.
    pub(super) is_lock_lost: AtomicBool,
}

/// An item that this process has.
#[derive(Debug, Clone)]
pub(super) struct Held {
    pub(super) head: WorkHead,
    pub(super) worker: String,
    /// Where its delivery is acknowledged.
    pub(super) reply: Subject,
    /// The file that has ranges, if the item is of one.
    pub(super) file: Option<Entry>,
}

/// An item as it was delivered.
#[derive(Debug)]
pub(super) struct Delivery {
    pub(super) payload: Vec<u8>,
    pub(super) reply: Subject,
}

/// Why something was not done.
pub(super) enum Failure {
    /// It may be done later.
    Temporary(String),
    /// The job's streams are not there.
    Missing,
}

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Link").field("servers", &self.servers).finish_non_exhaustive()
    }
}

impl Link {
    /// Connects to the servers of a job.
    pub(super) fn connect(
        servers: &NatsServers,
        names: Names,
        patience: Patience,
    ) -> Result<Arc<Self>, Error> {
        let mut builder = Builder::new_multi_thread();
        builder.worker_threads(1).thread_name("nats").enable_all();
        let runtime = builder.build().map_err(|cause| wrong("start a thread for", cause))?;
        let options = options(servers)?;
        let addresses = servers.servers.clone();
        let until = patience.clone();
        let connecting = async move { connect(options, addresses, until).await };
        let (client, js) = match wait_on(&runtime, connecting) {
            Ok(connected) => connected,
            Err(error) => {
                runtime.shutdown_background();
                return Err(error);
            }
        };
        let held = Mutex::default();
        let servers = servers.servers.join(", ");
        let is_lock_lost = AtomicBool::new(false);
        let runtime = Some(runtime);
        Ok(Arc::new(Self { runtime, client, js, names, servers, patience, held, is_lock_lost }))
    }

    /// Waits for what runs on the connection's own thread.
    pub(super) fn wait<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, Error>> + Send + 'static,
    ) -> Result<T, Error> {
        match &self.runtime {
            Some(runtime) => wait_on(runtime, work),
            None => Err(wrong("use", "the connection is closed")),
        }
    }

    /// Lets something run on the connection's own thread, beside all else.
    pub(super) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        if let Some(runtime) = &self.runtime {
            runtime.spawn(work);
        }
    }

    pub(super) fn held(&self) -> MutexGuard<'_, HashMap<(i64, i64), Held>> {
        lock(&self.held)
    }

    pub(super) const fn context(&self) -> &Context {
        &self.js
    }

    /// Begins asking for something.
    pub(super) fn attempts(&self, doing: &'static str) -> Attempts<'_> {
        let since = Instant::now();
        Attempts { link: self, doing, since, stopped: None, pause: PAUSE.0, is_told: false }
    }

    /// Adds a message to a stream, by its subject. One with the same ID that was added within the
    /// last two minutes counts instead. Returns its sequence.
    pub(super) async fn publish(
        &self,
        subject: &str,
        id: Option<&str>,
        payload: Vec<u8>,
    ) -> Result<u64, Error> {
        let mut message = PublishMessage::build().payload(payload.into());
        if let Some(id) = id {
            message = message.message_id(id);
        }
        let mut attempts = self.attempts("write to");
        loop {
            match self.publish_once(subject, message.clone()).await {
                Ok(sequence) => return Ok(sequence),
                Err(cause) => attempts.failed(Failure::Temporary(cause)).await?,
            }
        }
    }

    async fn publish_once(&self, subject: &str, message: PublishMessage) -> Result<u64, String> {
        let sent = self.js.send_publish(subject.to_owned(), message).await;
        let answer = sent.map_err(|error| error.to_string())?.await;
        answer.map(|ack| ack.sequence).map_err(|error| error.to_string())
    }

    /// Adds a message to a subject whose last one has this sequence: 0 if it has none. Returns the
    /// new one's sequence, or nothing if somebody else added one meanwhile.
    ///
    /// An attempt whose answer is lost may have succeeded: the payload must tell this writer's
    /// message from any other's, where that matters.
    pub(super) async fn append(
        &self,
        stream: &str,
        subject: &str,
        expected: u64,
        payload: Vec<u8>,
    ) -> Result<Option<u64>, Error> {
        let message = PublishMessage::build().payload(payload.clone().into());
        let message = message.expected_last_subject_sequence(expected);
        let mut attempts = self.attempts("write to");
        loop {
            let cause = match self.publish_once(subject, message.clone()).await {
                Ok(sequence) => return Ok(Some(sequence)),
                Err(cause) => cause,
            };
            let last = self.last(stream, subject).await?;
            let sequence = last.as_ref().map_or(0, |last| last.sequence);
            if sequence != expected {
                let is_own = last.is_some_and(|last| last.payload[..] == payload[..]);
                return Ok(is_own.then_some(sequence));
            }
            attempts.failed(Failure::Temporary(cause)).await?;
        }
    }

    /// Returns the last message of a subject, as the stream's leader has it.
    pub(super) async fn last(
        &self,
        stream: &str,
        subject: &str,
    ) -> Result<Option<StreamMessage>, Error> {
        self.read(stream, None, Some(subject), None).await
    }

    /// Returns the message of a sequence.
    pub(super) async fn get(
        &self,
        stream: &str,
        sequence: u64,
    ) -> Result<Option<StreamMessage>, Error> {
        self.read(stream, Some(sequence), None, None).await
    }

    /// Returns the first message of a subject, which may have wildcards, from a sequence on.
    pub(super) async fn next_of(
        &self,
        stream: &str,
        subject: &str,
        from: u64,
    ) -> Result<Option<StreamMessage>, Error> {
        self.read(stream, Some(from.max(1)), None, Some(subject)).await
    }

    async fn read(
        &self,
        stream: &str,
        sequence: Option<u64>,
        last_of: Option<&str>,
        next_of: Option<&str>,
    ) -> Result<Option<StreamMessage>, Error> {
        let mut attempts = self.attempts("read from");
        loop {
            let handle = self.js.get_stream_no_info(stream).await;
            let handle = handle.map_err(|error| wrong("read from", error))?;
            let mut request = handle.raw_message_builder();
            if let Some(sequence) = sequence {
                request = request.sequence(sequence);
            }
            if let Some(subject) = last_of {
                request = request.last_by_subject(subject);
            }
            if let Some(subject) = next_of {
                request = request.next_by_subject(subject);
            }
            match request.send().await {
                Ok(message) => return Ok(Some(message)),
                Err(error) if error.kind() == LastRawMessageErrorKind::NoMessageFound => {
                    return Ok(None);
                }
                // a damaged message has named it so
                Err(error) if error.kind() == LastRawMessageErrorKind::InvalidSubject => {
                    return Err(wrong("read from", error));
                }
                Err(error) => attempts.failed(of_read(&error)).await?,
            }
        }
    }

    /// Returns the sequence of a stream's last message, and how many messages it has.
    pub(super) async fn extent(&self, stream: &str) -> Result<(u64, u64), Error> {
        let mut attempts = self.attempts("ask about a stream of");
        loop {
            let handle = self.js.get_stream_no_info(stream).await;
            let handle = handle.map_err(|error| wrong("ask about a stream of", error))?;
            match handle.get_info().await {
                Ok(info) => return Ok((info.state.last_sequence, info.state.messages)),
                Err(error) => attempts.failed(Failure::Temporary(error.to_string())).await?,
            }
        }
    }

    /// Returns how many items the queue has given and not got back: those that workers have, that
    /// wait for another attempt or for a checkpoint of the listing, or whose lease has ended since.
    pub(super) async fn unacknowledged(&self) -> Result<u64, Error> {
        let mut attempts = self.attempts("ask about the queue of");
        loop {
            let handle = self.js.get_stream_no_info(self.names.work()).await;
            let handle = handle.map_err(|error| wrong("ask about the queue of", error))?;
            match handle.consumer_info(CONSUMER).await {
                Ok(info) => return Ok(info.num_ack_pending as u64),
                Err(error) => attempts.failed(Failure::Temporary(error.to_string())).await?,
            }
        }
    }

    /// Removes the messages of a subject. That it was not possible is no failure: they are told
    /// from others by what else is known.
    pub(super) async fn forget(&self, stream: &str, subject: &str) {
        if let Ok(handle) = self.js.get_stream_no_info(stream).await
            && let Err(error) = handle.purge().filter(subject).await
        {
            tracing::debug!("{subject} is not removed from NATS: {error}");
        }
    }

    /// Takes the next item of the queue, if there is one and NATS answers. The items of the job are
    /// leased for so long.
    pub(super) async fn next_item(&self, lease: Duration) -> Option<Delivery> {
        let subject = format!("$JS.API.CONSUMER.MSG.NEXT.{}.{CONSUMER}", self.names.work());
        // an inbox of its own: an item comes under the queue's subject, and the client would not
        // find the request that it answers among others
        let request = Request::new()
            .inbox(self.client.new_inbox())
            .payload(NEXT.into())
            // after its lease, the item may be somebody else's
            .timeout(Some(lease.min(LATE)));
        let client = self.client.clone();
        let (sender, mut receiver) = oneshot::channel();
        self.spawn(async move {
            let answer = client.send_request(subject, request).await;
            // nobody waits for it any longer, and it would be missing until its lease ends
            if let Err(Ok(message)) = sender.send(answer)
                && let Some(delivery) = delivery_of(message)
            {
                say(&client, &delivery.reply, NAK.to_vec()).await;
            }
        });
        let answer = match tokio::time::timeout(ANSWER, &mut receiver).await {
            Ok(answer) => answer.ok(),
            Err(_) => {
                receiver.close();
                receiver.try_recv().ok()
            }
        };
        match answer {
            Some(Ok(message)) => delivery_of(message),
            Some(Err(error)) => {
                tracing::info!("NATS does not give an item: {error}");
                None
            }
            None => {
                tracing::info!("NATS does not answer whether there is an item");
                None
            }
        }
    }

    /// Removes an item from the queue. If that is not possible, it is delivered again, and whoever
    /// gets it sees that it is done.
    pub(super) async fn acknowledge(&self, reply: &Subject) {
        for _ in 0..2 {
            let acknowledged = self.client.request(reply.clone(), b"+ACK".to_vec().into()).await;
            match acknowledged {
                Ok(_) => return,
                Err(error) => tracing::debug!("an acknowledgement is not confirmed: {error}"),
            }
        }
    }

    /// Extends the lease of an item.
    pub(super) async fn extend(&self, reply: &Subject) {
        say(&self.client, reply, b"+WPI".to_vec()).await;
    }

    /// Returns an item to the queue, to be delivered again after a pause.
    pub(super) async fn put_back(&self, reply: &Subject, pause: Duration) {
        let what = match pause.as_nanos() {
            0 => NAK.to_vec(),
            nanoseconds => format!("-NAK {{\"delay\":{nanoseconds}}}").into_bytes(),
        };
        say(&self.client, reply, what).await;
    }

    /// Checks that a settlement fits into a message.
    pub(super) fn check_payload(&self) -> Result<(), Error> {
        let most = self.client.max_payload();
        match most >= MIN_PAYLOAD {
            true => Ok(()),
            false => Err(wrong(
                "use",
                format!("its `max_payload` is {most} bytes, and a job needs {MIN_PAYLOAD}"),
            )),
        }
    }

    /// Returns the error for a job that was not begun.
    pub(super) fn no_job(&self) -> Error {
        Error::NoJob(format!("NATS at {}", self.servers).into())
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        // it may be dropped where nobody may wait for threads
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// What is asked again and again.
pub(super) struct Attempts<'a> {
    link: &'a Link,
    doing: &'static str,
    since: Instant,
    /// When the end was requested.
    stopped: Option<Instant>,
    pause: Duration,
    /// Whether the user knows.
    is_told: bool,
}

impl Attempts<'_> {
    /// Waits before the next attempt. Fails if there shall be none.
    pub(super) async fn failed(&mut self, failure: Failure) -> Result<(), Error> {
        let cause = match failure {
            Failure::Missing => return Err(self.link.no_job()),
            Failure::Temporary(cause) => cause,
        };
        let is_over = match &self.link.patience {
            Patience::Until { stop, .. } if stop.is_stopped() => {
                self.stopped.get_or_insert_with(Instant::now).elapsed() >= GRACE
            }
            Patience::Until { .. } => false,
            Patience::For(time) => self.since.elapsed() >= *time,
        };
        if is_over {
            return Err(wrong(self.doing, cause));
        }
        if self.since.elapsed() >= GRACE && !self.is_told {
            self.is_told = true;
            tracing::warn!("cannot {} NATS, and asks again until it can: {cause}", self.doing);
        } else {
            tracing::debug!("cannot {} NATS yet: {cause}", self.doing);
        }
        tokio::time::sleep(self.pause).await;
        self.pause = (self.pause * 2).min(PAUSE.1);
        Ok(())
    }
}

/// Returns the item of an answer. One with a status has none: there is none, or the consumer has no
/// leader now.
fn delivery_of(message: Message) -> Option<Delivery> {
    if message.status.is_some() {
        tracing::trace!("no item: {:?}", message.description);
        return None;
    }
    Some(Delivery { payload: message.payload.to_vec(), reply: message.reply? })
}

/// Tells the queue about an item.
async fn say(client: &Client, reply: &Subject, what: Vec<u8>) {
    if let Err(error) = client.publish(reply.clone(), what.into()).await {
        tracing::debug!("cannot tell NATS about an item: {error}");
    }
}

fn of_read(error: &RawMessageError) -> Failure {
    match error.kind() {
        LastRawMessageErrorKind::JetStream(cause)
            if cause.error_code() == ErrorCode::STREAM_NOT_FOUND =>
        {
            Failure::Missing
        }
        _ => Failure::Temporary(error.to_string()),
    }
}

/// Makes the error of something that NATS does not do.
pub(super) fn wrong(doing: &'static str, cause: impl Display) -> Error {
    Error::Nats { doing, cause: cause.to_string() }
}

fn wait_on<T: Send + 'static>(
    runtime: &Runtime,
    work: impl Future<Output = Result<T, Error>> + Send + 'static,
) -> Result<T, Error> {
    let (sender, receiver) = mpsc::sync_channel(1);
    runtime.spawn(async move {
        let _ = sender.send(work.await);
    });
    receiver.recv().unwrap_or_else(|_| Err(wrong("use", "its client has failed")))
}

/// Returns the options for connecting: encryption, and credentials from a file or the environment.
fn options(servers: &NatsServers) -> Result<ConnectOptions, Error> {
    let mut options = ConnectOptions::new()
        .name("headroom fleet")
        .request_timeout(Some(ANSWER))
        .connection_timeout(ANSWER)
        .ping_interval(PING)
        .require_tls(servers.is_encrypted());
    if let Some(ca) = &servers.ca {
        options = options.add_root_certificates(ca.clone());
    }
    if let Some((certificate, key)) = &servers.certificate {
        options = options.add_client_certificate(certificate.clone(), key.clone());
    }
    let [file, nkey, user, password, token] =
        CREDENTIALS.map(|name| std::env::var(name).ok().filter(|value| !value.is_empty()));
    let file = servers.credentials.clone().or(file.map(Into::into));
    let secret = |path: &std::path::Path| {
        std::fs::read_to_string(path).map_err(Error::system("read the credentials", path))
    };
    if let Some(file) = file {
        let read = options.credentials(&secret(&file)?);
        return read.map_err(Error::system("use the credentials", &file));
    }
    if let Some(nkey) = nkey {
        let seed = secret(nkey.as_ref())?;
        return Ok(options.nkey(seed.trim().to_owned()));
    }
    Ok(match (user, password, token) {
        (Some(user), password, _) => options.user_and_password(user, password.unwrap_or_default()),
        (None, _, Some(token)) => options.token(token),
        (None, _, None) => options,
    })
}

async fn connect(
    options: ConnectOptions,
    addresses: Vec<String>,
    patience: Patience,
) -> Result<(Client, Context), Error> {
    let time = match &patience {
        Patience::Until { first, .. } => *first,
        Patience::For(time) => Some(*time),
    };
    let (since, mut is_told) = (Instant::now(), false);
    loop {
        let error = match options.clone().connect(addresses.as_slice()).await {
            Ok(client) => {
                let js = jetstream::new(client.clone());
                return Ok((client, js));
            }
            Err(error) => error,
        };
        let is_final = matches!(
            error.kind(),
            ConnectErrorKind::ServerParse
                | ConnectErrorKind::Authentication
                | ConnectErrorKind::AuthorizationViolation
                | ConnectErrorKind::Tls
        );
        let is_stopped = matches!(&patience, Patience::Until { stop, .. } if stop.is_stopped());
        let is_over = time.is_some_and(|time| since.elapsed() >= time);
        if is_final || is_stopped || is_over {
            return Err(wrong("connect to", format!("{}: {error}", addresses.join(", "))));
        }
        if since.elapsed() >= GRACE && !is_told {
            is_told = true;
            tracing::warn!("cannot connect to NATS, and tries again until it can: {error}");
        }
        tokio::time::sleep(PAUSE.0 * 5).await;
    }
}

/// Whether another run has taken a job away.
pub(super) fn check_lock(link: &Link) -> Result<(), Error> {
    match link.is_lock_lost.load(Ordering::Relaxed) {
        true => Err(Error::Busy(format!("the job at NATS ({})", link.servers).into())),
        false => Ok(()),
    }
}
