//! The fleets behind the page: jobs whose state is among the user's, and those that the command was
//! given. Other processes run them; they are looked at while a page is open.

mod shown;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use headroom_fleet::{Error as FleetError, Job, JobPlace, State, StateFolder, Watch};
use headroom_mutex::lock;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::spawn_blocking;

use self::shown::{MAX_REASONS, failed, shown};
use crate::error::{ApiError, Error};
use crate::names::encode;

/// Jobs in the folder of states that are shown, in the order of their names.
const MAX_JOBS: usize = 100;
/// How often a job is looked at.
const LOOK: Duration = Duration::from_secs(1);
/// How long to wait before servers that could not be reached are tried again.
const AGAIN: Duration = Duration::from_secs(5);

/// Where the jobs of fleets are.
#[derive(Debug, Clone, Default)]
pub struct FleetOptions {
    /// The folder that has the states of jobs, each in a folder of its own.
    pub states: Option<PathBuf>,
    /// More jobs: their files, or folders with their states.
    pub jobs: Vec<PathBuf>,
}

/// All jobs.
#[derive(Debug)]
pub(crate) struct Fleets(Arc<Inner>);

/// Keeps jobs being looked at until it is dropped.
#[derive(Debug)]
pub(crate) struct Looking(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    states: Option<PathBuf>,
    /// Folders that the command was given.
    folders: Vec<PathBuf>,
    /// How jobs in folders were seen before.
    watches: Mutex<BTreeMap<PathBuf, Watch>>,
    jobs: Mutex<BTreeMap<String, Shown>>,
    turn: Mutex<Turn>,
    turned: Condvar,
    version: AtomicU64,
    changed: watch::Sender<u64>,
}

/// What the threads that look wait for.
#[derive(Debug, Default)]
struct Turn {
    /// Pages that are open.
    pages: usize,
    /// How often somebody wanted a look at once.
    wanted: u64,
    is_closed: bool,
}

/// What a page sees of a job.
#[derive(Debug)]
struct Shown {
    /// `None` if its servers were not reached yet.
    place: Option<JobPlace>,
    json: Value,
}

#[derive(Deserialize)]
#[serde(tag = "action", rename_all = "lowercase", deny_unknown_fields)]
enum Request {
    List {},
    Pause {
        id: String,
    },
    Resume {
        id: String,
    },
    Cancel {
        id: String,
    },
    Rate {
        id: String,
        /// As `headroom fleet rate` has it: `100mbit`, or `none`.
        rate: String,
    },
}

/// What a job shall do.
enum Order {
    State(State),
    /// Bits per second.
    Rate(Option<u64>),
}

impl Fleets {
    /// Reads the job files, and begins to look whenever a page is open.
    pub(crate) fn new(options: FleetOptions) -> Result<Self, Error> {
        let FleetOptions { states, jobs } = options;
        let mut folders = Vec::new();
        let mut files: Vec<(PathBuf, Job)> = Vec::new();
        for path in jobs {
            let path = std::path::absolute(&path)
                .map_err(|error| Error::Fleet(format!("{}: {error}", path.display())))?;
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let job = Job::read(&path).map_err(|error| Error::Fleet(error.to_string()))?;
            if job.nats.is_some() {
                if !files.iter().any(|(known, _)| *known == path) {
                    files.push((path, job));
                }
                continue;
            }
            let Some(states) = &states else {
                let reason = "cannot tell where the state of this job is: neither XDG_STATE_HOME nor HOME is set";
                return Err(Error::Fleet(format!("{}: {reason}", path.display())));
            };
            folders.push(states.join(&job.name));
        }
        let inner = Arc::new(Inner {
            states,
            folders,
            watches: Mutex::default(),
            jobs: Mutex::default(),
            turn: Mutex::default(),
            turned: Condvar::new(),
            version: AtomicU64::new(1),
            changed: watch::Sender::new(1),
        });
        let looking = Arc::clone(&inner);
        std::thread::spawn(move || {
            while looking.wait(LOOK) {
                looking.look_at_folders();
            }
        });
        for (file, job) in files {
            let looking = Arc::clone(&inner);
            std::thread::spawn(move || looking.follow(&file, &job));
        }
        Ok(Self(inner))
    }

