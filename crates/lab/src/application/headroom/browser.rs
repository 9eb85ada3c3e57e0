//! `headroom(browser)`: `headroom serve --web`, and its page in Chromium.

use headroom_lab_host::agent::Outcome;
use headroom_lab_host::command::Command;
use headroom_lab_host::error::Result;
use headroom_lab_host::host::{Ready, ServerSpec};
use headroom_lab_host::programs::Program;

use super::{CLIENTS_KEY, SERVERS_KEY, clients_key, identity};
use crate::application::{Application, ClientReport, Invocation, Site, browser};
use crate::catalogue::{Fact, stated};
use crate::workload::{Task, WorkloadKind};

pub(super) struct InBrowser;

impl Application for InBrowser {
    fn own_command(&self) -> Option<&'static str> {
        Some("serve")
    }

    fn secured(&self) -> bool {
        true
    }

    fn needs(&self, all: &'static [Program]) -> &'static [Program] {
        all
    }

    fn baselines(&self) -> Vec<String> {
        ["https(browser)", "headroom", "http"].map(str::to_owned).to_vec()
    }

    fn port(&self) -> u16 {
        4861
    }

    fn accepts(&self, kind: WorkloadKind) -> bool {
        browser::accepts(kind)
    }

    fn over_datagrams(&self) -> bool {
        true
    }

    fn server(&self, site: &Site<'_>) -> Result<ServerSpec> {
        let _ = identity(site, SERVERS_KEY)?;
        let (key, _) = identity(site, CLIENTS_KEY)?;
        let authorized = site.write("authorized_keys", &format!("{key}\n"))?;
        let command = Command::new(
            site.host.headroom.display().to_string(),
            [
                "serve",
                "--root",
                &site.files.display().to_string(),
                "--listen",
                &format!("{}:0", site.server_host()),
                "--web",
                &site.server.to_string(),
                "--web-cert",
                &site.credential("server.crt"),
                "--web-key",
                &site.credential("server.key"),
                "--identity",
                &site.path(SERVERS_KEY).display().to_string(),
                "--authorized-keys",
                &authorized,
                "--json",
            ],
        );
        Ok(ServerSpec { ready: Ready::Line("\"page\""), ..ServerSpec::new(command) })
    }

    fn client(&self, site: &Site<'_>, task: &Task) -> Result<Invocation> {
        let key = clients_key(site)?.display().to_string();
        browser::client(site, task, &["--site", "headroom", "--identity", &key])
    }

    fn client_report(&self, outcome: &Outcome) -> ClientReport {
        browser::report(outcome)
    }

    fn facts(&self) -> Vec<Fact> {
        let mut facts = stated([
            ("encryption", "TLS 1.3 in QUIC"),
            ("key", "Ed25519, the browser's; the server's certificate is pinned by its hash"),
            ("resumption", "off: each connection is a full handshake"),
            (
                "verification",
                "BLAKE3 of the whole file, by the receiver, before it counts as stored",
            ),
            ("carrier", "WebTransport streams"),
        ]);
        facts.extend(browser::facts());
        facts
    }
}
