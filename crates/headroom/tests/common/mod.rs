//! What these tests share: a folder of its own for each, a way to start the
//! real command and to watch it while it runs, and a way to see what it leaves
//! behind. Whatever a failed test leaves is removed by the guards here.

#![allow(dead_code, reason = "each test file uses a part of this one")]

pub(crate) mod browser;
pub(crate) mod gateways;
pub(crate) mod layout;
pub(crate) mod made_up;
pub(crate) mod sshd;
pub(crate) mod wireshark;

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use headroom_lab_host::programs::{Program, SearchPath};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

pub(crate) const HEADROOM: &str = env!("CARGO_BIN_EXE_headroom");

/// `headroom`'s words for a run with its results in `out`. A link that fails its self-test is used
/// all the same: the tests beside this one may leave it too little of the machine.
pub(crate) const MEASURE: &str = "lab run --out out --allow-failed-link-test";

/// Longer than anything here takes, even on a busy machine.
const A_RUN: Duration = Duration::from_secs(600);
const AN_EVENT: Duration = Duration::from_secs(180);

/// A test's own folder; removed, with the runs in it, when dropped.
pub(crate) struct Ground {
    dir: PathBuf,
}

impl Ground {
    pub(crate) fn new(name: &str) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("headroom-test-{}-{number}-{name}", std::process::id());
        let dir = std::env::temp_dir().join(name);
        std::fs::create_dir_all(dir.join("tmp")).expect("a folder for the test");
        Self { dir }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// The `TMPDIR` of what is started here.
    pub(crate) fn scratch(&self) -> PathBuf {
        self.path("tmp")
    }

