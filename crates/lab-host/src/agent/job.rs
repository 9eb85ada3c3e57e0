//! A client process, run to its end under a watchdog.

use std::io::{BufRead, BufReader, Cursor, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use headroom_lab_trace::READY;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};
use wait4::Wait4;

use crate::command::Resolved;
use crate::error::{Doing, Error, Result};

/// A client process to run to its end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    /// The client, with its whole environment.
    pub command: Resolved,
    /// Lines written to its standard input, each after the answer to the one
    /// before has come, told by an `echo` of the agent's own.
    pub dialogue: Option<Vec<String>>,
    /// Whether it begins with a prelude, which is not measured: it then prints [`READY`], and
    /// goes on when it reads a line.
    pub has_prelude: bool,
}

/// The result of a job.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Outcome {
    /// Exit code; none if it was killed.
    pub code: Option<i32>,
    /// Start to end.
    pub process_s: f64,
    /// The wall clock then, nanoseconds since the epoch.
    pub ended_ns: u64,
    /// The most memory that it had at once.
    pub peak_memory_bytes: u64,
    /// The last 64 KiB of its standard output,
    pub stdout: String,
    /// and of its standard error.
    pub stderr: String,
}

/// Runs a client that has no prelude.
pub(super) fn run(job: &Job, timeout: Duration) -> Result<Outcome> {
    let started = Instant::now();
    let mut child = start(job)?;
    let _watchdog = Watchdog::start(timeout, group_of(&child));

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
    end(child, started, &stdout, &stderr)
}

/// A client whose prelude is over.
pub(super) struct Waiting {
    /// None: it has gone on.
    child: Option<Child>,
    stdin: Option<ChildStdin>,
    stdout: Option<BufReader<ChildStdout>>,
    stderr: mpsc::Receiver<String>,
    /// What it printed in place of [`READY`].
    said: Vec<u8>,
}

impl Waiting {
    /// Starts a client, and waits until its prelude is over or has failed, which its outcome
    /// tells.
    pub(super) fn start(job: &Job, timeout: Duration) -> Result<Self> {
        let mut child = start(job)?;
        let _watchdog = Watchdog::start(timeout, group_of(&child));
        let stderr = tail_of(child.stderr.take());
        let stdin = child.stdin.take();
        let mut stdout = child.stdout.take().map(BufReader::new);
        let mut said = Vec::new();
        if let Some(stdout) = &mut stdout {
            // a line without end must not fill the memory
            let _ = stdout.take(TAIL as u64).read_until(b'\n', &mut said);
        }
        if said.trim_ascii_end() == READY.as_bytes() {
            said.clear();
        }
        Ok(Self { child: Some(child), stdin, stdout, stderr, said })
    }

    /// Lets it go on, and waits for its end.
    pub(super) fn go_on(mut self, timeout: Duration) -> Result<Outcome> {
        let gone = || Error::Failed("a client has gone on already".into());
        let child = self.child.take().ok_or_else(gone)?;
        let started = Instant::now();
        let _watchdog = Watchdog::start(timeout, group_of(&child));
        // one that has ended reads nothing
        let _ = self.stdin.take().map(|mut stdin| writeln!(stdin));
        let said = Cursor::new(std::mem::take(&mut self.said));
        let stdout = tail_of(self.stdout.take().map(|rest| said.chain(rest)));
        end(child, started, &stdout, &self.stderr)
    }
}

impl Drop for Waiting {
    /// Ends a client that nobody has let go on.
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = killpg(group_of(&child), Signal::SIGKILL);
            let _ = child.wait();
        }
    }
}

fn start(job: &Job) -> Result<Child> {
    let is_spoken_to = job.dialogue.is_some() || job.has_prelude;
    job.command
        .process_alone()?
        .stdin(if is_spoken_to { Stdio::piped() } else { Stdio::null() })
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()
        .doing(|| format!("start {}", job.command.program()))
}

fn group_of(child: &Child) -> Pid {
    Pid::from_raw(child.id().cast_signed())
}

/// Waits for the end of a client.
fn end(
    child: Child,
    started: Instant,
    stdout: &mpsc::Receiver<String>,
    stderr: &mpsc::Receiver<String>,
) -> Result<Outcome> {
    let used = child.wait4().doing(|| "wait for a client".into())?;
    let (process_s, ended_ns) = (started.elapsed().as_secs_f64(), super::now_ns());
    Ok(Outcome {
        code: used.status.code(),
        process_s,
        ended_ns,
        peak_memory_bytes: used.rusage.maxrss,
        stdout: stdout.recv().unwrap_or_default(),
        stderr: stderr.recv().unwrap_or_default(),
    })
}

/// Kills a process group that outlives its time, unless dropped before.
struct Watchdog(#[allow(dead_code, reason = "dropping it is its use")] mpsc::Sender<()>);

impl Watchdog {
    fn start(timeout: Duration, group: Pid) -> Self {
        let (sender, receiver) = mpsc::channel::<()>();
        std::thread::spawn(move || {
            if receiver.recv_timeout(timeout) == Err(mpsc::RecvTimeoutError::Timeout) {
                let _ = killpg(group, Signal::SIGKILL);
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
        while (&mut answers).take(4096).read_until(b'\n', &mut piece).is_ok_and(|bytes| bytes > 0) {
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
            while let Ok(bytes @ 1..) = stream.read(&mut piece) {
                kept.extend_from_slice(&piece[..bytes]);
                if kept.len() > 2 * TAIL {
                    kept.drain(..kept.len() - TAIL);
                }
            }
        }
        let _ = sender.send(keep_tail(kept));
    });
    receiver
}

fn keep_tail(mut bytes: Vec<u8>) -> String {
    bytes.drain(..bytes.len().saturating_sub(TAIL));
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use nix::errno::Errno;
    use nix::sys::signal::kill;

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    /// A client with a prelude that runs a script.
    fn client(script: &str) -> Job {
        let argv = ["/bin/sh", "-c", script].map(str::to_owned).to_vec();
        let command = Resolved { argv, environment: BTreeMap::new() };
        Job { command, dialogue: None, has_prelude: true }
    }

    #[test]
    fn a_client_goes_on_after_its_prelude_when_it_is_asked_to() {
        let script = "echo ready; read line && echo \"went on: [$line]\"";
        let waiting = Waiting::start(&client(script), LONG).expect("a shell");
        let outcome = waiting.go_on(LONG).expect("its end");
        assert_eq!((outcome.code, outcome.stdout.as_str()), (Some(0), "went on: []\n"));
    }

    #[test]
    fn a_prelude_that_fails_is_in_the_outcome() {
        let script = "echo refused; echo 'no server' >&2; exit 3";
        let waiting = Waiting::start(&client(script), LONG).expect("a shell");
        let outcome = waiting.go_on(LONG).expect("its end");
        assert_eq!((outcome.code, outcome.stdout.as_str()), (Some(3), "refused\n"));
        assert_eq!(outcome.stderr, "no server\n");
    }

    #[test]
    fn a_client_that_nobody_asks_to_go_on_is_killed() {
        let waiting = Waiting::start(&client("echo ready; read line"), LONG).expect("a shell");
        let pid = group_of(waiting.child.as_ref().expect("a client"));
        assert_eq!(kill(pid, None), Ok(()));
        drop(waiting);
        assert_eq!(kill(pid, None), Err(Errno::ESRCH));
    }
}
