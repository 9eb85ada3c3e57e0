//! Public keys and their fingerprints, as people read and write them.

use std::fmt;
use std::str::FromStr;

use aws_lc_rs::digest::{SHA256, digest};
use data_encoding::{BASE64, BASE64_NOPAD};
use rustls::pki_types::CertificateDer;
use rustls::server::ParsedCertificate;

/// What stands before the 32 octets of the key in its SubjectPublicKeyInfo (RFC 8410, section 4).
const SPKI_HEAD: [u8; 12] =
    [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];
/// The word before a key in `authorized_keys` and `known_hosts`.
const WORD: &str = "headroom-ed25519";

/// An Ed25519 public key. Written `headroom-ed25519 BASE64`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PublicKey([u8; 32]);

/// The SHA-256 hash of a key's SubjectPublicKeyInfo. Written `SHA256:BASE64`, as ssh does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint([u8; 32]);

/// A text that is no key or no fingerprint.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// It is no key.
    #[error(
        "`{0}` is no key: one looks like `{WORD} AAAA…`, as `headroom identity show` prints it"
    )]
    Key(String),
    /// It is no fingerprint.
    #[error(
        "`{0}` is no fingerprint: one looks like `SHA256:` and 43 letters, as `headroom identity show` prints it"
    )]
    Fingerprint(String),
}

impl PublicKey {
    /// The key that a certificate carries, if it is an Ed25519 key.
    pub(crate) fn of_certificate(certificate: &CertificateDer<'_>) -> Option<Self> {
        let parsed = ParsedCertificate::try_from(certificate).ok()?;
        let spki = parsed.subject_public_key_info();
        let key = spki.as_ref().strip_prefix(&SPKI_HEAD)?;
        key.try_into().ok().map(Self)
    }

    /// The octets of RFC 8032, section 5.1.5.
    #[must_use]
    pub const fn octets(&self) -> [u8; 32] {
        self.0
    }

    /// Its fingerprint.
    pub fn fingerprint(&self) -> Fingerprint {
        let spki = [SPKI_HEAD.as_slice(), &self.0].concat();
        let mut octets = [0; 32];
        octets.copy_from_slice(digest(&SHA256, &spki).as_ref());
        Fingerprint(octets)
    }
}

impl From<[u8; 32]> for PublicKey {
    /// The octets of RFC 8032, section 5.1.5.
    fn from(octets: [u8; 32]) -> Self {
        Self(octets)
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{WORD} {}", BASE64.encode(&self.0))
    }
}

impl FromStr for PublicKey {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let key = text.split_once(' ').filter(|(word, _)| *word == WORD);
        let key = key.and_then(|(_, key)| BASE64.decode(key.trim().as_bytes()).ok());
        let key = key.and_then(|octets| octets.try_into().ok());
        key.map(Self).ok_or_else(|| ParseError::Key(text.to_owned()))
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SHA256:{}", BASE64_NOPAD.encode(&self.0))
    }
}

impl FromStr for Fingerprint {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let octets = text.strip_prefix("SHA256:");
        let octets = octets.and_then(|hash| BASE64_NOPAD.decode(hash.as_bytes()).ok());
        let octets = octets.and_then(|octets| octets.try_into().ok());
        octets.map(Self).ok_or_else(|| ParseError::Fingerprint(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_fingerprints_are_read_as_they_are_written() {
        let key = PublicKey([9; 32]);
        assert_eq!(key.to_string().parse(), Ok(key));
        let fingerprint = key.fingerprint();
        assert_eq!(fingerprint.to_string().parse(), Ok(fingerprint));
        assert_eq!(fingerprint.to_string().len(), "SHA256:".len() + 43);
    }

    #[test]
    fn other_texts_are_refused() {
        let key = PublicKey([9; 32]).to_string();
        let short = &key[..key.len() - 4];
        for text in ["", "headroom-ed25519", "headroom-ed25519 ", short, "ssh-ed25519 AAAA"] {
            assert!(text.parse::<PublicKey>().is_err(), "{text:?}");
        }
        for text in ["", "SHA256:", "SHA256:AAAA", "MD5:00"] {
            assert!(text.parse::<Fingerprint>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn the_fingerprint_is_that_of_the_subject_public_key_info() {
        // RFC 8410, section 10.1: a public key of Ed25519; `openssl pkey -pubin -outform der |
        // sha256sum` hashes the same 44 octets
        let spki = data_encoding::BASE64
            .decode(b"MCowBQYDK2VwAyEAGb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE=")
            .expect("it is BASE64");
        let key = PublicKey(spki[12..].try_into().expect("32 octets"));
        let hash = digest(&SHA256, &spki);
        assert_eq!(key.fingerprint().0, hash.as_ref());
    }
}
