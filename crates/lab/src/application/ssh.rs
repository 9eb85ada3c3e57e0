//! ssh for command sessions: OpenSSH both sides, one session, each command waiting for
//! the answer to the one before. A command alone is ssh's own argument.

use std::sync::Arc;

use headroom_lab_host::command::Command;
use headroom_lab_host::error::{Error, Result};
use headroom_lab_host::host::ServerSpec;
use headroom_lab_host::programs::SSH;
use headroom_lab_trace::Login;

use super::openssh::{Choice, SSHD};
use super::site::SSH_KEYGEN;
use super::{Application, Invocation, Site, openssh};
use crate::catalogue::{Entry, Fact, Make};
use crate::properties::Properties;
use crate::workload::{Task, WorkloadKind};

struct Ssh {
    choice: Choice,
}

pub(super) const ENTRY: Entry<dyn Application> = Entry {
    name: "ssh",
    about: "ssh command sessions: OpenSSH both sides",
    programs: &[SSHD, SSH, SSH_KEYGEN],
    make: Make::Configured {
        known: Choice::known,
        read: |options| {
            let (written, choice) = Choice::read(options)?;
            Ok((written, Arc::new(Ssh { choice })))
        },
    },
};

impl Application for Ssh {
    fn properties(&self) -> Option<Properties> {
        Some(self.choice.properties())
    }

    fn secured(&self) -> bool {
        true
    }

    fn baselines(&self) -> Vec<String> {
        let plain = (self.choice != Choice::default()).then_some("ssh");
        plain.into_iter().map(str::to_owned).collect()
    }

    fn port(&self) -> u16 {
        2222
    }

    fn accepts(&self, kind: WorkloadKind) -> bool {
        kind == WorkloadKind::Commands
    }

    fn server(&self, site: &Site<'_>) -> Result<ServerSpec> {
        openssh::server_with(site, self.choice)
    }

    fn client(&self, site: &Site<'_>, task: &Task) -> Result<Invocation> {
        let Task::Commands(commands) = task else {
            return Err(Error::Plan("ssh moves no files; use sftp, scp or rsync".into()));
        };
        let mut command = Command::new(SSH, openssh::options_with(site, self.choice));
        let (port, host) = (site.server.port().to_string(), format!("root@{}", site.server.ip()));
        command.args(["-T", "-p", &port, &host]);
        if let [alone] = &commands[..] {
            command.args([alone]);
            return Ok(Invocation::new(command));
        }
        command.args(["sh"]);
        Ok(Invocation { dialogue: Some(commands.clone()), ..Invocation::new(command) })
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
        &["pwd", "id", "ls -l /etc/hosts", "uname -a", "cat /etc/hosts", "date", "df /", "true"]
    }

    fn reseed_login_delay(&self, site: &Site<'_>, nth: u32) -> Result<Option<&'static str>> {
        openssh::reseed_with(site, self.choice, nth)
    }

    fn facts(&self) -> Vec<Fact> {
        openssh::facts_with(self.choice)
    }
}
