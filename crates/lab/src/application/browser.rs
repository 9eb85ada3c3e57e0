//! Chromium as a client of `headroom`, `https` and `webrtc`: this very program (`headroom browse`)
//! starts it, and a script in the page moves the file.

use headroom_lab_host::agent::Outcome;
use headroom_lab_host::command::{Arg, Command};
use headroom_lab_host::error::{Error, Result};
use headroom_lab_host::programs::Program;
use headroom_lab_host::role::Role;
use headroom_lab_trace::{BrowserReport, TimeHints};

use super::{ClientReport, Invocation, Site};
use crate::catalogue::Fact;
use crate::workload::{Task, WorkloadKind};

/// The browser.
pub(super) const CHROMIUM: Program =
    Program::new("chromium", "chromium", &["--version"]).only_on(Role::Client);

/// The option of an application whose client is a browser.
pub(super) const OPTION: &str = "browser";

/// What a page does: one file at a time.
pub(super) fn accepts(kind: WorkloadKind) -> bool {
    matches!(kind, WorkloadKind::Download | WorkloadKind::Upload)
}

/// Starts the browser at the server's page, whose kind and other arguments are given.
pub(super) fn client(site: &Site<'_>, task: &Task, kind: &[&str]) -> Result<Invocation> {
    let url = format!("https://{}:{}/", site.server_host(), site.server.port());
    client_at(&url, site, task, kind)
}

/// Starts the browser at this address.
pub(super) fn client_at(
    url: &str,
    site: &Site<'_>,
    task: &Task,
    kind: &[&str],
) -> Result<Invocation> {
    let (remote, option, local) = match task {
        Task::Download { remote, local } => (remote, "--output", local),
        Task::Upload { local, remote } => (remote, "--upload", local),
        _ => return Err(Error::Plan("a page in a browser moves only single files".into())),
    };
    let mut command = Command::new(site.host.headroom.display().to_string(), ["browse", url]);
    command.args(["--chromium".into(), Arg::from(CHROMIUM)]);
    command.args(["--folder", &site.dir.display().to_string()]);
    command.args(kind.iter().copied());
    command.args(["--remote", remote.as_str(), option, &local.display().to_string()]);
    Ok(Invocation::new(command))
}

/// Reads the client's report.
pub(super) fn report(outcome: &Outcome) -> ClientReport {
    match serde_json::from_str::<BrowserReport>(outcome.stdout.trim()) {
        Ok(printed) => ClientReport {
            seconds: Some(printed.total_s),
            hints: TimeHints {
                start_ns: printed.start_ns,
                done_ns: printed.done_ns,
                ..TimeHints::default()
            },
            error: printed.error,
            ..ClientReport::default()
        },
        Err(error) => ClientReport {
            error: Some(format!(
                "the browser's client printed no report ({error}): {}",
                outcome.stdout.trim()
            )),
            ..ClientReport::default()
        },
    }
}

/// What is the same for all pages.
pub(super) fn facts() -> [Fact; 2] {
    [
        ("client", "Chromium without a window; a new profile for each transfer".to_owned()),
        (
            "clock",
            "from the page's start, loaded and signed in, until it has the file in the browser's storage (OPFS), or the server's receipt"
                .to_owned(),
        ),
    ]
}
