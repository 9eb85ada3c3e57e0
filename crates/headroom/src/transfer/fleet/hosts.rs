//! Workers on other hosts, started by ssh for one run.
//!
//! Each ends with its standard input, and so with the connection. None is replaced: a host that is
//! lost may come back in the middle, and a second run of the command starts its workers again.

use std::ffi::OsString;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use headroom_fleet::Job;
use headroom_fleet::run::Ended;
use headroom_transfer::Host;
use headroom_transfer::ssh::Ssh;

use crate::transfer::exit::{INTERRUPTED, Usage};

/// The most bytes of a file with hosts.
const MAX_BYTES: u64 = 1 << 20;
/// The most workers of a host.
const MAX_WORKERS: u32 = 256;
/// How long workers have to return their items.
const ENDING: Duration = Duration::from_secs(10);

/// The hosts of a run, each with its number of workers.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Hosts(Vec<(Host, u32)>);

impl Hosts {
    /// Reads a file of hosts for a job.
    pub(super) fn read(file: &Path, job: &Job) -> anyhow::Result<Self> {
        if job.nats.is_none() {
            let reason = "--hosts is for jobs whose queue is at NATS: add a table [nats] to the job file (docs/fleet.md)";
            return Err(Usage(reason.to_owned()).into());
        }
        let reading = || format!("cannot read {}", file.display());
        let size = std::fs::metadata(file).with_context(reading)?.len();
        if size > MAX_BYTES {
            bail!("{} is no list of hosts: it has {size} bytes", file.display());
        }
        let text = std::fs::read_to_string(file).with_context(reading)?;
        Self::parse(&text, job.workers)
            .map_err(|(line, reason)| Usage(format!("{}:{line}: {reason}", file.display())).into())
    }

    /// Parses lines of `[USER@]HOST [WORKERS]`. An error is a line and a sentence.
    fn parse(text: &str, default: u32) -> Result<Self, (usize, String)> {
        let mut hosts = Vec::new();
        for (n, line) in text.lines().enumerate() {
            let wrong = |reason: String| (n + 1, reason);
            let line = line.split('#').next().unwrap_or_default();
            let mut words = line.split_whitespace();
            let Some(name) = words.next() else { continue };
            let workers = match words.next().map(str::parse::<u32>) {
                None => default,
                Some(Ok(workers)) if (1..=MAX_WORKERS).contains(&workers) => workers,
                Some(_) => return Err(wrong(format!("a host has 1 to {MAX_WORKERS} workers"))),
            };
            if words.next().is_some() {
                return Err(wrong("a line is [USER@]HOST [WORKERS]".to_owned()));
            }
            let host = Host::parse(name).map_err(|error| wrong(error.to_string()))?;
            if host.names_port() {
                let reason = format!("`{name}` names a port: set that in ssh's configuration");
                return Err(wrong(reason));
            }
            hosts.push((host, workers));
        }
        match hosts.is_empty() {
            true => Err((1, "it names no host".to_owned())),
            false => Ok(Self(hosts)),
        }
    }

    /// Starts the workers, each of which finds its job by these words.
    pub(super) fn start(
        &self,
        ssh_command: Option<&str>,
        words: &[OsString],
    ) -> anyhow::Result<Elsewhere> {
        let environment = std::env::var("HEADROOM_SSH").ok().filter(|command| !command.is_empty());
        let command = ssh_command.map(str::to_owned).or(environment);
        let ssh = command.map_or_else(|| Ok(Ssh::default()), |command| Ssh::new(&command))?;
        let line = line(words)?;
        let mut elsewhere = Elsewhere::default();
        for (host, workers) in &self.0 {
            for _ in 0..*workers {
                elsewhere.start(host, ssh.remote_command(host, &line));
            }
        }
        Ok(elsewhere)
    }
}

/// Returns the line that starts a worker there.
fn line(words: &[OsString]) -> anyhow::Result<String> {
    let mut line = "exec headroom fleet worker --until-eof".to_owned();
    for word in words {
        let word = word.to_str().context("the path of the job file is not UTF-8")?;
        line.push_str(&format!(" '{}'", word.replace('\'', r"'\''")));
    }
    Ok(line)
}