    pub(crate) fn write(&self, name: &str, content: &str) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, content).expect("a file of the test");
        path
    }

    /// A script that can be executed.
    pub(crate) fn script(&self, name: &str, content: &str) -> PathBuf {
        let path = self.path(name);
        headroom_testing::write_executable(&path, content.as_bytes());
        path
    }

    /// `program`, to be started in this folder.
    pub(crate) fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command.current_dir(&self.dir).env("TMPDIR", self.scratch()).stdin(Stdio::null());
        command
    }

    /// `headroom` with these arguments, separated by spaces.
    pub(crate) fn headroom(&self, arguments: &str) -> Command {
        let mut command = self.command(HEADROOM);
        command.args(arguments.split_whitespace());
        command
    }

    /// Starts a command that is, or becomes, a `headroom`.
    pub(crate) fn start(&self, mut command: Command) -> Running {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let [stdout, stderr] =
            ["stdout", "stderr"].map(|stream| self.path(&format!("{stream}-{number}")));
        let file = |path: &Path| File::create(path).expect("a file for the output");
        command.stdout(file(&stdout)).stderr(file(&stderr));
        let line = format!("{command:?}");
        let others = runs_in(&self.scratch());
        let child = command.spawn().unwrap_or_else(|error| panic!("cannot start {line}: {error}"));
        let parents = vec![self.scratch()];
        Running {
            child,
            stdout,
            stderr,
            parents,
            others,
            ids: BTreeSet::new(),
            dir: self.dir.clone(),
        }
    }

    /// Runs a command to its end.
    pub(crate) fn end_of(&self, command: Command) -> Ended {
        self.start(command).end()
    }

    /// Runs `headroom lab run …` with results in `out`, which must succeed.
    pub(crate) fn measure(&self, arguments: &str) -> Value {
        let _ = std::fs::remove_dir_all(self.path("out")); // an earlier run's
        let ended = self.end_of(self.headroom(&format!("{MEASURE} {arguments}")));
        assert_eq!(ended.code, Some(0), "{ended}");
        ended.assert_nothing_left();
        self.results()
    }

    /// The results in `out`.
    pub(crate) fn results(&self) -> Value {
        let path = self.path("out/results.json");
        let text = std::fs::read_to_string(&path)
            .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        serde_json::from_str(&text).expect("results.json is JSON")
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        for id in runs_in(&self.scratch()) {
            remove_group(&id);
        }
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

/// A command in progress.
pub(crate) struct Running {
    child: Child,
    stdout: PathBuf,
    stderr: PathBuf,
    /// Where its scratch folder will be.
    parents: Vec<PathBuf>,
    /// Runs that were there before.
    others: BTreeSet<String>,
    ids: BTreeSet<String>,
    dir: PathBuf,
}

impl Running {
    pub(crate) fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id().cast_signed())
    }

    /// Watches a folder for its scratch folder.
    pub(crate) fn watch(&mut self, parent: &Path) {
        self.parents.push(parent.to_owned());
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(self.pid(), signal).expect("the command still runs");
    }

    /// The run's own name, once it has one.
    pub(crate) fn id(&mut self) -> Option<String> {
        for parent in &self.parents {
            self.ids.extend(runs_in(parent).difference(&self.others).cloned());
        }
        self.ids.first().cloned()
    }

    /// A folder of the run, seen through its own mounts.
    pub(crate) fn inside(&mut self, name: &str) -> Option<PathBuf> {
        let id = self.id()?;
        let parent = self.parents.last()?.strip_prefix("/").ok()?.to_owned();
        let root = PathBuf::from(format!("/proc/{}/root", self.pid())).join(parent);
        Some(root.join(format!("headroom-{id}/root")).join(name)).filter(|path| path.exists())
    }

    /// Processes of the run's client or server that have this name.
    pub(crate) fn processes(&mut self, side: &str, name: &str) -> Vec<Pid> {
        let Some(group) = self.id().and_then(|id| group_of(&id)) else { return Vec::new() };
        let pids = std::fs::read_to_string(group.join(side).join("cgroup.procs"));
        pids.unwrap_or_default()
            .lines()
            .filter(|pid| {
                std::fs::read_to_string(format!("/proc/{pid}/comm"))
                    .is_ok_and(|comm| comm.trim() == name)
            })
            .map(|pid| Pid::from_raw(pid.parse().expect("a process id")))
            .collect()
    }

    /// Waits until `event` gives something, while the command runs.
    pub(crate) fn until<T>(
        &mut self,
        what: &str,
        mut event: impl FnMut(&mut Self) -> Option<T>,
    ) -> T {
        let deadline = Instant::now() + AN_EVENT;
        loop {
            if let Some(found) = event(self) {
                return found;
            }
            let ended = self.child.try_wait().expect("a child's state");
            assert!(
                ended.is_none() && Instant::now() < deadline,
                "{what} never came; the command {ended:?} said: {}",
                read(&self.stderr)
            );
            sleep(Duration::from_millis(1));
        }
    }

    /// Waits until a client has received the n-th file: with `warmup = 1` and
    /// one cell, the second is the first that counts.
    pub(crate) fn until_download(&mut self, n: u32) -> PathBuf {
        self.until("a transfer", |run| {
            let downloads = run.inside("downloads")?;
            std::fs::read_dir(&downloads).ok()?.flatten().find_map(|entry| {
                let name = entry.file_name().into_string().ok()?;
                let serial: u32 = name.strip_prefix('d')?.parse().ok()?;
                (serial >= n).then(|| entry.path())
            })
        })
    }

    /// Waits until the journal in `out` has this many complete blocks.
    pub(crate) fn until_block(&mut self, n: usize) {
        self.until("a block", |run| {
            let journal = std::fs::read_to_string(run.dir.join("out/journal.jsonl")).ok()?;
            let blocks = journal.split_inclusive('\n').filter(|line| line.ends_with('\n'));
            (blocks.filter(|line| line.starts_with("{\"block\"")).count() >= n).then_some(())
        });
    }

    /// Whether it still runs.
    pub(crate) fn lives(&mut self) -> bool {
        self.id();
        self.child.try_wait().expect("a child's state").is_none()
    }

    /// What it has written to standard output so far.
    pub(crate) fn printed(&self) -> String {
        read(&self.stdout)
    }

    /// What it has written to standard error so far.
    pub(crate) fn said(&self) -> String {
        read(&self.stderr)
    }

    /// Waits for its end.
    pub(crate) fn end(mut self) -> Ended {
        let deadline = Instant::now() + A_RUN;
        loop {
            self.id();
            if let Some(status) = self.child.try_wait().expect("a child's state") {
                return Ended {
                    code: status.code(),
                    stdout: read(&self.stdout),
                    stderr: read(&self.stderr),
                    ids: std::mem::take(&mut self.ids),
                    parents: std::mem::take(&mut self.parents),
                    others: std::mem::take(&mut self.others),
                    dir: self.dir.clone(),
                };
            }
            assert!(Instant::now() < deadline, "still running; it said: {}", read(&self.stderr));
            sleep(Duration::from_millis(2));
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
        for id in &self.ids {
            remove_group(id);
        }
    }
}

