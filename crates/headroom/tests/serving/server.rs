//! `headroom serve` on a port of its own, and the commands of users whose homes are folders of
//! the test.

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::common::{Ground, HEADROOM};

/// Makes a command `headroom` of the user with this home.
pub(crate) fn command(ground: &Ground, home: &str, arguments: &[&str]) -> Command {
    let mut command = ground.command(HEADROOM);
    command.env("HOME", ground.path(home));
    command.env_remove("XDG_CONFIG_HOME").env_remove("XDG_STATE_HOME").args(arguments);
    command
}

/// Returns the public key of the user with this home, who gets one where there is none.
pub(crate) fn public_key(ground: &Ground, home: &str) -> String {
    let shown = command(ground, home, &["identity"]).output().expect("it starts");
    let shown = String::from_utf8(shown.stdout).expect("a text");
    shown.lines().next().expect("the key").to_owned()
}

/// Makes the command of a server that serves the folder `served` to `authorized_keys`.
pub(crate) fn serve(ground: &Ground, options: &[&str]) -> Command {
    let mut serve = command(ground, "server", &["serve", "--json", "--listen", "127.0.0.1:0"]);
    serve.arg("--root").arg(ground.path("served"));
    serve.arg("--authorized-keys").arg(ground.path("authorized_keys")).args(options);
    serve
}

/// A server that listens; killed when dropped.
pub(crate) struct Server {
    child: Child,
    events: BufReader<ChildStdout>,
    pub(crate) address: String,
    pub(crate) fingerprint: String,
}

impl Server {
    /// Starts a command that is `headroom serve --json`, and waits until it listens.
    pub(crate) fn start(mut serve: Command) -> Self {
        let mut child = serve.stdout(Stdio::piped()).spawn().expect("it starts");
        let mut events = BufReader::new(child.stdout.take().expect("it is piped"));
        let listening = next_event(&mut events, "listening");
        let [address, fingerprint] =
            ["address", "fingerprint"].map(|key| listening[key].as_str().expect(key).to_owned());
        Self { child, events, address, fingerprint }
    }

    /// Names a path of it.
    pub(crate) fn place(&self, path: &str) -> String {
        format!("{}:{path}", self.address)
    }

    /// Reads its next event, which must be this one.
    pub(crate) fn event(&mut self, name: &str) -> Value {
        next_event(&mut self.events, name)
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id().cast_signed()), signal).expect("it runs");
    }

    /// Returns how it ended; none: it runs.
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("a child's state")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn next_event(events: &mut BufReader<ChildStdout>, name: &str) -> Value {
    let mut line = String::new();
    events.read_line(&mut line).expect("it can be read");
    let event: Value = serde_json::from_str(&line).expect("JSON");
    assert_eq!(event["event"], name, "{line}");
    event
}
