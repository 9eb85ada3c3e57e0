//! qcp: QUIC, whose two ends find each other through ssh.

use std::sync::Arc;

use headroom_lab_host::command::{Arg, Command};
use headroom_lab_host::error::{Error, Result};
use headroom_lab_host::host::ServerSpec;
use headroom_lab_host::programs::{Program, SSH};

use super::openssh::SSHD;
use super::site::SSH_KEYGEN;
use super::{Application, Invocation, Site, openssh};
use crate::catalogue::{Entry, Fact, Make, stated};
use crate::properties::Properties;
use crate::workload::{Task, WorkloadKind};

const QCP: Program = Program::new("qcp", "qcp", &["--version"]);

struct Qcp;

/// Its parameters of the network, bytes per second and milliseconds: they bound its
/// windows, and its own defaults (100 Mbit/s, 300 ms) its speed to that.
const RATE: &str = "1250M";
const ROUND_TRIP_MS: &str = "10";

pub(super) const ENTRY: Entry<dyn Application> = Entry {
    name: "qcp",
    about: "qcp both sides: QUIC, negotiated over ssh",
    programs: &[QCP, SSHD, SSH, SSH_KEYGEN],
    make: Make::Fixed(|| Arc::new(Qcp)),
};

impl Application for Qcp {
    fn properties(&self) -> Option<Properties> {
        Some(Properties { over_udp: true, ..Properties::SSH })
    }

    fn secured(&self) -> bool {
        true
    }

    fn baselines(&self) -> Vec<String> {
        vec!["http".to_owned()]
    }

    fn port(&self) -> u16 {
        2422
    }

    fn accepts(&self, kind: WorkloadKind) -> bool {
        matches!(kind, WorkloadKind::Download | WorkloadKind::Upload)
    }

    fn over_datagrams(&self) -> bool {
        true
    }

    fn server(&self, site: &Site<'_>) -> Result<ServerSpec> {
        openssh::server(site)
    }

    fn client(&self, site: &Site<'_>, task: &Task) -> Result<Invocation> {
        let mut command = Command::new(QCP, ["--quiet".into(), "--ssh".into(), Arg::from(SSH)]);
        let port = site.server.port().to_string();
        let of_ssh = openssh::options(site).into_iter().chain(["-p".to_owned(), port.clone()]);
        // an address in brackets has no room for a name before it
        command.args(["-l", "root"]);
        command.args(of_ssh.flat_map(|option| ["-S".to_owned(), option]));
        command.args([
            "--remote-qcp-binary".into(),
            openssh::remote_program(site, QCP)?,
            // UDP where ssh has TCP
            "--remote-port".into(),
            port,
        ]);
        command.args(["--rx", RATE, "--tx", RATE, "--rtt", ROUND_TRIP_MS]);
        let remote = |name: &str| format!("{}:{}", site.server_host(), site.remote(name));
        match task {
            Task::Download { remote: from, local } => {
                command.args([remote(from), local.display().to_string()]);
            }
            Task::Upload { local, remote: to } => {
                command.args([local.display().to_string(), remote(to)]);
            }
            _ => return Err(Error::Plan("qcp moves only single files".into())),
        }
        Ok(Invocation::new(command))
    }

    fn reseed_login_delay(&self, site: &Site<'_>, nth: u32) -> Result<Option<&'static str>> {
        openssh::reseed_login_delay(site, nth)
    }

    fn facts(&self) -> Vec<Fact> {
        stated([
            ("encryption", "TLS 1.3 in QUIC"),
            ("cipher", "AES-128-GCM where both sides have AES instructions"),
            ("key exchange", "keys of the moment, told through ssh"),
            ("network parameters", "--rx 1250M --tx 1250M --rtt 10"),
            ("verification", "each packet by QUIC, none of the whole file"),
        ])
    }
}
