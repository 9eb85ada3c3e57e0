//! The lab behind the page: plans, runs with their reports, and one run at a time that this
//! program starts as a process, watched by its journal.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, SystemTime};

use data_encoding::BASE64URL_NOPAD;
use headroom_mutex::lock;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::spawn_blocking;

use crate::error::ApiError;
use crate::local::path_of;
use crate::names::encode;

/// Runs that are kept in memory, and of what each prints the last lines and their bytes.
const MAX_RUNS: usize = 20;
const MAX_LINES: usize = 500;
const MAX_PRINTED: usize = 128 << 10;
const MAX_LINE: usize = 4000;
/// Names in a listing, and addresses of reports.
const MAX_NAMES: usize = 1000;
const MAX_REPORTS: usize = 64;
const MAX_REPORT: u64 = 64 << 20;
/// The most that is read of a journal at once, and of one line.
const MAX_JOURNAL: u64 = 16 << 20;
/// Cells of a run.
const MAX_CELLS: usize = 5000;
/// How often the journal is looked at, and how long a run has to end.
const LOOK: Duration = Duration::from_millis(400);
const ENDING: Duration = Duration::from_secs(20);

#[derive(Debug)]
pub(crate) struct Lab {
    program: PathBuf,
    folder: PathBuf,
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    state: Mutex<State>,
    version: AtomicU64,
    changed: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct State {
    runs: VecDeque<Run>,
    next_id: u64,
    /// Addresses of reports, and their files.
    reports: VecDeque<(String, PathBuf)>,
}

#[derive(Debug)]
struct Run {
    id: u64,
    plan: PathBuf,
    out: PathBuf,
    pid: Option<Pid>,
    status: Status,
    printed: Printed,
    /// Blocks per cell that the plan asks for at least.
    repetitions: u64,
    cells: BTreeMap<(String, String, u64), Cell>,
    started: u64,
    finished: u64,
}

/// The last lines that a run printed.
#[derive(Debug, Default)]
struct Printed {
    lines: VecDeque<String>,
    bytes: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Status {
    Running,
    Stopping,
    Done,
    Failed,
    Stopped,
}

#[derive(Debug, Default)]
struct Cell {
    samples: u64,
    failed: u64,
    last_s: Option<f64>,
}

#[derive(Deserialize)]
#[serde(tag = "action", rename_all = "lowercase", deny_unknown_fields)]
enum Request {
    List {},
    Start {
        plan: String,
        #[serde(default)]
        scale: Option<String>,
    },
    Stop {
        id: u64,
    },
    Report {
        run: String,
    },
}

impl Inner {
    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let changed = change(&mut self.state());
        let version = self.version.fetch_add(1, Ordering::Relaxed) + 1;
        self.changed.send_replace(version);
        changed
    }

    fn of_run(&self, id: u64, change: impl FnOnce(&mut Run)) {
        self.change(|state| {
            if let Some(run) = state.runs.iter_mut().find(|run| run.id == id) {
                change(run);
            }
        });
    }
}

impl Lab {
    pub(crate) fn new(program: PathBuf, folder: PathBuf) -> Self {
        let (version, changed) = (AtomicU64::new(1), watch::Sender::new(1));
        let inner = Arc::new(Inner { state: Mutex::default(), version, changed });
        Self { program, folder, inner }
    }

    pub(crate) fn subscribe(&self) -> watch::Receiver<u64> {
        self.inner.changed.subscribe()
    }

    /// Returns how many runs go on.
    pub(crate) fn active(&self) -> usize {
        self.inner.state().runs.iter().filter(|run| run.status.is_active()).count()
    }

    /// Returns all runs that this program started, if they changed since a version.
    pub(crate) fn changes(&self, since: u64) -> Option<(Value, u64)> {
        let version = self.inner.version.load(Ordering::Relaxed);
        let state = (version > since).then(|| self.inner.state())?;
        Some((state.runs.iter().map(Run::json).collect(), version))
    }

