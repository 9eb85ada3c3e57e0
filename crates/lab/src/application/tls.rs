//! TLS as both ends of an application are pinned to it: version, cipher suite, and the
//! kind of key in the server's certificate.

use std::path::PathBuf;

use headroom_lab_host::error::{Error, Result};
use headroom_lab_host::programs::{OPENSSL, SearchPath};

use super::Site;
use super::site::make_certificate;
use crate::catalogue::{Fact, stated};

/// The TLS 1.3 cipher suite that all TLS stacks are pinned to by default.
pub(crate) const CIPHER: &str = "TLS_AES_128_GCM_SHA256";

/// The pinned TLS settings.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Tls {
    pub(super) version: Version,
    /// In OpenSSL's notation.
    pub(super) cipher: &'static str,
    pub(super) key: Key,
    pub(super) resumption: Resumption,
}

/// Which handshakes resume an earlier session (RFC 8446 §2.2, RFC 5246 §7.3): none of them shows
/// a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Resumption {
    /// None.
    Off,
    /// Those of FTP's data connections: the session of the control connection.
    DataConnections,
    /// All: a session that the client has set up before the clocks begin.
    Session,
}

impl Resumption {
    /// Its value for `headroom fetch --tls-resumption`; none: it goes without.
    pub(super) fn argument(self) -> Option<&'static str> {
        match self {
            Self::Off => None,
            Self::DataConnections => Some("data-connections"),
            Self::Session => Some("session"),
        }
    }

    /// Compares the handshakes, which the client counts, with what they should have been.
    pub(super) fn objection(self, full: u32, resumed: u32) -> Option<String> {
        let (is_so, wanted) = match self {
            Self::Off => (resumed == 0, "all should be full"),
            Self::DataConnections => (
                full == 1 && resumed > 0,
                "that of the control connection should be full, and all others resume its session",
            ),
            Self::Session => {
                (full == 0 && resumed > 0, "all should resume the session that was set up before")
            }
        };
        (!is_so).then(|| {
            format!("TLS handshakes of the client: {full} full, {resumed} resumed; {wanted}")
        })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Version {
    Tls12,
    Tls13,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Key {
    Ecdsa,
    Rsa,
    /// ML-DSA-65 (FIPS 204, draft-ietf-tls-mldsa), which resists quantum computers; OpenSSL 3.5
    /// and later.
    MlDsa65,
}

impl Key {
    /// Its name for `openssl req -newkey`; none: the run's own certificate has such a key.
    fn made_by(self) -> Option<&'static str> {
        match self {
            Self::Ecdsa => None,
            Self::Rsa => Some("rsa:2048"),
            Self::MlDsa65 => Some("ML-DSA-65"),
        }
    }
}

impl Tls {
    pub(super) const MODERN: Self = Self {
        version: Version::Tls13,
        cipher: CIPHER,
        key: Key::Ecdsa,
        resumption: Resumption::Off,
    };

    /// Whether keys of the moment are agreed on: TLS 1.3 always does, of the suites of TLS 1.2
    /// those with ECDHE.
    pub(super) fn has_forward_secrecy(&self) -> bool {
        self.version == Version::Tls13 || self.cipher.starts_with("ECDHE")
    }

    /// Refuses this machine where its OpenSSL does not know the kind of key.
    ///
    /// # Errors
    /// [`Error::Missing`]: its version, and the one that is needed.
    pub(super) fn require(&self) -> Result<()> {
        self.require_on("this machine", || SearchPath::from_environment().version(OPENSSL))
    }

    /// The same for a machine whose `openssl` prints this version.
    fn require_on(&self, machine: &str, version: impl FnOnce() -> Option<String>) -> Result<()> {
        match self.key {
            Key::Ecdsa | Key::Rsa => Ok(()),
            Key::MlDsa65 => lack_of_ml_dsa(machine, version().as_deref())
                .map_or(Ok(()), |sentence| Err(Error::Missing(sentence))),
        }
    }

    /// Returns the paths of the server's key and certificate. The run's own serve where they
    /// are of the right kind; others are made.
    ///
    /// # Errors
    /// The server's OpenSSL is too old, or it failed.
    pub(super) fn server_files(&self, site: &Site<'_>) -> Result<[PathBuf; 2]> {
        let (host, names) = (site.host, ["server.key", "server.crt"]);
        let Some(kind) = self.key.made_by() else {
            return Ok(names.map(|name| site.credential_path(name)));
        };
        let machine = format!("the {}", host.role);
        host.really(|| self.require_on(&machine, || host.version(OPENSSL)))?;
        make_certificate(host, &site.dir, &[kind], &[site.server.ip()])?;
        Ok(names.map(|name| site.path(name)))
    }

    /// Key and certificate of the server in one file.
    pub(super) fn server_pem(&self, site: &Site<'_>) -> Result<String> {
        let both = self.server_files(site)?.map(|path| site.host.read(&path));
        site.write("server.pem", &both.into_iter().collect::<Result<String>>()?)
    }

    /// Arguments for `headroom fetch`.
    pub(super) fn client_options(&self, site: &Site<'_>) -> Result<[String; 4]> {
        let ca = match self.key.made_by() {
            None => site.credential("server.crt"),
            Some(_) if site.shares_folders() => site.path("server.crt").display().to_string(),
            Some(_) => site.write("server.crt", &site.peer.read(&site.peer_path("server.crt"))?)?,
        };
        let cipher = match self.version {
            Version::Tls12 => "--tls12-cipher",
            Version::Tls13 => "--tls13-cipher",
        };
        Ok(["--ca".to_owned(), ca, cipher.to_owned(), self.cipher.to_owned()])
    }

    /// Compares the negotiated settings, which the client reports, with the pinned ones.
    pub(super) fn objection(&self, negotiated: &[String]) -> Option<String> {
        let version = match self.version {
            Version::Tls12 => "TLSv1.2",
            Version::Tls13 => "TLSv1.3",
        };
        let expected = format!("{version} / {}", self.cipher);
        let other = || negotiated.iter().find(|one| **one != expected);
        match negotiated {
            [] => Some(format!(
                "the client did not report {expected}, which it should have negotiated"
            )),
            _ => other().map(|one| format!("the two ends agreed on {one} instead of {expected}")),
        }
    }

    /// Lists pinned settings for the record.
    pub(super) fn facts(&self) -> Vec<Fact> {
        let key = match self.key {
            Key::Ecdsa => "ECDSA P-256",
            Key::Rsa => "RSA, 2048 bits",
            Key::MlDsa65 => "ML-DSA-65",
        };
        stated([
            ("cipher", self.cipher),
            ("key", key),
            (
                "negotiated",
                "as pinned: the client reports it for each connection, or the transfer fails",
            ),
        ])
    }
}

/// The first version of OpenSSL with ML-DSA.
const FIRST_WITH_ML_DSA: (u32, u32) = (3, 5);

/// Says that a machine whose `openssl` prints that version cannot use ML-DSA; none: it can.
fn lack_of_ml_dsa(machine: &str, version: Option<&str>) -> Option<String> {
    let numbers = version.and_then(|version| version.strip_prefix("OpenSSL "));
    let parts = numbers.unwrap_or_default().split('.');
    let mut numbers = parts.map_while(|part| part.parse::<u32>().ok());
    if let (Some(major), Some(minor)) = (numbers.next(), numbers.next())
        && (major, minor) >= FIRST_WITH_ML_DSA
    {
        return None;
    }
    let (major, minor) = FIRST_WITH_ML_DSA;
    // its name and number, without date and library
    let found = version.map(|version| version.split(' ').take(2).collect::<Vec<_>>().join(" "));
    let found = found.unwrap_or_else(|| "an openssl without a version".to_owned());
    Some(format!(
        "{machine} has {found}, and certificates of ML-DSA need OpenSSL {major}.{minor} or later: on one machine, \
         measure the programs of `headroom lab parts` (without --host-programs)"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificates_of_ml_dsa_need_openssl_3_5() {
        let lack = |version| lack_of_ml_dsa("the server", version);
        for version in ["OpenSSL 3.5.9 29 Sep 2026", "OpenSSL 3.6.0-dev", "OpenSSL 4.0.0 (beta)"] {
            assert_eq!(lack(Some(version)), None, "{version}");
        }
        let old = "OpenSSL 3.0.19 27 Jan 2026 (Library: OpenSSL 3.0.19 27 Jan 2026)";
        let sentence = lack(Some(old)).expect("too old");
        assert!(sentence.starts_with("the server has OpenSSL 3.0.19, and"), "{sentence}");
        for other in [Some("OpenSSL 1.1.1w  11 Sep 2023"), Some("LibreSSL 4.1.0"), Some(""), None] {
            assert!(lack(other).is_some(), "{other:?}");
        }
        assert!(Tls::MODERN.require_on("the server", || None).is_ok());
        let post_quantum = Tls { key: Key::MlDsa65, ..Tls::MODERN };
        assert!(post_quantum.require_on("the server", || None).is_err());
    }

    #[test]
    fn handshakes_are_full_or_resumed_as_pinned_or_an_error() {
        use Resumption::{DataConnections, Off, Session};
        for (resumption, full, resumed) in
            [(Off, 1, 0), (Off, 51, 0), (DataConnections, 1, 1), (DataConnections, 1, 50)]
        {
            assert_eq!(resumption.objection(full, resumed), None, "{resumption:?}");
        }
        assert_eq!(Session.objection(0, 1), None);
        for (resumption, full, resumed, words) in [
            (Off, 1, 1, "1 full, 1 resumed; all should be full"),
            (
                DataConnections,
                2,
                0,
                "TLS handshakes of the client: 2 full, 0 resumed; that of the control",
            ),
            (DataConnections, 2, 1, "that of the control connection should be full"),
            (DataConnections, 0, 2, "that of the control connection should be full"),
            (Session, 1, 0, "all should resume the session that was set up before"),
            (Session, 0, 0, "all should resume"),
        ] {
            let objection = resumption.objection(full, resumed).expect(words);
            assert!(objection.contains(words), "{objection}");
        }
    }

    #[test]
    fn what_was_negotiated_is_what_was_pinned_or_an_error() {
        let said = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        let objection = |words: &[&str]| Tls::MODERN.objection(&said(words));
        assert_eq!(objection(&["TLSv1.3 / TLS_AES_128_GCM_SHA256"]), None);
        let other = objection(&["TLSv1.3 / TLS_AES_128_GCM_SHA256", "TLSv1.2 / AES128-SHA"]);
        assert!(other.is_some_and(|words| words.contains("agreed on TLSv1.2 / AES128-SHA")));
        assert!(objection(&[]).is_some_and(|words| words.contains("did not report")));
    }
}