/// A command that has ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    /// The runs it made.
    pub(crate) ids: BTreeSet<String>,
    parents: Vec<PathBuf>,
    others: BTreeSet<String>,
    dir: PathBuf,
}

impl std::fmt::Display for Ended {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "exit code {:?}\n{}\n{}", self.code, self.stdout, self.stderr)
    }
}

impl Ended {
    /// Fails unless it ended with this code and these words on standard error.
    pub(crate) fn assert_says(&self, code: i32, words: &[&str]) {
        assert_eq!(self.code, Some(code), "{self}");
        for word in words {
            assert!(self.stderr.contains(word), "`{word}` is not in: {self}");
        }
    }

    /// Fails if anything of the run is left: folder, control group, process.
    pub(crate) fn assert_nothing_left(&self) {
        for parent in &self.parents {
            let left: Vec<String> = runs_in(parent).difference(&self.others).cloned().collect();
            assert!(left.is_empty(), "the scratch folders of {left:?} are left: {self}");
        }
        for id in &self.ids {
            assert!(group_of(id).is_none(), "the control group of {id} is left: {self}");
        }
        // with another run in the same folder, only this one's name tells whose a process is
        let alone = self.others.is_empty();
        let named = self.ids.iter().map(|id| format!("headroom-{id}"));
        let names: Vec<String> =
            named.chain(alone.then(|| self.dir.display().to_string())).collect();
        let left = processes_with(&names);
        assert!(left.is_empty(), "processes are left: {left:?}: {self}");
    }

    /// Fails if a run was begun.
    pub(crate) fn assert_nothing_started(&self) {
        assert!(self.ids.is_empty(), "{:?} was begun: {self}", self.ids);
        self.assert_nothing_left();
    }
}

/// Names of the runs whose scratch folders are in `parent`.
pub(crate) fn runs_in(parent: &Path) -> BTreeSet<String> {
    let Ok(entries) = std::fs::read_dir(parent) else { return BTreeSet::new() };
    entries
        .flatten()
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            let id = name.strip_prefix("headroom-")?;
            let is_id = id.len() == 8 && id.bytes().all(|byte| byte.is_ascii_hexdigit());
            is_id.then(|| id.to_owned())
        })
        .collect()
}

/// Where control groups are, if this system has them mounted.
pub(crate) fn groups() -> Option<PathBuf> {
    let mounts = std::fs::read_to_string("/proc/self/mounts").expect("the mounts");
    mounts.lines().find_map(|line| {
        let words: Vec<&str> = line.split(' ').collect();
        (words[2] == "cgroup2").then(|| PathBuf::from(words[1]))
    })
}

/// The control group of a run, if there is one.
pub(crate) fn group_of(id: &str) -> Option<PathBuf> {
    Some(groups()?.join(format!("headroom-{id}"))).filter(|path| path.exists())
}

