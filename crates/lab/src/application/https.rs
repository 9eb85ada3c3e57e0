//! HTTP over TLS (RFC 9110 §4.2.2) and over QUIC: nginx, and libcurl, curl or a browser.

use std::sync::Arc;

use headroom_lab_host::agent::Outcome;
use headroom_lab_host::error::Result;
use headroom_lab_host::host::{Host, ServerSpec};
use headroom_lab_host::programs::Program;

use super::browser::{self, CHROMIUM, OPTION};
use super::fetch::{self, Account};
use super::http3::{self, CURL, OverQuic};
use super::nginx::{NGINX, Protocol, Records};
use super::tls::{Key, Resumption, Tls};
use super::{Application, ClientReport, Invocation, SessionCount, Site, ktls, nginx};
use crate::catalogue::{Entry, Fact, Make, stated, titled};
use crate::properties::Properties;
use crate::workload::{Task, WorkloadKind};

struct Https {
    /// The only one that the client offers; none: those of its TLS library, X25519 with ML-KEM-768
    /// first, of which the server takes the best that it knows.
    key_exchange: Option<KeyExchange>,
    version: Version,
    /// The kind of the server's certificate and what is resumed are options, the rest is pinned.
    tls: Tls,
    /// Who encrypts what the server sends.
    records: Records,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Version {
    Http1,
    Http2,
}

/// The option for HTTP/2.
const HTTP2: &str = "h2";
/// The option for a certificate that resists quantum computers. The client's TLS library verifies
/// it without being asked to.
const ML_DSA: &str = "mldsa65";
/// The option for connections that resume a TLS session.
const RESUMPTION: &str = "resumption";
/// The option for records that the server's kernel encrypts.
const KTLS: &str = "ktls";

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
             needs OpenSSL 3.5), mldsa65 (certificate of ML-DSA-65; needs OpenSSL 3.5), resumption (of a TLS \
             session that was set up before), ktls (the server's kernel encrypts what is sent; needs its \
             module tls: `lab doctor`), alone or with h2"
                .to_owned()
        },
        read: |options| {
            let all: Vec<&str> = options.iter().collect();
            match all[..] {
                [OPTION] => return Ok((vec![OPTION.to_owned()], Arc::new(InBrowser))),
                [http3::OPTION] => return Ok((vec![http3::OPTION.to_owned()], Arc::new(OverQuic))),
                _ => {}
            }
            let mut https = Https {
                key_exchange: None,
                version: Version::Http1,
                tls: Tls::MODERN,
                records: Records::ByOpenssl,
            };
            for &option in &all {
                let chosen = KeyExchange::ALL.into_iter().find(|one| one.option() == option);
                match (option, chosen, https.key_exchange) {
                    (_, Some(_), None) => https.key_exchange = chosen,
                    (HTTP2, ..) => https.version = Version::Http2,
                    (ML_DSA, ..) => https.tls.key = Key::MlDsa65,
                    (RESUMPTION, ..) => https.tls.resumption = Resumption::Session,
                    (KTLS, ..) => https.records = Records::ByKernel,
                    _ => return Err(options.unknown(option)),
                }
            }
            let chosen = https.options().into_iter().map(str::to_owned).collect();
            Ok((chosen, Arc::new(https)))
        },
    },
};

impl Https {
    /// Whether the server's kernel encrypts what is sent.
    fn has_ktls(&self) -> bool {
        self.records == Records::ByKernel
    }

