//! One end of the link, as the lab sees it: what can be done on that host.
//! Everything goes through the agent there; a dry run only notes it.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use headroom_mutex::lock;

use crate::agent::files::Request;
use crate::agent::{Agent, Job, LoopClient, LoopOutcome, Outcome, ServerState};
use crate::command::{Command, Executor, Resolved, quote};
use crate::content::{Content, ContentKind};
use crate::error::{Error, Result};
use crate::privileges::{Privileges, WITHOUT_GROUPS};
use crate::programs::{Located, Origin, Program, UNSHARE};
use crate::role::Role;

/// A host with its agent.
#[derive(Debug)]
pub struct Host {
    /// Which end it is.
    pub role: Role,
    /// Its address on the link.
    pub address: IpAddr,
    /// The folder on that host that holds everything of the run.
    pub root: PathBuf,
    /// This program's executable on that host.
    pub headroom: PathBuf,
    /// The prefix with which a person runs a command there: `nsenter --net=…`, `ssh …`.
    pub(crate) by_hand: String,
    executor: Arc<Executor>,
    /// None in a dry run.
    agent: Option<Mutex<Agent>>,
    /// Those of programs there.
    privileges: Privileges,
}

/// The start of a server.
#[derive(Debug, Clone)]
pub struct ServerSpec {
    /// It stays in the foreground.
    pub command: Command,
    /// Files that replace those of the system, inside its mount namespace.
    pub private_files: Vec<(PathBuf, &'static str)>,
    /// Folders that it expects in its private `/run`.
    pub run_folders: &'static [&'static str],
    /// How it shows that it is ready.
    pub ready: Ready,
    /// The time that it may take until then.
    pub patience: Duration,
}

/// How a server shows that it is ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ready {
    /// It accepts TCP connections at its address.
    Tcp,
    /// It has bound its address for UDP.
    Udp,
    /// It prints a line with this text.
    Line(&'static str),
}

impl ServerSpec {
    /// The time that a server may take until it is ready.
    pub const PATIENCE: Duration = Duration::from_secs(10);

    /// One that needs nothing but its command.
    pub fn new(command: Command) -> Self {
        let (private_files, ready) = (Vec::new(), Ready::Tcp);
        Self { command, private_files, run_folders: &[], ready, patience: Self::PATIENCE }
    }
}

impl Host {
    /// A host whose agent runs; without one, that of a dry run.
    pub fn new(
        role: Role,
        address: IpAddr,
        root: PathBuf,
        headroom: PathBuf,
        by_hand: String,
        executor: Arc<Executor>,
        agent: Option<Agent>,
    ) -> Self {
        let agent = agent.map(Mutex::new);
        let privileges = Privileges::Root;
        Self { role, address, root, headroom, by_hand, executor, agent, privileges }
    }

    /// Says which privileges programs have there.
    pub(crate) fn with_privileges(self, privileges: Privileges) -> Self {
        Self { privileges, ..self }
    }

    /// Whether programs are root of a user namespace there, to whom the machine's own files do
    /// not belong.
    pub fn is_user_namespace(&self) -> bool {
        matches!(self.privileges, Privileges::UserNamespace { .. })
    }

    /// Whether it has a single user id, to which all servers belong: in a user namespace whose
    /// owner has no more.
    pub fn has_one_user_id(&self) -> bool {
        self.privileges.one_id()
    }

    /// Returns the command of a server that is started as root and calls setgroups(2) before it
    /// serves a client; with a single user id that call succeeds without effect.
    pub fn with_groups(&self, command: Command) -> Command {
        if !self.has_one_user_id() {
            return command;
        }
        let words = [self.headroom.display().to_string(), WITHOUT_GROUPS.to_owned()];
        Command::from(Vec::from(words)).running(command)
    }

    /// Whether this host is of a dry run: nothing is done there.
    pub fn is_dry(&self) -> bool {
        self.agent.is_none()
    }

