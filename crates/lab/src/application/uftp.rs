//! UFTP to one host: files in UDP at a fixed rate, what is missing asked for again.

use std::sync::Arc;

use headroom_lab_host::command::Command;
use headroom_lab_host::error::{Error, Result};
use headroom_lab_host::host::{Ready, ServerSpec};
use headroom_lab_host::programs::Program;
use headroom_lab_host::role::Role;

use super::{Application, Invocation, Site};
use crate::catalogue::{Entry, Fact, Make, stated, titled};
use crate::workload::{Task, WorkloadKind};

const UFTP: Program = Program::new("uftp", "uftp", &[]).only_on(Role::Client);
const UFTPD: Program = Program::new("uftpd", "uftp", &[]).only_on(Role::Server);

struct Uftp {
    encrypted: bool,
}

const CLEAR: &str = "clear";

pub(super) const ENTRY: Entry<dyn Application> = Entry {
    name: "uftp",
    about: "UFTP to one host, AES-128-GCM; uploads only",
    programs: &[UFTP, UFTPD],
    make: Make::Configured {
        known: || format!("{CLEAR} (without encryption)"),
        read: |options| {
            let all: Vec<String> = options.iter().map(str::to_owned).collect();
            match all.iter().find(|option| *option != CLEAR) {
                Some(unknown) => Err(options.unknown(unknown)),
                None => {
                    let encrypted = all.is_empty();
                    Ok((all, Arc::new(Uftp { encrypted })))
                }
            }
        },
    },
};

/// Kbit/s, without congestion control: more than it moves on two cores. With `-1`, as
/// fast as the interface takes it, it loses more than it gains.
const RATE: &str = "2000000";
/// Bytes of file in a packet: `uftp(1)` wants 100 to 200 less than the path's MTU.
const BLOCK: &str = "1400";
/// Round trips to begin with and at least, seconds; by default it waits half a second
/// for each answer until it has measured one.
const ROUND_TRIPS: &str = "0.1:0.01:15";
/// Times that it asks again; a receiver that is behind does not answer at once.
const PATIENCE: &str = "50";
/// Bytes of socket buffers and of the receiver's cache, the largest it takes.
const BUFFER: &str = "104857600";
const CACHE: &str = "20971520";

impl Application for Uftp {
    fn secured(&self) -> bool {
        self.encrypted
    }

    fn baselines(&self) -> Vec<String> {
        let clear = titled(ENTRY.name, &[CLEAR.to_owned()]);
        self.encrypted.then_some(clear).into_iter().collect()
    }

    fn port(&self) -> u16 {
        1044
    }

    fn accepts(&self, kind: WorkloadKind) -> bool {
        kind == WorkloadKind::Upload
    }

    fn over_datagrams(&self) -> bool {
        true
    }

    fn server(&self, site: &Site<'_>) -> Result<ServerSpec> {
        let (port, address) = (site.server.port().to_string(), site.server.ip().to_string());
        let files = site.files.display().to_string();
        let mut command = Command::new(UFTPD, ["-d", "-D", &files, "-I", &address, "-p", &port]);
        // -t a temporary name until it is whole, -q no look-up of the sender's name
        command.args(["-B", BUFFER, "-c", CACHE, "-t", "-q"]);
        if self.encrypted {
            command.args(["-E", "-K", "ec:prime256v1"]);
        }
        Ok(ServerSpec { ready: Ready::Line("UFTP"), ..ServerSpec::new(command) })
    }

    fn client(&self, site: &Site<'_>, task: &Task) -> Result<Invocation> {
        let Task::Upload { local, remote } = task else {
            return Err(Error::Plan("uftp only sends single files".into()));
        };
        let (port, server) = (site.server.port().to_string(), site.server.ip().to_string());
        let (own, local) = (site.host.address.to_string(), local.display().to_string());
        let mut command = Command::new(UFTP, ["-R", RATE, "-b", BLOCK, "-B", BUFFER, "-q"]);
        command.args(["-r", ROUND_TRIPS, "-s", PATIENCE]);
        if self.encrypted {
            let keys = ["-Y", "aes128-gcm", "-h", "sha256", "-e", "ecdh_ecdsa:prime256v1"];
            command.args(keys);
            command.args(["-K", "prime256v1"]);
        }
        command.args(["-I", &own, "-p", &port, "-M", &server, "-D", remote, &local]);
        Ok(Invocation::new(command))
    }

    fn facts(&self) -> Vec<Fact> {
        let mut facts = if self.encrypted {
            stated([
                ("encryption", "UFTP's own"),
                ("cipher", "aes128-gcm"),
                ("key exchange", "ECDH, P-256, new keys for each file"),
            ])
        } else {
            stated([("encryption", "none")])
        };
        facts.extend(stated([
            ("rate", "-R 2000000: 2 Gbit/s, without congestion control"),
            ("block", "1400 bytes"),
            ("round trips", "-r 0.1:0.01:15 -s 50"),
            (
                "verification",
                if self.encrypted {
                    "each packet by AES-GCM, none of the whole file"
                } else {
                    "none apart from the checksums of UDP"
                },
            ),
        ]));
        facts
    }
}
