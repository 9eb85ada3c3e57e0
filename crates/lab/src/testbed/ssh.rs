//! Two real machines over ssh. This program is copied to each and spoken to over
//! that connection; nothing else is open but the services' own ports. The link
//! between them is what it is: it is looked at, never shaped.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::process::{Command as Process, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, mpsc};
use std::time::{Duration, Instant};

use serde::Deserialize;

use super::link_report::RoundTrips;
use super::{Settings, prepare_folders};
use crate::agent::Agent;
use crate::agent::hear::Ear;
use crate::command::{Command, Executor};
use crate::error::{Doing, Error, Result};
use crate::host::{Host, Role};
use crate::lodging::{Greeting, Lodging};
use crate::measure::wire::Framing;
use crate::parts::SSH;
use crate::plan::{AS_IT_IS, Family, Plan, SshHosts};
use crate::results::HostRecord;
use crate::scratch::{self, run_name};

/// Two machines in use.
#[derive(Debug)]
pub(super) struct Pair {
    hosts: SshHosts,
    /// The client's interface towards the server, where the capture is.
    interface: String,
    /// Raised when the connection to one of them has ended.
    alarm: Arc<OnceLock<String>>,
    /// For the record.
    pub(super) records: Vec<HostRecord>,
    /// TCP congestion control of both, in words.
    pub(super) congestion_control: String,
    pub(super) id: String,
}

/// How a host is reached.
struct Ssh<'a> {
    role: Role,
    host: &'a str,
    command: &'a [String],
    executor: &'a Arc<Executor>,
    settings: &'a Settings,
}

/// Copies this program to both hosts, starts their agents and opens the capture.
///
/// # Errors
/// Which host could not be reached, or what it lacks, in ssh's own words.
pub(super) fn up(
    plan: &Plan,
    hosts: &SshHosts,
    settings: &Settings,
    executor: &Arc<Executor>,
) -> Result<(Host, Host, Pair)> {
    if plan.link_backend.is_some() {
        let sentence = "the link between two real hosts is what it is: leave out --link-backend";
        return Err(Error::Plan(sentence.to_owned()));
    }
    let id = if executor.is_dry() { "00000000".into() } else { scratch::new_id() };
    let ssh = |role: Role, host| Ssh { role, host, command: &hosts.ssh, executor, settings };
    let (client, server) = (ssh(Role::Client, &hosts.client), ssh(Role::Server, &hosts.server));
    let alarm = Arc::default();
    let mut pair = Pair {
        hosts: hosts.clone(),
        interface: String::new(),
        alarm,
        records: Vec::new(),
        congestion_control: String::new(),
        id,
    };
    if executor.is_dry() {
        return Ok((
            client.rehearse(&pair, plan.family),
            server.rehearse(&pair, plan.family),
            pair,
        ));
    }
    let (mut client_agent, client_lodging) = client.start(&pair)?;
    let (server_agent, server_lodging) = server.start(&pair)?;
    let name = match &hosts.server_address {
        Some(address) => address.clone(),
        None => server.hostname()?,
    };
    let remote = one_of(&client_agent.resolve(&name)?, plan.family, &name, hosts)?;
    let route: Route = ip(&mut client_agent, &["-j", "route", "get", &remote.to_string()])?;
    let device: Device = ip(&mut client_agent, &["-j", "link", "show", "dev", &route.dev])?;
    let framing = device.framing(&route.dev, hosts)?;
    if device.mtu != plan.mtu {
        return Err(Error::Plan(format!(
            "the client's interface {} towards {remote} has an MTU of {}, and the plan says {}: write `mtu = {}`",
            route.dev, device.mtu, plan.mtu, device.mtu
        )));
    }
    client_agent.open(Ear {
        interface: route.dev.clone(),
        framing,
        client: route.prefsrc,
        server: remote,
        ports: hosts.all_ports(),
    })?;
    pair.interface = route.dev;
    let mut record = |ssh: &Ssh<'_>, lodging: &Lodging, address: IpAddr| {
        let machine = lodging.machine.clone();
        pair.records.push(HostRecord {
            role: ssh.role.to_string(),
            host: ssh.host.to_owned(),
            address: address.to_string(),
            kernel: machine.kernel,
            distribution: machine.distribution,
            cpu: machine.cpu,
            cores: machine.cores,
            memory_bytes: machine.memory_bytes,
            files: lodging.root_kind.clone(),
        });
    };
    record(&client, &client_lodging, route.prefsrc);
    record(&server, &server_lodging, remote);
    let client = client.host(route.prefsrc, client_lodging, client_agent);
    let server = server.host(remote, server_lodging, server_agent);
    prepare_folders(&client)?;
    prepare_folders(&server)?;
    pair.congestion_control = congestion_control(plan, &client, &server)?;
    Ok((client, server, pair))
}

