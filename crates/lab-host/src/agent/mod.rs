//! A process inside a host of the testbed that starts programs there: they
//! inherit its network namespace and its control group, and their start costs
//! a fork, not a detour through `ip netns exec` (which takes 6 to 25 ms).
//!
//! It reads requests from standard input and answers on standard output, one
//! line of JSON each. When its input ends, whoever started it is gone, and it
//! ends itself and everything it started.

mod closed_loop;
mod daemon;
pub(crate) mod files;
mod job;
pub(crate) mod probe;
pub(crate) mod remote;
pub(crate) mod remote_capture;
mod serve;
mod sockets;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, SocketAddr};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, mpsc};
use std::time::{Duration, Instant, SystemTime};

use headroom_lab_trace::{Expectation, Record, SetUp};
use headroom_mutex::lock;
use nix::unistd::Pid;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::command::Resolved;
use crate::error::{Doing, Error, Result};
use crate::programs::{Located, Program};
use crate::resources::cpu::Reading;

pub use closed_loop::{LoopClient, LoopOutcome};
pub(crate) use daemon::ServerState;
pub use job::Job;
pub use job::Outcome;
use probe::Train;
pub(crate) use remote::Input;
use remote::{Heart, Words};
use remote_capture::CaptureSpec;
pub use serve::serve;

/// A request to an agent. Its answer is one value, of the type that the method of the
/// handle returns.
#[derive(Debug, Serialize, Deserialize)]
enum Request {
    /// Start the clients of the next runs that have a prelude, one after the other, and wait
    /// until it is over.
    Prepare {
        jobs: Vec<Job>,
        timeout_s: f64,
    },
    /// Run all at once, wait for all.
    Run {
        jobs: Vec<Job>,
        timeout_s: f64,
    },
    /// Run all at once, each again and again for a time, wait for all.
    RunLoop {
        clients: Vec<LoopClient>,
        seconds: f64,
        timeout_s: f64,
    },
    /// Start a server that goes on running.
    Start {
        name: String,
        command: Resolved,
    },
    /// Whether a server runs, and what it wrote.
    State {
        name: String,
        since_ns: u64,
    },
    /// Reload a server (SIGHUP); returns the wall clock (ns) before that.
    Reload {
        name: String,
    },
    /// Run a command to its end.
    Command(Resolved),
    /// Finds a program and its version.
    Locate {
        program: String,
    },
    Version {
        program: String,
        arguments: Vec<String>,
    },
    /// Files, on the host that has them.
    Files(files::Request),
    /// Whether something accepts connections there.
    Connect {
        address: SocketAddr,
    },
    /// Whether a connection there that says nothing comes to its end.
    ConnectThrough {
        address: SocketAddr,
    },
    /// Whether a UDP socket is bound there.
    BoundForUdp {
        address: SocketAddr,
    },
    /// Bind a UDP port that nobody reads.
    Swallow {
        address: SocketAddr,
    },
    /// Send probes there.
    Probe(Train),
    /// Name what governs TCP towards there.
    CongestionControl {
        address: SocketAddr,
    },
    /// Read this machine's CPU time.
    Cpu,
    /// CPU seconds of the programs that the agent started and that have ended.
    CpuOfChildren,
    /// Resolves a host name there.
    Resolve {
        name: String,
    },
    /// Capture from now on.
    Open(CaptureSpec),
    /// Forget what was captured so far.
    Forget,
    /// Read what was captured as a transfer, or as a stream's set-up.
    Record(Expectation),
    SetUp,
    /// Accept connections there.
    Answer {
        address: SocketAddr,
    },
    /// Time connections to there.
    RoundTrips {
        address: SocketAddr,
        times: u32,
    },
}

#[derive(Debug, Serialize, Deserialize)]
enum Reply {
    Done(serde_json::Value),
    Failed(String),
    Missing(String),
}

/// The handle of an agent, held by the lab.
#[derive(Debug)]
pub struct Agent {
    host: String,
    child: Child,
    input: Input,
    replies: mpsc::Receiver<String>,
    interrupted: Arc<AtomicBool>,
    /// Why the run cannot go on.
    alarm: Arc<OnceLock<String>>,
    /// Why an answer was not waited for; what comes now belongs to that question.
    given_up: Option<String>,
    /// Behind a connection that can break.
    remote: Option<Remote>,
    /// Programs that were looked up there.
    located: BTreeMap<&'static str, Located>,
}

#[derive(Debug)]
struct Remote {
    words: Words,
    _heart: Heart,
}

