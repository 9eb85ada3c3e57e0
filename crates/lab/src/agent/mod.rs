//! A process inside a host of the testbed that starts programs there: they
//! inherit its network namespace and its control group, and their start costs
//! a fork, not a detour through `ip netns exec` (which takes 6 to 25 ms).
//!
//! It reads requests from standard input and answers on standard output, one
//! line of JSON each. When its input ends, whoever started it is gone, and it
//! ends itself and everything it started.

mod daemon;
mod job;
mod serve;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use crate::error::{Doing, Error, Result};

pub(crate) use daemon::ServerState;
pub(crate) use job::Job;
pub use job::Outcome;
pub use serve::serve;

#[derive(Debug, Serialize, Deserialize)]
enum Request {
    /// Run all at once, wait for all.
    Run {
        jobs: Vec<Job>,
        timeout_s: f64,
    },
    Start {
        name: String,
        argv: Vec<String>,
        environment: BTreeMap<String, String>,
    },
    State {
        name: String,
        since_ns: u64,
    },
    Connect {
        address: SocketAddr,
    },
    /// Accept one connection and swallow what it sends.
    Sink {
        address: SocketAddr,
    },
    /// Send octets for so long.
    Blast {
        address: SocketAddr,
        seconds: f64,
    },
}

#[derive(Debug, Serialize, Deserialize)]
enum Reply {
    Done,
    Outcomes(Vec<Outcome>),
    State(ServerState),
    Connected(bool),
    Sent { congestion_control: String },
    Error(String),
}

/// The handle of an agent, held by the lab.
#[derive(Debug)]
pub(crate) struct Agent {
    host: String,
    child: Child,
    replies: mpsc::Receiver<String>,
    interrupted: Arc<AtomicBool>,
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
        Ok(Self { host: host.to_owned(), child, replies, interrupted })
    }

    /// Runs jobs at once and waits for all of them.
    pub(crate) fn run(&mut self, jobs: Vec<Job>, timeout: Duration) -> Result<Vec<Outcome>> {
        match self.ask(&Request::Run { jobs, timeout_s: timeout.as_secs_f64() })? {
            Reply::Outcomes(outcomes) => Ok(outcomes),
            other => Err(self.confused(&other)),
        }
    }

    /// Starts a server that goes on running.
    pub(crate) fn start_server(
        &mut self,
        name: &str,
        argv: Vec<String>,
        environment: BTreeMap<String, String>,
    ) -> Result<()> {
        self.expect_done(&Request::Start { name: name.to_owned(), argv, environment })
    }

    /// Whether a server runs, and what it wrote since then.
    pub(crate) fn server(&mut self, name: &str, since_ns: u64) -> Result<ServerState> {
        match self.ask(&Request::State { name: name.to_owned(), since_ns })? {
            Reply::State(state) => Ok(state),
            other => Err(self.confused(&other)),
        }
    }

    /// Whether something accepts connections at `address`.
    pub(crate) fn connects(&mut self, address: SocketAddr) -> Result<bool> {
        match self.ask(&Request::Connect { address })? {
            Reply::Connected(yes) => Ok(yes),
            other => Err(self.confused(&other)),
        }
    }

    /// Accepts one connection and swallows what comes.
    pub(crate) fn sink(&mut self, address: SocketAddr) -> Result<()> {
        self.expect_done(&Request::Sink { address })
    }

    /// Sends octets to `address` for `seconds`; returns the congestion control
    /// that the kernel says the connection had.
    pub(crate) fn blast(&mut self, address: SocketAddr, seconds: f64) -> Result<String> {
        match self.ask(&Request::Blast { address, seconds })? {
            Reply::Sent { congestion_control } => Ok(congestion_control),
            other => Err(self.confused(&other)),
        }
    }

    fn expect_done(&mut self, request: &Request) -> Result<()> {
        match self.ask(request)? {
            Reply::Done => Ok(()),
            other => Err(self.confused(&other)),
        }
    }

    fn ask(&mut self, request: &Request) -> Result<Reply> {
        let host = &self.host;
        let gone = || Error::Failed(format!("the {host}'s agent ended unexpectedly"));
        let line = serde_json::to_string(request).doing(|| "write a request".into())?;
        let stdin = self.child.stdin.as_mut().ok_or_else(gone)?;
        writeln!(stdin, "{line}").map_err(|_| gone())?;
        loop {
            match self.replies.recv_timeout(Duration::from_millis(50)) {
                Ok(line) => {
                    return match serde_json::from_str(&line)
                        .doing(|| "read an agent's reply".into())?
                    {
                        Reply::Error(message) => Err(Error::Failed(message)),
                        reply => Ok(reply),
                    };
                }
                Err(mpsc::RecvTimeoutError::Timeout)
                    if self.interrupted.load(Ordering::Relaxed) =>
                {
                    return Err(Error::Interrupted);
                }
                Err(mpsc::RecvTimeoutError::Timeout) => {}
                Err(mpsc::RecvTimeoutError::Disconnected) => return Err(gone()),
            }
        }
    }

    fn confused(&self, reply: &Reply) -> Error {
        Error::Failed(format!("the {}'s agent answered something else: {reply:?}", self.host))
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
