//! A data channel of WebRTC (RFC 8831) between pages of two Chromium: this very program starts the
//! browser of the server (`headroom browse-peer`) and of the client (`headroom browse`), and passes
//! on what the pages tell each other before they are connected.

use std::sync::Arc;
use std::time::Duration;

use headroom_lab_host::agent::Outcome;
use headroom_lab_host::command::{Arg, Command};
use headroom_lab_host::error::Result;
use headroom_lab_host::host::ServerSpec;
use headroom_lab_host::programs::Program;

use super::{Application, ClientReport, Invocation, Site, browser};
use crate::catalogue::{Entry, Fact, Make, stated};
use crate::properties::Properties;
use crate::workload::{Task, WorkloadKind};

/// The browser, on both ends.
const CHROMIUM: Program = Program::new("chromium", "chromium", &["--version"]);
/// How long the server's browser may take to start on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

struct WebRtc;

pub(super) const ENTRY: Entry<dyn Application> = Entry {
    name: "webrtc",
    about: "a data channel of WebRTC between two pages: Chromium both sides",
    programs: &[CHROMIUM],
    make: Make::Fixed(|| Arc::new(WebRtc)),
};

impl Application for WebRtc {
    /// Each page proves that it has the certificate whose fingerprint the other was told, here in
    /// clear text.
    fn properties(&self) -> Option<Properties> {
        Some(Properties { forward_secrecy: true, over_udp: true, ..Properties::CLEAR })
    }

    fn secured(&self) -> bool {
        true
    }

    fn baselines(&self) -> Vec<String> {
        ["https(browser)", "http"].map(str::to_owned).to_vec()
    }

    fn port(&self) -> u16 {
        4871
    }

    fn accepts(&self, kind: WorkloadKind) -> bool {
        browser::accepts(kind)
    }

    fn over_datagrams(&self) -> bool {
        true
    }

    fn server(&self, site: &Site<'_>) -> Result<ServerSpec> {
        let mut command = Command::new(
            site.host.headroom.display().to_string(),
            ["browse-peer", "--listen", &site.server.to_string()],
        );
        command.args(["--chromium".into(), Arg::from(CHROMIUM)]);
        command.args(["--root", &site.files.display().to_string()]);
        command.args(["--folder", &site.dir.display().to_string()]);
        Ok(ServerSpec { patience: PATIENCE, ..ServerSpec::new(command) })
    }

    fn client(&self, site: &Site<'_>, task: &Task) -> Result<Invocation> {
        browser::client_at(&site.server.to_string(), site, task, &["--site", "webrtc"])
    }

    fn client_report(&self, outcome: &Outcome) -> ClientReport {
        browser::report(outcome)
    }

    fn facts(&self) -> Vec<Fact> {
        stated([
            ("encryption", "DTLS, as the two Chromium agree"),
            ("key", "ECDSA P-256, the pages' own; the other page knows its fingerprint"),
            ("carrier", "SCTP in DTLS over UDP: one reliable channel, messages of 64 KiB"),
            ("addresses", "those of the hosts, no STUN and no TURN"),
            ("signalling", "offer and answer over one TCP connection in clear, by headroom"),
            ("verification", "each packet by DTLS, none of the whole file"),
            ("client", "Chromium without a window; a new profile for each transfer"),
            ("server", "Chromium without a window, one for all transfers"),
            (
                "clock",
                "from the page's start, before it makes its connection, until the receiver has the file in its browser's storage (OPFS)",
            ),
        ])
    }
}
