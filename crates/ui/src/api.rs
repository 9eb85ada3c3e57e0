//! The calls of the API. Each has a JSON object and answers JSON, bytes, or lines of JSON.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc as blocking;
use std::time::Duration;

use bytes::Bytes;
use headroom_mutex::lock;
use headroom_transfer::{
    Client, Event, Excludes, Fingerprint, Listed, ListedKind, Observer, SyncOptions, Time,
};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::sync::{Notify, mpsc};
use tokio::task::spawn_blocking;

use crate::error::{ApiError, name_of};
use crate::local;
use crate::names::encode;
use crate::servers::Server;
use crate::state::Shared;
use crate::transfers::{Job, prepare};

/// The place of this machine in requests; other places are servers.
const LOCAL: &str = "local";
/// The most bytes of a file that a preview reads.
const MAX_READ: usize = 25 << 20;
/// Entries of a listing, and lines of a preview of a sync.
const MAX_ENTRIES: usize = 2_000_000;
/// Bytes of a listing that wait in memory.
const MAX_LISTED: usize = 256 << 20;
const MAX_PLANNED: usize = 20_000;
/// Entries in one line of a listing.
const PART: usize = 500;
/// Lines that wait for a slow page.
const WAITING: usize = 64;
/// Files of a transfer that a page shows.
const FILES_SHOWN: usize = 300;

/// What a call answers.
pub(crate) enum Reply {
    Json(Value),
    Bytes(Vec<u8>),
    Lines(mpsc::Receiver<Bytes>),
}

/// Answers a call.
pub(crate) async fn call(shared: &Arc<Shared>, name: &str, body: Value) -> Result<Reply, ApiError> {
    match name {
        "list" => list(shared, parse(body)?).await,
        "make-directory" => make_directory(shared, parse(body)?).await,
        "rename" => rename(shared, parse(body)?).await,
        "remove" => remove(shared, parse(body)?).await,
        "read" => read(shared, parse(body)?).await,
        "copy" => copy(shared, parse(body)?),
        "sync" => sync(shared, parse(body)?).await,
        "transfer" => {
            let Control { id, action } = parse(body)?;
            shared.transfers.control(id, &action).map(|()| done())
        }
        "files" => {
            let Files { id, all } = parse(body)?;
            let most = if all { usize::MAX } else { FILES_SHOWN };
            Ok(Reply::Json(shared.transfers.find(id)?.files(most)))
        }
        "clear" => {
            shared.transfers.clear();
            Ok(done())
        }
        "limit" => {
            let Limit { rate } = parse(body)?;
            shared.transfers.limit(rate.filter(|rate| *rate > 0));
            Ok(done())
        }
        "connect" => connect(shared, parse(body)?).await,
        "disconnect" => {
            let Disconnect { server } = parse(body)?;
            shared.servers.forget(&server).await;
            shared.transfers.tell();
            Ok(done())
        }
        "lab" => shared.lab.call(body).await.map(Reply::Json),
        "fleet" => shared.fleets.call(body).await.map(Reply::Json),
        "status" => Ok(Reply::Json(
            json!({"refused": shared.refusals.json(), "transfers": shared.transfers.active(), "runs": shared.lab.active()}),
        )),
        "quit" => {
            let Quit { force } = parse(body)?;
            let (transfers, runs) = (shared.transfers.active(), shared.lab.active());
            let quits = force || transfers + runs == 0;
            if quits {
                let shared = Arc::clone(shared);
                tokio::spawn(async move {
                    // the answer is sent first
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    shared.quit.notify_one();
                });
            }
            Ok(Reply::Json(json!({"quits": quits, "transfers": transfers, "runs": runs})))
        }
        _ => Err(ApiError::usage("there is no such call")),
    }
}

fn done() -> Reply {
    Reply::Json(json!({}))
}

fn parse<T: DeserializeOwned>(body: Value) -> Result<T, ApiError> {
    serde_json::from_value(body).map_err(|error| ApiError::usage(&error.to_string()))
}

