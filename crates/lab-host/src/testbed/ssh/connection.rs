//! One real host over ssh: this program is sent there and kept by `lab-host`, in
//! one connection that is the conversation with its agent afterwards.

use std::fs::File;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;
use std::process::{Command as Process, ExitStatus, Stdio};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use headroom_mutex::lock;

use super::Pair;
use crate::agent::{Agent, Input};
use crate::command::{Command, Executor};
use crate::error::{self, Doing, Error, Result};
use crate::host::Host;
use crate::hosts::{self, RealHost};
use crate::machine;
use crate::programs::SSH;
use crate::remote_host::{Greeting, HostSetup};
use crate::role::Role;
use crate::scratch::{self, run_name};
use crate::testbed::{Family, Settings, TestbedSpec};

/// The longest that a host may take to receive this program.
const PROGRAM_PATIENCE: Duration = Duration::from_secs(600);

/// The ssh command that reaches a host.
pub(super) struct Ssh<'a> {
    pub(super) role: Role,
    pub(super) host: &'a str,
    pub(super) command: &'a [String],
    pub(super) executor: &'a Arc<Executor>,
    pub(super) settings: &'a Settings,
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
    fn script(&self, pair: &Pair, program_bytes: u64) -> String {
        let (name, arch) = (self.name(pair), machine::architecture());
        let bytes = self.settings.scratch_bytes;
        let patience = PROGRAM_PATIENCE.as_secs();
        // nobody, as whom servers write, must be able to enter; a login shell may be
        // no POSIX shell
        format!(
            "exec sh -c 'umask 022; a=$(uname -m); \
             [ $a = {arch} ] || {{ echo this is a machine of the kind $a, and the lab runs on {arch} >&2; exit 9; }}; \
             ok=; for t in \"${{TMPDIR:-/tmp}}\" /var/tmp; do d=\"$t/{name}\"; mkdir \"$d\" || continue; \
             echo \"#!/bin/sh\" > \"$d\"/headroom; chmod 755 \"$d\"/headroom; \
             if \"$d\"/headroom 2> /dev/null; then ok=1; break; fi; rm -rf \"$d\"; done; \
             [ \"$ok\" ] || {{ echo \"programs cannot be started in ${{TMPDIR:-/tmp}} nor in /var/tmp (mounted noexec?):\" \
             \"set TMPDIR for the logins of root there to a folder in which they can\" >&2; exit 9; }}; \
             timeout {patience} head -c {program_bytes} > \"$d\"/headroom; [ $(wc -c < \"$d\"/headroom) = {program_bytes} ] && \
             TMPDIR=\"$t\" \"$d\"/headroom lab-host {bytes}; s=$?; \
             [ ! -e \"$d\" ] || {{ \"$d\"/headroom lab clean --scratch \"$t\"; rm -rf \"$d\"; }} > /dev/null 2>&1; exit $s'"
        )
    }

    fn process(&self, argv: &[String]) -> Result<Process> {
        let mut process = if argv[0] == SSH.name {
            let located = self.executor.search_path().locate(SSH)?;
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
        let words = self.command.iter().cloned().chain([self.host.to_owned()]);
        Command::from(words.collect::<Vec<_>>()).to_string()
    }

    /// Starts the agent of the host.
    pub(super) fn start(&self, pair: &Pair) -> Result<(Agent, HostSetup)> {
        let headroom = &self.settings.headroom;
        let program = File::open(headroom).doing(|| format!("open {}", headroom.display()))?;
        let program_bytes =
            program.metadata().doing(|| format!("read {}", headroom.display()))?.len();
        let argv = self.argv(&self.script(pair, program_bytes));
        let name = format!("{} {}", self.role, self.host);
        let interrupted = &self.settings.interrupted;
        let started = Agent::start_remote(
            &name,
            self.process(&argv)?,
            Arc::clone(interrupted),
            &pair.alarm,
            |input, replies| {
                if send(program, input, interrupted)? {
                    greeting(replies, interrupted)
                } else {
                    Ok(None)
                }
            },
        )?;
        match started {
            Ok((agent, Greeting::Ready(setup))) => Ok((agent, setup)),
            Ok((_, Greeting::Refused(why))) => Err(Error::Missing(self.cannot(&why))),
            Err((status, said)) => Err(self.refused(status, &said)),
        }
    }

    /// Lists what the host lacks of a plan's needs.
    pub(super) fn look(
        &self,
        agent: &mut Agent,
        setup: &HostSetup,
        spec: &TestbedSpec,
    ) -> Result<RealHost> {
        let needed = hosts::needed(&spec.programs, self.role);
        let missing = agent.missing(&needed)?;
        let (host, machine) = (self.host.to_owned(), setup.machine.clone());
        Ok(RealHost { role: self.role, host, machine, needed, missing })
    }

    pub(super) fn host(&self, address: IpAddr, setup: HostSetup, agent: Agent) -> Host {
        let HostSetup { program, root, .. } = setup;
        let executor = Arc::clone(self.executor);
        Host::new(self.role, address, root, program, self.by_hand(), executor, Some(agent))
    }

    /// A host of a dry run, under an address of documentation.
    pub(super) fn rehearse(&self, pair: &Pair, family: Family) -> Host {
        let program_bytes = std::fs::metadata(&self.settings.headroom).map_or(0, |meta| meta.len());
        let command = Command::from(self.argv(&self.script(pair, program_bytes)));
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
    pub(super) fn hostname(&self) -> Result<String> {
        let argv: Vec<String> =
            self.command.iter().cloned().chain(["-G".into(), self.host.into()]).collect();
        let output = self.process(&argv)?.stdin(Stdio::null()).output();
        let output = output.doing(|| format!("start {}", argv[0]))?;
        let said = String::from_utf8_lossy(&output.stdout);
        let name = said.lines().find_map(|line| line.strip_prefix("hostname "));
        name.map(str::to_owned).ok_or_else(|| {
            Error::Failed(format!(
                "`{}` does not say the address of {}: name it with `server-address` in [testbed]",
                Command::from(argv),
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

/// Sends the program; false where the far end does not take it. In a thread of its
/// own: a login shell that reads nothing would block it for ever.
fn send(mut program: File, input: &Input, interrupted: &AtomicBool) -> Result<bool> {
    let Some(mut to) = lock(input).take() else { return Ok(false) };
    let (sender, sent) = mpsc::channel();
    std::thread::spawn(move || {
        let whole = std::io::copy(&mut program, &mut to).is_ok();
        let _ = sender.send(whole.then_some(to));
    });
    let deadline = Instant::now() + PROGRAM_PATIENCE;
    while Instant::now() < deadline {
        error::check(interrupted)?;
        match sent.recv_timeout(Duration::from_millis(50)) {
            Ok(to) => {
                let whole = to.is_some();
                *lock(input) = to;
                return Ok(whole);
            }
            Err(mpsc::RecvTimeoutError::Timeout) => {}
            Err(mpsc::RecvTimeoutError::Disconnected) => return Ok(false),
        }
    }
    Err(Error::Failed(format!(
        "the host did not take this program within {} s",
        PROGRAM_PATIENCE.as_secs()
    )))
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
        error::check(interrupted)?;
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
