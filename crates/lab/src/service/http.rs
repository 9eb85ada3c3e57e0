//! HTTP/1.1 in clear: nginx and libcurl.

use headroom_lab_host::agent::Outcome;
use headroom_lab_host::error::Result;
use headroom_lab_host::host::ServerSpec;
use headroom_lab_host::programs::Program;

use super::fetch::{self, Account};
use super::nginx::NGINX;
use super::{ClientReport, Invocation, Service, Site, nginx};
use crate::workload::{Kind, Task};

pub(super) struct Http;

impl Service for Http {
    fn name(&self) -> &'static str {
        "http"
    }

    fn about(&self) -> &'static str {
        "HTTP/1.1 in clear: nginx with sendfile, libcurl"
    }

    fn secured(&self) -> bool {
        false
    }

    fn baseline(&self) -> Option<&'static str> {
        None
    }

    fn programs(&self) -> &'static [Program] {
        &[NGINX]
    }

    fn port(&self) -> u16 {
        80
    }

    fn accepts(&self, kind: Kind) -> bool {
        kind.moves_files() || kind == Kind::Page
    }

    fn server(&self, site: &Site<'_>) -> Result<ServerSpec> {
        nginx::server(site, false)
    }

    fn client(&self, site: &Site<'_>, task: &Task) -> Result<Invocation> {
        fetch::client(site, &Account { scheme: "http", user: None, tls: None, groups: None }, task)
    }

    fn client_report(&self, outcome: &Outcome) -> ClientReport {
        fetch::report(outcome, None)
    }

    fn facts(&self) -> Vec<(&'static str, &'static str)> {
        vec![
            ("encryption", "none"),
            ("version", "HTTP/1.1"),
            ("verification", "none beside the checksums of TCP"),
        ]
    }
}
