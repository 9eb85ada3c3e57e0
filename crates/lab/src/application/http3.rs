//! HTTP/3 (RFC 9114): nginx and curl, the variant `https(h3)`.

use headroom_lab_host::agent::Outcome;
use headroom_lab_host::command::Command;
use headroom_lab_host::error::{Error, Result};
use headroom_lab_host::host::ServerSpec;
use headroom_lab_host::programs::Program;
use headroom_lab_host::role::Role;
use serde::Deserialize;

use super::nginx::{self, NGINX, Protocol};
use super::tls::Tls;
use super::{Application, ClientReport, Invocation, Site};
use crate::catalogue::{Fact, stated};
use crate::properties::Properties;
use crate::workload::{Task, WorkloadKind};

pub(super) const CURL: Program = Program::new("curl", "curl", &["--version"]).only_on(Role::Client);

/// The option of `https`.
pub(super) const OPTION: &str = "h3";

/// HTTP over QUIC.
pub(super) struct OverQuic;

impl Application for OverQuic {
    fn properties(&self) -> Option<Properties> {
        Some(Properties { forward_secrecy: true, over_udp: true, ..Properties::CLEAR })
    }

    fn secured(&self) -> bool {
        true
    }

    fn needs(&self, _: &'static [Program]) -> &'static [Program] {
        &[NGINX, CURL]
    }

    fn baselines(&self) -> Vec<String> {
        ["https", "http"].map(str::to_owned).to_vec()
    }

    fn port(&self) -> u16 {
        443
    }

    fn accepts(&self, kind: WorkloadKind) -> bool {
        kind.moves_files()
    }

    fn over_datagrams(&self) -> bool {
        true
    }

    fn server(&self, site: &Site<'_>) -> Result<ServerSpec> {
        nginx::server(site, Protocol::Http3)
    }

    fn client(&self, site: &Site<'_>, task: &Task) -> Result<Invocation> {
        let mut command = Command::new(CURL, ["--disable", "--silent", "--show-error", "--fail"]);
        command.args(["--noproxy", "*", "--http3-only", "--write-out", "%{json}\n"]);
        command.args(["--cacert".to_owned(), site.credential("server.crt")]);
        let url = |remote: &str| {
            format!("https://{}:{}/{remote}", site.server_host(), site.server.port())
        };
        match task {
            Task::Download { remote, local } => {
                command.args(["--output".to_owned(), local.display().to_string(), url(remote)]);
            }
            Task::Upload { local, remote } => {
                command.args([
                    "--upload-file".to_owned(),
                    local.display().to_string(),
                    url(remote),
                ]);
            }
            Task::DownloadTree { remote, names, local } => {
                // its configuration file, as a folder may have more names than a command line
                let one = |name: &String| {
                    let url = url(&format!("{remote}/{name}"));
                    format!(
                        "url = {url:?}\noutput = {:?}\n",
                        local.join(name).display().to_string()
                    )
                };
                let list: String = names.iter().map(one).collect();
                // named by its content's hash: transfers are prepared before the first one runs
                let name = format!("urls-{}", &blake3::hash(list.as_bytes()).to_hex()[..16]);
                command.args(["--config".to_owned(), site.write(&name, &list)?]);
            }
            Task::Commands(_) | Task::Stream { .. } | Task::Datagrams { .. } => {
                return Err(Error::Plan("curl only moves files".into()));
            }
        }
        Ok(Invocation::new(command))
    }

    fn client_report(&self, outcome: &Outcome) -> ClientReport {
        match read(&outcome.stdout) {
            Ok(seconds) => ClientReport { seconds: Some(seconds), ..ClientReport::default() },
            Err(error) => ClientReport {
                error: Some(match (outcome.stderr.trim(), outcome.code) {
                    ("", Some(code)) => format!("{error}; its exit code is {code}"),
                    ("", None) => format!("{error}; it was killed"),
                    (said, _) => format!("{error}; it said: {said}"),
                }),
                ..ClientReport::default()
            },
        }
    }

    fn facts(&self) -> Vec<Fact> {
        let mut facts = stated([("encryption", "TLS 1.3 in QUIC")]);
        facts.extend(
            Tls::MODERN.facts().into_iter().filter(|(what, _)| matches!(*what, "cipher" | "key")),
        );
        facts.extend(stated([
            ("resumption", "off: each connection is a full handshake"),
            ("version", "HTTP/3, which curl reports for each file, one request at a time"),
            ("stream buffer", "nginx: 16 MiB in place of 64 KiB, which would be all in flight"),
            ("congestion control", "that of nginx down, of curl's QUIC library up"),
            ("verification", "each packet by QUIC, none of the whole file"),
        ]));
        facts
    }
}

/// The time of all transfers that curl reports, a line each.
fn read(stdout: &str) -> std::result::Result<f64, String> {
    #[derive(Deserialize)]
    struct Report {
        http_version: String,
        time_total: f64,
        /// curl exits with that of its last transfer.
        exitcode: i32,
        errormsg: Option<String>,
    }
    let mut seconds = 0.0;
    for line in stdout.lines() {
        let report: Report = serde_json::from_str(line)
            .map_err(|error| format!("curl printed no report ({error}): {line}"))?;
        if report.exitcode != 0 {
            let why = report.errormsg.unwrap_or_else(|| "it does not say why".to_owned());
            return Err(format!("curl: ({}) {why}", report.exitcode));
        }
        if report.http_version != "3" {
            return Err(format!("curl spoke HTTP/{}, not HTTP/3", report.http_version));
        }
        seconds += report.time_total;
    }
    if seconds > 0.0 { Ok(seconds) } else { Err("curl printed no report".to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_curl_reports_of_each_file() {
        let one = r#"{"http_version":"3","time_total":0.25,"exitcode":0,"errormsg":null}"#;
        assert_eq!(read(&format!("{one}\n{one}\n")), Ok(0.5));
        let other = one.replace("\"3\"", "\"1.1\"");
        assert!(read(&format!("{one}\n{other}\n")).is_err_and(|error| error.contains("HTTP/1.1")));
        let failed = one.replace("0,", "22,").replace("null", "\"404\"");
        assert_eq!(read(&format!("{failed}\n{one}\n")), Err("curl: (22) 404".to_owned()));
        assert!(read("").is_err() && read("curl: (2)").is_err());
    }
}
