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

struct Https {
    /// The only one that the client offers; none: those of its TLS library, X25519 with ML-KEM-768
    /// first, of which the server takes the best that it knows.
    key_exchange: Option<KeyExchange>,
}

/// How both sides agree on keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum KeyExchange {
    X25519,
    /// X25519 with ML-KEM-768, which resists quantum computers (draft-ietf-tls-ecdhe-mlkem);
    /// OpenSSL 3.5 and later.
    Mlkem768,
}

impl KeyExchange {
    const ALL: [Self; 2] = [Self::X25519, Self::Mlkem768];

    /// The option that chooses it.
    fn option(self) -> &'static str {
        match self {
            Self::X25519 => "x25519",
            Self::Mlkem768 => "mlkem768",
        }
    }

    /// Its name in OpenSSL.
    fn group(self) -> &'static str {
        match self {
            Self::X25519 => "X25519",
            Self::Mlkem768 => "X25519MLKEM768",
        }
    }
}

pub(super) const ENTRY: Entry<dyn Application> = Entry {
    name: "https",
    about: "HTTP/1.1 over TLS 1.3: nginx, libcurl",
    programs: &[NGINX, CHROMIUM],
    make: Make::Configured {
        known: || {
            "browser (Chromium in place of libcurl), x25519 or mlkem768 (the only key exchange that \
             libcurl offers; mlkem768 needs OpenSSL 3.5)"
                .to_owned()
        },
        read: |options| {
            let mut all = options.iter();
            let (first, second) = (all.next(), all.next());
            if let Some(second) = second {
                return Err(options.unknown(second));
            }
            let chosen = |one: &KeyExchange| Some(one.option()) == first;
            let key_exchange = KeyExchange::ALL.into_iter().find(chosen);
            match (first, key_exchange) {
                (Some(OPTION), _) => Ok((vec![OPTION.to_owned()], Arc::new(InBrowser))),
                (Some(other), None) => Err(options.unknown(other)),
                (given, key_exchange) => {
                    let given = given.map(str::to_owned).into_iter().collect();
                    Ok((given, Arc::new(Https { key_exchange })))
                }
            }
        },
    },
};

/// The same server, and a page's `fetch` in Chromium.
struct InBrowser;

impl Application for Https {
    fn properties(&self) -> Option<Properties> {
        let post_quantum = self.key_exchange == Some(KeyExchange::Mlkem768);
        Some(Properties { forward_secrecy: true, post_quantum, ..Properties::CLEAR })
    }

    fn secured(&self) -> bool {
        true
    }

    fn needs(&self, _: &'static [Program]) -> &'static [Program] {
        &[NGINX]
    }

    fn baselines(&self) -> Vec<String> {
        let classical = match self.key_exchange {
            Some(KeyExchange::Mlkem768) => Some("https(x25519)"),
            _ => None,
        };
        classical.into_iter().chain(["http"]).map(str::to_owned).collect()
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
        let groups = self.key_exchange.map(KeyExchange::group);
        fetch::client(
            site,
            &Account { scheme: "https", user: None, tls: Some(&Tls::MODERN), groups },
            task,
        )
    }

    fn client_report(&self, outcome: &Outcome) -> ClientReport {
        fetch::report(outcome, Some(&Tls::MODERN))
    }

    fn facts(&self) -> Vec<Fact> {
        let mut facts = stated([("encryption", "TLS 1.3")]);
        facts.extend(Tls::MODERN.facts());
        facts.extend(self.key_exchange.map(|only| ("key exchange", only.group().to_owned())));
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
