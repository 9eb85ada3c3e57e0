//! SFTP (draft-ietf-secsh-filexfer-02): OpenSSH both sides.

use std::sync::Arc;

use headroom_lab_host::command::{Arg, Command};
use headroom_lab_host::error::{Error, Result};
use headroom_lab_host::host::ServerSpec;
use headroom_lab_host::programs::{Program, SSH};
use headroom_lab_host::role::Role;
use headroom_lab_trace::Login;

use super::openssh::{Choice, SSHD};
use super::site::SSH_KEYGEN;
use super::{Application, Invocation, Site, openssh};
use crate::catalogue::{Entry, Fact, Make};
use crate::properties::Properties;
use crate::workload::{Task, WorkloadKind};

const SFTP: Program = Program::new("sftp", "openssh-client", &[]).only_on(Role::Client);

struct Sftp {
    choice: Choice,
}

pub(super) const ENTRY: Entry<dyn Application> = Entry {
    name: "sftp",
    about: "SFTP: OpenSSH both sides",
    programs: &[SSHD, SSH, SFTP, SSH_KEYGEN],
    make: Make::Configured {
        known: Choice::known,
        read: |options| {
            let (written, choice) = Choice::read(options)?;
            Ok((written, Arc::new(Sftp { choice })))
        },
    },
};

impl Application for Sftp {
    fn properties(&self) -> Option<Properties> {
        Some(self.choice.properties())
    }

    fn secured(&self) -> bool {
        true
    }

    fn baselines(&self) -> Vec<String> {
        let plain = (self.choice != Choice::default()).then_some("sftp");
        plain.into_iter().chain(["ftp"]).map(str::to_owned).collect()
    }

    fn port(&self) -> u16 {
        22
    }

    fn accepts(&self, kind: WorkloadKind) -> bool {
        kind.moves_files() || kind == WorkloadKind::Commands
    }

    fn server(&self, site: &Site<'_>) -> Result<ServerSpec> {
        openssh::server_with(site, self.choice)
    }

    fn client(&self, site: &Site<'_>, task: &Task) -> Result<Invocation> {
        let batch = match task {
            Task::Download { remote, local } => {
                format!("get {} {}\n", site.remote(remote), local.display())
            }
            Task::Upload { local, remote } => {
                format!("put {} {}\n", local.display(), site.remote(remote))
            }
            Task::DownloadTree { remote, local, .. } => {
                format!("get {}/* {}/\n", site.remote(remote), local.display())
            }
            Task::Commands(commands) => {
                commands.iter().map(|command| format!("{command}\n")).collect()
            }
            Task::Stream { .. } | Task::Datagrams { .. } => {
                return Err(Error::Plan("sftp only moves files".into()));
            }
        };
        // named by its content's hash, so that clients in parallel do not share it
        let name = format!("batch-{}", &blake3::hash(batch.as_bytes()).to_hex()[..16]);
        let batch = site.write(&name, &batch)?;
        let (port, host) = (site.server.port().to_string(), format!("root@{}", site.server_host()));
        let mut command = Command::new(SFTP, openssh::options_with(site, self.choice));
        command.args(["-S".into(), Arg::from(SSH)]).args(["-b", &batch, "-P", &port, &host]);
        Ok(Invocation::new(command))
    }

    fn has_close_exchange(&self) -> bool {
        true
    }

    fn login_ns(&self, log: &[(u64, String)]) -> Option<u64> {
        openssh::login_ns(log)
    }

    fn login(&self) -> Option<Login> {
        Some(openssh::LOGIN)
    }

    fn default_commands(&self) -> &'static [&'static str] {
        &[
            "pwd",
            "ls -l /etc/hosts",
            "mkdir incoming",
            "ls -la incoming",
            "rmdir incoming",
            "df",
            "pwd",
            "ls -1 /etc/hosts",
        ]
    }

    fn reseed_login_delay(&self, site: &Site<'_>, nth: u32) -> Result<Option<&'static str>> {
        openssh::reseed_with(site, self.choice, nth)
    }

    fn facts(&self) -> Vec<Fact> {
        openssh::facts_with(self.choice)
    }

    fn window(&self) -> Option<(u64, &'static str)> {
        // sftp-client.c, DEFAULT_NUM_REQUESTS: 64 requests of 32 KiB, as much as a channel
        Some((
            openssh::CHANNEL_WINDOW,
            "64 outstanding requests of 32 KiB, in an SSH channel window of 2 MiB",
        ))
    }
}
