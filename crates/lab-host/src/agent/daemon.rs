//! A server that goes on running, and the last lines it wrote.

use std::collections::VecDeque;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex};

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
    log: Arc<Mutex<VecDeque<(u64, String)>>>,
}

const LOG_LINES: usize = 2000;

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
        let log = Arc::new(Mutex::new(VecDeque::new()));
        follow(child.stdout.take(), &log);
        follow(child.stderr.take(), &log);
        Ok(Self { child, ended: None, log })
    }

    pub(super) fn state(&mut self, since_ns: u64) -> ServerState {
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

fn follow(stream: Option<impl Read + Send + 'static>, log: &Arc<Mutex<VecDeque<(u64, String)>>>) {
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
    });
}