    /// Answers a call.
    pub(crate) async fn call(&self, body: Value) -> Result<Value, ApiError> {
        let request: Request =
            serde_json::from_value(body).map_err(|error| ApiError::usage(&error.to_string()))?;
        match request {
            Request::List {} => {
                let folder = self.folder.clone();
                let listed = spawn_blocking(move || listed(&folder)).await;
                listed.map_err(|error| ApiError::new("unknown", error.to_string()))
            }
            Request::Start { plan, scale } => self.start(&path_of(&plan)?, scale.as_deref()),
            Request::Stop { id } => {
                let mut state = self.inner.state();
                let run = state.runs.iter_mut().find(|run| run.id == id && run.status.is_active());
                let run = run.ok_or_else(|| ApiError::new("not-found", "that run has ended"))?;
                run.status = Status::Stopping;
                if let Some(pid) = run.pid {
                    let _ = kill(pid, Signal::SIGINT);
                }
                drop(state);
                self.inner.of_run(id, |_| {});
                Ok(json!({}))
            }
            Request::Report { run } => self.name_report(&run),
        }
    }

    /// Starts a run of a plan or study, with its results in `results`.
    fn start(&self, plan: &Path, scale: Option<&str>) -> Result<Value, ApiError> {
        if scale.is_some_and(|scale| !["full", "quick", "smoke"].contains(&scale)) {
            return Err(ApiError::usage("there is no such scale"));
        }
        if !plan.is_file() {
            return Err(ApiError::new("not-found", format!("{} is not a file", plan.display())));
        }
        // in one step: of two requests at the same time one starts a run
        let (id, out, mut child) = self.inner.change(|state| self.spawn(state, plan, scale))?;
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        if let Some(stdout) = stdout {
            self.follow(id, stdout);
        }
        if let Some(stderr) = stderr {
            self.follow(id, stderr);
        }
        let inner = Arc::clone(&self.inner);
        std::thread::spawn(move || {
            let mut journals = HashMap::new();
            loop {
                let ended = child.try_wait();
                look(&inner, id, &out, &mut journals);
                match ended {
                    Ok(None) => std::thread::sleep(LOOK),
                    Ok(Some(status)) => return ended_with(&inner, id, Some(status)),
                    Err(_) => return ended_with(&inner, id, None),
                }
            }
        });
        Ok(json!({"id": id}))
    }

    /// Starts the process of a run, unless another run goes on.
    fn spawn(
        &self,
        state: &mut State,
        plan: &Path,
        scale: Option<&str>,
    ) -> Result<(u64, PathBuf, Child), ApiError> {
        if state.runs.iter().any(|run| run.status.is_active()) {
            return Err(ApiError::new(
                "refused",
                "a run goes on: two at once would disturb each other",
            ));
        }
        state.next_id += 1;
        let id = state.next_id;
        let name = plan.file_stem().unwrap_or_default().to_string_lossy();
        let out = self.folder.join("results").join(format!("{name}-{}-{id}", now_ms() / 1000));
        let mut command = Command::new(&self.program);
        command.args(["lab", "run"]).arg(plan).arg("--out").arg(&out);
        if let Some(scale) = scale {
            command.args(["--scale", scale]);
        }
        // a group of its own: Ctrl-C in the terminal is for this program, which stops it
        command.current_dir(&self.folder).process_group(0);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = command
            .spawn()
            .map_err(|error| ApiError::system("the lab cannot be started", &error))?;
        let run = Run {
            id,
            plan: plan.to_owned(),
            out: out.clone(),
            pid: i32::try_from(child.id()).ok().map(Pid::from_raw),
            status: Status::Running,
            printed: Printed::default(),
            repetitions: 0,
            cells: BTreeMap::new(),
            started: now_ms(),
            finished: 0,
        };
        if state.runs.len() == MAX_RUNS {
            state.runs.pop_front();
        }
        state.runs.push_back(run);
        Ok((id, out, child))
    }

    /// Keeps what a run prints.
    fn follow(&self, id: u64, output: impl Read + Send + 'static) {
        let inner = Arc::clone(&self.inner);
        std::thread::spawn(move || {
            let mut output = BufReader::new(output);
            loop {
                let mut line = Vec::new();
                match (&mut output).take(MAX_LINE as u64).read_until(b'\n', &mut line) {
                    Ok(0) | Err(_) => return,
                    Ok(_) => {}
                }
                let line = String::from_utf8_lossy(&line).trim_end().to_owned();
                inner.of_run(id, |run| run.printed.add(line));
            }
        });
    }

