//! A network namespace as a value: it ends when dropped, or when this process
//! does.

use std::fs::File;
use std::io::Read;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, anyhow, bail};
use nix::sched::{CloneFlags, setns};

/// A namespace, held by a process in it.
#[derive(Debug)]
pub struct Namespace {
    /// `cat`, which ends when its input does: when we do.
    holder: Child,
}

impl Namespace {
    /// Makes one, its loopback interface up. Needs root.
    ///
    /// # Errors
    /// Where it cannot be made.
    pub fn new() -> Result<Self> {
        let mut holder = Command::new("unshare")
            .args(["--net", "sh", "-c", "echo made && exec cat"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("making a network namespace")?;
        let mut made = [0; 5];
        let output = holder.stdout.as_mut().map(|output| output.read_exact(&mut made));
        if !matches!(output, Some(Ok(()))) {
            bail!("a network namespace could not be made: that needs root");
        }
        let namespace = Self { holder };
        namespace.run(&["ip", "link", "set", "lo", "up"])?;
        Ok(namespace)
    }

    /// The process that holds it: `ip link add … netns PID`.
    pub fn pid(&self) -> u32 {
        self.holder.id()
    }

    fn path(&self) -> String {
        format!("/proc/{}/ns/net", self.pid())
    }

    /// A command that is run in it, and killed when the calling thread ends.
    pub fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new("setpriv");
        command
            .args(["--pdeathsig", "KILL", "nsenter"])
            .arg(format!("--net={}", self.path()))
            .args(words);
        command
    }

    /// The same command, run in it and killed when the calling thread ends.
    pub fn enclose(&self, command: &Command) -> Command {
        let mut enclosed = self.command(&[]);
        enclosed.arg(command.get_program()).args(command.get_args());
        let variables = command.get_envs();
        enclosed.envs(variables.filter_map(|(name, value)| Some((name, value?))));
        enclosed
    }

    /// Runs a command to its end and gives what it printed.
    ///
    /// # Errors
    /// Where it fails, with what it said.
    pub fn run(&self, words: &[&str]) -> Result<String> {
        let output = self.command(words).stdin(Stdio::null()).output();
        let output = output.with_context(|| format!("running {}", words.join(" ")))?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            bail!("`{}` failed: {said}", words.join(" "));
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Calls a function on a thread of the namespace; sockets that it makes are the
    /// namespace's.
    pub fn inside<T: Send + 'static>(
        &self,
        call: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Inside<T> {
        let path = self.path();
        Inside(std::thread::spawn(move || {
            let namespace = File::open(&path).with_context(|| format!("opening {path}"))?;
            setns(namespace, CloneFlags::CLONE_NEWNET).context("entering a network namespace")?;
            call()
        }))
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

/// A function that runs inside a namespace.
#[derive(Debug)]
pub struct Inside<T>(std::thread::JoinHandle<Result<T>>);

impl<T> Inside<T> {
    /// Waits for its end.
    ///
    /// # Errors
    /// The function's.
    pub fn join(self) -> Result<T> {
        self.0.join().map_err(|_| anyhow!("a thread in a namespace panicked"))?
    }
}
