//! The queue of transfers. Each runs on a thread of its own by the code of `put`, `get` and
//! `sync`, whether a page is open or not.

use std::collections::{HashMap, VecDeque};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use data_encoding::HEXLOWER;
use headroom_transfer::files::{Source, SourceKind};
use headroom_transfer::{
    Client, Error, Event, Links, Observer, Retry, Summary, SyncOptions, TreeOptions, with_retries,
};
use serde_json::{Value, json};
use tokio::runtime::Handle;
use tokio::sync::watch;

use crate::error::{ApiError, name_of};
use crate::names::encode;
use crate::servers::{Server, Servers};

/// Transfers that are kept; finished ones go first.
const MAX_TRANSFERS: usize = 500;
/// Sources of one request of `get`.
const MAX_SOURCES: usize = 1024;
/// Files that are remembered of a transfer for its receipt, and failures.
const MAX_FILES: usize = 20_000;
const MAX_FAILURES: usize = 1000;
const MAX_WARNINGS: usize = 20;
/// Seconds that the present rate is an average of.
const AVERAGE_OVER: f64 = 5.0;
/// Points of the plot. When they are full, pairs are merged and each lasts twice as long.
const POINTS: usize = 160;
/// How long a request has to end when its transfer is stopped.
const ENDING: Duration = Duration::from_secs(2);

/// What a transfer does.
#[derive(Debug)]
pub(crate) enum Job {
    Put { sources: Vec<PathBuf>, to: Vec<u8> },
    Get { from: Vec<Vec<u8>>, to: PathBuf },
    SyncTo { from: PathBuf, to: Vec<u8>, options: SyncOptions },
    SyncFrom { from: Vec<u8>, to: PathBuf, options: SyncOptions },
}

impl Job {
    const fn is_upload(&self) -> bool {
        matches!(self, Self::Put { .. } | Self::SyncTo { .. })
    }

    const fn is_sync(&self) -> bool {
        matches!(self, Self::SyncTo { .. } | Self::SyncFrom { .. })
    }

    /// Does it over a connection.
    async fn run(
        &self,
        client: &mut Client,
        observer: Arc<dyn Observer>,
    ) -> Result<Summary, Error> {
        match self {
            Self::Put { sources, to } => client.put(sources, to, false, observer).await,
            Self::Get { from, to } => {
                let mut all = Summary::default();
                for from in from.chunks(MAX_SOURCES) {
                    let part = client.get(from, to, false, Arc::clone(&observer)).await?;
                    all.failed += part.failed;
                    all.lost += part.lost;
                    all.on_lanes += part.on_lanes;
                    all.cipher = part.cipher.or(all.cipher);
                }
                Ok(all)
            }
            Self::SyncTo { from, to, options } => client.sync_to(from, to, options, observer).await,
            Self::SyncFrom { from, to, options } => {
                client.sync_from(from, to, options, observer).await
            }
        }
    }
}

/// Sets how a client sends trees and how fast, as the commands do.
pub(crate) fn prepare(
    client: &mut Client,
    server: &Server,
    is_upload: bool,
    rate_bps: Option<u64>,
) {
    let links = if server.is_ssh && is_upload { Links::Keep } else { Links::Inside };
    client.set_tree(TreeOptions { links, ..TreeOptions::default() });
    client.limit(rate_bps);
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Status {
    Waiting,
    Running,
    /// The connection was lost and is made again.
    Offline,
    Paused,
    Failed,
    Done,
    Cancelled,
}

impl Status {
    const fn name(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Running => "running",
            Self::Offline => "offline",
            Self::Paused => "paused",
            Self::Failed => "failed",
            Self::Done => "done",
            Self::Cancelled => "cancelled",
        }
    }

    const fn is_open(self) -> bool {
        matches!(self, Self::Waiting | Self::Running | Self::Offline | Self::Paused)
    }

    const fn is_active(self) -> bool {
        matches!(self, Self::Running | Self::Offline)
    }
}

/// What a running transfer shall do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Intent {
    Run,
    /// Stop, and become this.
    Stop(Status),
}

/// A transfer. Its counters are of the present attempt: what an earlier one moved, this one keeps.
#[derive(Debug)]
pub(crate) struct Transfer {
    id: u64,
    job: Job,
    server: Arc<Server>,
    /// What the page shows: names of source and destination, and how many more sources.
    labels: Value,
    counts: Counts,
    state: Mutex<State>,
    intent: watch::Sender<Intent>,
    created: u64,
}

