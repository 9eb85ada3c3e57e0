//! A client process, run to its end under a watchdog.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use wait4::Wait4;

use crate::command::Resolved;
use crate::error::{Doing, Result};

/// A client process to run to its end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    /// The client, with its whole environment.
    pub command: Resolved,
    /// Lines written to its standard input, each after the answer to the one
    /// before has come, told by an `echo` of the agent's own.
    pub dialogue: Option<Vec<String>>,
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

pub(super) fn run(job: &Job, timeout: Duration) -> Result<Outcome> {
    let program = job.command.program();
    let started = Instant::now();
    let mut child = job
        .command
        .process_alone()?
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