impl Pair {
    pub(super) fn hosts(&self) -> &SshHosts {
        &self.hosts
    }

    /// # Errors
    /// The connection to a host has ended, with ssh's words.
    pub(super) fn require(&self) -> Result<()> {
        self.alarm.get().map_or(Ok(()), |why| Err(Error::Failed(why.clone())))
    }

    /// What stands where one machine's link has its maker.
    pub(super) fn backend(&self) -> String {
        format!("real, {} to {} by {}", self.hosts.client, self.hosts.server, self.interface)
    }

    /// Times connections from the client to a port of the server on which nothing
    /// else listens; all by the client's clock.
    ///
    /// # Errors
    /// Nothing came through.
    pub(super) fn round_trips(&self, client: &Host, server: &Host) -> Result<RoundTrips> {
        const TIMES: u32 = 100;
        let address = SocketAddr::new(server.address, self.hosts.trial());
        server.agent()?.answer(address)?;
        let times = client.agent()?.round_trips(address, TIMES).map_err(|error| match error {
            Error::Failed(why) if self.alarm.get().is_none() => {
                let (ports, SshHosts { client, server, .. }) = (self.hosts.all_ports(), &self.hosts);
                Error::Link(format!(
                    "the client {client} cannot connect to {address} on the server {server} ({why}). The ports from \
                     {} to {} must be open between them; choose others with `ports` in [testbed]",
                    ports.start(),
                    ports.end()
                ))
            }
            error => error,
        })?;
        RoundTrips::of(times).ok_or_else(|| Error::Failed("no round trip was timed".into()))
    }

    /// Makes both hosts forget what TCP remembers of the other, and of nobody
    /// else.
    pub(super) fn forget_metrics(&self, client: &Host, server: &Host) -> Result<()> {
        for (host, other) in [(client, server.address), (server, client.address)] {
            host.run(&Command::words(&format!("ip tcp_metrics flush address {other}")))?;
        }
        Ok(())
    }
}