#[derive(Debug, Default)]
struct Counts {
    files: AtomicU64,
    offered: AtomicU64,
    /// Kept, and in holes.
    kept: AtomicU64,
    moved: AtomicU64,
    stored: AtomicU64,
    /// Of those that are stored, files.
    verified: AtomicU64,
    failed: AtomicU64,
    removed: AtomicU64,
    /// Bytes of all files; [`UNKNOWN`] until they are known.
    total: AtomicU64,
}

const UNKNOWN: u64 = u64::MAX;

#[derive(Debug)]
struct State {
    status: Status,
    version: u64,
    error: Option<ApiError>,
    started: u64,
    finished: u64,
    seconds: u64,
    /// What earlier attempts moved.
    moved_before: u64,
    moved_at_last_second: u64,
    rate: f64,
    history: History,
    current: Option<String>,
    stored: VecDeque<Stored>,
    /// Sizes and hashes of files that are not stored yet.
    hashed: HashMap<String, (u64, String)>,
    /// Codes and sentences.
    failures: Vec<(&'static str, String)>,
    warnings: Vec<String>,
    cipher: Option<&'static str>,
    unchanged: u64,
}

#[derive(Debug, Clone)]
struct Stored {
    path: String,
    at: u64,
    size: u64,
    hash: String,
}

/// The rate over the whole time of a transfer.
#[derive(Debug)]
struct History {
    points: Vec<f64>,
    seconds: u64,
    sum: f64,
    count: u64,
}

impl History {
    const fn new() -> Self {
        Self { points: Vec::new(), seconds: 1, sum: 0.0, count: 0 }
    }

