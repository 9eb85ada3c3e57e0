//! rsync over SSH, whole files.

use std::sync::Arc;

use headroom_lab_host::command::Command;
use headroom_lab_host::error::{Error, Result};
use headroom_lab_host::host::ServerSpec;
use headroom_lab_host::programs::{Program, SSH};
use headroom_lab_trace::Login;

use super::openssh::SSHD;
use super::site::SSH_KEYGEN;
use super::{Application, Invocation, Site, openssh};
use crate::catalogue::{Entry, Fact, Make, stated};
use crate::properties::Properties;
use crate::workload::{Task, WorkloadKind};

const RSYNC: Program = Program::new("rsync", "rsync", &["--version"]);

struct Rsync;

pub(super) const ENTRY: Entry<dyn Application> = Entry {
    name: "rsync",
    about: "rsync over SSH, whole files",
    programs: &[RSYNC, SSHD, SSH, SSH_KEYGEN],
    make: Make::Fixed(|| Arc::new(Rsync)),
};

impl Application for Rsync {
    fn properties(&self) -> Option<Properties> {
        Some(Properties { verified: true, ..Properties::SSH })
    }

    fn secured(&self) -> bool {
        true
    }

    fn baselines(&self) -> Vec<String> {
        vec!["ftp".to_owned()]
    }

    fn port(&self) -> u16 {
        2122
    }

    fn accepts(&self, kind: WorkloadKind) -> bool {
        kind.moves_files()
    }

    fn server(&self, site: &Site<'_>) -> Result<ServerSpec> {
        openssh::server(site)
    }

    fn client(&self, site: &Site<'_>, task: &Task) -> Result<Invocation> {
        let mut shell = vec![site.program(SSH)?];
        shell.extend(openssh::options(site));
        shell.extend(["-p".into(), site.server.port().to_string()]);
        // rsync splits the shell command at spaces; the paths here have none
        let shell = shell.join(" ");
        let path = format!("--rsync-path={}", openssh::remote_program(site, RSYNC)?);
        let mut command = Command::new(RSYNC, ["--whole-file", "-e", &shell, &path]);
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
                    remote(&format!("{from}/")),
                    local.display().to_string(),
                ]);
            }
            Task::Commands(_) | Task::Stream { .. } | Task::Datagrams { .. } => {
                return Err(Error::Plan("rsync only moves files".into()));
            }
        }
        Ok(Invocation::new(command))
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
        facts.retain(|(name, _)| *name != "verification");
        facts.extend(stated([
            ("verification", "a checksum of the whole file, by the receiver"),
            ("mode", "--whole-file: no delta algorithm"),
        ]));
        facts
    }

    fn window(&self) -> Option<(u64, &'static str)> {
        Some((openssh::CHANNEL_WINDOW, "an SSH channel window of 2 MiB"))
    }
}
