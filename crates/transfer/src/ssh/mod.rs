//! A server for one transfer on a host that ssh reaches. Nothing need be installed
//! there: where this program is not, it is sent. Each side trusts the key that the
//! other made for this transfer, because ssh brought it.
//!
//! ssh is the user's own, with its configuration, agent and known hosts, and asks its
//! own questions. Its connection stays open: when it ends, the server does.

mod one_shot;
mod path;
mod program;
mod script;

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
use crate::quic;
use crate::remote_path::{DEFAULT_PORT, Host};

/// A transfer takes the first of so many ports that is free there, if none was named.
const PORTS: u16 = 20;
/// A far host says no more than this before it is ready, login messages included.
const MOST_SAID: u64 = 1 << 20;
/// So long ssh may take to end when all is done.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(3);
/// `ssh` ends so where it is ssh itself that failed (ssh(1), EXIT STATUS).
const OF_SSH_ITSELF: i32 = 255;

/// How ssh is started.
#[derive(Debug, Clone)]
pub struct Ssh {
    command: Vec<String>,
}

impl Default for Ssh {
    /// `ssh`, as the user has configured it.
    fn default() -> Self {
        Self { command: vec!["ssh".to_owned()] }
    }
}

impl Ssh {
    /// A command with options, such as `ssh -p 2222`: words separated by spaces.
    ///
    /// # Errors
    /// There is no word in it.
    pub fn new(command: &str) -> Result<Self, Error> {
        let command: Vec<_> = command.split_whitespace().map(str::to_owned).collect();
        match command.is_empty() {
            true => Err(Error::Usage("the command of ssh has no word in it".to_owned())),
            false => Ok(Self { command }),
        }
    }

    /// Starts a server on a host. ssh may ask for a password meanwhile.
    ///
    /// # Errors
    /// ssh cannot reach it ([`Error::Unreachable`]), or no server can run there
    /// ([`Error::Refused`]); ssh has said more on standard error.
    pub fn start(&self, host: &Host) -> Result<SshServer, Error> {
        let settings = self.settings(host);
        let identity = Identity::ephemeral()?;
        let mut session = SshSession::new(self.session(host, &settings), host)?;
        let ready = session.negotiate(identity.public());
        match ready {
            Ok(ready) => Ok(SshServer { identity, ready, session, name: settings.hostname }),
            Err(error) => Err(session.explain(error)),
        }
    }

    /// What ssh makes of a host's name.
    fn settings(&self, host: &Host) -> Settings {
        let mut command = self.command(["-G"], host);
        let output = command.stdin(Stdio::null()).stderr(Stdio::null()).output();
        let said = output.map(|output| output.stdout).unwrap_or_default();
        Settings::parse(&String::from_utf8_lossy(&said), host)
    }