/// Living processes that have one of these names in their command line or in
/// their control group's.
pub(crate) fn processes_with(names: &[String]) -> Vec<String> {
    let entries = std::fs::read_dir("/proc").expect("/proc");
    entries
        .flatten()
        .filter_map(|entry| {
            let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
            let about = |file: &str| {
                let bytes = std::fs::read(entry.path().join(file)).unwrap_or_default();
                String::from_utf8_lossy(&bytes).replace('\0', " ")
            };
            let stat = about("stat");
            let state = stat.rsplit(')').next()?.trim_start().chars().next()?;
            let all = format!("{} {}", about("cmdline"), about("cgroup"));
            let ours = pid != std::process::id() && !"ZX".contains(state);
            (ours && names.iter().any(|name| all.contains(name.as_str())))
                .then(|| format!("{pid} {all}"))
        })
        .collect()
}

/// Waits until something is so.
pub(crate) fn wait_for(what: &str, mut so: impl FnMut() -> bool) {
    let deadline = Instant::now() + AN_EVENT;
    while !so() {
        assert!(Instant::now() < deadline, "{what} never came");
        sleep(Duration::from_millis(2));
    }
}

/// The paths of an executable in `PATH`, the system's `sbin` folders and the
/// cache of parts: all the places in which the lab looks.
pub(crate) fn places_of(program: &str) -> Vec<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let system = ["/usr/local/sbin", "/usr/sbin", "/sbin"].map(PathBuf::from);
    let root = parts().join("root");
    let cached = ["usr/sbin", "usr/bin", "sbin", "bin"].map(|folder| root.join(folder));
    std::env::split_paths(&path)
        .chain(system)
        .chain(cached)
        .map(|folder| folder.join(program))
        .filter(|path| path.is_file())
        .collect()
}

/// A program of the system or of the cache, with what it needs.
pub(crate) fn part(name: &'static str) -> Command {
    let program = Program::new(name, name, &[]);
    let located = SearchPath::from_environment().locate(program).expect("see scripts/fetch-parts");
    let mut command = Command::new(located.path);
    command.envs(located.environment);
    command
}

/// The cache of parts.
pub(crate) fn parts() -> PathBuf {
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    variable("HEADROOM_PARTS").map_or_else(
        || {
            let home = PathBuf::from(variable("HOME").unwrap_or_else(|| "/root".into()));
            variable("XDG_CACHE_HOME")
                .map_or_else(|| home.join(".cache"), PathBuf::from)
                .join("headroom/parts")
        },
        PathBuf::from,
    )
}

/// Reads what a program prints when it is ready: a line of JSON. What it prints later is lost.
pub(crate) fn first_line(child: &mut Child) -> Value {
    let stdout = child.stdout.take().expect("it is piped");
    let mut line = String::new();
    BufReader::new(stdout).read_line(&mut line).expect("a line");
    serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"))
}

pub(crate) fn array<'a>(value: &'a Value, key: &str) -> &'a Vec<Value> {
    value[key].as_array().unwrap_or_else(|| panic!("`{key}` is no list in {value}"))
}

pub(crate) fn number(value: &Value, key: &str) -> f64 {
    value[key].as_f64().unwrap_or_else(|| panic!("`{key}` is no number in {value}"))
}

pub(crate) fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_else(|| panic!("`{key}` is no text in {value}"))
}

fn read(path: &Path) -> String {
    let bytes = std::fs::read(path).unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Ends a run's processes and removes its control group, after a failed test.
fn remove_group(id: &str) {
    let Some(group) = group_of(id) else { return };
    let _ = std::fs::write(group.join("cgroup.kill"), "1");
    let deadline = Instant::now() + Duration::from_secs(5);
    while group.exists() && Instant::now() < deadline {
        for side in ["client", "server", "router", ""] {
            let _ = std::fs::remove_dir(group.join(side));
        }
        sleep(Duration::from_millis(2));
    }
}
