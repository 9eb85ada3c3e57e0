//! FTP over TLS, explicit (RFC 4217): Pure-FTPd and libcurl, control and data
//! connection both protected.

use super::fetch::{self, Account, CIPHER};
use super::site::FTP_USER;
use super::{ClientReport, Invocation, ServerSpec, Service, Site, pure_ftpd};
use crate::agent::Outcome;
use crate::error::Result;
use crate::parts::{OPENSSL, PURE_FTPD, PURE_PW, Program};
use crate::workload::{Kind, Task};

pub(super) struct Ftps;

impl Service for Ftps {
    fn name(&self) -> &'static str {
        "ftps"
    }

    fn about(&self) -> &'static str {
        "FTP over TLS, explicit, data protected: pure-ftpd, libcurl"
    }

    fn secured(&self) -> bool {
        true
    }

    fn baseline(&self) -> Option<&'static str> {
        Some("ftp")
    }

    fn programs(&self) -> &'static [Program] {
        &[PURE_FTPD, PURE_PW, OPENSSL]
    }

    fn port(&self) -> u16 {
        2121
    }

    fn accepts(&self, kind: Kind) -> bool {
        kind.moves_files()
    }

    fn server(&self, site: &Site<'_>) -> Result<ServerSpec> {
        pure_ftpd::server(site, true)
    }

    fn client(&self, site: &Site<'_>, task: &Task) -> Result<Invocation> {
        fetch::client(site, &Account { scheme: "ftp", user: Some(FTP_USER), tls: true }, task)
    }

    fn data_connections(&self) -> bool {
        true
    }

    fn client_report(&self, outcome: &Outcome) -> ClientReport {
        fetch::report(outcome)
    }

    fn facts(&self) -> Vec<(&'static str, &'static str)> {
        vec![
            ("encryption", "TLS 1.3, control and data connection"),
            ("cipher", CIPHER),
            ("key", "ECDSA P-256"),
            ("resumption", "off: each connection is a full handshake"),
            ("mode", "explicit, passive (EPSV), binary"),
            ("verification", "each record by TLS, none of the whole file"),
        ]
    }
}
