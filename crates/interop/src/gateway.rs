//! Runs our gateway as a process in a namespace: `headroom tunnel up`.

use std::fmt::Write as _;
use std::fs::File;
use std::io::Write as _;
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use headroom_ipsec::spec::Mode;

use crate::case::{Case, Guard, Side, UDP_PORT};
use crate::hex;
use crate::namespace::Namespace;

/// Timeout of its start.
const START: Duration = Duration::from_secs(20);
/// Its output when it is up.
const READY: &str = " is up\n";
/// Name of its interface.
const INTERFACE: &str = "hr0";

/// A gateway in the foreground. Dropping it kills it.
#[derive(Debug)]
pub struct Gateway {
    child: Child,
    log: PathBuf,
    /// Where its control socket is.
    run: PathBuf,
}

impl Gateway {
    /// Starts the program `headroom` with a configuration, and waits until it is
    /// up. `folder` takes its files.
    ///
    /// # Errors
    /// It does not start; the error holds its output.
    pub fn start(
        headroom: &Path,
        configuration: &str,
        folder: &Path,
        namespace: &Namespace,
    ) -> Result<Self> {
        let (file, log) = (folder.join("gateway.toml"), folder.join("gateway.log"));
        File::options()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600) // it holds keys
            .open(&file)?
            .write_all(configuration.as_bytes())?;
        let run = folder.join("run");
        // what it keeps outside the folder is for nobody
        let script = "mount -t tmpfs tmpfs /run && mount -t tmpfs tmpfs /var/lib && exec \"$@\"";
        let child = namespace
            .command(&["unshare", "--mount", "sh", "-c", script, "sh"])
            .arg(headroom)
            .args(["tunnel", "up", "--new-keys"])
            .arg(&file)
            .env("HEADROOM_RUN_DIR", &run)
            .stdin(Stdio::null())
            .stdout(File::create(&log)?)
            .stderr(File::options().append(true).open(&log)?)
            .spawn()
            .context("starting our gateway")?;
        let mut gateway = Self { child, log, run };
        let deadline = Instant::now() + START;
        while !gateway.output().contains(READY) {
            if gateway.child.try_wait()?.is_some() || Instant::now() > deadline {
                bail!("our gateway did not start: {}", gateway.said());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(gateway)
    }

    /// Runs a command of `headroom tunnel` about it, and returns its output.
    ///
    /// # Errors
    /// The command fails.
    pub fn control(&self, headroom: &Path, words: &[&str]) -> Result<String> {
        let mut command = Command::new(headroom);
        command.arg("tunnel").args(words).env("HEADROOM_RUN_DIR", &self.run).stdin(Stdio::null());
        let output = command.output().context("running headroom tunnel")?;
        if !output.status.success() {
            bail!("`{}`: {}", words.join(" "), String::from_utf8_lossy(&output.stderr).trim());
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Returns its output.
    pub fn said(&self) -> String {
        self.output().trim().to_owned()
    }

    fn output(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Builds a gateway's configuration.
#[derive(Debug)]
pub struct Configuration {
    text: String,
    names: [Vec<String>; 2],
}

/// An association in a configuration.
#[derive(Debug)]
pub struct Sa<'a> {
    /// Whether it is outbound.
    pub from: Side,
    /// `esp` or `ah`.
    pub protocol: &'a str,
    /// Its mode.
    pub mode: Mode,
    /// Security parameters index.
    pub spi: u32,
    /// Outer addresses, source first.
    pub addresses: [IpAddr; 2],
    /// The suite's name.
    pub suite: String,
    /// Its key.
    pub key: &'a [u8],
    /// The key of a separate integrity algorithm; may be empty.
    pub integrity_key: &'a [u8],
    /// Extended sequence numbers.
    pub extended: bool,
    /// ESP in UDP between ports 4500.
    pub udp: bool,
}

impl Configuration {
    /// Starts without associations.
    pub fn new() -> Self {
        // the peers are a test's own: weak suites are tried as well
        let text = format!("name = \"{INTERFACE}\"\nallow_insecure = true\n");
        Self { text, names: [Vec::new(), Vec::new()] }
    }

    /// Makes the configuration of a case, which protects all traffic between its inner addresses.
    pub fn of(case: &Case) -> String {
        let mut configuration = Self::new();
        let sides = [(Side::Ours, Side::Theirs), (Side::Theirs, Side::Ours)];
        for (from, to) in sides {
            for sa in case.associations(from) {
                let (protocol, suite, key, integrity_key) = match &sa.guard {
                    Guard::Esp(suite, key, mac) => ("esp", suite.to_string(), key, mac.as_slice()),
                    Guard::Ah(mac, key) => ("ah", mac.to_string(), key, &[][..]),
                };
                configuration.add(&Sa {
                    from,
                    protocol,
                    mode: sa.mode,
                    spi: sa.spi,
                    addresses: [from, to].map(|side| case.outer_address(side)),
                    suite,
                    key,
                    integrity_key,
                    extended: case.extended,
                    udp: case.udp,
                });
            }
        }
        configuration.protect(case.inner_address(Side::Ours), case.inner_address(Side::Theirs))
    }

    /// Adds an association, the inner one of two first.
    pub fn add(&mut self, sa: &Sa<'_>) {
        let direction = if sa.from == Side::Ours { "out" } else { "in" };
        let name = format!("{}-{direction}", sa.protocol);
        let mode = if sa.mode == Mode::Transport { "transport" } else { "tunnel" };
        let [source, destination] = sa.addresses;
        let _ = write!(
            self.text,
            r#"
[[sa]]
name = "{name}"
direction = "{direction}"
protocol = "{}"
mode = "{mode}"
spi = {:#x}
source = "{source}"
destination = "{destination}"
suite = "{}"
key = "{}"
esn = {}
"#,
            sa.protocol,
            sa.spi,
            sa.suite,
            hex(sa.key),
            sa.extended,
        );
        if !sa.integrity_key.is_empty() {
            let _ = writeln!(self.text, "integrity_key = \"{}\"", hex(sa.integrity_key));
        }
        if sa.udp {
            let _ =
                writeln!(self.text, "udp = {{ source = {UDP_PORT}, destination = {UDP_PORT} }}");
        }
        self.names[usize::from(sa.from == Side::Theirs)].push(name);
    }

    /// Protects all traffic between two addresses by all the associations, and returns the
    /// text.
    pub fn protect(mut self, local: IpAddr, remote: IpAddr) -> String {
        let [out, inbound] = &self.names;
        let _ = write!(
            self.text,
            r#"
[[policy]]
name = "peer"
action = "protect"
local = "{local}"
remote = "{remote}"
out = {out:?}
in = {inbound:?}
"#
        );
        self.text
    }
}

impl Default for Configuration {
    fn default() -> Self {
        Self::new()
    }
}
