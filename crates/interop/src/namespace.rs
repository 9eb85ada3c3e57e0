//! A network namespace as a value: dropping it, or the end of this process, removes
//! it.

use std::fs::File;
use std::io::Read;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, anyhow, bail};
use nix::sched::{CloneFlags, setns};

/// A namespace, kept alive by a process inside.
#[derive(Debug)]
pub struct Namespace {
    /// `cat`, which exits when this process closes its input.
    holder: Child,
}

impl Namespace {
    /// Makes a namespace with its loopback interface up. Needs root.
    ///
    /// # Errors
    /// A system call or `ip` failed.
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

    /// Returns the process that keeps it alive: `ip link add … netns PID`.
    pub fn pid(&self) -> u32 {
        self.holder.id()
    }

    fn path(&self) -> String {
        format!("/proc/{}/ns/net", self.pid())
    }

    /// Makes a command that runs inside, killed when the calling thread ends.
    pub fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new("setpriv");
        command
            .args(["--pdeathsig", "KILL", "nsenter"])
            .arg(format!("--net={}", self.path()))
            .args(words);
        command
    }

    /// Wraps a command so that it runs inside, killed when the calling thread ends; keeps its
    /// arguments and environment only.
    pub fn enclose(&self, command: &Command) -> Command {
        let mut enclosed = self.command(&[]);
        enclosed.arg(command.get_program()).args(command.get_args());
        let variables = command.get_envs();
        enclosed.envs(variables.filter_map(|(name, value)| Some((name, value?))));
        enclosed
    }

    /// Runs a command and returns its output.
    ///
    /// # Errors
    /// It fails; the error holds its output.
    pub fn run(&self, words: &[&str]) -> Result<String> {
        let output = self.command(words).stdin(Stdio::null()).output();
        let output = output.with_context(|| format!("running {}", words.join(" ")))?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            bail!("`{}` failed: {said}", words.join(" "));
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Calls a function on a thread inside the namespace, to which its sockets then belong.
    pub fn spawn<T: Send + 'static>(
        &self,
        call: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Spawned<T> {
        let path = self.path();
        Spawned(std::thread::spawn(move || {
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

/// A function running inside a namespace.
#[derive(Debug)]
pub struct Spawned<T>(std::thread::JoinHandle<Result<T>>);

impl<T> Spawned<T> {
    /// Waits for the function to return.
    ///
    /// # Errors
    /// Those of the function.
    pub fn join(self) -> Result<T> {
        self.0.join().map_err(|_| anyhow!("a thread in a namespace panicked"))?
    }
}
