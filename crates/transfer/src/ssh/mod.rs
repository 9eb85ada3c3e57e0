//! Starts a server for one transfer on a host through ssh. If this program is not installed
//! there, it is sent. Each side trusts the key that the other made for this transfer, because
//! ssh carried it.
//!
//! ssh is the user's own, with its configuration, agent, known hosts and prompts. Its
//! connection stays open: when it ends, the server does.

mod one_shot;
mod path;
mod program;
mod script;

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, SocketAddr};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use data_encoding::{BASE64, HEXLOWER};
use headroom_transfer_proto::path::{printable, shown};

pub use one_shot::{OneShot, offer, serve_once};
pub(crate) use path::from_home;

use crate::error::Error;
use crate::identity::Identity;
use crate::key::PublicKey;
use crate::proof::random;
use crate::quic;
use crate::remote_path::{DEFAULT_PORT, Host};

/// The number of ports to try, if none was given.
const PORTS: u16 = 20;
/// The most bytes that the host may print before the server is ready, login messages included.
const MAX_SAID: u64 = 1 << 20;
/// How long ssh may take to exit.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(3);
/// ssh's exit code for its own failures (ssh(1), EXIT STATUS).
const OF_SSH_ITSELF: i32 = 255;

/// How to start ssh.
#[derive(Debug, Clone)]
pub struct Ssh {
    command: Vec<String>,
}

impl Default for Ssh {
    /// Runs `ssh`, as the user has configured it.
    fn default() -> Self {
        Self { command: vec!["ssh".to_owned()] }
    }
}

impl Ssh {
    /// Runs a command with options, such as `ssh -p 2222`: words separated by spaces.
    ///
    /// # Errors
    /// It is empty.
    pub fn new(command: &str) -> Result<Self, Error> {
        let command: Vec<_> = command.split_whitespace().map(str::to_owned).collect();
        match command.is_empty() {
            true => Err(Error::Usage("the ssh command is empty".to_owned())),
            false => Ok(Self { command }),
        }
    }

    /// Starts a server on a host. ssh may ask for a password meanwhile.
    ///
    /// # Errors
    /// ssh cannot reach the host ([`Error::Unreachable`]), or no server can run there
    /// ([`Error::Refused`]); ssh prints more on standard error.
    pub fn start(&self, host: &Host) -> Result<SshServer, Error> {
        let settings = self.settings(host);
        let identity = Identity::ephemeral()?;
        let command = self.session(host, &settings, script::command());
        let mut session = SshSession::new(command, host)?;
        let ready = session.negotiate(identity.public());
        match ready {
            Ok(ready) => Ok(SshServer { identity, ready, session, name: settings.hostname }),
            Err(error) => Err(session.explain(error)),
        }
    }

    /// Asks ssh for its settings of a host.
    fn settings(&self, host: &Host) -> Settings {
        let mut command = self.command(["-G"], host);
        let output = command.stdin(Stdio::null()).stderr(Stdio::null()).output();
        let said = output.map(|output| output.stdout).unwrap_or_default();
        Settings::parse(&String::from_utf8_lossy(&said), host)
    }

    /// Makes a command that runs a line of a shell on a host, without a terminal. The connection
    /// stays open as long as its standard input does, and nothing is forwarded.
    #[must_use]
    pub fn remote_command(&self, host: &Host, line: &str) -> Command {
        self.session(host, &self.settings(host), line)
    }

    /// Makes the command that runs a line on the host.
    fn session(&self, host: &Host, settings: &Settings, line: impl AsRef<OsStr>) -> Command {
        // without what may be configured for interactive sessions
        let mut options = vec![
            "-T",
            "-x",
            "-oClearAllForwardings=yes",
            "-oForwardAgent=no",
            "-oPermitLocalCommand=no",
            "-oRemoteCommand=none",
        ];
        if !settings.keeps_alive {
            // the connection is idle while files move, and must stay open
            options.extend(["-oServerAliveInterval=15", "-oServerAliveCountMax=4"]);
        }
        let mut command = self.command(options, host);
        command.arg(line);
        command
    }

    fn command<'a>(&self, options: impl IntoIterator<Item = &'a str>, host: &Host) -> Command {
        let mut command = Command::new(&self.command[0]);
        command.args(&self.command[1..]).args(options).arg("--").arg(destination(host));
        command
    }
}

fn destination(host: &Host) -> String {
    host.user().map_or_else(|| host.name().to_owned(), |user| format!("{user}@{}", host.name()))
}

/// The used part of ssh's configuration.
#[derive(Debug, PartialEq, Eq)]
struct Settings {
    /// The name or address behind an alias.
    hostname: String,
    keeps_alive: bool,
}

impl Settings {
    /// Parses the output of `ssh -G`; without it, defaults apply.
    fn parse(said: &str, host: &Host) -> Self {
        let value = |key: &str| said.lines().find_map(|line| line.strip_prefix(key));
        Self {
            hostname: value("hostname ").unwrap_or(host.name()).to_owned(),
            keeps_alive: value("serveraliveinterval ").is_some_and(|seconds| seconds != "0"),
        }
    }
}