impl Agent {
    /// Starts an agent by `command`, which must end up executing `headroom lab-agent`.
    pub(crate) fn start(
        host: &str,
        mut command: Command,
        interrupted: Arc<AtomicBool>,
    ) -> Result<Self> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .process_group(0) // Ctrl-C is for the lab, which then ends everything in order
            .spawn()
            .doing(|| format!("start the {host}'s agent"))?;
        let (input, replies) = pipes(&mut child)?;
        let alarm = Arc::default();
        let (host, given_up, remote) = (host.to_owned(), None, None);
        let located = BTreeMap::new();
        Ok(Self { host, child, input, replies, interrupted, alarm, given_up, remote, located })
    }

    /// Starts an agent by an ssh command. `greet` sends what the far end waits
    /// for and reads its answer.
    ///
    /// # Errors
    /// The connection ended before there was an agent: how, and ssh's last words.
    pub(crate) fn start_remote<T>(
        host: &str,
        mut command: Command,
        interrupted: Arc<AtomicBool>,
        alarm: &Arc<OnceLock<String>>,
        greet: impl FnOnce(&Input, &mpsc::Receiver<String>) -> Result<Option<T>>,
    ) -> Result<std::result::Result<(Self, T), (ExitStatus, String)>> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()
            .doing(|| format!("start {}", command.get_program().display()))?;
        let (input, replies) = pipes(&mut child)?;
        let mut words = Words::follow(child.stderr.take(), host, alarm);
        match greet(&input, &replies) {
            Ok(Some(greeting)) => {
                let remote = Some(Remote { words, _heart: Heart::start(&input) });
                let (host, alarm) = (host.to_owned(), Arc::clone(alarm));
                let (given_up, located) = (None, BTreeMap::new());
                let agent = Self {
                    host,
                    child,
                    input,
                    replies,
                    interrupted,
                    alarm,
                    given_up,
                    remote,
                    located,
                };
                Ok(Ok((agent, greeting)))
            }
            Ok(None) => {
                let status = end(&mut child, &input).doing(|| "wait for ssh".into())?;
                Ok(Err((status, words.last())))
            }
            Err(error) => {
                let _ = end(&mut child, &input);
                Err(error)
            }
        }
    }

    /// Starts clients that have a prelude, and waits until it is over. [`Agent::run`] lets them
    /// go on in the same order; those of an earlier call that it did not are ended.
    ///
    /// # Errors
    /// One cannot be started. A prelude that fails is in the outcome of its run.
    pub(crate) fn prepare(&mut self, jobs: Vec<Job>, timeout: Duration) -> Result<()> {
        self.ask(&Request::Prepare { jobs, timeout_s: timeout.as_secs_f64() })
    }

    /// Runs jobs at once and waits for all of them.
    ///
    /// # Errors
    /// Also what `watch` says; it is asked each second once `patience` has passed.
    pub(crate) fn run(
        &mut self,
        jobs: Vec<Job>,
        timeout: Duration,
        patience: Duration,
        watch: &dyn Fn() -> Result<()>,
    ) -> Result<Vec<Outcome>> {
        self.ask_watching(&Request::Run { jobs, timeout_s: timeout.as_secs_f64() }, patience, watch)
    }

    /// Runs clients at once, each again and again for `time`, and waits for all of them.
    ///
    /// # Errors
    /// As [`Agent::run`].
    pub(crate) fn run_loop(
        &mut self,
        clients: Vec<LoopClient>,
        time: Duration,
        timeout: Duration,
        patience: Duration,
        watch: &dyn Fn() -> Result<()>,
    ) -> Result<Vec<LoopOutcome>> {
        let (seconds, timeout_s) = (time.as_secs_f64(), timeout.as_secs_f64());
        self.ask_watching(&Request::RunLoop { clients, seconds, timeout_s }, patience, watch)
    }

    /// Starts a server that goes on running.
    pub(crate) fn start_server(&mut self, name: &str, command: Resolved) -> Result<()> {
        self.ask(&Request::Start { name: name.to_owned(), command })
    }

    /// Whether a server runs, and what it wrote since then.
    pub(crate) fn server(&mut self, name: &str, since_ns: u64) -> Result<ServerState> {
        self.ask(&Request::State { name: name.to_owned(), since_ns })
    }

    /// Reloads a server by SIGHUP, and returns that host's wall clock (ns) before.
    pub(crate) fn reload(&mut self, name: &str) -> Result<u64> {
        self.ask(&Request::Reload { name: name.to_owned() })
    }

    /// Runs a command to its end and returns what it printed.
    pub(crate) fn command(&mut self, command: &crate::command::Command) -> Result<String> {
        let resolved = self.resolve(command)?;
        self.ask(&Request::Command(resolved))
    }

    /// Looks a command's programs up on that host.
    pub(crate) fn resolve(&mut self, command: &crate::command::Command) -> Result<Resolved> {
        command.resolve(|program| self.locate(program).map(Some))
    }

    /// Finds a program on that host, with the variables that it needs.
    ///
    /// # Errors
    /// [`Error::Missing`] with the package that has it.
    pub(crate) fn locate(&mut self, program: Program) -> Result<Located> {
        match self.find(program)? {
            Some(located) => Ok(located),
            None => Err(self.missing_there(program.missing())),
        }
    }

    /// Finds a program on that host, if it has it; asks once.
    fn find(&mut self, program: Program) -> Result<Option<Located>> {
        if let Some(known) = self.located.get(program.name) {
            return Ok(Some(known.clone()));
        }
        let found: Option<Located> =
            self.ask(&Request::Locate { program: program.name.to_owned() })?;
        if let Some(located) = &found {
            self.located.insert(program.name, located.clone());
        }
        Ok(found)
    }

    /// Which of these programs that host has not.
    pub(crate) fn missing(&mut self, programs: &[Program]) -> Result<Vec<Program>> {
        let mut missing = Vec::new();
        for &program in programs {
            if self.find(program)?.is_none() {
                missing.push(program);
            }
        }
        Ok(missing)
    }

    /// The version that a program prints of itself.
    pub(crate) fn version(&mut self, program: Program) -> Result<Option<String>> {
        let arguments = program.version.iter().map(|&word| word.to_owned()).collect();
        self.ask(&Request::Version { program: program.name.to_owned(), arguments })
    }

    /// Does something with files; `T` is what the request says.
    pub(crate) fn files<T: DeserializeOwned>(&mut self, request: files::Request) -> Result<T> {
        self.ask(&Request::Files(request))
    }

    /// Whether something accepts connections at `address`.
    pub(crate) fn connects(&mut self, address: SocketAddr) -> Result<bool> {
        self.ask(&Request::Connect { address })
    }

    /// Whether a connection to `address`, which relays it, comes to its end: it says
    /// nothing, and is then ended from there too.
    pub(crate) fn connects_through(&mut self, address: SocketAddr) -> Result<bool> {
        self.ask(&Request::ConnectThrough { address })
    }

    /// Whether a UDP socket is bound to `address`, or to its port on every address.
    pub(crate) fn is_bound_for_udp(&mut self, address: SocketAddr) -> Result<bool> {
        self.ask(&Request::BoundForUdp { address })
    }

    /// Swallows the probes that come to `address`, from now on.
    pub fn swallow(&mut self, address: SocketAddr) -> Result<()> {
        self.ask(&Request::Swallow { address })
    }

    /// Sends probes; returns when the last has left.
    pub(crate) fn probe(&mut self, train: Train) -> Result<()> {
        self.ask(&Request::Probe(train))
    }

    /// The congestion control that the kernel says TCP has towards `address`.
    pub(crate) fn congestion_control(&mut self, address: SocketAddr) -> Result<String> {
        self.ask(&Request::CongestionControl { address })
    }

    /// CPU time of that machine and of what the agent started.
    pub(crate) fn cpu(&mut self) -> Result<Reading> {
        self.ask(&Request::Cpu)
    }

    /// CPU seconds of the programs that it started and that have ended.
    pub(crate) fn cpu_of_children(&mut self) -> Result<f64> {
        self.ask(&Request::CpuOfChildren)
    }

    /// Its process id: of the first process that became it, or started it.
    pub(crate) fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id().cast_signed())
    }

    /// The addresses that a name means there.
    pub(crate) fn addresses_of(&mut self, name: &str) -> Result<Vec<IpAddr>> {
        self.ask(&Request::Resolve { name: name.to_owned() })
    }

    /// Captures from now on.
    pub(crate) fn open(&mut self, spec: CaptureSpec) -> Result<()> {
        self.ask(&Request::Open(spec))
    }

    /// Forgets what was captured so far.
    pub(crate) fn forget(&mut self) -> Result<()> {
        self.ask(&Request::Forget)
    }

    /// Reads what was captured since as one transfer.
    pub(crate) fn record(&mut self, expected: &Expectation) -> Result<Option<Record>> {
        self.ask(&Request::Record(*expected))
    }

    /// Reads what was captured since as the set-up of a stream.
    pub(crate) fn set_up(&mut self) -> Result<Option<SetUp>> {
        self.ask(&Request::SetUp)
    }

    /// Accepts connections at `address` from now on.
    pub(crate) fn answer(&mut self, address: SocketAddr) -> Result<()> {
        self.ask(&Request::Answer { address })
    }

    /// Seconds that connecting to `address` takes, so many times.
    pub(crate) fn round_trips(&mut self, address: SocketAddr, times: u32) -> Result<Vec<f64>> {
        self.ask(&Request::RoundTrips { address, times })
    }

    /// From now on waits no longer for an answer when the alarm is raised.
    pub(crate) fn watch(&mut self, alarm: &Arc<OnceLock<String>>) {
        self.alarm = Arc::clone(alarm);
    }

    /// Asks, and reads the answer as what the caller expects.
    fn ask<T: DeserializeOwned>(&mut self, request: &Request) -> Result<T> {
        self.ask_watching(request, Duration::MAX, &|| Ok(()))
    }

    fn ask_watching<T: DeserializeOwned>(
        &mut self,
        request: &Request,
        patience: Duration,
        watch: &dyn Fn() -> Result<()>,
    ) -> Result<T> {
        // an answer that nobody waited for would be taken for the next one's
        if let Some(why) = self.alarm.get() {
            return Err(Error::Ended(why.clone()));
        }
        if let Some(why) = &self.given_up {
            return Err(Error::Ended(why.clone()));
        }
        let line = serde_json::to_string(request).doing(|| "write a request".into())?;
        let written = lock(&self.input).as_mut().map(|input| writeln!(input, "{line}"));
        if !matches!(written, Some(Ok(()))) {
            return Err(self.gone());
        }
        let (asked, mut next_watch) = (Instant::now(), patience);
        let line = loop {
            if asked.elapsed() > next_watch {
                if let Err(error) = watch() {
                    // the answer is still to come, and is nobody's
                    self.given_up = Some(error.to_string());
                    return Err(error);
                }
                next_watch = asked.elapsed() + Duration::from_secs(1);
            }
            match self.replies.recv_timeout(Duration::from_millis(50)) {
                Ok(line) => break line,
                Err(mpsc::RecvTimeoutError::Timeout)
                    if self.interrupted.load(Ordering::Relaxed) =>
                {
                    return Err(Error::Interrupted);
                }
                Err(mpsc::RecvTimeoutError::Timeout) => {
                    if let Some(why) = self.alarm.get() {
                        return Err(Error::Ended(why.clone()));
                    }
                }
                Err(mpsc::RecvTimeoutError::Disconnected) => return Err(self.gone()),
            }
        };
        let doing = || format!("read an answer of the {}'s agent", self.host);
        match serde_json::from_str(&line).doing(doing)? {
            Reply::Done(value) => serde_json::from_value(value).doing(doing),
            Reply::Failed(message) => Err(Error::Failed(message)),
            Reply::Missing(message) => Err(self.missing_there(Error::Missing(message))),
        }
    }

    /// Adds the host to an error about something missing, if that is another machine.
    fn missing_there(&self, error: Error) -> Error {
        match self.remote {
            None => error,
            Some(_) => Error::Missing(format!("on the {}: {error}", self.host)),
        }
    }

    /// The error of an agent that answers no more.
    fn gone(&mut self) -> Error {
        if let Some(remote) = &mut self.remote {
            // its words end with the connection
            let _ = end(&mut self.child, &self.input);
            remote.words.last(); // raises the alarm
        }
        let host = &self.host;
        let why = self.alarm.get().cloned();
        Error::Ended(why.unwrap_or_else(|| format!("the {host}'s agent ended unexpectedly")))
    }
}

