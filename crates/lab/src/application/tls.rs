//! TLS as both ends of an application are pinned to it: version, cipher suite, and the
//! kind of key in the server's certificate.

use headroom_lab_host::error::Result;

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
}

impl Tls {
    pub(super) const MODERN: Self =
        Self { version: Version::Tls13, cipher: CIPHER, key: Key::Ecdsa };

    /// Whether keys of the moment are agreed on: TLS 1.3 always does, of the suites of TLS 1.2
    /// those with ECDHE.
    pub(super) fn has_forward_secrecy(&self) -> bool {
        self.version == Version::Tls13 || self.cipher.starts_with("ECDHE")
    }

    /// Key and certificate of the server in one file. The run's own serve where they
    /// are of the right kind.
    pub(super) fn server_pem(&self, site: &Site<'_>) -> Result<String> {
        let files = match self.key {
            Key::Ecdsa => ["server.key", "server.crt"].map(|name| site.credential_path(name)),
            Key::Rsa => {
                make_certificate(site.host, &site.dir, &["rsa:2048"], &[site.server.ip()])?;
                ["server.key", "server.crt"].map(|name| site.path(name))
            }
        };
        let both = files.map(|path| site.host.read(&path));
        site.write("server.pem", &both.into_iter().collect::<Result<String>>()?)
    }

    /// Arguments for `headroom fetch`.
    pub(super) fn client_options(&self, site: &Site<'_>) -> Result<[String; 4]> {
        let ca = match self.key {
            Key::Ecdsa => site.credential("server.crt"),
            Key::Rsa if site.shares_folders() => site.path("server.crt").display().to_string(),
            Key::Rsa => {
                site.write("server.crt", &site.peer.read(&site.peer_path("server.crt"))?)?
            }
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

#[cfg(test)]
mod tests {
    use super::*;

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
