//! Public keys and their fingerprints, as people read and write them.

use std::fmt;
use std::str::FromStr;

use aws_lc_rs::digest::{SHA256, digest};
use data_encoding::{BASE64, BASE64_NOPAD};
use rustls::pki_types::CertificateDer;
use rustls::server::ParsedCertificate;

/// What stands before the 32 bytes of the key in its SubjectPublicKeyInfo (RFC 8410, section 4).
const SPKI_HEAD: [u8; 12] =
    [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];
/// What stands before the 32 bytes of the key as ssh encodes it (RFC 8709, section 4): the
/// name of the algorithm, and the key's length.
const SSH_HEAD: [u8; 19] = *b"\0\0\0\x0bssh-ed25519\0\0\0\x20";
/// The name of the algorithm, ahead of a key in `authorized_keys` and `known_hosts`.
pub(crate) const ALGORITHM: &str = "ssh-ed25519";

/// An Ed25519 public key. Written as OpenSSH does: `ssh-ed25519 BASE64`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PublicKey([u8; 32]);

/// The SHA-256 hash of a key as ssh encodes it. Written `SHA256:BASE64`: what
/// `ssh-keygen -l` prints.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint([u8; 32]);

/// A text that is not a key or a fingerprint.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// It is not a key.
    #[error(
        "`{0}` is not an Ed25519 public key: one looks like `{ALGORITHM} AAAA…`, as `headroom identity show` prints it"
    )]
    Key(String),
    /// It is not a fingerprint.
    #[error(
        "`{0}` is not a fingerprint: one looks like `SHA256:` and 43 letters, as `headroom identity show` prints it"
    )]
    Fingerprint(String),
}

impl PublicKey {
    /// Returns the key of a certificate, if it is an Ed25519 key.
    pub(crate) fn of_certificate(certificate: &CertificateDer<'_>) -> Option<Self> {
        let parsed = ParsedCertificate::try_from(certificate).ok()?;
        let spki = parsed.subject_public_key_info();
        let key = spki.as_ref().strip_prefix(&SPKI_HEAD)?;
        key.try_into().ok().map(Self)
    }

    /// The bytes of RFC 8032, section 5.1.5.
    #[must_use]
    pub const fn bytes(&self) -> [u8; 32] {
        self.0
    }

    /// Returns its fingerprint.
    pub fn fingerprint(&self) -> Fingerprint {
        let mut hash = [0; 32];
        hash.copy_from_slice(digest(&SHA256, &self.encoded()).as_ref());
        Fingerprint(hash)
    }

    /// Returns the key as ssh encodes it.
    fn encoded(&self) -> Vec<u8> {
        [SSH_HEAD.as_slice(), &self.0].concat()
    }
}

impl From<[u8; 32]> for PublicKey {
    /// The bytes of RFC 8032, section 5.1.5.
    fn from(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{ALGORITHM} {}", BASE64.encode(&self.encoded()))
    }
}

impl FromStr for PublicKey {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let key = text.split_once(' ').filter(|(algorithm, _)| *algorithm == ALGORITHM);
        let key = key.and_then(|(_, key)| BASE64.decode(key.trim().as_bytes()).ok());
        let key = key.and_then(|bytes| bytes.strip_prefix(&SSH_HEAD)?.try_into().ok());
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
        let bytes = text.strip_prefix("SHA256:");
        let bytes = bytes.and_then(|hash| BASE64_NOPAD.decode(hash.as_bytes()).ok());
        let bytes = bytes.and_then(|bytes| bytes.try_into().ok());
        bytes.map(Self).ok_or_else(|| ParseError::Fingerprint(text.to_owned()))
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
        let rsa = "ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAAAAQ==";
        for text in ["", "ssh-ed25519", "ssh-ed25519 ", short, "ssh-ed25519 AAAA", rsa] {
            assert!(text.parse::<PublicKey>().is_err(), "{text:?}");
        }
        for text in ["", "SHA256:", "SHA256:AAAA", "MD5:00"] {
            assert!(text.parse::<Fingerprint>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn key_and_fingerprint_are_written_as_openssh_writes_them() {
        // the public key of RFC 8410, section 10.1, and what `ssh-keygen -lf` prints for it
        let spki = BASE64
            .decode(b"MCowBQYDK2VwAyEAGb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE=")
            .expect("it is BASE64");
        let key = PublicKey(spki[12..].try_into().expect("32 bytes"));
        let line =
            "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIBm/RAlphM3+hUG6wWfcO5bIUIaqMLa2ywxcOK1wMWbh";
        assert_eq!(key.to_string(), line);
        assert_eq!(
            key.fingerprint().to_string(),
            "SHA256:ebCT4wkJOqO5AIlHG03cHvn3Cr3ZZEEh8m81duHhR3Q"
        );
    }
}
