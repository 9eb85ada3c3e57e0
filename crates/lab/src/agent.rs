//! A process inside a host of the testbed that starts programs there: they
//! inherit its network namespace and its control group, and their start costs
//! a fork, not a detour through `ip netns exec` (which takes 6 to 25 ms).
//!
//! It reads requests from standard input and answers on standard output, one
//! line of JSON each. When its input ends, whoever started it is gone, and it
//! ends itself and everything it started.

use std::collections::{BTreeMap, VecDeque};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::{Duration, Instant, SystemTime};

use nix::sys::socket::{getsockopt, sockopt};
use serde::{Deserialize, Serialize};
use wait4::Wait4;

use crate::error::{Doing, Error, Result};
use crate::measure::cgroup;

/// A client process to run to its end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Job {
    /// Absolute path of the program, and its arguments.
    pub(crate) argv: Vec<String>,
    /// The whole environment.
    pub(crate) environment: BTreeMap<String, String>,
    /// Lines written to its standard input, each after the answer to the one
    /// before has come, told by an `echo` of the agent's own.
    pub(crate) dialogue: Option<Vec<String>>,
}

/// What became of a job.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Outcome {
    /// Exit code; none if it was killed.
    pub(crate) code: Option<i32>,
    /// Start to end.
    pub(crate) process_s: f64,
    pub(crate) peak_memory_bytes: u64,
    /// The last 64 KiB of each stream.
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// The state of a started server.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct ServerState {
    /// How it ended, in words.
    pub(crate) ended: Option<String>,
    /// The latest lines it wrote, each with the wall clock (ns) of its arrival.
    pub(crate) log: Vec<(u64, String)>,
}

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

/// The agent's side: serves requests until standard input ends.
pub fn serve() {
    let mut servers: BTreeMap<String, Server> = BTreeMap::new();
    for line in std::io::stdin().lines().map_while(std::result::Result::ok) {
        let reply = match serde_json::from_str(&line) {
            Ok(request) => answer(request, &mut servers)
                .unwrap_or_else(|error| Reply::Error(error.to_string())),
            Err(error) => Reply::Error(format!("the agent cannot read its request: {error}")),
        };
        let mut stdout = std::io::stdout().lock();
        let written = serde_json::to_string(&reply)
            .map_err(std::io::Error::from)
            .and_then(|line| writeln!(stdout, "{line}").and_then(|()| stdout.flush()));
        if written.is_err() {
            break;
        }
    }
    // The lab is gone. If it ended well it has removed us already; if it was
    // killed, nobody else will end these servers.
    if let Some(group) = own_group() {
        let _ = cgroup::kill(&group);
    }
}

fn answer(request: Request, servers: &mut BTreeMap<String, Server>) -> Result<Reply> {
    match request {
        Request::Run { jobs, timeout_s } => {
            let timeout = Duration::from_secs_f64(timeout_s);
            let outcomes: Vec<Result<Outcome>> = match &jobs[..] {
                [job] => vec![run(job, timeout)],
                jobs => std::thread::scope(|scope| {
                    let threads: Vec<_> =
                        jobs.iter().map(|job| scope.spawn(move || run(job, timeout))).collect();
                    let lost = || Err(Error::Failed("a thread of the agent panicked".into()));
                    threads
                        .into_iter()
                        .map(|thread| thread.join().unwrap_or_else(|_| lost()))
                        .collect()
                }),
            };
            Ok(Reply::Outcomes(outcomes.into_iter().collect::<Result<_>>()?))
        }
        Request::Start { name, argv, environment } => {
            servers.insert(name, Server::start(&argv, &environment)?);
            Ok(Reply::Done)
        }
        Request::State { name, since_ns } => servers
            .get_mut(&name)
            .map(|server| Reply::State(server.state(since_ns)))
            .ok_or_else(|| Error::Failed(format!("no server {name} was started"))),
        Request::Connect { address } => Ok(Reply::Connected(
            TcpStream::connect_timeout(&address, Duration::from_millis(200)).is_ok(),
        )),
        Request::Sink { address } => {
            let listener = TcpListener::bind(address).doing(|| format!("listen on {address}"))?;
            std::thread::spawn(move || {
                if let Ok((stream, _)) = listener.accept() {
                    let _ = std::io::copy(
                        &mut BufReader::with_capacity(1 << 18, stream),
                        &mut std::io::sink(),
                    );
                }
            });
            Ok(Reply::Done)
        }
        Request::Blast { address, seconds } => blast(address, seconds),
    }
}