impl Ssh<'_> {
    /// The command line that runs a command on the host.
    fn argv(&self, command: &str) -> Vec<String> {
        let mut argv = self.command.to_vec();
        // a host that vanishes is noticed after ten seconds or so
        for option in [
            "BatchMode=yes",
            "ConnectTimeout=10",
            "ServerAliveInterval=3",
            "ServerAliveCountMax=3",
            "ControlPath=none",
            "ClearAllForwardings=yes",
        ] {
            argv.extend(["-o".to_owned(), option.to_owned()]);
        }
        argv.extend(["-T".to_owned(), self.host.to_owned()]);
        argv.extend(Some(command.to_owned()).filter(|command| !command.is_empty()));
        argv
    }

    /// The name of everything of the run on this host; two hosts may share a
    /// kernel, and so its control groups.
    fn name(&self, pair: &Pair) -> String {
        match self.role {
            Role::Client => run_name(&pair.id),
            Role::Server => run_name(&scratch::next_id(&pair.id)),
        }
    }

    /// Receives this program, runs it as the host's keeper, and leaves nothing
    /// even where that was killed.
    fn script(&self, pair: &Pair, octets: u64) -> String {
        let (name, arch) = (self.name(pair), std::env::consts::ARCH);
        let bytes = self.settings.scratch_bytes;
        // nobody, as whom servers write, must be able to enter
        format!(
            "umask 022; a=$(uname -m); \
             [ $a = {arch} ] || {{ echo this is a machine of the kind $a, and the lab was built for {arch} >&2; exit 9; }}; \
             d=${{TMPDIR:-/tmp}}/{name}; mkdir $d || exit 9; \
             head -c {octets} > $d/headroom; [ $(wc -c < $d/headroom) = {octets} ] && chmod 755 $d/headroom && \
             $d/headroom lab-host {bytes}; s=$?; \
             [ ! -e $d ] || {{ $d/headroom lab clean; rm -rf $d; }} >&2; exit $s"
        )
    }

    fn process(&self, argv: &[String]) -> Result<Process> {
        let mut process = if argv[0] == SSH.name {
            let located = self.executor.parts().locate(SSH)?;
            let mut process = Process::new(located.path);
            process.envs(located.environment);
            process
        } else {
            Process::new(&argv[0])
        };
        process.args(&argv[1..]);
        Ok(process)
    }

    fn by_hand(&self) -> String {
        Command { argv: self.command.iter().cloned().chain([self.host.to_owned()]).collect() }
            .to_string()
    }

    /// Starts the agent of the host.
    fn start(&self, pair: &Pair) -> Result<(Agent, Lodging)> {
        let headroom = &self.settings.headroom;
        let program = File::open(headroom).doing(|| format!("open {}", headroom.display()))?;
        let octets = program.metadata().doing(|| format!("read {}", headroom.display()))?.len();
        let argv = self.argv(&self.script(pair, octets));
        let name = format!("{} {}", self.role, self.host);
        let interrupted = &self.settings.interrupted;
        let started = Agent::start_remote(
            &name,
            self.process(&argv)?,
            Arc::clone(interrupted),
            &pair.alarm,
            |input, replies| {
                let mut input = input.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                let sent = input.as_mut().is_some_and(|to| send(program, to, interrupted));
                drop(input);
                crate::run::check(interrupted)?;
                if sent { greeting(replies, interrupted) } else { Ok(None) }
            },
        )?;
        match started {
            Ok((agent, Greeting::Ready(lodging))) => Ok((agent, lodging)),
            Ok((_, Greeting::Refused(why))) => Err(Error::Missing(self.cannot(&why))),
            Err((status, said)) => Err(self.refused(status, &said)),
        }
    }

    fn host(&self, address: IpAddr, lodging: Lodging, agent: Agent) -> Host {
        let Lodging { program, root, .. } = lodging;
        let executor = Arc::clone(self.executor);
        Host::new(self.role, address, root, program, self.by_hand(), executor, Some(agent))
    }

    /// A host of a dry run, under an address of documentation.
    fn rehearse(&self, pair: &Pair, family: Family) -> Host {
        let octets = std::fs::metadata(&self.settings.headroom).map_or(0, |meta| meta.len());
        let command = Command { argv: self.argv(&self.script(pair, octets)) };
        let headroom = self.settings.headroom.display();
        let last = if self.role == Role::Client { 1 } else { 2 };
        let (v4, v6) = (
            Ipv4Addr::new(192, 0, 2, last),
            Ipv6Addr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, last.into()]),
        );
        let documentation = match family {
            Family::Ipv4 => IpAddr::V4(v4),
            Family::Ipv6 => IpAddr::V6(v6),
        };
        let literal = pair.hosts.literal_address().filter(|_| self.role == Role::Server);
        let address = literal.unwrap_or(documentation);
        self.executor.note(|| {
            format!(
                "cat {headroom} - | {command}  # starts what follows on the {}; here it has the address {address}",
                self.role
            )
        });
        let folder = Path::new("/tmp").join(self.name(pair));
        let (root, program) = (folder.join("root"), folder.join("headroom"));
        let executor = Arc::clone(self.executor);
        Host::new(self.role, address, root, program, self.by_hand(), executor, None)
    }

    /// The name under which ssh itself finds the host.
    fn hostname(&self) -> Result<String> {
        let argv: Vec<String> =
            self.command.iter().cloned().chain(["-G".into(), self.host.into()]).collect();
        let output = self.process(&argv)?.stdin(Stdio::null()).output();
        let output = output.doing(|| format!("start {}", argv[0]))?;
        let said = String::from_utf8_lossy(&output.stdout);
        let name = said.lines().find_map(|line| line.strip_prefix("hostname "));
        name.map(str::to_owned).ok_or_else(|| {
            Error::Failed(format!(
                "`{}` does not say the address of {}: name it with `server-address` in [testbed]",
                Command { argv },
                self.host
            ))
        })
    }

    fn cannot(&self, why: &str) -> String {
        format!("the {} {} cannot be used: {why}", self.role, self.host)
    }

    /// Why there is no agent, by ssh's exit code and last words.
    fn refused(&self, status: ExitStatus, said: &str) -> Error {
        const OF_SSH_ITSELF: i32 = 255;
        let said = if said.is_empty() { "nothing" } else { said };
        if status.code() != Some(OF_SSH_ITSELF) {
            return Error::Missing(self.cannot(&format!("{said} ({status})")));
        }
        let host = self.host;
        let sentence =
            format!("cannot reach the {} {host} by ssh: {}", self.role, said.trim_end_matches('.'));
        if said.contains("Permission denied") || said.contains("Host key verification") {
            return Error::Missing(format!(
                "{sentence}. The lab answers no questions and types no passwords: set up a key (`ssh-copy-id {host}`) \
                 and log in once by hand"
            ));
        }
        Error::Failed(sentence)
    }
}

