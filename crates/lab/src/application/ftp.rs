//! FTP in clear (RFC 959, RFC 2428): Pure-FTPd and libcurl.

use std::sync::Arc;

use headroom_lab_host::agent::Outcome;
use headroom_lab_host::error::Result;
use headroom_lab_host::host::ServerSpec;
use headroom_lab_host::programs::OPENSSL;

use super::fetch::{self, Account};
use super::pure_ftpd::{PURE_FTPD, PURE_PW};
use super::site::FTP_USER;
use super::{Application, ClientReport, Invocation, Site, pure_ftpd};
use crate::catalogue::{Entry, Fact, Make, stated};
use crate::properties::Properties;
use crate::workload::{Task, WorkloadKind};

struct Ftp;

pub(super) const ENTRY: Entry<dyn Application> = Entry {
    name: "ftp",
    about: "FTP in clear: pure-ftpd, libcurl",
    programs: &[PURE_FTPD, PURE_PW, OPENSSL],
    make: Make::Fixed(|| Arc::new(Ftp)),
};

impl Application for Ftp {
    fn properties(&self) -> Option<Properties> {
        Some(Properties::CLEAR)
    }

    fn secured(&self) -> bool {
        false
    }

    fn port(&self) -> u16 {
        21
    }

    fn accepts(&self, kind: WorkloadKind) -> bool {
        kind.moves_files()
    }

    fn server(&self, site: &Site<'_>) -> Result<ServerSpec> {
        pure_ftpd::server(site, None)
    }

    fn client(&self, site: &Site<'_>, task: &Task) -> Result<Invocation> {
        fetch::client(site, &Account { user: Some(FTP_USER), ..Account::of("ftp") }, task)
    }

    fn data_connections(&self) -> bool {
        true
    }

    fn client_report(&self, outcome: &Outcome) -> ClientReport {
        fetch::report(outcome, None)
    }

    fn facts(&self) -> Vec<Fact> {
        stated([
            ("encryption", "none"),
            ("mode", "passive (EPSV), binary"),
            ("verification", "none apart from the checksums of TCP"),
        ])
    }
}
