//! Headroom's own transfer: this very program both sides (`headroom serve`, `put`,
//! `get`), as processes like all others.

use serde::Deserialize;

use super::{ClientReport, Invocation, ServerSpec, Service, Site};
use crate::agent::Outcome;
use crate::command::Command;
use crate::error::{Error, Result};
use crate::parts::Program;
use crate::workload::{Kind, Task};

/// The service, and what its bulk data is to travel on.
pub(super) struct Headroom {
    pub(super) carrier: Carrier,
}

/// What bulk data travels on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Carrier {
    /// Whatever the program chooses.
    Own,
    /// QUIC streams.
    Streams,
}

/// Keys of both sides, made anew for each run.
const SERVERS_KEY: &str = "server-identity";
const CLIENTS_KEY: &str = "client-identity";
/// What the client trusts the server by.
const FINGERPRINT: &str = "server-fingerprint";

impl Service for Headroom {
    fn name(&self) -> &'static str {
        match self.carrier {
            Carrier::Own => "headroom",
            Carrier::Streams => "headroom(streams)",
        }
    }

    fn about(&self) -> &'static str {
        match self.carrier {
            Carrier::Own => "headroom serve, put and get: this program both sides",
            Carrier::Streams => "the same with all data on QUIC streams",
        }
    }

    fn secured(&self) -> bool {
        true
    }

    fn baseline(&self) -> Option<&'static str> {
        Some(match self.carrier {
            Carrier::Own => "http",
            Carrier::Streams => "headroom",
        })
    }

    fn programs(&self) -> &'static [Program] {
        &[]
    }

    fn port(&self) -> u16 {
        4860
    }

    fn accepts(&self, kind: Kind) -> bool {
        kind.moves_files()
    }

    fn over_datagrams(&self) -> bool {
        true
    }

    fn server(&self, site: &Site<'_>) -> Result<ServerSpec> {
        let (_, fingerprint) = identity(site, SERVERS_KEY)?;
        site.write(FINGERPRINT, &fingerprint)?;
        let (key, _) = identity(site, CLIENTS_KEY)?;
        let authorized = site.write("authorized_keys", &format!("{key}\n"))?;
        let argv = [
            &site.host.headroom.display().to_string(),
            "serve",
            "--root",
            &site.files.display().to_string(),
            "--listen",
            &site.server.to_string(),
            "--identity",
            &site.path(SERVERS_KEY).display().to_string(),
            "--authorized-keys",
            &authorized,
            "--json",
        ];
        Ok(ServerSpec { ready: Some("listening"), ..ServerSpec::new(argv) })
    }

    fn client(&self, site: &Site<'_>, task: &Task) -> Result<Invocation> {
        let key = site.path(CLIENTS_KEY);
        if !site.shares_folders() {
            // made on the server, as all credentials of a run are
            site.host.write(&key, &site.peer.read(&site.peer_path(CLIENTS_KEY))?)?;
            site.host.run(&Command::new("chmod", ["600", &key.display().to_string()]))?;
        }
        let fingerprint = site.peer.read(&site.peer_path(FINGERPRINT))?.trim().to_owned();
        let remote = |name: &str| format!("{}:{name}", site.server);
        let (what, from, to) = match task {
            Task::Download { remote: from, local } => {
                ("get", remote(from), local.display().to_string())
            }
            Task::Upload { local, remote: to } => ("put", local.display().to_string(), remote(to)),
            Task::DownloadTree { remote: from, local, .. } => {
                ("get", remote(&format!("{from}/.")), local.display().to_string())
            }
            Task::Commands(_) | Task::Stream { .. } | Task::Datagrams { .. } => {
                return Err(Error::Plan("headroom moves files and nothing else".into()));
            }
        };
        let headroom = site.host.headroom.display().to_string();
        let mut argv = vec![headroom, what.to_owned(), "--json".to_owned()];
        if self.carrier == Carrier::Streams {
            argv.push("--streams".to_owned());
        }
        argv.extend(["--identity".to_owned(), key.display().to_string()]);
        argv.extend(["--fingerprint".to_owned(), fingerprint, from, to]);
        let settings = site.path("settings").display().to_string();
        let environment = [("XDG_CONFIG_HOME".to_owned(), settings)].into();
        Ok(Invocation { environment, ..Invocation::new(argv) })
    }

    fn client_report(&self, outcome: &Outcome) -> ClientReport {
        report(&outcome.stdout)
    }

    fn facts(&self) -> Vec<(&'static str, &'static str)> {
        vec![
            ("encryption", "TLS 1.3 in QUIC"),
            ("cipher", "AES-128-GCM where both sides have AES instructions"),
            ("key", "Ed25519, both sides"),
            ("resumption", "off: each connection is a full handshake"),
            ("verification", "BLAKE3 of the whole file, by the receiver, before it has its name"),
            (
                "carrier",
                match self.carrier {
                    Carrier::Own => "lanes where they pass, else QUIC streams",
                    Carrier::Streams => "QUIC streams",
                },
            ),
        ]
    }
}

/// The public key of that file, which is made where it is missing, and its fingerprint.
fn identity(site: &Site<'_>, file: &str) -> Result<(String, String)> {
    let headroom = site.host.headroom.display().to_string();
    let path = site.path(file).display().to_string();
    let printed =
        site.host.run(&Command::new(headroom, ["identity", "show", "--identity", &path]))?;
    if site.host.is_dry() {
        return Ok(("(the key)".to_owned(), "(the fingerprint)".to_owned()));
    }
    let mut lines = printed.lines().map(str::to_owned);
    lines
        .next()
        .zip(lines.next())
        .ok_or_else(|| Error::Failed(format!("`headroom identity` printed no key: {printed}")))
}

/// A line of JSON that `headroom put` and `get` print.
#[derive(Debug, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
enum Printed {
    Connected {
        time_ns: u64,
    },
    End {
        time_ns: u64,
        seconds: f64,
    },
    #[serde(other)]
    Other,
}

fn report(stdout: &str) -> ClientReport {
    let mut report = ClientReport::default();
    for line in stdout.lines() {
        match serde_json::from_str(line) {
            Ok(Printed::Connected { time_ns }) => report.marks.request_ns = Some(time_ns),
            Ok(Printed::End { time_ns, seconds }) => {
                report.marks.done_ns = Some(time_ns);
                report.seconds = Some(seconds);
            }
            // the first line kept of a long output may be cut
            Ok(Printed::Other) | Err(_) => {}
        }
    }
    report
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_client_prints_is_read() {
        let said = report(
            "ed\":0}\n{\"event\":\"connected\",\"time_ns\":1795309701123456789}\n\
             {\"event\":\"stored\",\"path\":\"f\"}\n\
             {\"event\":\"end\",\"stored\":1,\"failed\":0,\"moved\":7,\"kept\":0,\"seconds\":0.5,\
             \"time_ns\":1795309701623456789}\n",
        );
        assert_eq!(said.marks.request_ns, Some(1_795_309_701_123_456_789));
        assert_eq!(said.marks.done_ns, Some(1_795_309_701_623_456_789));
        assert_eq!((said.seconds, said.error), (Some(0.5), None));
        assert_eq!(report("").marks.done_ns, None);
    }
}