/// The hashes of a hundred thousand files take a fifth of it.
const LONGEST_REPLY: u64 = 64 << 20;

/// An agent's standard input, and the lines it answers.
fn pipes(child: &mut Child) -> Result<(Input, mpsc::Receiver<String>)> {
    let no = |what: &str| Error::Failed(format!("the agent has no {what}"));
    let stdout = child.stdout.take().ok_or_else(|| no("output"))?;
    let stdin = child.stdin.take().ok_or_else(|| no("input"))?;
    let (sender, replies) = mpsc::sync_channel(16);
    std::thread::spawn(move || {
        let mut lines = BufReader::new(stdout);
        let mut line = Vec::new();
        // what has no end is no answer, and must not fill the memory
        while let Ok(1..) = (&mut lines).take(LONGEST_REPLY).read_until(b'\n', &mut line) {
            let whole = line.pop() == Some(b'\n');
            let text = String::from_utf8_lossy(&line).into_owned();
            if !whole || sender.send(text).is_err() {
                break;
            }
            line.clear();
        }
    });
    Ok((Arc::new(Mutex::new(Some(stdin))), replies))
}

/// Closes the input of a connection and gives the far end time to clear up.
fn end(child: &mut Child, input: &Input) -> std::io::Result<ExitStatus> {
    const PATIENCE: Duration = Duration::from_secs(15);
    drop(lock(input).take());
    let deadline = Instant::now() + PATIENCE;
    while Instant::now() < deadline {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    child.kill()?;
    child.wait()
}

impl Drop for Agent {
    fn drop(&mut self) {
        if self.remote.is_some() {
            // the far end takes everything away and then ends
            let _ = end(&mut self.child, &self.input);
            return;
        }
        // Its control group kills it and its children; this only reaps it.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Wall clock, nanoseconds since the epoch.
pub fn now_ns() -> u64 {
    SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .map_or(0, |since| since.as_nanos() as u64)
}