/// A server that ssh started. It ends when this is dropped.
#[derive(Debug)]
pub struct SshServer {
    identity: Identity,
    ready: Ready,
    session: SshSession,
    name: String,
}

impl SshServer {
    /// Returns the identity that this side made for the transfer.
    pub(crate) const fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Returns the key that the other side made.
    pub(crate) const fn key(&self) -> PublicKey {
        self.ready.key
    }

    /// Returns the home directory there.
    pub(crate) fn home(&self) -> &[u8] {
        &self.ready.home
    }

    /// Returns the host as ssh reaches it, with the server's port.
    pub(crate) fn host(&self) -> Host {
        Host::new(&self.name, self.ready.port)
    }

    /// Returns the server's possible addresses. Of a name's addresses, the one that ssh reached
    /// comes first; it is also used if the name has none, as behind a jump host.
    pub(crate) async fn addresses(&self) -> Result<Vec<SocketAddr>, Error> {
        let paths = quic::addresses(&self.host()).await;
        let Some(reached) = self.ready.address else { return paths };
        let reached = SocketAddr::new(reached, self.ready.port);
        let mut all = paths.unwrap_or_default();
        let is_other = |address: &SocketAddr| address.ip().to_canonical() != reached.ip();
        match all.iter().all(is_other) {
            true => all.push(reached),
            false => {
                all.retain(is_other);
                all.insert(0, reached);
            }
        }
        Ok(all)
    }

    /// Ends it, and waits until ssh has exited.
    pub(crate) fn close(mut self) {
        self.session.end();
    }
}

/// What the server reports when it listens.
#[derive(Debug, PartialEq, Eq)]
struct Ready {
    port: u16,
    home: Vec<u8>,
    key: PublicKey,
    address: Option<IpAddr>,
}

impl Ready {
    /// Parses what follows `headroom-ssh ready`.
    fn parse(words: &str) -> Option<Self> {
        let mut words = words.split(' ');
        let same = words.next()? == offer();
        let port = words.next()?.parse().ok()?;
        let home = BASE64.decode(words.next()?.as_bytes()).ok()?;
        let key = format!("{} {}", words.next()?, words.next()?).parse().ok()?;
        let address = words.next().and_then(|word| word.parse::<IpAddr>().ok());
        same.then_some(Self { port, home, key, address: address.map(|ip| ip.to_canonical()) })
    }
}

/// The connection to the script on the host.
#[derive(Debug)]
struct SshSession {
    host: Host,
    ssh: Child,
    to: Option<ChildStdin>,
    from: BufReader<std::io::Take<ChildStdout>>,
}

impl SshSession {
    fn new(mut command: Command, host: &Host) -> Result<Self, Error> {
        let started = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let program = command.get_program().display();
        let cannot = |cause| Error::System { doing: format!("start {program}"), cause };
        let mut ssh = started.map_err(cannot)?;
        let (Some(to), Some(from)) = (ssh.stdin.take(), ssh.stdout.take()) else {
            return Err(cannot(std::io::ErrorKind::BrokenPipe.into()));
        };
        let from = BufReader::new(from.take(MAX_SAID));
        Ok(Self { host: host.clone(), ssh, to: Some(to), from })
    }

    /// Starts the server, and returns where it listens.
    fn negotiate(&mut self, key: PublicKey) -> Result<Ready, Error> {
        let there = self.recv()?;
        let mut there = there.split(' ');
        let (system, machine) = (there.next().unwrap_or(""), there.next().unwrap_or(""));
        let key = key.to_string();
        // without the key's algorithm: the script reads single words
        let key = key.rsplit(' ').next().unwrap_or_default();
        let ports = ports(self.host.port());
        if there.next() == Some(&offer()) {
            self.send(format!("there {key} {ports}\n").as_bytes());
        } else {
            if !is_like_this(system, machine) {
                return Err(self.refused(&format!(
                    "it is {} on {}, and this program is for {} on {}. Install headroom {} there",
                    printable(system),
                    printable(machine),
                    std::env::consts::OS,
                    std::env::consts::ARCH,
                    env!("CARGO_PKG_VERSION")
                )));
            }
            let program = program::own().map_err(|cause| Error::System {
                doing: "read this program, to send it".to_owned(),
                cause,
            })?;
            let bytes = program.len();
            let name = HEXLOWER.encode(&random::<8>("choose a name")?);
            self.send(format!("sent {key} {ports} {name} {bytes}\n").as_bytes());
            self.send(&program);
        }
        let said = self.recv()?;
        said.strip_prefix("ready ").and_then(Ready::parse).ok_or_else(|| {
            let shown = shown(said.as_bytes()).to_string();
            self.refused(&format!("the program there answers `{shown}`"))
        })
    }

