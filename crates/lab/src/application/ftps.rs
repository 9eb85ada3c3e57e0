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
use super::tls::{Key, Resumption, Tls, Version};
use super::{Application, ClientReport, Invocation, Site, pure_ftpd};
use crate::catalogue::{Entry, Fact, Make, stated, titled};
use crate::properties::Properties;
use crate::workload::{Task, WorkloadKind};

/// The application with the TLS that its options want.
struct Ftps {
    tls: Tls,
    /// Those of the options that choose version, cipher and key, in the order of results.
    of_tls: Vec<String>,
}

/// The option for data connections that resume the TLS session of the control connection.
const REUSE: &str = "reuse";
/// What the same is called where a session of an earlier connection is resumed.
const RESUMPTION: &str = "resumption";

pub(super) const ENTRY: Entry<dyn Application> = Entry {
    name: "ftps",
    about: "FTP over TLS, explicit, data protected: pure-ftpd, libcurl",
    programs: &[PURE_FTPD, PURE_PW, OPENSSL],
    make: Make::Configured {
        known: || {
            "tls1.2, rsa (RSA certificate) or both; or aes128-sha (TLS 1.2, AES-128-CBC, SHA-1, RSA \
             key exchange); with TLS 1.2 also reuse (data connections resume the TLS session of the \
             control connection)"
                .to_owned()
        },
        read: |options| {
            let (reuse, mut sorted): (Vec<&str>, Vec<&str>) =
                options.iter().partition(|option| *option == REUSE);
            sorted.sort_unstable();
            let tls12 = |cipher, key| Tls { version: Version::Tls12, cipher, key, ..Tls::MODERN };
            let mut tls = match sorted[..] {
                [] => Tls::MODERN,
                ["rsa"] => Tls { key: Key::Rsa, ..Tls::MODERN },
                ["tls1.2"] => tls12("ECDHE-ECDSA-AES128-GCM-SHA256", Key::Ecdsa),
                ["rsa", "tls1.2"] => tls12("ECDHE-RSA-AES128-GCM-SHA256", Key::Rsa),
                // The suite of the studies. ECDSA has none with it, and the client alone
                // decides: a server that offers nothing else is offered nothing by today's
                // clients.
                ["aes128-sha"] => tls12("AES128-SHA", Key::Rsa),
                _ if sorted.contains(&RESUMPTION) => return Err(NO_RESUMPTION.to_owned()),
                _ => return Err(options.unknown(&sorted.join(","))),
            };
            if !reuse.is_empty() {
                if tls.version == Version::Tls13 {
                    return Err(NO_REUSE.to_owned());
                }
                tls.resumption = Resumption::DataConnections;
            }
            let of_tls: Vec<String> = sorted.into_iter().map(str::to_owned).collect();
            let chosen = of_tls.iter().cloned().chain(reuse.into_iter().map(str::to_owned));
            Ok((chosen.collect(), Arc::new(Ftps { tls, of_tls })))
        },
    },
};

/// Pure-FTPd 1.0.50 sets the number of TLS 1.3 tickets to 0 (src/tls.c), and OpenSSL resumes TLS
/// 1.3 by tickets alone.
const NO_REUSE: &str = "`ftps(reuse)` needs TLS 1.2, as in `ftps(tls1.2,reuse)`: a session of TLS 1.3 is resumed by \
                        a ticket, and Pure-FTPd issues none";

/// Pure-FTPd keeps sessions in the process that serves a control connection. Its TLS 1.2 would also
/// issue tickets, but libcurl sets `SSL_OP_NO_TICKET` (lib/vtls/openssl.c).
const NO_RESUMPTION: &str = "`ftps` cannot resume the TLS session of an earlier control connection: Pure-FTPd forgets \
                             it when that connection ends, and libcurl asks for no session tickets of TLS 1.2; \
                             `ftps(tls1.2,reuse)` resumes it on data connections";

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
        let reuses = self.tls.resumption == Resumption::DataConnections;
        let without = reuses.then(|| titled(ENTRY.name, &self.of_tls));
        without.into_iter().chain(["ftp".to_owned()]).collect()
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
        let reuses = self.tls.resumption == Resumption::DataConnections;
        let (encryption, resumption) = match self.tls.version {
            Version::Tls12 if reuses => (
                "TLS 1.2, control and data connection",
                "on each data connection, of the control connection's session by its identifier; each sample \
                 verifies it",
            ),
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

#[cfg(test)]
mod tests {
    use crate::application::ALL;

    #[test]
    fn reuse_goes_with_tls_1_2_and_is_compared_with_the_same_without() {
        for (written, title, baselines) in [
            ("ftps(rsa)", "ftps(rsa)", "ftp"),
            ("ftps(reuse,tls1.2)", "ftps(tls1.2,reuse)", "ftps(tls1.2) ftp"),
            ("ftps(tls1.2,reuse,rsa)", "ftps(rsa,tls1.2,reuse)", "ftps(rsa,tls1.2) ftp"),
            ("ftps(aes128-sha,reuse)", "ftps(aes128-sha,reuse)", "ftps(aes128-sha) ftp"),
        ] {
            let chosen = ALL.parse(written).expect(written);
            let found = (chosen.title(), chosen.baselines().join(" "));
            assert_eq!(found, (title.to_owned(), baselines.to_owned()));
        }
        for (refused, words) in [
            ("reuse", "`ftps(reuse)` needs TLS 1.2, as in `ftps(tls1.2,reuse)`"),
            ("rsa,reuse", "Pure-FTPd issues none"),
            ("resumption", "cannot resume the TLS session of an earlier control connection"),
            ("tls1.2,resumption", "`ftps(tls1.2,reuse)` resumes it on data connections"),
            ("tls1.3,reuse", "`ftps` has no option `tls1.3`"),
            ("tls1.2,reuse,reuse", "is given `reuse` twice"),
        ] {
            let error = ALL.parse(&format!("ftps({refused})")).map(drop).expect_err(refused);
            assert!(error.contains(words), "{error}");
        }
    }

    #[test]
    fn what_data_connections_resume_is_a_setting_of_the_record() {
        let resumption = |written: &str| {
            let facts = ALL.parse(written).expect(written).facts();
            let fact = facts.into_iter().find(|(what, _)| *what == "resumption");
            fact.map(|(_, fact)| fact).expect("a fact")
        };
        assert!(resumption("ftps(tls1.2,reuse)").starts_with("on each data connection"));
        for written in ["ftps", "ftps(tls1.2)", "ftps(aes128-sha)"] {
            assert!(resumption(written).starts_with("off: each connection"), "{written}");
        }
    }
}
