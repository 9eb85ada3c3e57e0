//! HTTP/1.1 over TLS (RFC 9110 §4.2.2): nginx and libcurl.

use std::sync::Arc;

use headroom_lab_host::agent::Outcome;
use headroom_lab_host::error::Result;
use headroom_lab_host::host::ServerSpec;
use headroom_lab_host::programs::Program;

use super::browser::{self, CHROMIUM, OPTION};
use super::fetch::{self, Account};
use super::nginx::NGINX;
use super::tls::Tls;
use super::{Application, ClientReport, Invocation, Site, nginx};
use crate::catalogue::{Entry, Fact, Make, stated};
use crate::properties::Properties;
use crate::workload::{Task, WorkloadKind};

struct Https;

pub(super) const ENTRY: Entry<dyn Application> = Entry {
    name: "https",
    about: "HTTP/1.1 over TLS 1.3: nginx, libcurl",
    programs: &[NGINX, CHROMIUM],
    make: Make::Configured {
        known: || "browser (Chromium in place of libcurl)".to_owned(),
        read: |options| match options.iter().next() {
            None => Ok((Vec::new(), Arc::new(Https))),
            Some(OPTION) => Ok((vec![OPTION.to_owned()], Arc::new(InBrowser))),
            Some(other) => Err(options.unknown(other)),
        },
    },
};

/// The same server, and a page's `fetch` in Chromium.
struct InBrowser;

impl Application for Https {
    fn properties(&self) -> Option<Properties> {
        Some(Properties { forward_secrecy: true, ..Properties::CLEAR })
    }

    fn secured(&self) -> bool {
        true
    }

    fn needs(&self, _: &'static [Program]) -> &'static [Program] {
        &[NGINX]
    }

    fn baselines(&self) -> Vec<String> {
        vec!["http".to_owned()]
    }

    fn port(&self) -> u16 {
        443
    }

    fn accepts(&self, kind: WorkloadKind) -> bool {
        kind.moves_files() || kind == WorkloadKind::Page
    }

    fn server(&self, site: &Site<'_>) -> Result<ServerSpec> {
        nginx::server(site, true)
    }

    fn client(&self, site: &Site<'_>, task: &Task) -> Result<Invocation> {
        fetch::client(
            site,
            &Account { scheme: "https", user: None, tls: Some(&Tls::MODERN), groups: None },
            task,
        )
    }

    fn client_report(&self, outcome: &Outcome) -> ClientReport {
        fetch::report(outcome, Some(&Tls::MODERN))
    }

    fn facts(&self) -> Vec<Fact> {
        let mut facts = stated([("encryption", "TLS 1.3")]);
        facts.extend(Tls::MODERN.facts());
        facts.extend(stated([
            ("resumption", "off: each connection is a full handshake"),
            ("version", "HTTP/1.1"),
            ("verification", "each record by TLS, none of the whole file"),
        ]));
        facts
    }
}

impl Application for InBrowser {
    fn properties(&self) -> Option<Properties> {
        Some(Properties { forward_secrecy: true, ..Properties::CLEAR })
    }

    fn secured(&self) -> bool {
        true
    }

    fn baselines(&self) -> Vec<String> {
        ["https", "http"].map(str::to_owned).to_vec()
    }

    fn port(&self) -> u16 {
        443
    }

    fn accepts(&self, kind: WorkloadKind) -> bool {
        browser::accepts(kind)
    }

    /// The page has loaded over the same port before the clock begins, so that the client says
    /// when it began and was done.
    fn over_datagrams(&self) -> bool {
        true
    }

    fn server(&self, site: &Site<'_>) -> Result<ServerSpec> {
        nginx::server(site, true)
    }

    fn client(&self, site: &Site<'_>, task: &Task) -> Result<Invocation> {
        browser::client(site, task, &["--site", "https"])
    }

    fn client_report(&self, outcome: &Outcome) -> ClientReport {
        browser::report(outcome)
    }

    fn facts(&self) -> Vec<Fact> {
        let mut facts = stated([("encryption", "TLS 1.3")]);
        facts.extend(Tls::MODERN.facts());
        facts.extend(stated([
            ("connection", "the one that loaded the page, if the browser has kept it"),
            ("version", "HTTP/1.1"),
            ("verification", "each record by TLS, none of the whole file"),
        ]));
        facts.extend(browser::facts());
        facts
    }
}