    /// Sends bytes. A failure shows in the next answer.
    fn send(&mut self, bytes: &[u8]) {
        if let Some(to) = &mut self.to {
            let _ = to.write_all(bytes).and_then(|()| to.flush());
        }
    }

    /// Receives the rest of the next line for this program.
    fn recv(&mut self) -> Result<String, Error> {
        let mut line = Vec::new();
        loop {
            line.clear();
            let read = self.from.read_until(b'\n', &mut line).unwrap_or(0);
            if read == 0 || line.last() != Some(&b'\n') {
                return Err(self.refused("it does not answer"));
            }
            let text = String::from_utf8_lossy(&line);
            let Some(said) = text.trim_end().strip_prefix(script::WORD) else { continue };
            let said = said.trim_start();
            return match said.strip_prefix("cannot: ") {
                Some(why) => Err(self.refused(&printable(why))),
                None => Ok(said.to_owned()),
            };
        }
    }

    fn refused(&self, why: &str) -> Error {
        Error::Refused(format!("no server can be started on {} through ssh: {why}", self.host))
    }

    /// Ends ssh, whose exit code may explain an error.
    fn explain(mut self, error: Error) -> Error {
        match self.end().and_then(|status| status.code()) {
            Some(OF_SSH_ITSELF) => Error::Unreachable {
                host: self.host.to_string(),
                cause: "ssh failed; its message is above".to_owned(),
            },
            _ => error,
        }
    }

    fn end(&mut self) -> Option<ExitStatus> {
        self.to = None;
        let deadline = Instant::now() + CLOSE_TIMEOUT;
        while Instant::now() < deadline {
            match self.ssh.try_wait() {
                Ok(None) => std::thread::sleep(Duration::from_millis(2)),
                ended => return ended.ok().flatten(),
            }
        }
        // a shared connection, or one that hangs
        let _ = self.ssh.kill();
        self.ssh.wait().ok()
    }
}

impl Drop for SshSession {
    fn drop(&mut self) {
        self.to = None;
        let _ = self.ssh.try_wait();
    }
}

/// Returns the range of ports to try.
fn ports(port: u16) -> String {
    let last = if port == DEFAULT_PORT { port + PORTS - 1 } else { port };
    format!("{port}-{last}")
}

/// Whether `uname` reports the platform of this program.
fn is_like_this(system: &str, machine: &str) -> bool {
    system.eq_ignore_ascii_case(std::env::consts::OS) && machine == std::env::consts::ARCH
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(text: &str) -> Host {
        Host::parse(text).expect("a host")
    }

    #[test]
    fn the_ssh_configuration_of_a_host_is_used() {
        let said = "user u\nhostname 192.0.2.1\nport 22\nserveraliveinterval 0\n";
        let settings = Settings::parse(said, &host("alias"));
        assert_eq!(settings, Settings { hostname: "192.0.2.1".into(), keeps_alive: false });
        let settings = Settings::parse("serveraliveinterval 30\n", &host("a"));
        assert_eq!(settings, Settings { hostname: "a".into(), keeps_alive: true });
    }

    #[test]
    fn a_host_that_answers_nothing_useful_is_refused() {
        for (said, word) in [
            ("", "not answer"),
            ("Welcome!\\n", "not answer"),
            ("headroom-ssh cannot: \\033[31m no room\\n", "no room"),
            ("headroom-ssh Plan9 mips\\n", "Plan9 on mips"),
            ("headroom-ssh \\033[31mPlan9 mips\\n", "[31mPlan9 on mips"),
        ] {
            let ssh = ssh_that(&format!("printf \"{said}\""));
            let Err(Error::Refused(reason)) = ssh.start(&host("h")) else { panic!("{said}") };
            assert!(reason.contains(word) && !reason.contains('\x1b'), "{reason}");
        }
        let ssh = ssh_that("exit 255");
        assert!(matches!(ssh.start(&host("h")), Err(Error::Unreachable { .. })));
    }

    #[test]
    fn the_ready_line_of_the_server_is_parsed() {
        let key = Identity::ephemeral().expect("a key").public();
        let offer = offer();
        let home = BASE64.encode(b"/home/\xff");
        let ready = |address| Ready { port: 77, home: b"/home/\xff".to_vec(), key, address };
        let said = format!("{offer} 77 {home} {key} ");
        assert_eq!(Ready::parse(&said), Some(ready(None)));
        let v4 = Some([192, 0, 2, 1].into());
        assert_eq!(Ready::parse(&format!("{said}::ffff:192.0.2.1")), Some(ready(v4)));
        for wrong in ["", "0.0.0/1", &offer, &said[..said.len() - 5], &said.replace(" 77", " x")] {
            assert_eq!(Ready::parse(wrong), None, "{wrong}");
        }
    }

    /// A program in ssh's place that knows no `-G`.
    fn ssh_that(does: &str) -> Ssh {
        let script = format!("case \"$1\" in -G) exit 1;; esac; {does}");
        Ssh { command: ["sh", "-c", &script, "ssh"].map(str::to_owned).to_vec() }
    }
}
