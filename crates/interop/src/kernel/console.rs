//! Talks to the machine's console: shell lines in, output and exit codes out.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::initramfs::{READY, STATUS};

/// Timeout of booting (3 s when idle).
const BOOT: Duration = Duration::from_secs(120);
/// Timeout of a line.
const LINE: Duration = Duration::from_secs(60);

/// An emulator's process and its console. Dropping it kills the process.
#[derive(Debug)]
pub(crate) struct Console {
    child: Child,
    input: ChildStdin,
    output: Receiver<String>,
}

impl Console {
    /// Takes over a process whose pipes are its console.
    pub(crate) fn new(mut child: Child) -> Result<Self> {
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            bail!("the emulator has no console");
        };
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).split(b'\n').map_while(Result::ok) {
                let text = String::from_utf8_lossy(&line).trim_end_matches('\r').to_owned();
                if sender.send(text).is_err() {
                    break;
                }
            }
        });
        Ok(Self { child, input, output: lines })
    }

    /// Waits until the agent in it reads lines.
    pub(crate) fn wait_for_boot(&mut self) -> Result<()> {
        self.until(BOOT, |line| line.ends_with(READY)).map(drop)
    }

    /// Runs a line of shell and returns its output.
    pub(crate) fn run(&mut self, line: &str) -> Result<String> {
        let (code, output) = self.run_for(line, LINE)?;
        if code == "0" {
            return Ok(output);
        }
        bail!("in the machine `{line}` failed: {output}")
    }

    /// Runs a line within `limit`; returns its exit code too.
    pub(crate) fn run_for(&mut self, line: &str, limit: Duration) -> Result<(String, String)> {
        self.input
            .write_all(format!("{line}\n").as_bytes())
            .and_then(|()| self.input.flush())
            .context("writing to the machine's console")?;
        let mut output = self.until(limit, |line| line.starts_with(STATUS))?;
        let status = output.pop().unwrap_or_default();
        Ok((status.trim_start_matches(STATUS).to_owned(), output.join("\n")))
    }

    /// Reads lines of the console up to one that ends the wait, included.
    fn until(&mut self, limit: Duration, ends: impl Fn(&str) -> bool) -> Result<Vec<String>> {
        let deadline = Instant::now() + limit;
        let mut lines = Vec::new();
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let why = match self.output.recv_timeout(left) {
                Ok(line) => {
                    let last = ends(&line);
                    lines.push(line);
                    if last {
                        return Ok(lines);
                    }
                    continue;
                }
                Err(RecvTimeoutError::Timeout) => format!("nothing came for {} s", limit.as_secs()),
                Err(RecvTimeoutError::Disconnected) => "the machine went off".to_owned(),
            };
            bail!("{why}; the console said: {}", lines.join("\n"));
        }
    }
}

impl Drop for Console {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
