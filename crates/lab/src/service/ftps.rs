//! FTP over TLS, explicit (RFC 4217): Pure-FTPd and libcurl, control and data
//! connection both protected.

use headroom_lab_host::agent::Outcome;
use headroom_lab_host::error::Result;
use headroom_lab_host::host::ServerSpec;
use headroom_lab_host::programs::{OPENSSL, Program};

use super::fetch::{self, Account};
use super::pure_ftpd::{PURE_FTPD, PURE_PW};
use super::site::FTP_USER;
use super::tls::{Key, Tls, Version};
use super::{ClientReport, Invocation, Service, Site, pure_ftpd};
use crate::workload::{Kind, Task};

/// The service with the TLS that its words want.
pub(super) struct Ftps {
    name: &'static str,
    tls: Tls,
}

const WORDS: &str = "tls1.2 and rsa (a certificate of RSA), alone or both, AES-128-GCM; or \
                     aes128-sha (TLS 1.2, AES-128-CBC and SHA-1, keys by RSA)";

/// Pure-FTPd takes P-256 alone: a client that brings a share of another group, as OpenSSL
/// does, is asked again in each handshake (RFC 8446 §4.1.4).
const GROUPS: &str = "P-256:X25519";

impl Ftps {
    pub(super) const MODERN: Self = Self { name: "ftps", tls: Tls::MODERN };
    const MODERN_RSA: Self = Self { name: "ftps(rsa)", tls: Tls { key: Key::Rsa, ..Tls::MODERN } };
    const TLS12: Self = Self {
        name: "ftps(tls1.2)",
        tls: Tls {
            version: Version::Tls12,
            cipher: "ECDHE-ECDSA-AES128-GCM-SHA256",
            key: Key::Ecdsa,
        },
    };
    const TLS12_RSA: Self = Self {
        name: "ftps(rsa,tls1.2)",
        tls: Tls { version: Version::Tls12, cipher: "ECDHE-RSA-AES128-GCM-SHA256", key: Key::Rsa },
    };
    /// The suite of the studies. ECDSA has none with it, and the client alone decides:
    /// a server that offers nothing else is offered nothing by today's clients.
    const AES128_SHA: Self = Self {
        name: "ftps(aes128-sha)",
        tls: Tls { version: Version::Tls12, cipher: "AES128-SHA", key: Key::Rsa },
    };
}

impl Service for Ftps {
    fn name(&self) -> &'static str {
        self.name
    }

    fn about(&self) -> &'static str {
        "FTP over TLS, explicit, data protected: pure-ftpd, libcurl"
    }

    fn words(&self) -> Option<&'static str> {
        Some(WORDS)
    }

    fn with(&self, words: &[&str]) -> std::result::Result<&'static dyn Service, String> {
        let mut words = words.to_vec();
        words.sort_unstable();
        match words[..] {
            ["aes128-sha"] => Ok(&Self::AES128_SHA),
            ["rsa"] => Ok(&Self::MODERN_RSA),
            ["tls1.2"] => Ok(&Self::TLS12),
            ["rsa", "tls1.2"] => Ok(&Self::TLS12_RSA),
            _ => Err(format!("`ftps` knows no `{}`; the words are {WORDS}", words.join(","))),
        }
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
        pure_ftpd::server(site, Some(&self.tls))
    }

    fn client(&self, site: &Site<'_>, task: &Task) -> Result<Invocation> {
        let account = Account {
            scheme: "ftp",
            user: Some(FTP_USER),
            tls: Some(&self.tls),
            groups: Some(GROUPS),
        };
        fetch::client(site, &account, task)
    }

    fn data_connections(&self) -> bool {
        true
    }

    fn client_report(&self, outcome: &Outcome) -> ClientReport {
        fetch::report(outcome, Some(&self.tls))
    }

    fn facts(&self) -> Vec<(&'static str, &'static str)> {
        let encryption = match self.tls.version {
            Version::Tls12 => "TLS 1.2, control and data connection",
            Version::Tls13 => "TLS 1.3, control and data connection",
        };
        let mut facts = vec![("encryption", encryption)];
        facts.extend(self.tls.facts());
        facts.extend([
            (
                "key exchange",
                "P-256, which Pure-FTPd asks for; clients that begin with another group take a round trip more in \
                 each handshake",
            ),
            (
                "resumption",
                "off: each connection is a full handshake; clients that resume the control connection's session on \
                 the data connection save CPU time and bytes, with TLS 1.3 no round trip",
            ),
            ("mode", "explicit (AUTH TLS), passive (EPSV), binary"),
            ("verification", "each record by TLS, none of the whole file"),
        ]);
        facts
    }
}
