//! Serves an agent on a real host beyond a pipe: its first message, a heartbeat from the
//! lab, and ssh's standard error when the host is gone.

use std::io::Write;
use std::process::{ChildStderr, ChildStdin};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;

use headroom_mutex::lock;

use crate::lines::each_line;

/// The lab says at least this often that it is there, with an empty line.
const BEAT: Duration = Duration::from_secs(3);

/// After so long a silence the lab is gone: its ssh has given up by then.
pub(crate) const SILENCE: Duration = Duration::from_secs(15);

/// An agent's standard input, which requests and beats share.
pub(crate) type Input = Arc<Mutex<Option<ChildStdin>>>;

/// Says that the lab is there until dropped.
#[derive(Debug)]
pub(super) struct Heart {
    _stop: mpsc::Sender<()>,
}

impl Heart {
    pub(super) fn start(input: &Input) -> Self {
        let input = Arc::clone(input);
        let (stop, stopped) = mpsc::channel::<()>();
        std::thread::spawn(move || {
            while stopped.recv_timeout(BEAT) == Err(RecvTimeoutError::Timeout) {
                let beat = lock(&input).as_mut().map(|input| input.write_all(b"\n"));
                if !matches!(beat, Some(Ok(()))) {
                    break;
                }
            }
        });
        Self { _stop: stop }
    }
}

/// Follows ssh's standard error to its end.
#[derive(Debug)]
pub(super) struct Words {
    said: Arc<Mutex<String>>,
    thread: Option<JoinHandle<()>>,
}

impl Words {
    /// When standard error ends, so has the connection; then the alarm is raised: `host` is
    /// gone.
    pub(super) fn follow(
        stderr: Option<ChildStderr>,
        host: &str,
        alarm: &Arc<OnceLock<String>>,
    ) -> Self {
        let said = Arc::new(Mutex::new(String::new()));
        let thread = stderr.map(|stderr| {
            let (said, alarm, host) = (Arc::clone(&said), Arc::clone(alarm), host.to_owned());
            std::thread::spawn(move || {
                each_line(stderr, 1024, |line| {
                    if !line.trim().is_empty() {
                        line.trim().clone_into(&mut lock(&said));
                    }
                });
                let _ = alarm.set(gone(&host, &lock(&said)));
            })
        });
        Self { said, thread }
    }

    /// The last line, when all was said.
    pub(super) fn last(&mut self) -> String {
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        lock(&self.said).clone()
    }
}

fn gone(host: &str, said: &str) -> String {
    let said = if said.is_empty() { "nothing" } else { said.trim_end_matches('.') };
    format!("the {host} vanished; ssh said: {said}")
}
