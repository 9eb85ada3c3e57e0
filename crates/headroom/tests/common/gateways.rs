//! Two hosts of a test's own with `headroom tunnel` on each, as it is typed.

use std::cell::RefCell;
use std::net::UdpSocket;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use headroom_testing::{Capture, Host, contains};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use super::{Ground, HEADROOM};

/// A host, and where its gateway keeps its socket. Gateways that a test has left,
/// because it failed, are killed with it.
pub(crate) struct Site {
    host: Host,
    pub(crate) run: PathBuf,
    gateways: RefCell<Vec<Pid>>,
}

impl Deref for Site {
    type Target = Host;

    fn deref(&self) -> &Host {
        &self.host
    }
}

/// Two hosts on one link, `eth0` of each.
pub(crate) fn link(ground: &Ground) -> [Site; 2] {
    let mut names = ["here", "there"].into_iter();
    headroom_testing::link().map(|host| site(ground, names.next().expect("two hosts"), host))
}

/// A host of this name.
pub(crate) fn site(ground: &Ground, name: &str, host: Host) -> Site {
    Site { host, run: ground.path(name), gateways: RefCell::default() }
}

/// What passes the link, from now on.
pub(crate) fn listen(sites: &[Site; 2]) -> Capture {
    Capture::start(sites.each_ref().map(Deref::deref))
}

impl Site {
    pub(crate) fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(HEADROOM);
        command.arg("tunnel").args(words).env("HEADROOM_RUN_DIR", &self.run).stdin(Stdio::null());
        command
    }

    /// Runs `headroom tunnel` to its end.
    pub(crate) fn tunnel(&self, words: &[&str]) -> Output {
        let mut command = self.command(words);
        self.run(move || command.output().expect("the command starts"))
    }

    #[track_caller]
    pub(crate) fn must(&self, words: &[&str]) -> String {
        let output = self.tunnel(words);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{words:?}: {said}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Brings a tunnel up and gives the gateway's process.
    #[track_caller]
    pub(crate) fn up(&self, file: &Path) -> Pid {
        self.up_with(file, &[])
    }

    pub(crate) fn up_with(&self, file: &Path, more: &[&str]) -> Pid {
        self.must(&[&["up", text(file), "--background"], more].concat());
        let pid = self.status()["pid"].as_i64().and_then(|pid| i32::try_from(pid).ok());
        let pid = Pid::from_raw(pid.expect("a process"));
        self.gateways.borrow_mut().push(pid);
        pid
    }

    pub(crate) fn status(&self) -> Value {
        serde_json::from_str(&self.must(&["status", "--json"])).expect("JSON")
    }

    /// Opens a socket on which what arrives is awaited, however busy the machine is.
    pub(crate) fn socket(&self, address: &'static str) -> UdpSocket {
        let socket = self.run(move || UdpSocket::bind(address).expect("an address"));
        socket.set_read_timeout(Some(Duration::from_secs(60))).expect("a timeout");
        socket
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        for &pid in self.gateways.get_mut().iter() {
            let own = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            if contains(&own, b"--detached") {
                let _ = kill(pid, Signal::SIGKILL);
            }
        }
    }
}

/// Writes a pair of configurations, for gateways at `ends`, whose second ledger copies are the
/// test's own.
pub(crate) fn keygen(ground: &Ground, ends: [&str; 2], words: &[&str]) -> [PathBuf; 2] {
    let folder = ground.path("keys");
    let output = Command::new(HEADROOM)
        .args(["tunnel", "keygen"])
        .args(ends)
        .arg("--out")
        .arg(&folder)
        .args(words)
        .output()
        .expect("the command starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    ["left", "right"].map(|end| {
        let file = folder.join(format!("{end}.toml"));
        let configuration = std::fs::read_to_string(&file).expect("a configuration");
        let copy = ground.path(&format!("ledger-copy-{end}"));
        std::fs::write(&file, format!("ledger_copy = {copy:?}\n{configuration}")).expect("written");
        file
    })
}

/// A path as a word of a command.
pub(crate) fn text(path: &Path) -> &str {
    path.to_str().expect("a path of the test")
}