fn run(job: &Job, timeout: Duration) -> Result<Outcome> {
    let program =
        job.argv.first().ok_or_else(|| Error::Failed("a job without a program".into()))?;
    let started = Instant::now();
    let mut child = Command::new(program)
        .args(&job.argv[1..])
        .env_clear()
        .envs(&job.environment)
        .stdin(if job.dialogue.is_some() { Stdio::piped() } else { Stdio::null() })
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()
        .doing(|| format!("start {program}"))?;
    let pid = nix::unistd::Pid::from_raw(child.id().cast_signed());
    let _watchdog = Watchdog::start(timeout, pid);

    let stderr = tail_of(child.stderr.take());
    let stdout = match &job.dialogue {
        Some(lines) => {
            let said = converse(&mut child, lines);
            let (sender, receiver) = mpsc::channel();
            let _ = sender.send(said);
            receiver
        }
        None => tail_of(child.stdout.take()),
    };
    let used = child.wait4().doing(|| format!("wait for {program}"))?;
    let process_s = started.elapsed().as_secs_f64();
    Ok(Outcome {
        code: used.status.code(),
        process_s,
        peak_memory_bytes: used.rusage.maxrss,
        stdout: stdout.recv().unwrap_or_default(),
        stderr: stderr.recv().unwrap_or_default(),
    })
}

/// Kills a process group that outlives its time, unless dropped before.
struct Watchdog(#[allow(dead_code, reason = "dropping it is its use")] mpsc::Sender<()>);

impl Watchdog {
    fn start(timeout: Duration, group: nix::unistd::Pid) -> Self {
        let (sender, receiver) = mpsc::channel::<()>();
        std::thread::spawn(move || {
            if receiver.recv_timeout(timeout) == Err(mpsc::RecvTimeoutError::Timeout) {
                let _ = nix::sys::signal::killpg(group, nix::sys::signal::SIGKILL);
            }
        });
        Self(sender)
    }
}

/// Says each line and waits for the agent's own marker behind its answer.
fn converse(child: &mut Child, lines: &[String]) -> String {
    let (Some(mut stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
        return String::new();
    };
    let mut answers = BufReader::new(stdout);
    let mut said: Vec<u8> = Vec::new();
    for (number, line) in lines.iter().enumerate() {
        let marker = format!("headroom-done-{number}");
        // the status goes with the marker, so that a failing command is seen
        if writeln!(stdin, "{line}\necho {marker} $?").is_err() {
            break;
        }
        // a line without end is read in pieces, so that it cannot fill the memory
        let mut piece = Vec::new();
        while (&mut answers).take(4096).read_until(b'\n', &mut piece).is_ok_and(|octets| octets > 0)
        {
            said.extend_from_slice(&piece);
            said.drain(..said.len().saturating_sub(TAIL));
            let ended = String::from_utf8_lossy(&piece).contains(&marker);
            piece.clear();
            if ended {
                break;
            }
        }
    }
    drop(stdin);
    let _ = answers.take(TAIL as u64).read_to_end(&mut said);
    keep_tail(said)
}

const TAIL: usize = 64 * 1024;

/// Reads a stream to its end in a thread of its own, keeping the last 64 KiB.
fn tail_of(stream: Option<impl Read + Send + 'static>) -> mpsc::Receiver<String> {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let mut kept: Vec<u8> = Vec::new();
        let mut piece = [0; 8192];
        if let Some(mut stream) = stream {
            while let Ok(octets @ 1..) = stream.read(&mut piece) {
                kept.extend_from_slice(&piece[..octets]);
                if kept.len() > 2 * TAIL {
                    kept.drain(..kept.len() - TAIL);
                }
            }
        }
        let _ = sender.send(keep_tail(kept));
    });
    receiver
}