/// Sends the program; false where the far end does not take it.
fn send(mut program: File, to: &mut impl Write, interrupted: &AtomicBool) -> bool {
    let mut piece = vec![0; 1 << 18];
    loop {
        match program.read(&mut piece) {
            Ok(0) => return to.flush().is_ok(),
            Ok(octets) => {
                if interrupted.load(Ordering::Relaxed) || to.write_all(&piece[..octets]).is_err() {
                    return false;
                }
            }
            Err(_) => return false,
        }
    }
}

/// Waits for the keeper's first line; what a login shell prints before it is no
/// matter. None where the connection ended.
fn greeting(
    replies: &mpsc::Receiver<String>,
    interrupted: &AtomicBool,
) -> Result<Option<Greeting>> {
    const PATIENCE: Duration = Duration::from_secs(60);
    let deadline = Instant::now() + PATIENCE;
    while Instant::now() < deadline {
        crate::run::check(interrupted)?;
        match replies.recv_timeout(Duration::from_millis(50)) {
            Ok(line) => {
                if let Ok(greeting) = serde_json::from_str(&line) {
                    return Ok(Some(greeting));
                }
            }
            Err(mpsc::RecvTimeoutError::Timeout) => {}
            Err(mpsc::RecvTimeoutError::Disconnected) => return Ok(None),
        }
    }
    Ok(None)
}

/// What `ip -j route get` says.
#[derive(Debug, Deserialize)]
struct Route {
    dev: String,
    prefsrc: IpAddr,
}

/// What `ip -j link show` says.
#[derive(Debug, Deserialize)]
struct Device {
    mtu: u32,
    link_type: String,
}

impl Device {
    fn framing(&self, name: &str, hosts: &SshHosts) -> Result<Framing> {
        match self.link_type.as_str() {
            "ether" => Ok(Framing::Ethernet),
            "none" => Ok(Framing::Ip),
            "loopback" => Err(Error::Plan(format!(
                "{} reaches {} without any link, by {name}: they are one machine; leave out [testbed]",
                hosts.client, hosts.server
            ))),
            other => Err(Error::Missing(format!(
                "{} reaches {} by {name}, an interface of the kind {other}, on which the lab cannot capture",
                hosts.client, hosts.server
            ))),
        }
    }
}