    pub(crate) fn subscribe(&self) -> watch::Receiver<u64> {
        self.0.changed.subscribe()
    }

    /// Has jobs looked at for a page, until the result is dropped.
    pub(crate) fn look(&self) -> Looking {
        self.0.turn(|turn| turn.pages += 1);
        Looking(Arc::clone(&self.0))
    }

    /// Returns all jobs, if they changed since a version.
    pub(crate) fn changes(&self, since: u64) -> Option<(Value, u64)> {
        let version = self.0.version.load(Ordering::Relaxed);
        (version > since).then(|| (self.0.json(), version))
    }

    /// Answers a call.
    pub(crate) async fn call(&self, body: Value) -> Result<Value, ApiError> {
        let request: Request =
            serde_json::from_value(body).map_err(|error| ApiError::usage(&error.to_string()))?;
        let (id, order) = match request {
            Request::List {} => {
                let inner = Arc::clone(&self.0);
                return in_thread(move || {
                    inner.look_at_folders();
                    Ok(json!({"jobs": inner.json()}))
                })
                .await;
            }
            Request::Pause { id } => (id, Order::State(State::Paused)),
            Request::Resume { id } => (id, Order::State(State::Running)),
            Request::Cancel { id } => (id, Order::State(State::Cancelled)),
            Request::Rate { id, rate } => (id, Order::Rate(limit(&rate)?)),
        };
        let place = self.0.jobs().get(&id).and_then(|job| job.place.clone());
        let place = place.ok_or_else(|| ApiError::new("not-found", "there is no such job here"))?;
        let inner = Arc::clone(&self.0);
        in_thread(move || {
            steer(&place, &order)?;
            if let JobPlace::Folder(_) = place {
                inner.look_at_folders();
            }
            inner.turn(|turn| turn.wanted += 1);
            Ok(json!({}))
        })
        .await
    }

    /// Ends the threads. One that waits for servers ends later.
    pub(crate) fn close(&self) {
        self.0.turn(|turn| turn.is_closed = true);
    }
}

impl Drop for Fleets {
    fn drop(&mut self) {
        self.close();
    }
}

impl Drop for Looking {
    fn drop(&mut self) {
        self.0.turn(|turn| turn.pages = turn.pages.saturating_sub(1));
    }
}