/// A path at a place.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct At {
    place: String,
    path: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Rename {
    place: String,
    from: String,
    to: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Remove {
    place: String,
    path: String,
    recursive: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Read {
    place: String,
    path: String,
    offset: u64,
    length: usize,
}

/// Copies names in a directory of one place into a directory of the other.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Copy {
    server: String,
    upload: bool,
    from: Vec<String>,
    to: String,
    labels: Labels,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Sync {
    server: String,
    upload: bool,
    from: String,
    to: String,
    delete: bool,
    checksum: bool,
    exclude: Vec<String>,
    dry_run: bool,
    labels: Labels,
}

/// What the page shows of a transfer; nothing here reads it.
#[derive(Deserialize, serde::Serialize)]
#[serde(deny_unknown_fields)]
struct Labels {
    name: String,
    more: u64,
    source: String,
    destination: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Control {
    id: u64,
    action: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Files {
    id: u64,
    all: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Limit {
    /// Bytes per second.
    rate: Option<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Connect {
    address: String,
    #[serde(default)]
    ssh: bool,
    /// The fingerprint of an unknown host that the user has confirmed.
    #[serde(default)]
    fingerprint: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Disconnect {
    server: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Quit {
    force: bool,
}

/// Runs something that waits for the disk.
async fn on_disk<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    spawn_blocking(work).await.map_err(|error| ApiError::new("unknown", error.to_string()))?
}

/// Ends the use of a connection: one whose request the server just declined still works.
async fn end<T>(
    server: &Server,
    client: Client,
    result: Result<T, headroom_transfer::Error>,
) -> Result<T, ApiError> {
    match &result {
        Ok(_)
        | Err(headroom_transfer::Error::OnServer { .. } | headroom_transfer::Error::Usage(_)) => {
            server.give(client);
        }
        Err(_) => client.close().await,
    }
    result.map_err(Into::into)
}

fn line(value: &Value) -> Bytes {
    Bytes::from(format!("{value}\n"))
}

async fn list(shared: &Arc<Shared>, At { place, path }: At) -> Result<Reply, ApiError> {
    let (sender, lines) = mpsc::channel(WAITING);
    if place == LOCAL {
        let path = local::path_of(&path)?;
        let task = spawn_blocking(move || {
            let each =
                |part: Vec<Value>| sender.blocking_send(line(&json!({"entries": part}))).is_ok();
            if let Err(error) = local::list(&path, each) {
                let _ = sender.blocking_send(line(&json!({"error": error.body()})));
            }
        });
        drop(task);
        return Ok(Reply::Lines(lines));
    }
    let server = shared.servers.find(&place)?;
    let path = server.path_of(&path)?;
    let mut client = shared.servers.client(&server).await?;
    tokio::spawn(async move {
        // the listing arrives as fast as it is sent, so that its end is known here; the page
        // takes it from memory
        let (parts, mut arrived) = mpsc::unbounded_channel::<Bytes>();
        let too_much = Arc::new(Notify::new());
        let waiting = AtomicUsize::new(0);
        let forwarding = async {
            while let Some(part) = arrived.recv().await {
                let length = part.len();
                if sender.send(part).await.is_err() {
                    return;
                }
                waiting.fetch_sub(length, Ordering::Relaxed);
            }
        };
        let listing = {
            let (too_much, waiting, client) = (Arc::clone(&too_much), &waiting, &mut client);
            async move {
                let (mut part, mut count) = (Vec::new(), 0_usize);
                let send = |part: Vec<Value>| {
                    let part = line(&json!({"entries": part}));
                    waiting.fetch_add(part.len(), Ordering::Relaxed);
                    let _ = parts.send(part);
                };
                let listed = client.list(&path, |listed| {
                    count += 1;
                    if count > MAX_ENTRIES || waiting.load(Ordering::Relaxed) > MAX_LISTED {
                        too_much.notify_one();
                        return;
                    }
                    part.push(entry_of(&listed));
                    if part.len() == PART {
                        send(std::mem::take(&mut part));
                    }
                });
                let listed = listed.await;
                send(part);
                listed
            }
        };
        let both = async { tokio::join!(listing, forwarding) };
        let outcome = tokio::select! {
            (listed, ()) = both => Some(listed),
            () = too_much.notified() => None,
            () = sender.closed() => None,
        };
        let error = match outcome {
            Some(listed) => end(&server, client, listed).await.err(),
            None => {
                client.close().await;
                Some(ApiError::new("refused", "the folder has more entries than can be shown"))
            }
        };
        if let Some(error) = error {
            let _ = sender.send(line(&json!({"error": error.body()}))).await;
        }
    });
    Ok(Reply::Lines(lines))
}

fn entry_of(listed: &Listed) -> Value {
    let kind = match listed.kind {
        ListedKind::File => "file",
        ListedKind::Directory => "directory",
        ListedKind::Symlink => "link",
        ListedKind::Other => "other",
    };
    let Time { seconds, nanoseconds } = listed.mtime;
    let modified = seconds.saturating_mul(1000).saturating_add(i64::from(nanoseconds / 1_000_000));
    let target = listed.target.as_deref().map(encode);
    json!({"name": encode(listed.path.name()), "type": kind, "size": listed.size, "mode": listed.mode, "modified": modified, "target": target})
}

async fn make_directory(shared: &Arc<Shared>, At { place, path }: At) -> Result<Reply, ApiError> {
    if place == LOCAL {
        let path = local::path_of(&path)?;
        return on_disk(move || local::make_directory(&path)).await.map(|()| done());
    }
    let server = shared.servers.find(&place)?;
    let path = server.path_of(&path)?;
    let mut client = shared.servers.client(&server).await?;
    let made = client.make_directory(&path, false).await;
    end(&server, client, made).await.map(|()| done())
}

async fn rename(
    shared: &Arc<Shared>,
    Rename { place, from, to }: Rename,
) -> Result<Reply, ApiError> {
    if place == LOCAL {
        let (from, to) = (local::path_of(&from)?, local::path_of(&to)?);
        return on_disk(move || local::rename(&from, &to)).await.map(|()| done());
    }
    let server = shared.servers.find(&place)?;
    let (from, to) = (server.path_of(&from)?, server.path_of(&to)?);
    let mut client = shared.servers.client(&server).await?;
    let renamed = client.rename(&from, &to, false).await;
    end(&server, client, renamed).await.map(|()| done())
}

async fn remove(
    shared: &Arc<Shared>,
    Remove { place, path, recursive }: Remove,
) -> Result<Reply, ApiError> {
    if place == LOCAL {
        let path = local::path_of(&path)?;
        return on_disk(move || local::remove(&path, recursive)).await.map(|()| done());
    }
    let server = shared.servers.find(&place)?;
    let path = server.path_of(&path)?;
    let mut client = shared.servers.client(&server).await?;
    let failures = Arc::new(Failures::default());
    let removed = client.remove(&path, recursive, failures.clone()).await;
    let summary = end(&server, client, removed).await?;
    match summary.failed {
        0 => Ok(done()),
        _ => Err(failures.first()),
    }
}

/// Keeps the first failure.
#[derive(Default)]
struct Failures(std::sync::OnceLock<(&'static str, String)>);

impl Failures {
    fn first(&self) -> ApiError {
        let (code, reason) = self.0.get().cloned().unwrap_or(("refused", String::new()));
        ApiError::new(code, reason)
    }
}

impl Observer for Failures {
    fn event(&self, event: Event<'_>) {
        if let Event::Failed { reason, code } = event {
            let _ = self.0.set((name_of(code), reason.to_owned()));
        }
    }
}

/// Reads a part of a file, for a preview.
async fn read(
    shared: &Arc<Shared>,
    Read { place, path, offset, length }: Read,
) -> Result<Reply, ApiError> {
    let length = length.min(MAX_READ);
    if place == LOCAL {
        let path = local::path_of(&path)?;
        return on_disk(move || local::read(&path, offset, length)).await.map(Reply::Bytes);
    }
    let server = shared.servers.find(&place)?;
    let path = server.path_of(&path)?;
    let mut client = shared.servers.client(&server).await?;
    let (sender, receiver) = blocking::channel();
    let range = Range { skip: offset, left: length, sender };
    let failures = Arc::new(Failures::default());
    let outcome = client.get_stream(&path, range, failures.clone()).await;
    let mut content = Vec::new();
    let mut is_enough = length == 0;
    while let Ok(part) = receiver.try_recv() {
        content.extend(part);
        is_enough |= content.len() >= length;
    }
    match (outcome, is_enough) {
        // the rest was not read, which ends the connection's request
        (_, true) => {
            client.close().await;
            Ok(Reply::Bytes(content))
        }
        (Ok(summary), false) if summary.failed > 0 => {
            client.close().await;
            Err(failures.first())
        }
        (outcome, false) => end(&server, client, outcome).await.map(|_| Reply::Bytes(content)),
    }
}

/// Keeps a range of what is written, and fails when it has it all.
struct Range {
    skip: u64,
    left: usize,
    sender: blocking::Sender<Vec<u8>>,
}

impl io::Write for Range {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.left == 0 {
            return Err(io::Error::other("enough was read"));
        }
        let skipped = usize::try_from(self.skip).unwrap_or(usize::MAX).min(bytes.len());
        self.skip -= skipped as u64;
        let kept = &bytes[skipped..];
        let kept = &kept[..kept.len().min(self.left)];
        self.left -= kept.len();
        let _ = self.sender.send(kept.to_vec());
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn into_directory(mut path: Vec<u8>) -> Vec<u8> {
    if !path.ends_with(b"/") {
        path.push(b'/');
    }
    path
}

fn copy(shared: &Arc<Shared>, copy: Copy) -> Result<Reply, ApiError> {
    let Copy { server, upload, from, to, labels } = copy;
    let server = shared.servers.find(&server)?;
    if from.is_empty() {
        return Err(ApiError::usage("nothing is to be copied"));
    }
    let job = match upload {
        true => Job::Put {
            sources: from.iter().map(|path| local::path_of(path)).collect::<Result<_, _>>()?,
            to: into_directory(server.path_of(&to)?),
        },
        false => Job::Get {
            from: from.iter().map(|path| server.path_of(path)).collect::<Result<_, _>>()?,
            // with a slash, even a single one goes into it
            to: local::path_of(&to)?.join(""),
        },
    };
    let id = shared.transfers.add(server, job, serde_json::to_value(labels).unwrap_or_default())?;
    Ok(Reply::Json(json!({"id": id})))
}

async fn sync(shared: &Arc<Shared>, sync: Sync) -> Result<Reply, ApiError> {
    let Sync { server, upload, from, to, delete, checksum, exclude, dry_run, labels } = sync;
    let server = shared.servers.find(&server)?;
    let excludes = Excludes::new(exclude).map_err(|bad| ApiError::new("usage", bad.to_string()))?;
    let options = SyncOptions { delete, dry_run, checksum, excludes, ..SyncOptions::default() };
    let (here, there) = match upload {
        true => (local::path_of(&from)?, server.path_of(&to)?),
        false => (local::path_of(&to)?, server.path_of(&from)?),
    };
    if dry_run {
        return preview(shared, server, upload, here, there, options).await;
    }
    let job = match upload {
        true => Job::SyncTo { from: here, to: there, options },
        false => Job::SyncFrom { from: there, to: here, options },
    };
    let id = shared.transfers.add(server, job, serde_json::to_value(labels).unwrap_or_default())?;
    Ok(Reply::Json(json!({"id": id})))
}

/// Streams what a sync would do; changes nothing.
async fn preview(
    shared: &Arc<Shared>,
    server: Arc<Server>,
    upload: bool,
    here: PathBuf,
    there: Vec<u8>,
    options: SyncOptions,
) -> Result<Reply, ApiError> {
    let mut client = shared.servers.client(&server).await?;
    let (sender, lines) = mpsc::channel(WAITING);
    tokio::spawn(async move {
        let planned = Arc::new(Planned::default());
        prepare(&mut client, &server, upload, None);
        let observer: Arc<dyn Observer> = planned.clone();
        let comparing = async {
            match upload {
                true => client.sync_to(&here, &there, &options, observer).await,
                false => client.sync_from(&there, &here, &options, observer).await,
            }
        };
        let telling = async {
            loop {
                tokio::time::sleep(Duration::from_millis(200)).await;
                planned.tell(&sender).await;
            }
        };
        let outcome = tokio::select! {
            outcome = comparing => Some(outcome),
            never = telling => never,
            () = sender.closed() => None,
        };
        let Some(outcome) = outcome else { return client.close().await };
        planned.tell(&sender).await;
        let last = match end(&server, client, outcome).await {
            Ok(summary) => json!({"summary": {
                "stored": summary.stored, "bytes": summary.moved, "removed": summary.removed,
                "unchanged": summary.unchanged, "failed": summary.failed, "left_out": summary.left_out,
            }, "failures": planned.failures()}),
            Err(error) => json!({"error": error.body()}),
        };
        let _ = sender.send(line(&last)).await;
    });
    Ok(Reply::Lines(lines))
}

/// Collects what a dry run plans, as much as a page can show.
#[derive(Default)]
struct Planned(std::sync::Mutex<Plans>);

#[derive(Default)]
struct Plans {
    entries: Vec<Value>,
    told: usize,
    failures: Vec<String>,
}

impl Planned {
    fn plans(&self) -> std::sync::MutexGuard<'_, Plans> {
        lock(&self.0)
    }

    fn add(&self, entry: impl FnOnce() -> Value) {
        let mut plans = self.plans();
        if plans.entries.len() < MAX_PLANNED {
            let entry = entry();
            plans.entries.push(entry);
        }
    }

    /// Sends what is new.
    async fn tell(&self, sender: &mpsc::Sender<Bytes>) {
        let (part, told) = {
            let plans = self.plans();
            (plans.entries[plans.told..].to_vec(), plans.entries.len())
        };
        if !part.is_empty() && sender.send(line(&json!({"planned": part}))).await.is_ok() {
            self.plans().told = told;
        }
    }

    fn failures(&self) -> Vec<String> {
        self.plans().failures.clone()
    }
}

impl Observer for Planned {
    fn event(&self, event: Event<'_>) {
        match event {
            Event::Planned { path, bytes, new } => self.add(|| json!({"path": encode(path.as_bytes()), "bytes": bytes, "what": if new { "new" } else { "change" }})),
            Event::Removed { path } => self.add(|| json!({"path": encode(path.as_bytes()), "bytes": 0, "what": "remove"})),
            Event::Failed { reason, .. } => {
                let mut plans = self.plans();
                if plans.failures.len() < 100 {
                    plans.failures.push(reason.to_owned());
                }
            }
            _ => {}
        }
    }
}

/// Connects to a server. An unknown host is an error with its fingerprint; with that confirmed, it
/// is known from then on.
async fn connect(shared: &Arc<Shared>, connect: Connect) -> Result<Reply, ApiError> {
    let Connect { address, ssh, fingerprint } = connect;
    let fingerprint = fingerprint.map(|text| text.parse::<Fingerprint>());
    let fingerprint =
        fingerprint.transpose().map_err(|_| ApiError::usage("the fingerprint is not one"))?;
    let (server, is_new) = shared.servers.add(&address, ssh)?;
    let connected = shared.servers.connect(&server, fingerprint).await;
    match connected {
        Ok(client) => server.give(client),
        Err(error) => {
            // perhaps it was mistyped
            if is_new {
                shared.servers.forget(&server.id).await;
            }
            return Err(error.into());
        }
    }
    shared.transfers.tell();
    Ok(Reply::Json(server.json()))
}
