//! A process inside a host of the testbed that starts programs there: they
//! inherit its network namespace and its control group, and their start costs
//! a fork, not a detour through `ip netns exec` (which takes 6 to 25 ms).
//!
//! It reads requests from standard input and answers on standard output, one
//! line of JSON each. When its input ends, whoever started it is gone, and it
//! ends itself and everything it started.

mod daemon;
pub(crate) mod files;
mod job;
pub(crate) mod probe;
mod serve;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, mpsc};
use std::time::{Duration, Instant, SystemTime};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::error::{Doing, Error, Result};
use crate::parts::{Located, Program};

pub(crate) use daemon::ServerState;
pub(crate) use job::Job;
pub use job::Outcome;
use probe::Train;
pub use serve::serve;

/// What can be asked of an agent. Each is answered by one value of a type of
/// its own, named at the handle's method.
#[derive(Debug, Serialize, Deserialize)]
enum Request {
    /// Run all at once, wait for all.
    Run {
        jobs: Vec<Job>,
        timeout_s: f64,
    },
    /// Start a server that goes on running.
    Start {
        name: String,
        argv: Vec<String>,
        environment: BTreeMap<String, String>,
    },
    /// Whether a server runs, and what it wrote.
    State {
        name: String,
        since_ns: u64,
    },
    /// Run a command to its end; its programs are looked up on this host.
    Command {
        argv: Vec<String>,
    },
    /// Where a program is, and its version.
    Locate {
        program: String,
    },
    Version {
        program: String,
    },
    /// Files, on the host that has them.
    Files(files::Request),
    /// Whether something accepts connections there.
    Connect {
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
}

#[derive(Debug, Serialize, Deserialize)]
enum Reply {
    Done(serde_json::Value),
    Failed(String),
    Missing(String),
}

/// The handle of an agent, held by the lab.
#[derive(Debug)]
pub(crate) struct Agent {
    host: String,
    child: Child,
    replies: mpsc::Receiver<String>,
    interrupted: Arc<AtomicBool>,
    /// Why the run cannot go on.
    alarm: Arc<OnceLock<String>>,
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
        let stdout =
            child.stdout.take().ok_or_else(|| Error::Failed("the agent has no output".into()))?;
        let (sender, replies) = mpsc::channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(std::result::Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        let alarm = Arc::default();
        Ok(Self { host: host.to_owned(), child, replies, interrupted, alarm })
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

    /// Starts a server that goes on running.
    pub(crate) fn start_server(
        &mut self,
        name: &str,
        argv: Vec<String>,
        environment: BTreeMap<String, String>,
    ) -> Result<()> {
        self.ask(&Request::Start { name: name.to_owned(), argv, environment })
    }

    /// Whether a server runs, and what it wrote since then.
    pub(crate) fn server(&mut self, name: &str, since_ns: u64) -> Result<ServerState> {
        self.ask(&Request::State { name: name.to_owned(), since_ns })
    }

    /// Runs a command to its end and returns what it printed.
    pub(crate) fn command(&mut self, command: &crate::command::Command) -> Result<String> {
        self.ask(&Request::Command { argv: command.argv.clone() })
    }

    /// Where a program is on that host, with the variables that it needs.
    pub(crate) fn locate(&mut self, program: Program) -> Result<Located> {
        self.ask(&Request::Locate { program: program.name.to_owned() })
    }

    /// The version that a program prints of itself.
    pub(crate) fn version(&mut self, program: Program) -> Result<Option<String>> {
        self.ask(&Request::Version { program: program.name.to_owned() })
    }

    /// Does something with files; `T` is what the request says.
    pub(crate) fn files<T: DeserializeOwned>(&mut self, request: files::Request) -> Result<T> {
        self.ask(&Request::Files(request))
    }

    /// Whether something accepts connections at `address`.
    pub(crate) fn connects(&mut self, address: SocketAddr) -> Result<bool> {
        self.ask(&Request::Connect { address })
    }

    /// Swallows the probes that come to `address`, from now on.
    pub(crate) fn swallow(&mut self, address: SocketAddr) -> Result<()> {
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
        let host = &self.host;
        let gone = || Error::Failed(format!("the {host}'s agent ended unexpectedly"));
        let line = serde_json::to_string(request).doing(|| "write a request".into())?;
        let stdin = self.child.stdin.as_mut().ok_or_else(gone)?;
        writeln!(stdin, "{line}").map_err(|_| gone())?;
        let (asked, mut next_watch) = (Instant::now(), patience);
        let line = loop {
            if asked.elapsed() > next_watch {
                watch()?;
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
                        return Err(Error::Failed(why.clone()));
                    }
                }
                Err(mpsc::RecvTimeoutError::Disconnected) => return Err(gone()),
            }
        };
        let doing = || format!("read an answer of the {host}'s agent");
        match serde_json::from_str(&line).doing(doing)? {
            Reply::Done(value) => serde_json::from_value(value).doing(doing),
            Reply::Failed(message) => Err(Error::Failed(message)),
            Reply::Missing(message) => Err(Error::Missing(message)),
        }
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        // Its control group kills it and its children; this only reaps it.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Wall clock, nanoseconds since the epoch.
pub(crate) fn now_ns() -> u64 {
    SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .map_or(0, |since| since.as_nanos() as u64)
}