impl Inner {
    fn jobs(&self) -> MutexGuard<'_, BTreeMap<String, Shown>> {
        lock(&self.jobs)
    }

    fn json(&self) -> Value {
        self.jobs().values().map(|job| job.json.clone()).collect()
    }

    fn turn(&self, change: impl FnOnce(&mut Turn)) {
        change(&mut lock(&self.turn));
        self.turned.notify_all();
    }

    /// Waits until the next look is due: for a while, or until somebody wants one at once, and in
    /// any case until a page is open. Returns whether there is a next look.
    fn wait(&self, pause: Duration) -> bool {
        let turn = lock(&self.turn);
        let (wanted, pages) = (turn.wanted, turn.pages);
        let is_early =
            |turn: &mut Turn| !turn.is_closed && turn.wanted == wanted && turn.pages <= pages;
        let waited = self.turned.wait_timeout_while(turn, pause, is_early);
        let (turn, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let is_unseen = |turn: &mut Turn| !turn.is_closed && turn.pages == 0;
        let waited = self.turned.wait_while(turn, is_unseen);
        !waited.unwrap_or_else(PoisonError::into_inner).is_closed
    }

    /// Shows jobs as they are now.
    fn show(&self, change: impl FnOnce(&mut BTreeMap<String, Shown>) -> bool) {
        let is_changed = change(&mut self.jobs());
        if is_changed {
            let version = self.version.fetch_add(1, Ordering::Relaxed) + 1;
            self.changed.send_replace(version);
        }
    }

    /// Returns the folders with states.
    fn list(&self) -> Vec<PathBuf> {
        let entries = self.states.as_ref().map(fs::read_dir);
        let entries = entries.into_iter().flatten().flatten().flatten();
        // links lead elsewhere
        let is_folder = |entry: &fs::DirEntry| entry.file_type().is_ok_and(|kind| kind.is_dir());
        let mut found: Vec<_> = entries.filter(is_folder).map(|entry| entry.path()).collect();
        found.sort();
        found.truncate(MAX_JOBS);
        for folder in &self.folders {
            if !found.contains(folder) {
                found.push(folder.clone());
            }
        }
        found
    }

    /// Looks at all jobs whose state is in a folder.
    fn look_at_folders(&self) {
        let mut watches = lock(&self.watches);
        let folders = self.list();
        watches.retain(|folder, _| folders.contains(folder));
        let mut seen = BTreeMap::new();
        for folder in &folders {
            let place = || JobPlace::Folder(StateFolder::new(folder.clone()));
            let watch = watches.entry(folder.clone()).or_insert_with(|| Watch::new(place()));
            let id = id_of(folder);
            let json = match watch.look(MAX_REASONS) {
                Ok(look) => shown(&id, &id, &look),
                // whoever made the folder, or removed the state, has not begun yet
                Err(FleetError::NoJob(_)) if !self.folders.contains(folder) => continue,
                Err(error) => failed(&id, &id, &name_of(folder), &error),
            };
            seen.insert(id, Shown { place: Some(watch.place().clone()), json });
        }
        self.show(|jobs| {
            let is_folder = |job: &Shown| matches!(job.place, Some(JobPlace::Folder(_)));
            let is_same = jobs.iter().filter(|(_, job)| is_folder(job)).count() == seen.len()
                && seen.iter().all(|(id, job)| jobs.get(id).is_some_and(|it| it.json == job.json));
            jobs.retain(|_, job| !is_folder(job));
            jobs.append(&mut seen);
            !is_same
        });
    }

    /// Looks at a job whose queue is at NATS, again and again.
    fn follow(&self, file: &Path, job: &Job) {
        let id = id_of(file);
        let servers = job.nats.as_ref().map(|nats| nats.servers.join(", ")).unwrap_or_default();
        let place = encode(format!("NATS: {servers}").as_bytes());
        let mut watch: Option<Watch> = None;
        let mut pause = Duration::ZERO;
        while self.wait(pause) {
            let looked = match &mut watch {
                Some(watch) => watch.look(MAX_REASONS),
                None => JobPlace::nats(job)
                    .and_then(|place| watch.insert(Watch::new(place)).look(MAX_REASONS)),
            };
            pause = if looked.is_ok() { LOOK } else { AGAIN };
            let json = match looked {
                Ok(look) => shown(&id, &place, &look),
                Err(error) => failed(&id, &place, &job.name, &error),
            };
            let now = Shown { place: watch.as_ref().map(|it| it.place().clone()), json };
            self.show(|jobs| {
                let is_same = jobs.get(&id).is_some_and(|before| before.json == now.json);
                jobs.insert(id.clone(), now);
                !is_same
            });
        }
    }
}

/// What the page calls a job in requests.
fn id_of(path: &Path) -> String {
    encode(path.as_os_str().as_bytes())
}

fn name_of(folder: &Path) -> String {
    folder.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// Reads a limit for all workers together, in bits per second.
fn limit(text: &str) -> Result<Option<u64>, ApiError> {
    match text.trim() {
        "none" => Ok(None),
        text => headroom_units::parse_rate(text)
            .map(Some)
            .map_err(|reason| ApiError::new("usage", reason)),
    }
}

/// Does what `headroom fleet pause`, `resume`, `cancel` and `rate` do.
fn steer(place: &JobPlace, order: &Order) -> Result<(), ApiError> {
    let mut engine = place.open()?;
    match order {
        Order::State(state) => match engine.set_state(*state)?.state == *state {
            true => Ok(()),
            false => Err(FleetError::Cancelled.into()),
        },
        Order::Rate(rate_bps) => Ok(engine.set_rate(*rate_bps)?),
    }
}

/// Runs something that waits for a disk or for servers.
async fn in_thread(
    work: impl FnOnce() -> Result<Value, ApiError> + Send + 'static,
) -> Result<Value, ApiError> {
    spawn_blocking(work).await.map_err(|error| ApiError::new("unknown", error.to_string()))?
}