    /// The agent, for what is asked of it alone.
    ///
    /// # Errors
    /// A dry run has none.
    pub fn agent(&self) -> Result<MutexGuard<'_, Agent>> {
        let agent = self.agent.as_ref();
        agent.map(lock).ok_or_else(|| Error::Failed("a dry run has no hosts".into()))
    }

    /// Notes a line of a dry run.
    pub fn note(&self, line: impl FnOnce() -> String) {
        self.executor.note(line);
    }

    /// Does what a dry run leaves out without a word.
    ///
    /// # Errors
    /// Those of `act`.
    pub fn really<T>(&self, act: impl FnOnce() -> Result<T>) -> Result<Option<T>> {
        if self.is_dry() { Ok(None) } else { act().map(Some) }
    }

    /// Returns where a program is.
    ///
    /// # Errors
    /// [`Error::Missing`] with the package that has it.
    pub fn locate(&self, program: Program) -> Result<Located> {
        match &self.agent {
            None => self.executor.search_path().locate(program),
            Some(agent) => lock(agent).locate(program),
        }
    }

    /// Returns where a program is; a dry run leaves it to who repeats the commands.
    ///
    /// # Errors
    /// As [`Host::locate`].
    pub fn located(&self, program: Program) -> Result<Located> {
        let found = self.really(|| self.locate(program))?;
        Ok(found.unwrap_or_else(|| Located {
            path: program.name.into(),
            origin: Origin::System,
            environment: BTreeMap::new(),
        }))
    }

    /// The private cache of programs, as `$HEADROOM_PARTS` names it.
    pub fn program_cache(&self) -> &Path {
        let root = self.executor.search_path().cache();
        root.parent().unwrap_or(root)
    }

    /// The version that a program prints of itself.
    pub fn version(&self, program: Program) -> Option<String> {
        self.agent().ok()?.version(program).ok().flatten()
    }

    /// Runs a command to its end and returns what it printed.
    ///
    /// # Errors
    /// The command, its exit status and what it printed to standard error.
    pub fn run(&self, command: &Command) -> Result<String> {
        match &self.agent {
            None => self.executor.run(command),
            Some(agent) => lock(agent).command(command),
        }
    }

    /// Runs a command and returns what it printed; `stand_in` in a dry run.
    ///
    /// # Errors
    /// As [`Host::run`].
    pub fn ask(&self, command: &Command, stand_in: &str) -> Result<String> {
        let printed = self.run(command)?;
        Ok(if self.is_dry() { stand_in.to_owned() } else { printed })
    }

    /// Writes a text.
    pub fn write(&self, path: &Path, content: &str) -> Result<()> {
        let line = || format!("cat > {} <<'EOF'\n{content}EOF", path.display());
        self.write_as(line, path, content)
    }

    /// Writes a text that a dry run notes as `line`.
    pub fn write_as(
        &self,
        line: impl FnOnce() -> String,
        path: &Path,
        content: &str,
    ) -> Result<()> {
        self.note(line);
        let request = Request::Write { path: path.to_owned(), content: content.to_owned() };
        self.really(|| self.agent()?.files::<()>(request)).map(drop)
    }

    /// Reads a text; in a dry run, words that stand for it.
    pub fn read(&self, path: &Path) -> Result<String> {
        let text = self.really(|| self.agent()?.files(Request::Read { path: path.to_owned() }))?;
        Ok(text.unwrap_or_else(|| format!("(the content of {})\n", path.display())))
    }

    /// The BLAKE3 digest of a file, in hexadecimal.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn digest(&self, path: &Path) -> Result<String> {
        self.agent()?.files(Request::Digest { path: path.to_owned() })
    }

    /// Makes folders, with those above them.
    pub fn make_folders(&self, paths: &[PathBuf]) -> Result<()> {
        paths.iter().for_each(|path| self.note(|| format!("mkdir -p {}", path.display())));
        let request = Request::MakeFolders { paths: paths.to_vec() };
        self.really(|| self.agent()?.files::<()>(request)).map(drop)
    }

    /// Makes a file.
    pub fn make_file(
        &self,
        path: &Path,
        size: u64,
        seed: u64,
        kind: ContentKind,
    ) -> Result<Content> {
        let from = match kind {
            ContentKind::Random => "/dev/urandom".to_owned(),
            other => format!("{}.example", other.name()),
        };
        self.executor.note_once(|| format!("head -c {size} {from} > {}", path.display()));
        let request = Request::Make { path: path.to_owned(), size, seed, kind };
        let made = self.really(|| self.agent()?.files(request))?;
        Ok(made.unwrap_or(Content { size, hash: blake3::hash(b"") }))
    }

    /// Makes a folder of incompressible files, one for each seed.
    pub fn make_tree(&self, folder: &Path, size: u64, seeds: Vec<u64>) -> Result<Vec<Content>> {
        let request = Request::MakeTree { folder: folder.to_owned(), size, seeds };
        Ok(self.really(|| self.agent()?.files(request))?.unwrap_or_default())
    }

    /// Compares files with what they should be; what is wrong with the first
    /// that is not.
    pub fn verify(&self, files: Vec<(PathBuf, Content)>) -> Result<Option<String>> {
        self.agent()?.files(Request::Verify { files })
    }

    /// Removes files and folders, there or not.
    pub fn remove(&self, paths: Vec<PathBuf>) -> Result<()> {
        self.agent()?.files(Request::Remove { paths })
    }

    /// Starts clients that have a prelude, one after the other, and waits until it is over;
    /// `timeout` is that of one prelude. [`Host::run_jobs`] lets them go on in the same order.
    ///
    /// # Errors
    /// One cannot be started. A prelude that fails is in the outcome of its run.
    pub fn prepare_jobs(&self, jobs: Vec<Job>, timeout: Duration) -> Result<()> {
        self.agent()?.prepare(jobs, timeout)
    }

    /// Runs client processes at once and waits for all of them.
    /// Those that take longer than `patience` may hang on something dead: `watch`
    /// looks, and its error ends the waiting.
    pub fn run_jobs(
        &self,
        jobs: Vec<Job>,
        timeout: Duration,
        patience: Duration,
        watch: &dyn Fn() -> Result<()>,
    ) -> Result<Vec<Outcome>> {
        self.agent()?.run(jobs, timeout, patience, watch)
    }

    /// Runs client processes at once, each again and again for `time`, and waits for all of
    /// them. `timeout` is that of one process; `patience` and `watch` as in [`Host::run_jobs`].
    pub fn run_loop(
        &self,
        clients: Vec<LoopClient>,
        time: Duration,
        timeout: Duration,
        patience: Duration,
        watch: &dyn Fn() -> Result<()>,
    ) -> Result<Vec<LoopOutcome>> {
        self.agent()?.run_loop(clients, time, timeout, patience, watch)
    }

    /// Starts a server, in a mount namespace of its own.
    pub fn start(&self, name: &str, spec: &ServerSpec) -> Result<()> {
        let command = isolated(spec);
        self.note(|| format!("{} {command} &", self.by_hand));
        self.really(|| {
            let resolved = self.resolve(&command)?;
            self.agent()?.start_server(name, resolved)
        })
        .map(drop)
    }

    /// Whether a started server runs, and what it wrote since then.
    pub fn server(&self, name: &str, since_ns: u64) -> Result<ServerState> {
        self.agent()?.server(name, since_ns)
    }

    /// Whether something accepts connections at `address`, seen from here.
    pub fn connects(&self, address: SocketAddr) -> Result<bool> {
        self.agent()?.connects(address)
    }

    /// Whether a connection to `address`, which relays it and to which nothing is said,
    /// comes to its end.
    ///
    /// # Errors
    /// The agent's.
    pub fn connects_through(&self, address: SocketAddr) -> Result<bool> {
        self.agent()?.connects_through(address)
    }

    /// Whether a socket is bound to `address` for UDP, or to its port on every address.
    ///
    /// # Errors
    /// The agent's.
    pub fn is_bound_for_udp(&self, address: SocketAddr) -> Result<bool> {
        self.agent()?.is_bound_for_udp(address)
    }

    /// Waits until a server is ready to serve at `address`.
    ///
    /// # Errors
    /// It ended before, or was not ready within its time; with its words.
    pub fn wait_ready(&self, name: &str, address: SocketAddr, spec: &ServerSpec) -> Result<()> {
        let what = match spec.ready {
            Ready::Tcp => format!("does not answer at {address}"),
            Ready::Udp => format!("has not bound {address} for UDP"),
            Ready::Line(text) => format!("has not printed a line with `{text}`"),
        };
        let late = format!("{what} after {} s", spec.patience.as_secs());
        let ready = |log: &[(u64, String)]| match spec.ready {
            Ready::Tcp => self.connects(address),
            Ready::Udp => self.is_bound_for_udp(address),
            Ready::Line(text) => Ok(log.iter().any(|(_, line)| line.contains(text))),
        };
        self.really(|| self.until(name, 0, spec.patience, &late, ready)).map(drop)
    }

    /// Waits until a server is `ready` by what it wrote since then.
    fn until(
        &self,
        name: &str,
        since_ns: u64,
        patience: Duration,
        late: &str,
        ready: impl Fn(&[(u64, String)]) -> Result<bool>,
    ) -> Result<()> {
        let deadline = Instant::now() + patience;
        loop {
            let state = self.server(name, since_ns)?;
            if let Some(ended) = state.ended {
                return Err(Error::Failed(format!(
                    "the {name} server ended at once ({ended}). It said: {}",
                    last_lines(&state.log)
                )));
            }
            if ready(&state.log)? {
                return Ok(());
            }
            if Instant::now() > deadline {
                return Err(Error::Failed(format!(
                    "the {name} server {late}. It said: {}",
                    last_lines(&state.log)
                )));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Reloads a server by SIGHUP, and waits until it logs the word `says`.
    ///
    /// # Errors
    /// It ended, or did not say so within ten seconds; with its words.
    pub fn reload(&self, name: &str, says: &str) -> Result<()> {
        let since_ns = self.agent()?.reload(name)?;
        self.until(name, since_ns, ServerSpec::PATIENCE, "did not reload within 10 s", |log| {
            Ok(log.iter().any(|(_, line)| line.contains(says)))
        })
    }

    /// The command line that starts a program here, as a person would type it.
    pub fn as_typed(&self, command: &Command) -> String {
        let environment = self.resolve(command).map(|resolved| resolved.environment);
        let environment = environment.unwrap_or_default();
        let variables = environment.iter().map(|(name, value)| format!("{name}={}", quote(value)));
        let variables = variables.collect::<Vec<_>>().join(" ");
        format!("{} env -i {variables} {command}", self.by_hand)
    }

    /// Looks the programs of a command under test up, and makes its whole environment:
    /// nothing of the user's. A dry run names programs that are missing.
    ///
    /// # Errors
    /// [`Error::Missing`]: a program of it.
    pub fn resolve(&self, command: &Command) -> Result<Resolved> {
        let mut resolved = command.resolve(|program| match self.locate(program) {
            Err(_) if self.is_dry() => Ok(None),
            located => located.map(Some),
        })?;
        let of_programs = std::mem::replace(&mut resolved.environment, self.environment());
        resolved.environment.extend(of_programs);
        Ok(resolved)
    }

    /// The variables that all programs under test have.
    fn environment(&self) -> BTreeMap<String, String> {
        let home = self.root.join("home").display().to_string();
        [
            ("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"),
            ("HOME", home.as_str()),
            ("TMPDIR", home.as_str()),
            ("LANG", "C"),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into()
    }
}

/// The command that starts a server in a mount namespace with a private `/run`
/// and its own account files.
fn isolated(spec: &ServerSpec) -> Command {
    let mut script = vec!["mount -t tmpfs -o mode=755 none /run".to_owned()];
    script.extend(spec.run_folders.iter().map(|folder| format!("mkdir -p {folder}")));
    script.extend(spec.private_files.iter().map(|(from, to)| {
        // a system without the file has nothing to hide
        format!("{{ [ ! -e {to} ] || mount --bind {} {to}; }}", quote(&from.display().to_string()))
    }));
    script.push(r#"exec "$0" "$@""#.to_owned());
    let script = script.join(" && ");
    Command::new(UNSHARE, ["--mount", "--propagation", "private", "sh", "-c", &script])
        .running(spec.command.clone())
}

/// The last words of a server, for a sentence.
pub fn last_lines(log: &[(u64, String)]) -> String {
    let from = log.len().saturating_sub(5);
    let lines: Vec<&str> = log[from..].iter().map(|(_, line)| line.as_str()).collect();
    if lines.is_empty() { "(nothing)".to_owned() } else { lines.join(" | ") }
}
