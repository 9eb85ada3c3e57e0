//! scp: OpenSSH both sides. From OpenSSH 9 on it speaks the SFTP protocol.

use std::sync::Arc;

use headroom_lab_host::command::{Arg, Command};
use headroom_lab_host::error::{Error, Result};
use headroom_lab_host::host::ServerSpec;
use headroom_lab_host::programs::{Program, SSH};
use headroom_lab_host::role::Role;
use headroom_lab_trace::Login;

use super::openssh::SSHD;
use super::site::SSH_KEYGEN;
use super::{Application, Invocation, Site, openssh};
use crate::catalogue::{Entry, Fact, Make, stated};
use crate::properties::Properties;
use crate::workload::{Task, WorkloadKind};

const SCP: Program = Program::new("scp", "openssh-client", &[]).only_on(Role::Client);

struct Scp;

pub(super) const ENTRY: Entry<dyn Application> = Entry {
    name: "scp",
    about: "scp: OpenSSH both sides; version 9 and later use SFTP",
    programs: &[SSHD, SSH, SCP, SSH_KEYGEN],
    make: Make::Fixed(|| Arc::new(Scp)),
};

impl Application for Scp {
    fn properties(&self) -> Option<Properties> {
        Some(Properties::SSH)
    }

    fn secured(&self) -> bool {
        true
    }

    fn baselines(&self) -> Vec<String> {
        vec!["ftp".to_owned()]
    }

    fn port(&self) -> u16 {
        2022
    }

    fn accepts(&self, kind: WorkloadKind) -> bool {
        kind.moves_files()
    }

    fn server(&self, site: &Site<'_>) -> Result<ServerSpec> {
        openssh::server(site)
    }

    fn client(&self, site: &Site<'_>, task: &Task) -> Result<Invocation> {
        let mut command = Command::new(SCP, openssh::options(site));
        command.args(["-S".into(), Arg::from(SSH)]).args(["-P", &site.server.port().to_string()]);
        let remote = |name: &str| format!("root@{}:{}", site.server_host(), site.remote(name));
        match task {
            Task::Download { remote: from, local } => {
                command.args([remote(from), local.display().to_string()]);
            }
            Task::Upload { local, remote: to } => {
                command.args([local.display().to_string(), remote(to)]);
            }
            Task::DownloadTree { remote: from, local, .. } => {
                command.args([
                    "-r".into(),
                    remote(&format!("{from}/.")),
                    local.display().to_string(),
                ]);
            }
            Task::Commands(_) | Task::Stream { .. } | Task::Datagrams { .. } => {
                return Err(Error::Plan("scp only moves files".into()));
            }
        }
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

    fn reseed_login_delay(&self, site: &Site<'_>, nth: u32) -> Result<Option<&'static str>> {
        openssh::reseed_login_delay(site, nth)
    }

    fn facts(&self) -> Vec<Fact> {
        let mut facts = openssh::facts();
        facts.extend(stated([("protocol", "SFTP (OpenSSH 9 and later)")]));
        facts
    }

    fn window(&self) -> Option<(u64, &'static str)> {
        Some((openssh::CHANNEL_WINDOW, "an SSH channel window of 2 MiB"))
    }
}
