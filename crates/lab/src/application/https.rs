//! HTTP over TLS (RFC 9110 §4.2.2) and over QUIC: nginx, and libcurl, curl or a browser.

use std::sync::Arc;

use headroom_lab_host::agent::Outcome;
use headroom_lab_host::error::Result;
use headroom_lab_host::host::ServerSpec;
use headroom_lab_host::programs::Program;

use super::browser::{self, CHROMIUM, OPTION};
use super::fetch::{self, Account};
use super::http3::{self, CURL, OverQuic};
use super::nginx::{NGINX, Protocol};
use super::tls::Tls;
use super::{Application, ClientReport, Invocation, Site, nginx};
use crate::catalogue::{Entry, Fact, Make, stated};
use crate::properties::Properties;
use crate::workload::{Task, WorkloadKind};

struct Https {
    /// The only one that the client offers; none: those of its TLS library, X25519 with ML-KEM-768
    /// first, of which the server takes the best that it knows.
    key_exchange: Option<KeyExchange>,
    version: Version,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Version {
    Http1,
    Http2,
}

/// The option for HTTP/2.
const HTTP2: &str = "h2";

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
    programs: &[NGINX, CHROMIUM, CURL],
    make: Make::Configured {
        known: || {
            "h2 (HTTP/2), h3 (HTTP/3, by curl; needs nginx 1.25 and a curl that has it), browser (Chromium \
             in place of libcurl), x25519 or mlkem768 (the only key exchange that libcurl offers; mlkem768 \
             needs OpenSSL 3.5), alone or with h2"
                .to_owned()
        },
        read: |options| {
            let all: Vec<&str> = options.iter().collect();
            match all[..] {
                [OPTION] => return Ok((vec![OPTION.to_owned()], Arc::new(InBrowser))),
                [http3::OPTION] => return Ok((vec![http3::OPTION.to_owned()], Arc::new(OverQuic))),
                _ => {}
            }
            let mut https = Https { key_exchange: None, version: Version::Http1 };
            for &option in &all {
                let chosen = KeyExchange::ALL.into_iter().find(|one| one.option() == option);
                match (chosen, https.key_exchange) {
                    (Some(_), None) => https.key_exchange = chosen,
                    (None, _) if option == HTTP2 && https.version == Version::Http1 => {
                        https.version = Version::Http2;
                    }
                    _ => return Err(options.unknown(option)),
                }
            }
            let version = (https.version == Version::Http2).then_some(HTTP2);
            let chosen = version.into_iter().chain(https.key_exchange.map(KeyExchange::option));
            Ok((chosen.map(str::to_owned).collect(), Arc::new(https)))
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
        let nearest = match (self.version, self.key_exchange) {
            (Version::Http2, _) => Some("https"),
            (Version::Http1, Some(KeyExchange::Mlkem768)) => Some("https(x25519)"),
            (Version::Http1, _) => None,
        };
        nearest.into_iter().chain(["http"]).map(str::to_owned).collect()
    }

    fn port(&self) -> u16 {
        443
    }

    fn accepts(&self, kind: WorkloadKind) -> bool {
        kind.moves_files() || kind == WorkloadKind::Page
    }

    fn server(&self, site: &Site<'_>) -> Result<ServerSpec> {
        let protocol = match self.version {
            Version::Http1 => Protocol::Https,
            Version::Http2 => Protocol::Http2,
        };
        nginx::server(site, protocol)
    }

    fn client(&self, site: &Site<'_>, task: &Task) -> Result<Invocation> {
        let account = Account {
            tls: Some(&Tls::MODERN),
            groups: self.key_exchange.map(KeyExchange::group),
            http2: self.version == Version::Http2,
            ..Account::of("https")
        };
        fetch::client(site, &account, task)
    }

    fn client_report(&self, outcome: &Outcome) -> ClientReport {
        fetch::report(outcome, Some(&Tls::MODERN))
    }

    fn facts(&self) -> Vec<Fact> {
        let mut facts = stated([("encryption", "TLS 1.3")]);
        facts.extend(Tls::MODERN.facts());
        facts.extend(self.key_exchange.map(|only| ("key exchange", only.group().to_owned())));
        let version = match self.version {
            Version::Http1 => "HTTP/1.1",
            Version::Http2 => "HTTP/2, one request at a time",
        };
        facts.extend(stated([
            ("resumption", "off: each connection is a full handshake"),
            ("version", version),
            ("verification", "each record by TLS, none of the whole file"),
        ]));
        facts
    }
}

impl Application for InBrowser {
    fn properties(&self) -> Option<Properties> {
        Some(Properties { forward_secrecy: true, ..Properties::CLEAR })
    }

    fn needs(&self, _: &'static [Program]) -> &'static [Program] {
        &[NGINX, CHROMIUM]
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
        nginx::server(site, Protocol::Https)
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