    /// Makes an address by which a browser can open the report of a run: it names that one file,
    /// and nobody can guess it.
    fn name_report(&self, run: &str) -> Result<Value, ApiError> {
        let missing = || ApiError::new("not-found", "that run has no report");
        if run.is_empty() || run.starts_with('.') || run.contains('/') || run.contains('\0') {
            return Err(missing());
        }
        let path = self.folder.join("results").join(run).join("report.html");
        if !path.is_file() {
            return Err(missing());
        }
        let mut random = [0; 32];
        aws_lc_rs::rand::fill(&mut random).map_err(|_| missing())?;
        let name = BASE64URL_NOPAD.encode(&random);
        let mut state = self.inner.state();
        if state.reports.len() == MAX_REPORTS {
            state.reports.pop_front();
        }
        state.reports.push_back((name.clone(), path));
        Ok(json!({"path": format!("/report/{name}")}))
    }

    /// Reads the report of an address.
    pub(crate) async fn report(&self, name: &str) -> Option<Vec<u8>> {
        let path = {
            let state = self.inner.state();
            state.reports.iter().find(|(known, _)| known == name).map(|(_, path)| path.clone())
        };
        let path = path?;
        let read = spawn_blocking(move || {
            let mut content = Vec::new();
            let file = File::open(path).ok()?;
            file.take(MAX_REPORT).read_to_end(&mut content).ok()?;
            Some(content)
        });
        read.await.ok()?
    }

    /// Stops what runs, and waits for it: it leaves nothing behind.
    pub(crate) async fn close(&self) {
        let pids: Vec<_> = {
            let mut state = self.inner.state();
            let active = state.runs.iter_mut().filter(|run| run.status.is_active());
            active
                .filter_map(|run| {
                    run.status = Status::Stopping;
                    run.pid
                })
                .collect()
        };
        for pid in &pids {
            let _ = kill(*pid, Signal::SIGINT);
        }
        let ending = async {
            while self.active() > 0 {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        let _ = tokio::time::timeout(ENDING, ending).await;
    }
}

impl Status {
    const fn is_active(self) -> bool {
        matches!(self, Self::Running | Self::Stopping)
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Stopping => "stopping",
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Stopped => "stopped",
        }
    }
}

impl Printed {
    /// Adds a line, in the place of the oldest ones.
    fn add(&mut self, line: String) {
        self.bytes += line.len();
        self.lines.push_back(line);
        while self.lines.len() > MAX_LINES || self.bytes > MAX_PRINTED {
            let Some(oldest) = self.lines.pop_front() else { return };
            self.bytes -= oldest.len();
        }
    }
}

impl Run {
    fn json(&self) -> Value {
        let cells = self.cells.iter().map(|((stack, workload, size), cell)| {
            json!({"stack": stack, "workload": workload, "size": size, "samples": cell.samples, "failed": cell.failed, "seconds": cell.last_s})
        });
        let cells: Vec<_> = cells.collect();
        let bytes = |path: &Path| encode(path.as_os_str().as_bytes());
        let name = self.out.file_name().map(|name| encode(name.as_bytes()));
        json!({
            "id": self.id, "plan": bytes(&self.plan), "folder": bytes(&self.out), "name": name,
            "state": self.status.name(), "lines": self.printed.lines, "repetitions": self.repetitions, "cells": cells,
            "started": self.started, "finished": self.finished, "report": self.out.join("report.html").is_file(),
        })
    }

    /// Takes an entry of the journal.
    fn take(&mut self, entry: &Value) {
        if let Some(plan) = entry.get("run").map(|run| &run["plan"]) {
            self.repetitions = plan["repetitions"].as_u64().unwrap_or(0);
            for workload in plan["workloads"].as_array().into_iter().flatten() {
                for stack in workload["stacks"].as_array().into_iter().flatten() {
                    for size in workload["sizes_bytes"].as_array().into_iter().flatten() {
                        self.cell(stack, &workload["kind"], size);
                    }
                }
            }
        }
        for row in
            entry.get("block").and_then(|block| block["rows"].as_array()).into_iter().flatten()
        {
            let sample = &row["sample"];
            let Some(cell) =
                self.cell(&sample["stack"], &sample["workload"], &sample["size_bytes"])
            else {
                continue;
            };
            cell.samples += 1;
            cell.failed += u64::from(sample["ok"] != true);
            cell.last_s = sample["seconds"].as_f64().or(cell.last_s);
        }
    }

