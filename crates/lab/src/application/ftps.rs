//! FTP over TLS, explicit (RFC 4217): Pure-FTPd and libcurl, control and data
//! connection both protected.

use std::sync::Arc;

use headroom_lab_host::agent::Outcome;
use headroom_lab_host::error::Result;
use headroom_lab_host::host::ServerSpec;
use headroom_lab_host::programs::OPENSSL;

use super::fetch::{self, Account};
use super::pure_ftpd::{PURE_FTPD, PURE_PW};
use super::site::FTP_USER;
use super::tls::{Key, Tls, Version};
use super::{Application, ClientReport, Invocation, Site, pure_ftpd};
use crate::catalogue::{Entry, Fact, Make, stated};
use crate::properties::Properties;
use crate::workload::{Task, WorkloadKind};

/// The application with the TLS that its options want.
struct Ftps {
    tls: Tls,
}

pub(super) const ENTRY: Entry<dyn Application> = Entry {
    name: "ftps",
    about: "FTP over TLS, explicit, data protected: pure-ftpd, libcurl",
    programs: &[PURE_FTPD, PURE_PW, OPENSSL],
    make: Make::Configured {
        known: || {
            "tls1.2, rsa (RSA certificate) or both; or aes128-sha (TLS 1.2, AES-128-CBC, SHA-1, RSA \
             key exchange)"
                .to_owned()
        },
        read: |options| {
            let mut sorted: Vec<&str> = options.iter().collect();
            sorted.sort_unstable();
            let tls12 = |cipher, key| Tls { version: Version::Tls12, cipher, key };
            let tls = match sorted[..] {
                [] => Tls::MODERN,
                ["rsa"] => Tls { key: Key::Rsa, ..Tls::MODERN },
                ["tls1.2"] => tls12("ECDHE-ECDSA-AES128-GCM-SHA256", Key::Ecdsa),
                ["rsa", "tls1.2"] => tls12("ECDHE-RSA-AES128-GCM-SHA256", Key::Rsa),
                // The suite of the studies. ECDSA has none with it, and the client alone
                // decides: a server that offers nothing else is offered nothing by today's
                // clients.
                ["aes128-sha"] => tls12("AES128-SHA", Key::Rsa),
                _ => return Err(options.unknown(&sorted.join(","))),
            };
            Ok((sorted.into_iter().map(str::to_owned).collect(), Arc::new(Ftps { tls })))
        },
    },
};

/// Pure-FTPd takes P-256 alone: a client that brings a share of another group, as OpenSSL
/// does, is asked again in each handshake (RFC 8446 §4.1.4).
const GROUPS: &str = "P-256:X25519";

impl Application for Ftps {
    fn properties(&self) -> Option<Properties> {
        Some(Properties { forward_secrecy: self.tls.has_forward_secrecy(), ..Properties::SSH })
    }

    fn secured(&self) -> bool {
        true
    }

    fn baselines(&self) -> Vec<String> {
        vec!["ftp".to_owned()]
    }

    fn port(&self) -> u16 {
        2121
    }

    fn accepts(&self, kind: WorkloadKind) -> bool {
        kind.moves_files()
    }

    fn server(&self, site: &Site<'_>) -> Result<ServerSpec> {
        pure_ftpd::server(site, Some(&self.tls))
    }

    fn client(&self, site: &Site<'_>, task: &Task) -> Result<Invocation> {
        let account = Account {
            user: Some(FTP_USER),
            tls: Some(&self.tls),
            groups: Some(GROUPS),
            ..Account::of("ftp")
        };
        fetch::client(site, &account, task)
    }

    fn data_connections(&self) -> bool {
        true
    }

    fn client_report(&self, outcome: &Outcome) -> ClientReport {
        fetch::report(outcome, Some(&self.tls))
    }

    fn facts(&self) -> Vec<Fact> {
        let (encryption, resumption) = match self.tls.version {
            Version::Tls12 => (
                "TLS 1.2, control and data connection",
                "off: each connection is a full handshake; clients that resume the control connection's session on \
                 the data connection save a round trip, CPU time and bytes",
            ),
            Version::Tls13 => (
                "TLS 1.3, control and data connection",
                "off: each connection is a full handshake; Pure-FTPd issues no session tickets",
            ),
        };
        let mut facts = stated([("encryption", encryption)]);
        facts.extend(self.tls.facts());
        facts.extend(stated([
            (
                "key exchange",
                "P-256, which Pure-FTPd asks for; clients that begin with another group take a round trip more in \
                 each handshake",
            ),
            ("resumption", resumption),
            ("mode", "explicit (AUTH TLS), passive (EPSV), binary"),
            ("verification", "each record by TLS, none of the whole file"),
        ]));
        facts
    }
}