/// The one object in the list that `ip -j` prints.
fn ip<T: for<'a> Deserialize<'a>>(agent: &mut Agent, arguments: &[&str]) -> Result<T> {
    let command = Command::new("ip", arguments.iter().copied());
    let said = agent.command(&command)?;
    let list: Vec<T> =
        serde_json::from_str(&said).doing(|| format!("read what `{command}` printed"))?;
    list.into_iter().next().ok_or_else(|| Error::Failed(format!("`{command}` printed nothing")))
}

/// The first address of the plan's family.
fn one_of(found: &[IpAddr], family: Family, name: &str, hosts: &SshHosts) -> Result<IpAddr> {
    let fits = |address: &&IpAddr| address.is_ipv4() == (family == Family::Ipv4);
    found.iter().find(fits).copied().ok_or_else(|| {
        let other = if family == Family::Ipv4 { "ipv6" } else { "ipv4" };
        Error::Plan(format!(
            "{name} has no {} address on {}: write `family = \"{other}\"`, or name the server by `server-address` in \
             [testbed]",
            family.name(),
            hosts.client
        ))
    })
}

/// What governs TCP on both hosts, if it is what the plan wishes.
fn congestion_control(plan: &Plan, client: &Host, server: &Host) -> Result<String> {
    const DISCARD: u16 = 9; // RFC 863; nobody has to listen
    let of = |host: &Host, other: &Host| -> Result<String> {
        host.agent()?.congestion_control(SocketAddr::new(other.address, DISCARD))
    };
    let (near, far) = (of(client, server)?, of(server, client)?);
    let wanted = &plan.congestion_control;
    if wanted != AS_IT_IS && (near != *wanted || far != *wanted) {
        return Err(Error::Plan(format!(
            "TCP uses `{near}` on the client and `{far}` on the server, and the plan asks for `{wanted}`: the lab does \
             not change real hosts; leave out `congestion-control`, or set it there (sysctl \
             net.ipv4.tcp_congestion_control)"
        )));
    }
    Ok(format!("{near} on the client, {far} on the server (as it is)"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interfaces_without_ethernet_are_told_apart() {
        let hosts = SshHosts {
            client: "a".into(),
            server: "b".into(),
            server_address: None,
            ports: 20_000,
            ssh: vec!["ssh".into()],
        };
        let framing = |link_type: &str| {
            Device { mtu: 1500, link_type: link_type.into() }.framing("x0", &hosts)
        };
        assert!(matches!(framing("ether"), Ok(Framing::Ethernet)));
        assert!(matches!(framing("none"), Ok(Framing::Ip)));
        assert!(framing("loopback").is_err_and(|e| e.to_string().contains("one machine")));
        assert!(framing("sit").is_err_and(|e| e.to_string().contains("the kind sit")));
    }

    #[test]
    fn an_address_of_the_other_family_is_no_address() {
        let hosts = SshHosts {
            client: "a".into(),
            server: "b".into(),
            server_address: None,
            ports: 20_000,
            ssh: vec!["ssh".into()],
        };
        let found: Vec<IpAddr> =
            ["fd00::2", "10.0.0.2"].map(|a| a.parse().expect("an address")).to_vec();
        let of = |found: &[IpAddr], family| one_of(found, family, "b", &hosts);
        assert_eq!(of(&found, Family::Ipv4).expect("one"), found[1]);
        assert_eq!(of(&found, Family::Ipv6).expect("one"), found[0]);
        let error = of(&found[..1], Family::Ipv4).expect_err("none").to_string();
        assert!(error.contains("`family = \"ipv6\"`"), "{error}");
    }
}
