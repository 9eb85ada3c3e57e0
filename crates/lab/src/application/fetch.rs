//! The client of FTP and HTTP: this very program as a process of its own
//! (`headroom fetch`), around a current libcurl.

use headroom_lab_host::agent::Outcome;
use headroom_lab_host::error::{Error, Result};
use headroom_lab_trace::{FetchReport, TimeHints};

use super::tls::{Resumption, Tls};
use super::{ClientReport, Invocation, Site};
use crate::workload::Task;

/// Settings of the client, other than the task.
pub(super) struct Account<'a> {
    /// `ftp`, `http` or `https`.
    pub(super) scheme: &'a str,
    /// Name and password.
    pub(super) user: Option<(&'a str, &'a str)>,
    /// The TLS required of the server, whose certificate is checked; none: no TLS.
    pub(super) tls: Option<&'a Tls>,
    /// Key exchange groups to offer, in OpenSSL's notation; none: those of its TLS library.
    pub(super) groups: Option<&'a str>,
    /// Whether to speak HTTP/2 in place of HTTP/1.1.
    pub(super) http2: bool,
}

impl<'a> Account<'a> {
    /// In clear and without a name.
    pub(super) const fn of(scheme: &'a str) -> Self {
        Self { scheme, user: None, tls: None, groups: None, http2: false }
    }
}

pub(super) fn client(site: &Site<'_>, account: &Account<'_>, task: &Task) -> Result<Invocation> {
    let mut argv = vec![site.host.headroom.display().to_string(), "fetch".to_owned()];
    if let Some((name, password)) = account.user {
        argv.extend(["--user".to_owned(), format!("{name}:{password}")]);
    }
    if let Some(tls) = account.tls {
        argv.extend(tls.client_options(site)?);
    }
    if let Some(groups) = account.groups {
        argv.extend(["--tls-groups".to_owned(), groups.to_owned()]);
    }
    if account.http2 {
        argv.push("--http2".to_owned());
    }
    let resumption = account.tls.map_or(Resumption::Off, |tls| tls.resumption);
    if let Some(what) = resumption.argument() {
        argv.extend(["--tls-resumption".to_owned(), what.to_owned()]);
    }
    let url = |remote: &str| {
        format!("{}://{}:{}/{remote}", account.scheme, site.server_host(), site.server.port())
    };
    match task {
        Task::Download { remote, local } => {
            argv.extend([url(remote), "--output".to_owned(), local.display().to_string()]);
        }
        Task::Upload { local, remote } => {
            argv.extend([url(remote), "--upload".to_owned(), local.display().to_string()]);
        }
        Task::DownloadTree { remote, names, local } => {
            let list: String = names
                .iter()
                .map(|name| format!("{}\n", url(&format!("{remote}/{name}"))))
                .collect();
            let list = site.write("urls", &list)?;
            argv.extend([
                "--list".to_owned(),
                list,
                "--output".to_owned(),
                local.display().to_string(),
            ]);
        }
        Task::Commands(_) | Task::Stream { .. } | Task::Datagrams { .. } => {
            return Err(Error::Plan("this client only moves files".into()));
        }
    }
    // it sets up the session that it resumes
    let has_prelude = resumption == Resumption::Session;
    Ok(Invocation { has_prelude, ..Invocation::new(argv.into()) })
}

/// Reads the client's report and checks it against the requested TLS.
pub(super) fn report(outcome: &Outcome, tls: Option<&Tls>) -> ClientReport {
    match serde_json::from_str::<FetchReport>(outcome.stdout.trim()) {
        Ok(printed) => ClientReport {
            seconds: Some(printed.total_s),
            hints: TimeHints {
                start_ns: None,
                request_ns: printed.request_ns,
                done_ns: printed.done_ns,
                login_ns: None,
            },
            error: printed.error.or_else(|| {
                let tls = tls?;
                let (full, resumed) = (printed.full_handshakes, printed.resumed_handshakes);
                tls.objection(&printed.tls).or_else(|| tls.resumption.objection(full, resumed))
            }),
            load: None,
            realtime: None,
        },
        Err(error) => ClientReport {
            error: Some(format!(
                "the client printed no report ({error}): {}",
                outcome.stdout.trim()
            )),
            ..ClientReport::default()
        },
    }
}