    fn add(&mut self, rate: f64) {
        self.sum += rate;
        self.count += 1;
        if self.count < self.seconds {
            return;
        }
        self.points.push(self.sum / self.count as f64);
        (self.sum, self.count) = (0.0, 0);
        if self.points.len() >= POINTS {
            self.points = self
                .points
                .chunks(2)
                .map(|pair| pair.iter().sum::<f64>() / pair.len() as f64)
                .collect();
            self.seconds *= 2;
        }
    }
}

/// All transfers.
#[derive(Debug)]
pub(crate) struct Transfers {
    servers: Arc<Servers>,
    handle: Handle,
    queue: Mutex<Queue>,
    version: AtomicU64,
    changed: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct Queue {
    list: Vec<Arc<Transfer>>,
    next_id: u64,
    /// Bytes per second, of each transfer.
    rate: Option<u64>,
    is_closed: bool,
}

impl Transfers {
    pub(crate) fn new(servers: Arc<Servers>, handle: Handle) -> Arc<Self> {
        Arc::new(Self {
            servers,
            handle,
            queue: Mutex::default(),
            version: AtomicU64::new(1),
            changed: watch::Sender::new(1),
        })
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns what changes when something does.
    pub(crate) fn subscribe(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    fn touch(&self, state: &mut State) {
        state.version = self.version.fetch_add(1, Ordering::Relaxed) + 1;
    }

    /// Wakes those that [`Self::subscribe`].
    pub(crate) fn tell(&self) {
        self.changed.send_replace(self.version.load(Ordering::Relaxed));
    }

    fn set(&self, transfer: &Transfer, status: Status) {
        let mut state = transfer.state();
        state.status = status;
        if !status.is_active() {
            state.rate = 0.0;
            state.current = None;
        }
        self.touch(&mut state);
    }

    /// Adds a transfer.
    pub(crate) fn add(
        self: &Arc<Self>,
        server: Arc<Server>,
        job: Job,
        labels: Value,
    ) -> Result<u64, ApiError> {
        let id = {
            let mut queue = self.queue();
            if queue.list.len() >= MAX_TRANSFERS {
                let gone = queue.list.iter().position(|it| !it.state().status.is_open());
                let gone = gone.ok_or_else(|| {
                    ApiError::new(
                        "refused",
                        format!("no more than {MAX_TRANSFERS} transfers at once"),
                    )
                })?;
                queue.list.remove(gone);
            }
            queue.next_id += 1;
            let id = queue.next_id;
            let transfer = Transfer::new(id, job, server, labels);
            self.touch(&mut transfer.state());
            queue.list.push(Arc::new(transfer));
            id
        };
        self.next();
        Ok(id)
    }

    pub(crate) fn find(&self, id: u64) -> Result<Arc<Transfer>, ApiError> {
        let found = self.queue().list.iter().find(|transfer| transfer.id == id).cloned();
        found.ok_or_else(|| ApiError::new("not-found", "there is no such transfer"))
    }

    /// Starts what may run: of each server one transfer in each direction.
    fn next(self: &Arc<Self>) {
        let mut starting = Vec::new();
        {
            let queue = self.queue();
            let mut busy: Vec<(&str, bool)> = Vec::new();
            let lane = |transfer: &'_ Transfer| transfer.job.is_upload();
            for transfer in &queue.list {
                // one that is being stopped still counts
                if transfer.state().status.is_active() {
                    busy.push((&transfer.server.id, lane(transfer)));
                }
            }
            for transfer in queue.list.iter().filter(|_| !queue.is_closed) {
                let key = (&*transfer.server.id, lane(transfer));
                if transfer.state().status == Status::Waiting && !busy.contains(&key) {
                    busy.push(key);
                    transfer.intent.send_replace(Intent::Run);
                    self.set(transfer, Status::Running);
                    starting.push((Arc::clone(transfer), queue.rate));
                }
            }
        }
        for (transfer, rate) in starting {
            let transfers = Arc::clone(self);
            // a thread: what it waits for differs from what the API waits for
            std::thread::spawn(move || {
                transfers.handle.block_on(transfers.run(&transfer, rate));
                transfers.next();
            });
        }
        self.tell();
    }

    async fn run(self: &Arc<Self>, transfer: &Arc<Transfer>, rate: Option<u64>) {
        {
            let mut state = transfer.state();
            state.error = None;
            if state.started == 0 {
                state.started = now_ms();
            }
        }
        transfer.begin_anew();
        let rate_bps = rate.map(|bytes| bytes.saturating_mul(8));
        if let Job::Put { sources, .. } = &transfer.job {
            look_ahead(sources.clone(), transfer);
        }
        let observer: Arc<dyn Observer> = Arc::new(Watching(Arc::clone(transfer)));
        let lost = |_: &Error| {
            transfer.begin_anew();
            self.set(transfer, Status::Offline);
            self.tell();
        };
        let server = &transfer.server;
        let connect = async || {
            let client = self.servers.client(server).await?;
            Ok(client)
        };
        let moving = async |mut client: Client| {
            if transfer.state().status == Status::Offline {
                self.set(transfer, Status::Running);
                self.tell();
            }
            prepare(&mut client, server, transfer.job.is_upload(), rate_bps);
            let done = tokio::select! {
                done = transfer.job.run(&mut client, Arc::clone(&observer)) => done,
                () = transfer.stopped() => Err(Error::Interrupted("stopped".to_owned())),
            };
            match done {
                Ok(summary) => {
                    client.limit(None);
                    server.give(client);
                    Ok(summary)
                }
                Err(error) => {
                    client.close().await;
                    Err(error)
                }
            }
        };
        let outcome = tokio::select! {
            outcome = with_retries(Retry::Forever, lost, connect, moving) => Some(outcome),
            // it was connecting
            () = async { transfer.stopped().await; tokio::time::sleep(ENDING).await } => None,
        };
        self.ended(transfer, outcome);
    }

    fn ended(&self, transfer: &Transfer, outcome: Option<Result<Summary, Error>>) {
        let intent = *transfer.intent.borrow();
        let failed = transfer.counts.failed.load(Ordering::Relaxed);
        let stored = transfer.counts.stored.load(Ordering::Relaxed);
        let mut state = transfer.state();
        let status = match (outcome, intent) {
            (Some(Ok(summary)), _) => {
                state.cipher = summary
                    .cipher
                    .filter(|_| summary.on_lanes > 0)
                    .map(headroom_transfer::Cipher::name);
                state.unchanged = summary.unchanged;
                match failed.max(summary.failed) > 0 && stored == 0 {
                    true => {
                        let first = state.failures.first().cloned();
                        let (code, reason) = first.unwrap_or(("refused", String::new()));
                        state.error = Some(ApiError::new(code, reason));
                        Status::Failed
                    }
                    false => Status::Done,
                }
            }
            (_, Intent::Stop(status)) => status,
            (Some(Err(error)), Intent::Run) => {
                state.error = Some(error.into());
                Status::Failed
            }
            (None, Intent::Run) => Status::Failed,
        };
        if !status.is_open() {
            state.finished = now_ms();
        }
        drop(state);
        self.set(transfer, status);
        self.tell();
    }

    /// Stops a transfer that runs; another just becomes this.
    fn stop(&self, transfer: &Transfer, status: Status) {
        let is_active = transfer.state().status.is_active();
        if is_active {
            transfer.intent.send_replace(Intent::Stop(status));
        } else {
            self.set(transfer, status);
            if !status.is_open() {
                transfer.state().finished = now_ms();
            }
            self.tell();
        }
    }

    /// Does what the page's buttons say.
    pub(crate) fn control(self: &Arc<Self>, id: u64, action: &str) -> Result<(), ApiError> {
        let transfer = self.find(id)?;
        let status = transfer.state().status;
        match action {
            "pause" if status.is_open() && status != Status::Paused => {
                self.stop(&transfer, Status::Paused);
            }
            "resume" if !status.is_active() && status != Status::Waiting => {
                self.set(&transfer, Status::Waiting);
                self.next();
            }
            "cancel" if status.is_open() => self.stop(&transfer, Status::Cancelled),
            "remove" if !status.is_active() => {
                self.queue().list.retain(|other| other.id != id);
                self.version.fetch_add(1, Ordering::Relaxed);
                self.tell();
            }
            "earlier" => self.shift(id, -1),
            "later" => self.shift(id, 1),
            // it is so already
            "pause" | "resume" | "cancel" | "remove" => {}
            _ => return Err(ApiError::usage("there is no such action")),
        }
        Ok(())
    }

    /// Moves a transfer among those that are not finished.
    fn shift(self: &Arc<Self>, id: u64, step: isize) {
        let mut stopped = None;
        {
            let mut queue = self.queue();
            let open: Vec<usize> = (0..queue.list.len())
                .filter(|at| queue.list[*at].state().status.is_open())
                .collect();
            let Some(at) = open.iter().position(|at| queue.list[*at].id == id) else { return };
            let Some(other) = at.checked_add_signed(step).and_then(|at| open.get(at)) else {
                return;
            };
            let (first, second) = (open[at].min(*other), open[at].max(*other));
            queue.list.swap(first, second);
            let (first, second) = (&queue.list[first], &queue.list[second]);
            let is_same = first.server.id == second.server.id
                && first.job.is_upload() == second.job.is_upload();
            // one that is now before the running one has precedence
            if is_same
                && first.state().status == Status::Waiting
                && second.state().status.is_active()
            {
                stopped = Some(Arc::clone(second));
            }
        }
        if let Some(transfer) = stopped {
            self.stop(&transfer, Status::Waiting);
        }
        self.version.fetch_add(1, Ordering::Relaxed);
        self.next();
    }

    /// Removes finished transfers.
    pub(crate) fn clear(&self) {
        self.queue().list.retain(|transfer| {
            let status = transfer.state().status;
            status.is_open() || status == Status::Failed
        });
        self.version.fetch_add(1, Ordering::Relaxed);
        self.tell();
    }

    /// Limits each transfer to so many bytes per second. Those that run repeat their request, and
    /// keep what is there.
    pub(crate) fn limit(&self, rate: Option<u64>) {
        let running: Vec<_> = {
            let mut queue = self.queue();
            if queue.rate == rate {
                return;
            }
            queue.rate = rate;
            queue.list.iter().filter(|it| it.state().status.is_active()).cloned().collect()
        };
        for transfer in running {
            // one that is being paused or cancelled stays so
            transfer.intent.send_if_modified(|intent| {
                let runs = *intent == Intent::Run;
                if runs {
                    *intent = Intent::Stop(Status::Waiting);
                }
                runs
            });
        }
        self.version.fetch_add(1, Ordering::Relaxed);
        self.tell();
    }

    /// Returns how many transfers run or wait.
    pub(crate) fn active(&self) -> usize {
        let is = |it: &&Arc<Transfer>| {
            matches!(it.state().status, Status::Running | Status::Offline | Status::Waiting)
        };
        self.queue().list.iter().filter(is).count()
    }

    /// Stops all transfers, and waits a moment until they have.
    pub(crate) async fn close(&self) {
        let running: Vec<_> = {
            let mut queue = self.queue();
            queue.is_closed = true;
            queue.list.clone()
        };
        for transfer in &running {
            if transfer.state().status.is_open() {
                self.stop(transfer, Status::Paused);
            }
        }
        let until = Instant::now() + ENDING;
        while Instant::now() < until && running.iter().any(|it| it.state().status.is_active()) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Measures rates, once a second.
    pub(crate) fn second(&self) {
        let list = self.queue().list.clone();
        for transfer in list {
            let moved = transfer.counts.moved.load(Ordering::Relaxed);
            let mut state = transfer.state();
            if state.status != Status::Running {
                continue;
            }
            let all = state.moved_before + moved;
            let rate = all.saturating_sub(state.moved_at_last_second) as f64;
            state.moved_at_last_second = all;
            state.seconds += 1;
            let seconds = state.seconds as f64;
            let weight =
                if seconds < AVERAGE_OVER { 1.0 / seconds } else { 2.0 / (AVERAGE_OVER + 1.0) };
            state.rate += (rate - state.rate) * weight;
            state.history.add(rate);
        }
    }

    /// Returns the order of all, the limit, and those that changed since a version or run; and the
    /// version of this.
    pub(crate) fn changes(&self, since: u64) -> (Value, u64) {
        let version = self.version.load(Ordering::Relaxed);
        let queue = self.queue();
        let order: Vec<_> = queue.list.iter().map(|transfer| transfer.id).collect();
        let changed = queue.list.iter().filter(|transfer| {
            let state = transfer.state();
            state.version > since || state.status.is_active()
        });
        let changed: Vec<_> = changed.map(|transfer| transfer.json()).collect();
        (json!({"order": order, "limit": queue.rate, "changed": changed}), version)
    }
}

impl Transfer {
    fn new(id: u64, job: Job, server: Arc<Server>, labels: Value) -> Self {
        let state = State {
            status: Status::Waiting,
            version: 0,
            error: None,
            started: 0,
            finished: 0,
            seconds: 0,
            moved_before: 0,
            moved_at_last_second: 0,
            rate: 0.0,
            history: History::new(),
            current: None,
            stored: VecDeque::new(),
            hashed: HashMap::new(),
            failures: Vec::new(),
            warnings: Vec::new(),
            cipher: None,
            unchanged: 0,
        };
        let counts = Counts { total: AtomicU64::new(UNKNOWN), ..Counts::default() };
        Self {
            id,
            job,
            server,
            labels,
            counts,
            state: Mutex::new(state),
            intent: watch::Sender::new(Intent::Run),
            created: now_ms(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns when it shall stop.
    async fn stopped(&self) {
        let _ = self.intent.subscribe().wait_for(|intent| *intent != Intent::Run).await;
    }

    /// Counts from nothing again: everything is offered anew.
    fn begin_anew(&self) {
        let Counts { files, offered, kept, moved, stored, verified, failed, removed, .. } =
            &self.counts;
        let mut state = self.state();
        state.moved_before += moved.swap(0, Ordering::Relaxed);
        state.failures.clear();
        state.stored.clear();
        state.hashed.clear();
        for count in [files, offered, kept, stored, verified, failed, removed] {
            count.store(0, Ordering::Relaxed);
        }
    }

    fn json(&self) -> Value {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let counts = &self.counts;
        let state = self.state();
        let (moved, kept, offered) = (of(&counts.moved), of(&counts.kept), of(&counts.offered));
        let total = of(&counts.total);
        let all_moved = state.moved_before + moved;
        let average = all_moved.checked_div(state.seconds).unwrap_or(0);
        let mut json = json!({
            "id": self.id, "direction": if self.job.is_upload() { "up" } else { "down" },
            "kind": if self.job.is_sync() { "sync" } else { "copy" }, "server": self.server.id,
            "state": state.status.name(), "error": state.error.as_ref().map(ApiError::body),
            "created": self.created, "started": state.started, "finished": state.finished, "seconds": state.seconds,
            "files": of(&counts.files), "stored": of(&counts.stored), "verified": of(&counts.verified), "failed": of(&counts.failed), "removed": of(&counts.removed),
            "unchanged": state.unchanged, "bytes": moved + kept, "moved": all_moved,
            "total": if total == UNKNOWN { offered } else { total }, "complete": total != UNKNOWN,
            "rate": state.rate, "average": average, "current": state.current, "cipher": state.cipher,
            "history": {"points": state.history.points, "seconds": state.history.seconds},
            "warnings": state.warnings,
        });
        if let (Some(json), Some(labels)) = (json.as_object_mut(), self.labels.as_object()) {
            json.extend(labels.clone());
        }
        json
    }

    /// Returns the files that are stored, at most so many of the last, and those that failed.
    pub(crate) fn files(&self, most: usize) -> Value {
        let state = self.state();
        let stored =
            state.stored.iter().rev().take(most).map(
                |it| json!({"path": it.path, "time": it.at, "size": it.size, "hash": it.hash}),
            );
        let stored: Vec<_> = stored.collect();
        let failures: Vec<_> =
            state.failures.iter().map(|(code, it)| json!({"reason": it, "code": code})).collect();
        json!({"stored": stored, "failed": failures, "all": self.counts.stored.load(Ordering::Relaxed)})
    }
}

/// Counts what happens to a transfer.
struct Watching(Arc<Transfer>);

impl Observer for Watching {
    fn event(&self, event: Event<'_>) {
        let Counts { files, offered, kept, moved, stored, verified, failed, removed, total } =
            &self.0.counts;
        let add = |count: &AtomicU64, n| {
            count.fetch_add(n, Ordering::Relaxed);
        };
        match event {
            Event::Offered { bytes } => {
                add(files, 1);
                add(offered, bytes);
            }
            Event::AllOffered { bytes, .. } => total.store(bytes, Ordering::Relaxed),
            Event::Kept { bytes } | Event::Hole { bytes } => add(kept, bytes),
            Event::Moved { bytes } => add(moved, bytes),
            Event::Begun { path } => self.0.state().current = Some(encode(path.as_bytes())),
            Event::Hashed { path, bytes, hash } => {
                let path = encode(path.as_bytes());
                let mut state = self.0.state();
                // those of files that failed stay
                if state.hashed.len() == MAX_FILES {
                    state.hashed.clear();
                }
                state.hashed.insert(path, (bytes, HEXLOWER.encode(hash)));
            }
            Event::Stored { path } => {
                add(stored, 1);
                let path = encode(path.as_bytes());
                let mut state = self.0.state();
                // directories and links have no hash
                let Some((size, hash)) = state.hashed.remove(&path) else { return };
                add(verified, 1);
                state.current = Some(path.clone());
                if state.stored.len() == MAX_FILES {
                    state.stored.pop_front();
                }
                state.stored.push_back(Stored { path, at: now_ms(), size, hash });
            }
            Event::Failed { reason, code } => {
                add(failed, 1);
                let mut state = self.0.state();
                if state.failures.len() < MAX_FAILURES {
                    state.failures.push((name_of(code), reason.to_owned()));
                }
            }
            Event::Warning { reason } | Event::LeftOut { reason } => {
                let mut state = self.0.state();
                if state.warnings.len() < MAX_WARNINGS {
                    state.warnings.push(reason.to_owned());
                }
            }
            Event::Removed { .. } => add(removed, 1),
            // it requests no CRCs: its receipts have hashes
            Event::Saved { .. }
            | Event::Summed { .. }
            | Event::Planned { .. }
            | Event::Lanes { .. }
            | Event::LanesSilent
            | Event::LanesBack => {}
        }
    }
}

/// Counts what is to be sent while it is being sent.
fn look_ahead(sources: Vec<PathBuf>, transfer: &Arc<Transfer>) {
    let transfer = Arc::clone(transfer);
    let links = if transfer.server.is_ssh { Links::Keep } else { Links::Inside };
    std::thread::spawn(move || {
        let sizes = Source::new(sources, links).flatten().map(|found| match found.kind {
            SourceKind::File(file) => file.metadata().size,
            _ => 0,
        });
        let sum = sizes.sum();
        let total = &transfer.counts.total;
        let _ = total.compare_exchange(UNKNOWN, sum, Ordering::Relaxed, Ordering::Relaxed);
    });
}

fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
