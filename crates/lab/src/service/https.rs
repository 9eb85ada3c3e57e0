//! HTTP/1.1 over TLS (RFC 9110 §4.2.2): nginx and libcurl.

use headroom_lab_host::agent::Outcome;
use headroom_lab_host::error::Result;
use headroom_lab_host::host::ServerSpec;
use headroom_lab_host::programs::Program;

use super::fetch::{self, Account};
use super::nginx::NGINX;
use super::tls::Tls;
use super::{ClientReport, Invocation, Service, Site, nginx};
use crate::workload::{Kind, Task};

pub(super) struct Https;

impl Service for Https {
    fn name(&self) -> &'static str {
        "https"
    }

    fn about(&self) -> &'static str {
        "HTTP/1.1 over TLS 1.3: nginx, libcurl"
    }

    fn secured(&self) -> bool {
        true
    }

    fn baseline(&self) -> Option<&'static str> {
        Some("http")
    }

    fn programs(&self) -> &'static [Program] {
        &[NGINX]
    }

    fn port(&self) -> u16 {
        443
    }

    fn accepts(&self, kind: Kind) -> bool {
        kind.moves_files() || kind == Kind::Page
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

    fn facts(&self) -> Vec<(&'static str, &'static str)> {
        let mut facts = vec![("encryption", "TLS 1.3")];
        facts.extend(Tls::MODERN.facts());
        facts.extend([
            ("resumption", "off: each connection is a full handshake"),
            ("version", "HTTP/1.1"),
            ("verification", "each record by TLS, none of the whole file"),
        ]);
        facts
    }
}