    /// Lists its options in the order of results.
    fn options(&self) -> Vec<&'static str> {
        let certificate = (self.tls.key == Key::MlDsa65).then_some(ML_DSA);
        let resumption = (self.tls.resumption == Resumption::Session).then_some(RESUMPTION);
        let ktls = self.has_ktls().then_some(KTLS);
        self.version_and_keys().chain(certificate).chain(resumption).chain(ktls).collect()
    }

    /// The first of them: the version of HTTP and the key exchange.
    fn version_and_keys(&self) -> impl Iterator<Item = &'static str> {
        let version = (self.version == Version::Http2).then_some(HTTP2);
        version.into_iter().chain(self.key_exchange.map(KeyExchange::option))
    }
}

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

    fn require(&self) -> Result<()> {
        self.tls.require()
    }

    fn require_kernel(&self) -> Result<()> {
        if self.has_ktls() { ktls::require() } else { Ok(()) }
    }

    fn baselines(&self) -> Vec<String> {
        // what differs in one thing alone comes first: one option fewer, and one more fewer
        let options = self.options();
        let fewer = (self.version_and_keys().count()..options.len()).rev();
        let fewer = fewer.map(|kept| titled(ENTRY.name, &options[..kept]));
        let nearest = match (self.version, self.key_exchange) {
            (Version::Http2, _) => Some("https"),
            (Version::Http1, Some(KeyExchange::Mlkem768)) => Some("https(x25519)"),
            (Version::Http1, _) => None,
        };
        fewer.chain(nearest.into_iter().chain(["http"]).map(str::to_owned)).collect()
    }

    fn port(&self) -> u16 {
        443
    }

    fn accepts(&self, kind: WorkloadKind) -> bool {
        // in a closed loop the set-up of each session to resume would be a part of the load
        let has_prelude = self.tls.resumption == Resumption::Session;
        (kind.moves_files() || kind == WorkloadKind::Page)
            && !(has_prelude && kind.is_closed_loop())
    }

    fn server(&self, site: &Site<'_>) -> Result<ServerSpec> {
        let protocol = match self.version {
            Version::Http1 => Protocol::Https,
            Version::Http2 => Protocol::Http2,
        };
        nginx::server_with(site, protocol, &self.tls, self.records)
    }

    fn client(&self, site: &Site<'_>, task: &Task) -> Result<Invocation> {
        let account = Account {
            tls: Some(&self.tls),
            groups: self.key_exchange.map(KeyExchange::group),
            http2: self.version == Version::Http2,
            ..Account::of("https")
        };
        fetch::client(site, &account, task)
    }

    fn client_report(&self, outcome: &Outcome) -> ClientReport {
        fetch::report(outcome, Some(&self.tls))
    }

    fn session_count(&self, server: &Host) -> Result<Option<SessionCount>> {
        Ok(self.has_ktls().then(|| ktls::session_count(server)))
    }

    fn facts(&self) -> Vec<Fact> {
        let mut facts = stated([("encryption", "TLS 1.3")]);
        facts.extend(self.tls.facts());
        facts.extend(self.key_exchange.map(|only| ("key exchange", only.group().to_owned())));
        if self.has_ktls() {
            facts.extend(stated([(
                "records",
                "what the server sends is encrypted by its kernel (kTLS), files by sendfile; each sample verifies it",
            )]));
        }
        let version = match self.version {
            Version::Http1 => "HTTP/1.1",
            Version::Http2 => "HTTP/2, one request at a time",
        };
        let resumption = match self.tls.resumption {
            Resumption::Off | Resumption::DataConnections => {
                "off: each connection is a full handshake"
            }
            Resumption::Session => {
                "each connection resumes a TLS session that the client set up before, with a key exchange and \
                 without early data; each sample verifies it"
            }
        };
        facts.extend(stated([
            ("resumption", resumption),
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

#[cfg(test)]
mod tests {
    use crate::application::ALL;
    use crate::workload::WorkloadKind;

    #[test]
    fn writes_options_in_one_order_and_names_its_baselines() {
        for (written, title, baselines) in [
            ("https(mldsa65)", "https(mldsa65)", "https http"),
            (
                "https(mldsa65,mlkem768)",
                "https(mlkem768,mldsa65)",
                "https(mlkem768) https(x25519) http",
            ),
            (
                "https(mldsa65,mlkem768,h2)",
                "https(h2,mlkem768,mldsa65)",
                "https(h2,mlkem768) https http",
            ),
            ("https(mlkem768)", "https(mlkem768)", "https(x25519) http"),
            ("https(h2)", "https(h2)", "https http"),
            ("https(ktls)", "https(ktls)", "https http"),
            ("https(ktls,h2)", "https(h2,ktls)", "https(h2) https http"),
            (
                "https(ktls,mldsa65,mlkem768)",
                "https(mlkem768,mldsa65,ktls)",
                "https(mlkem768,mldsa65) https(mlkem768) https(x25519) http",
            ),
            ("https(resumption)", "https(resumption)", "https http"),
            ("https(resumption,h2)", "https(h2,resumption)", "https(h2) https http"),
            (
                "https(ktls,resumption,mldsa65,mlkem768)",
                "https(mlkem768,mldsa65,resumption,ktls)",
                "https(mlkem768,mldsa65,resumption) https(mlkem768,mldsa65) https(mlkem768) \
                 https(x25519) http",
            ),
        ] {
            let chosen = ALL.parse(written).expect(written);
            let found = (chosen.title(), chosen.baselines().join(" "));
            assert_eq!(found, (title.to_owned(), baselines.to_owned()));
        }
        for refused in [
            "x25519,mlkem768",
            "h3,mldsa65",
            "browser,mldsa65",
            "h3,ktls",
            "h3,resumption",
            "browser,resumption",
            "mldsa44",
        ] {
            let error = ALL.parse(&format!("https({refused})")).map(drop).expect_err(refused);
            assert!(error.contains("`https` has no option"), "{error}");
        }
    }

    #[test]
    fn a_resumed_session_is_a_setting_of_the_record_and_no_part_of_a_closed_loop() {
        let resumption = |written: &str| {
            let facts = ALL.parse(written).expect(written).facts();
            facts.into_iter().find(|(what, _)| *what == "resumption").map(|(_, fact)| fact)
        };
        assert!(resumption("https").is_some_and(|fact| fact.starts_with("off")));
        let fact = resumption("https(resumption)").expect("a fact");
        assert!(fact.starts_with("each connection resumes") && fact.contains("without early data"));
        for (written, accepts) in [("https", true), ("https(resumption)", false)] {
            let https = ALL.parse(written).expect(written);
            assert_eq!(https.accepts(WorkloadKind::Sessions), accepts, "{written}");
            assert!(https.accepts(WorkloadKind::Download) && https.accepts(WorkloadKind::Page));
        }
    }

    #[test]
    fn a_certificate_of_ml_dsa_is_a_setting_of_the_record() {
        let key = |written: &str| {
            let facts = ALL.parse(written).expect(written).facts();
            facts.into_iter().find(|(what, _)| *what == "key").map(|(_, key)| key)
        };
        assert_eq!(key("https(mlkem768,mldsa65)").as_deref(), Some("ML-DSA-65"));
        assert_eq!(key("https(mlkem768)").as_deref(), Some("ECDSA P-256"));
    }
}