    /// The command that runs the script there.
    fn session(&self, host: &Host, settings: &Settings) -> Command {
        // nothing of what an interactive session may be configured to have
        let mut options = vec![
            "-T",
            "-x",
            "-oClearAllForwardings=yes",
            "-oForwardAgent=no",
            "-oPermitLocalCommand=no",
            "-oRemoteCommand=none",
        ];
        if !settings.keeps_alive {
            // nothing is said while files move, and what connects must not forget it
            options.extend(["-oServerAliveInterval=15", "-oServerAliveCountMax=4"]);
        }
        let mut command = self.command(options, host);
        command.arg(script::command());
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

/// What is used of ssh's configuration.
#[derive(Debug, PartialEq, Eq)]
struct Settings {
    /// The name or address behind an alias.
    hostname: String,
    keeps_alive: bool,
}

impl Settings {
    /// Reads what `ssh -G` prints; of a program that knows no `-G`, nothing is known.
    fn parse(said: &str, host: &Host) -> Self {
        let value = |key: &str| said.lines().find_map(|line| line.strip_prefix(key));
        Self {
            hostname: value("hostname ").unwrap_or(host.name()).to_owned(),
            keeps_alive: value("serveraliveinterval ").is_some_and(|seconds| seconds != "0"),
        }
    }
}

/// A server on a host that ssh has reached. It ends when this is dropped.
#[derive(Debug)]
pub struct SshServer {
    identity: Identity,
    ready: Ready,
    session: SshSession,
    name: String,
}

impl SshServer {
    /// The key that this side made for the transfer.
    pub(crate) const fn identity(&self) -> &Identity {
        &self.identity
    }

    /// The key that the other side made.
    pub(crate) const fn key(&self) -> PublicKey {
        self.ready.key
    }

    /// The directory from which paths there are read.
    pub(crate) fn home(&self) -> &[u8] {
        &self.ready.home
    }

    /// The host as ssh reaches it, with the server's port.
    pub(crate) fn host(&self) -> Host {
        Host::new(&self.name, self.ready.port)
    }

    /// Where the server may be. Of a name's addresses, that which ssh came to is
    /// the first; it is tried where the name has none, behind a jump host perhaps.
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

    /// Ends it, and waits until ssh has ended.
    pub(crate) fn close(mut self) {
        self.session.end();
    }
}

/// What the far end says when it listens.
#[derive(Debug, PartialEq, Eq)]
struct Ready {
    port: u16,
    home: Vec<u8>,
    key: PublicKey,
    address: Option<IpAddr>,
}

impl Ready {
    /// Reads what follows `headroom-ssh ready`.
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

/// A conversation with the script there.
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
        let from = BufReader::new(from.take(MOST_SAID));
        Ok(Self { host: host.clone(), ssh, to: Some(to), from })
    }

    /// From the first word to where the server listens.
    fn negotiate(&mut self, key: PublicKey) -> Result<Ready, Error> {
        let there = self.recv()?;
        let mut there = there.split(' ');
        let (system, machine) = (there.next().unwrap_or(""), there.next().unwrap_or(""));
        let key = key.to_string();
        // the key's own word is left out: what is read there are single words
        let key = key.rsplit(' ').next().unwrap_or_default();
        let ports = ports(self.host.port());
        if there.next() == Some(&offer()) {
            self.send(format!("there {key} {ports}\n").as_bytes());
        } else {
            if !is_like_this(system, machine) {
                return Err(self.refused(&format!(
                    "it is {} on {}, and this program runs on {} on {} only. Install headroom {} there",
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
            let octets = program.len();
            let mut name = [0; 8];
            aws_lc_rs::rand::fill(&mut name).map_err(|_| Error::System {
                doing: "choose a name".to_owned(),
                cause: std::io::Error::other("there is no randomness"),
            })?;
            let name = HEXLOWER.encode(&name);
            self.send(format!("sent {key} {ports} {name} {octets}\n").as_bytes());
            self.send(&program);
        }
        let said = self.recv()?;
        said.strip_prefix("ready ").and_then(Ready::parse).ok_or_else(|| {
            let shown = shown(said.as_bytes()).to_string();
            self.refused(&format!("the program there says `{shown}`"))
        })
    }

    /// Says something. Where nobody hears it, the next answer tells why.
    fn send(&mut self, octets: &[u8]) {
        if let Some(to) = &mut self.to {
            let _ = to.write_all(octets).and_then(|()| to.flush());
        }
    }

    /// The rest of the next line that is for this program.
    fn recv(&mut self) -> Result<String, Error> {
        let mut line = Vec::new();
        loop {
            line.clear();
            let read = self.from.read_until(b'\n', &mut line).unwrap_or(0);
            if read == 0 || line.last() != Some(&b'\n') {
                return Err(self.refused("it says nothing"));
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

    /// Ends ssh, whose exit code may tell more than what was not heard.
    fn explain(mut self, error: Error) -> Error {
        match self.end().and_then(|status| status.code()) {
            Some(OF_SSH_ITSELF) => Error::Unreachable {
                host: self.host.to_string(),
                cause: "ssh cannot; what it says stands above".to_owned(),
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
        // a connection that others share, or one that hangs
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

/// The ports that are tried.
fn ports(port: u16) -> String {
    let last = if port == DEFAULT_PORT { port + PORTS - 1 } else { port };
    format!("{port}-{last}")
}

/// Whether what `uname` says is what this program runs on.
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
    fn what_ssh_knows_of_a_host_is_used() {
        let said = "user u\nhostname 192.0.2.1\nport 22\nserveraliveinterval 0\n";
        let settings = Settings::parse(said, &host("alias"));
        assert_eq!(settings, Settings { hostname: "192.0.2.1".into(), keeps_alive: false });
        let settings = Settings::parse("serveraliveinterval 30\n", &host("a"));
        assert_eq!(settings, Settings { hostname: "a".into(), keeps_alive: true });
    }

    #[test]
    fn a_host_that_answers_nothing_useful_is_refused() {
        for (said, word) in [
            ("", "nothing"),
            ("Welcome!\\n", "nothing"),
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
    fn what_a_far_end_says_that_is_ready_is_read() {
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