    fn cell(&mut self, stack: &Value, workload: &Value, size: &Value) -> Option<&mut Cell> {
        let key = (stack.as_str()?.to_owned(), workload.as_str()?.to_owned(), size.as_u64()?);
        (self.cells.len() < MAX_CELLS || self.cells.contains_key(&key))
            .then(|| self.cells.entry(key).or_default())
    }
}

fn ended_with(inner: &Inner, id: u64, status: Option<ExitStatus>) {
    inner.of_run(id, |run| {
        run.status = match status {
            Some(status) if status.success() => Status::Done,
            _ if run.status == Status::Stopping => Status::Stopped,
            _ => Status::Failed,
        };
        run.pid = None;
        run.finished = now_ms();
    });
}

/// Reads what is new in the journals of a run: one, or one for each part of a study.
fn look(inner: &Inner, id: u64, out: &Path, journals: &mut HashMap<PathBuf, u64>) {
    let mut entries = Vec::new();
    let parts = fs::read_dir(out).into_iter().flatten().flatten().map(|entry| entry.path());
    for folder in std::iter::once(out.to_owned()).chain(parts) {
        let path = folder.join("journal.jsonl");
        let Ok(mut file) = File::open(&path) else { continue };
        let at = journals.entry(path).or_insert(0);
        let mut new = Vec::new();
        let read = file
            .seek(SeekFrom::Start(*at))
            .and_then(|_| file.take(MAX_JOURNAL).read_to_end(&mut new));
        // a line that is being written is read next time; one that is too long is passed
        let Some(end) = read.ok().and_then(|_| new.iter().rposition(|byte| *byte == b'\n')) else {
            if new.len() as u64 == MAX_JOURNAL {
                *at += MAX_JOURNAL;
            }
            continue;
        };
        *at += end as u64 + 1;
        entries.extend(
            new[..end]
                .split(|byte| *byte == b'\n')
                .filter_map(|line| serde_json::from_slice::<Value>(line).ok()),
        );
    }
    if !entries.is_empty() {
        inner.of_run(id, |run| entries.iter().for_each(|entry| run.take(entry)));
    }
}

/// Lists plans, studies, and folders with results.
fn listed(folder: &Path) -> Value {
    let names = |folder: &Path| {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        let mut paths: Vec<_> = entries.take(MAX_NAMES).map(|entry| entry.path()).collect();
        paths.sort();
        paths
    };
    let plans = folder.join("plans");
    let is_plan = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "toml");
    let found = names(&plans).into_iter().chain(names(&plans.join("studies"))).filter(is_plan);
    let found: Vec<_> = found
        .map(|path| {
            let name = path.strip_prefix(&plans).unwrap_or(&path).with_extension("");
            json!({"name": encode(name.as_os_str().as_bytes()), "path": crate::local::text_of(&path)})
        })
        .collect();
    let runs = names(&folder.join("results")).into_iter().filter_map(|path| {
        let report = path.join("report.html");
        let is_unfinished = path.join("journal.jsonl").is_file();
        let meta = fs::metadata(if is_unfinished { &path } else { &report }).ok()?;
        let modified = meta.modified().ok()?.duration_since(SystemTime::UNIX_EPOCH).ok()?;
        let modified = u64::try_from(modified.as_millis()).ok()?;
        // a name that is not UTF-8 is none of the lab's
        let name = path.file_name()?.to_str()?;
        Some(json!({"name": name, "modified": modified, "report": report.is_file(), "unfinished": is_unfinished}))
    });
    json!({"folder": encode(folder.as_os_str().as_bytes()), "plans": found, "runs": runs.collect::<Vec<_>>()})
}

fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_the_last_lines_within_a_bound() {
        let mut printed = Printed::default();
        for number in 0..2 * MAX_LINES {
            printed.add(number.to_string());
        }
        assert_eq!((printed.lines.len(), &*printed.lines[0]), (MAX_LINES, "500"));
        for _ in 0..MAX_LINES {
            printed.add("\u{fffd}".repeat(MAX_LINE));
        }
        assert!(printed.lines.iter().map(String::len).sum::<usize>() <= MAX_PRINTED);
        assert_eq!(printed.lines.len(), MAX_PRINTED / (3 * MAX_LINE));
    }
}