/// Workers of a run that are elsewhere.
#[derive(Debug, Default)]
pub(super) struct Elsewhere {
    running: Vec<(String, Child)>,
    started: usize,
    /// Those that could not start or have failed: hosts.
    failed: Vec<String>,
}

impl Elsewhere {
    fn start(&mut self, host: &Host, mut command: Command) {
        let name = host.to_string();
        self.started += 1;
        match command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn() {
            Ok(child) => self.running.push((name, child)),
            Err(error) => {
                let program = command.get_program().display();
                eprintln!("headroom: no worker starts on {name}: cannot start {program}: {error}");
                self.failed.push(name);
            }
        }
    }

    /// Reports which workers have ended; returns whether any may work.
    pub(super) fn look(&mut self) -> bool {
        let mut n = 0;
        while let Some((_, child)) = self.running.get_mut(n) {
            let Ok(Some(status)) = child.try_wait() else {
                n += 1;
                continue;
            };
            let (name, _) = self.running.swap_remove(n);
            // 130: it was told to end
            if matches!(status.code(), Some(0 | INTERRUPTED)) {
                continue;
            }
            eprintln!("headroom: a worker on {name} has failed and is not replaced ({status})");
            self.failed.push(name);
        }
        self.started == 0 || !self.running.is_empty() || self.failed.len() < self.started
    }

    /// Tells the workers to end, and waits until they have returned their items.
    pub(super) fn end(&mut self) {
        self.running.iter_mut().for_each(|(_, child)| drop(child.stdin.take()));
        let deadline = Instant::now() + ENDING;
        while !self.running.is_empty() && Instant::now() < deadline {
            self.look();
            std::thread::sleep(Duration::from_millis(20));
        }
        for (_, child) in &mut self.running {
            let _ = child.kill();
            let _ = child.wait();
        }
        self.running.clear();
    }

    /// Fails if a run could not go on, because all of its workers have failed.
    pub(super) fn check(&self, ended: &Ended) -> anyhow::Result<()> {
        let is_alone = self.started > 0 && self.failed.len() == self.started;
        if is_alone && *ended == Ended::Paused {
            bail!(
                "no worker is left on {}: each needs `headroom`, the job file under the same path, and its keys. Repeat the command to resume",
                self.failed.join(", ")
            );
        }
        Ok(())
    }
}

impl Drop for Elsewhere {
    fn drop(&mut self) {
        self.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_read_with_their_workers() {
        let text = "# the cluster\nnode1\n\n me@node2 8 # a large one\n[2001:db8::1] 2\n";
        let Hosts(hosts) = Hosts::parse(text, 4).expect("hosts");
        let read: Vec<_> = hosts
            .iter()
            .map(|(host, workers)| (host.user(), host.name().to_owned(), *workers))
            .collect();
        let expected = [(None, "node1", 4), (Some("me"), "node2", 8), (None, "2001:db8::1", 2)];
        assert_eq!(read, expected.map(|(user, name, n)| (user, name.to_owned(), n)));
    }

    #[test]
    fn mistakes_are_named_with_their_line() {
        for (text, line, words) in [
            ("", 1, "no host"),
            ("a\nb 0\n", 2, "1 to 256"),
            ("a\nb many\n", 2, "1 to 256"),
            ("a 1 2\n", 1, "[USER@]HOST"),
            ("a:4860\n", 1, "a:4860"),
            ("-oProxyCommand=x\n", 1, ""),
        ] {
            let (found, reason) = Hosts::parse(text, 1).expect_err(text);
            assert!(found == line && reason.contains(words), "{text}: {found}: {reason}");
        }
    }

    #[test]
    fn a_path_is_one_word_of_the_line() {
        let words = [OsString::from("/a b/it's.toml")];
        let line = line(&words).expect("a line");
        assert_eq!(line, r"exec headroom fleet worker --until-eof '/a b/it'\''s.toml'");
    }
}