fn keep_tail(mut octets: Vec<u8>) -> String {
    octets.drain(..octets.len().saturating_sub(TAIL));
    String::from_utf8_lossy(&octets).into_owned()
}

fn blast(address: SocketAddr, seconds: f64) -> Result<Reply> {
    let doing = || format!("send test data to {address}");
    let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(5)).doing(doing)?;
    stream.set_write_timeout(Some(Duration::from_secs(10))).doing(doing)?;
    let piece = [0x5a; 64 * 1024];
    let deadline = Instant::now() + Duration::from_secs_f64(seconds);
    while Instant::now() < deadline {
        let _ = stream.write(&piece).doing(doing)?;
    }
    let name = getsockopt(&stream, sockopt::TcpCongestion)
        .doing(|| "ask for the congestion control".into())?;
    let congestion_control = name.to_string_lossy().trim_end_matches('\0').to_owned();
    Ok(Reply::Sent { congestion_control })
}

/// A server and the last lines it wrote.
#[derive(Debug)]
struct Server {
    child: Child,
    ended: Option<String>,
    log: Arc<Mutex<VecDeque<(u64, String)>>>,
}

const LOG_LINES: usize = 2000;

impl Server {
    fn start(argv: &[String], environment: &BTreeMap<String, String>) -> Result<Self> {
        let program =
            argv.first().ok_or_else(|| Error::Failed("a server without a program".into()))?;
        let mut child = Command::new(program)
            .args(&argv[1..])
            .env_clear()
            .envs(environment)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()
            .doing(|| format!("start {program}"))?;
        let log = Arc::new(Mutex::new(VecDeque::new()));
        follow(child.stdout.take(), &log);
        follow(child.stderr.take(), &log);
        Ok(Self { child, ended: None, log })
    }

    fn state(&mut self, since_ns: u64) -> ServerState {
        if self.ended.is_none() {
            self.ended = match self.child.try_wait() {
                Ok(None) => None,
                Ok(Some(status)) => Some(status.to_string()),
                Err(error) => Some(error.to_string()),
            };
        }
        let log = lock(&self.log).iter().filter(|(at, _)| *at >= since_ns).cloned().collect();
        ServerState { ended: self.ended.clone(), log }
    }
}

fn follow(stream: Option<impl Read + Send + 'static>, log: &Arc<Mutex<VecDeque<(u64, String)>>>) {
    let Some(stream) = stream else { return };
    let log = Arc::clone(log);
    std::thread::spawn(move || {
        let mut lines = BufReader::new(stream);
        let mut line = Vec::new();
        // a line without end is cut, so that a server cannot fill the memory
        while let Ok(1..) = (&mut lines).take(4096).read_until(b'\n', &mut line) {
            let now = now_ns();
            let text = String::from_utf8_lossy(&line).trim_end().to_owned();
            let mut log = lock(&log);
            if log.len() >= LOG_LINES {
                log.pop_front();
            }
            log.push_back((now, text));
            line.clear();
        }
    });
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Wall clock, nanoseconds since the epoch.
pub(crate) fn now_ns() -> u64 {
    SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .map_or(0, |since| since.as_nanos() as u64)
}

/// The control group of this process, if it is a run's.
fn own_group() -> Option<PathBuf> {
    let text = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    let path = text.lines().find_map(|line| line.strip_prefix("0::/"))?;
    path.starts_with("headroom-").then(|| cgroup::mounted().map(|root| root.join(path)))?
}
