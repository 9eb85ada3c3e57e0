//! HTTP/1.1 in clear: nginx and libcurl.

use std::sync::Arc;

use headroom_lab_host::agent::Outcome;
use headroom_lab_host::error::Result;
use headroom_lab_host::host::ServerSpec;

use super::fetch::{self, Account};
use super::nginx::{NGINX, Protocol};
use super::{Application, ClientReport, Invocation, Site, nginx};
use crate::catalogue::{Entry, Fact, Make, stated};
use crate::properties::Properties;
use crate::workload::{Task, WorkloadKind};

struct Http;

pub(super) const ENTRY: Entry<dyn Application> = Entry {
    name: "http",
    about: "HTTP/1.1 in clear: nginx with sendfile, libcurl",
    programs: &[NGINX],
    make: Make::Fixed(|| Arc::new(Http)),
};

impl Application for Http {
    fn properties(&self) -> Option<Properties> {
        Some(Properties::CLEAR)
    }

    fn secured(&self) -> bool {
        false
    }

    fn port(&self) -> u16 {
        80
    }

    fn accepts(&self, kind: WorkloadKind) -> bool {
        kind.moves_files() || kind == WorkloadKind::Page
    }

    fn server(&self, site: &Site<'_>) -> Result<ServerSpec> {
        nginx::server(site, Protocol::Http)
    }

    fn client(&self, site: &Site<'_>, task: &Task) -> Result<Invocation> {
        fetch::client(site, &Account::of("http"), task)
    }

    fn client_report(&self, outcome: &Outcome) -> ClientReport {
        fetch::report(outcome, None)
    }

    fn facts(&self) -> Vec<Fact> {
        stated([
            ("encryption", "none"),
            ("version", "HTTP/1.1"),
            ("verification", "none apart from the checksums of TCP"),
        ])
    }
}
