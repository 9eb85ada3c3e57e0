//! A server that goes on running, and the last lines it wrote.

use std::collections::VecDeque;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use headroom_mutex::lock;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};

use super::now_ns;
use crate::command::Resolved;
use crate::error::{Doing, Error, Result};
use crate::lines::each_line;

/// The state of a started server.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ServerState {
    /// A sentence about its end; none while it runs.
    pub ended: Option<String>,
    /// The latest lines it wrote, each with the wall clock (ns) of its arrival.
    pub log: Vec<(u64, String)>,
}

/// A server and the last lines it wrote.
#[derive(Debug)]
pub(super) struct Server {
    child: Child,
    ended: Option<String>,
    log: Log,
    /// Disconnected when the readers of both of its streams have come to the end.
    readers: mpsc::Receiver<()>,
}

type Log = Arc<Mutex<VecDeque<(u64, String)>>>;

const LOG_LINES: usize = 2000;

/// How long the last lines of a server that has ended are waited for. They are in the pipes by
/// then, but a process that it has left behind can hold these open.
const PATIENCE_FOR_LAST_LINES: Duration = Duration::from_secs(1);

impl Server {
    /// Starts a server whose environment is the command's and nothing else.
    pub(super) fn start(command: &Resolved) -> Result<Self> {
        let mut child = command
            .process_alone()?
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()
            .doing(|| format!("start {}", command.program()))?;
        let log = Log::default();
        let (reader, readers) = mpsc::channel();
        follow(child.stdout.take(), &log, reader.clone());
        follow(child.stderr.take(), &log, reader);
        Ok(Self { child, ended: None, log, readers })
    }

    /// Returns whether it runs, and the lines that arrived since `since_ns` (wall clock, ns). After
    /// its end it waits for the last ones, [`PATIENCE_FOR_LAST_LINES`] at most.
    pub(super) fn state(&mut self, since_ns: u64) -> ServerState {
        self.notice_end(PATIENCE_FOR_LAST_LINES);
        let log = lock(&self.log).iter().filter(|(at, _)| *at >= since_ns).cloned().collect();
        ServerState { ended: self.ended.clone(), log }
    }

    /// Notes its end when that is first noticed, and waits until its last lines are in the log:
    /// they may say why.
    fn notice_end(&mut self, patience: Duration) {
        if self.ended.is_some() {
            return;
        }
        self.ended = match self.child.try_wait() {
            Ok(None) => return,
            Ok(Some(status)) => Some(status.to_string()),
            Err(error) => Some(error.to_string()),
        };
        // nothing is sent: this returns when the readers are done, or when time is up
        let _ = self.readers.recv_timeout(patience);
    }

    /// Reloads it by SIGHUP, and returns the wall clock (ns) before that.
    ///
    /// # Errors
    /// It has ended: its number may be another's by now.
    pub(super) fn reload(&mut self) -> Result<u64> {
        let before = now_ns();
        if let Some(ended) = self.state(before).ended {
            return Err(Error::Failed(format!("a server that was to reload has ended ({ended})")));
        }
        let pid = Pid::from_raw(self.child.id().cast_signed());
        kill(pid, Signal::SIGHUP)
            .map_err(std::io::Error::from)
            .doing(|| "reload a server".into())?;
        Ok(before)
    }
}

/// Logs the lines of a stream, and drops `reader` at its end.
fn follow(stream: Option<impl Read + Send + 'static>, log: &Log, reader: mpsc::Sender<()>) {
    let Some(stream) = stream else { return };
    let log = Arc::clone(log);
    std::thread::spawn(move || {
        each_line(stream, 4096, |line| {
            let now = now_ns();
            let mut log = lock(&log);
            if log.len() >= LOG_LINES {
                log.pop_front();
            }
            log.push_back((now, line.trim_end().to_owned()));
        });
        drop(reader);
    });
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::io;
    use std::process::Command;
    use std::sync::mpsc::{RecvTimeoutError, TryRecvError};

    use nix::sys::signal::killpg;

    use super::*;

    /// Longer than anything here takes, even on a busy machine.
    const LONG: Duration = Duration::from_secs(600);

    fn server(script: &str) -> Server {
        let argv = ["/bin/sh", "-c", script].map(str::to_owned).to_vec();
        Server::start(&Resolved { argv, environment: BTreeMap::new() }).expect("sh starts")
    }

    fn lines(server: &mut Server) -> Vec<String> {
        server.state(0).log.into_iter().map(|(_, line)| line).collect()
    }

    #[test]
    fn the_state_of_an_ended_server_has_its_last_lines() {
        let mut server = server("echo what; echo why >&2; exit 3");
        server.child.wait().expect("its end");
        server.notice_end(LONG);
        assert_eq!(server.state(0).ended.as_deref(), Some("exit status: 3"));
        let mut lines = lines(&mut server);
        lines.sort();
        assert_eq!(lines, ["what", "why"], "of both streams");
    }

    /// A stream whose line can be read as soon as the end of a process was noticed.
    struct LastWords {
        of: Pid,
        left: &'static [u8],
    }

    impl Read for LastWords {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            while kill(self.of, None).is_ok() {
                std::thread::yield_now();
            }
            self.left.read(buffer)
        }
    }

    #[test]
    fn waits_for_lines_that_are_read_after_the_end() {
        let child = Command::new("/bin/sh").args(["-c", "exit 3"]).spawn().expect("sh starts");
        let of = Pid::from_raw(child.id().cast_signed());
        let (reader, readers) = mpsc::channel();
        let log = Log::default();
        follow(Some(LastWords { of, left: b"why\n" }), &log, reader);
        let mut server = Server { child, ended: None, log, readers };
        while server.ended.is_none() {
            server.notice_end(LONG);
            std::thread::yield_now();
        }
        assert_eq!(lines(&mut server), ["why"]);
    }

    #[test]
    fn does_not_wait_for_a_process_that_a_server_left_behind() {
        let mut server = server("sleep 600 & echo why >&2; exit 3");
        let group = Pid::from_raw(server.child.id().cast_signed());
        server.child.wait().expect("its end");
        server.notice_end(Duration::ZERO);
        assert_eq!(server.ended.as_deref(), Some("exit status: 3"));
        assert_eq!(server.readers.try_recv(), Err(TryRecvError::Empty), "its streams are open");
        killpg(group, Signal::SIGKILL).expect("the process is there");
        let ended = server.readers.recv_timeout(LONG);
        assert_eq!(ended, Err(RecvTimeoutError::Disconnected));
        assert_eq!(lines(&mut server), ["why"]);
    }
}
