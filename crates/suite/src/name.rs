//! The names of suites and algorithms in configurations.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

use crate::{Aead, Cipher, Mac, Suite};

/// The name of no suite.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[error("\"{name}\" is no {kind}. Known: {known}")]
pub struct UnknownSuite {
    name: String,
    kind: &'static str,
    known: String,
}

impl Aead {
    /// Returns the name in configurations.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Aes128Gcm => "aes-128-gcm",
            Self::Aes192Gcm => "aes-192-gcm",
            Self::Aes256Gcm => "aes-256-gcm",
            Self::ChaCha20Poly1305 => "chacha20-poly1305",
        }
    }
}

impl Cipher {
    /// Returns the name in configurations.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::DesCbc => "des-cbc",
            Self::TripleDesCbc => "3des-cbc",
            Self::Aes128Cbc => "aes-128-cbc",
            Self::Aes192Cbc => "aes-192-cbc",
            Self::Aes256Cbc => "aes-256-cbc",
        }
    }
}

impl Mac {
    /// Returns the name in configurations.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::HmacMd5 => "hmac-md5",
            Self::HmacSha1 => "hmac-sha1",
            Self::HmacSha256 => "hmac-sha256",
            Self::HmacSha384 => "hmac-sha384",
            Self::HmacSha512 => "hmac-sha512",
        }
    }
}

impl fmt::Display for Suite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Aead(aead) => aead.fmt(f),
            Self::Separate(cipher, mac) => f.pad(&format!("{cipher}+{mac}")),
        }
    }
}

impl fmt::Display for Aead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl fmt::Display for Cipher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Suite {
    type Err = UnknownSuite;

    fn from_str(text: &str) -> Result<Self, UnknownSuite> {
        match text.split_once('+') {
            Some((cipher, mac)) => Ok(Self::Separate(cipher.parse()?, mac.parse()?)),
            None => text.parse().map(Self::Aead),
        }
    }
}

impl FromStr for Aead {
    type Err = UnknownSuite;

    fn from_str(text: &str) -> Result<Self, UnknownSuite> {
        let joined = "or a cipher and an integrity algorithm, such as aes-128-cbc+hmac-sha256";
        let names = Self::ALL.map(Self::name);
        let found = Self::ALL.into_iter().find(|one| one.name() == text);
        found.ok_or_else(|| unknown(text, "suite", &[&names[..], &[joined]].concat()))
    }
}

impl FromStr for Cipher {
    type Err = UnknownSuite;

    fn from_str(text: &str) -> Result<Self, UnknownSuite> {
        let found = Self::ALL.into_iter().find(|one| one.name() == text);
        found.ok_or_else(|| unknown(text, "cipher", &Self::ALL.map(Self::name)))
    }
}

impl FromStr for Mac {
    type Err = UnknownSuite;

    /// A name may contain the length of the ICV, which must then be correct: hmac-sha256-128.
    fn from_str(text: &str) -> Result<Self, UnknownSuite> {
        let found = Self::ALL.into_iter().find(|one| {
            let rest = text.strip_prefix(one.name());
            rest.is_some_and(|bits| bits.is_empty() || bits == format!("-{}", one.icv_len() * 8))
        });
        found.ok_or_else(|| unknown(text, "integrity algorithm", &Self::ALL.map(Self::name)))
    }
}

fn unknown(text: &str, kind: &'static str, known: &[&str]) -> UnknownSuite {
    // A text too long for a name may be a misplaced key.
    let shown = if text.len() > 24 { 8 } else { 24 };
    UnknownSuite { name: text.chars().take(shown).collect(), kind, known: known.join(", ") }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn all_suites_differ_and_their_names_read_back() {
        assert_eq!(HashSet::from(Suite::ALL).len(), 34);
        for suite in Suite::ALL {
            assert_eq!(suite.to_string().parse(), Ok(suite));
        }
    }

    #[test]
    fn an_icv_length_in_the_name_must_be_right() {
        for (name, mac) in [
            ("hmac-md5-96", Mac::HmacMd5),
            ("hmac-sha1-96", Mac::HmacSha1),
            ("hmac-sha256-128", Mac::HmacSha256),
            ("hmac-sha384-192", Mac::HmacSha384),
            ("hmac-sha512-256", Mac::HmacSha512),
        ] {
            assert_eq!(name.parse(), Ok(mac));
        }
        for name in ["hmac-sha256-96", "hmac-sha1-", "hmac-sha1-96-96", "sha1", ""] {
            assert!(name.parse::<Mac>().is_err(), "{name}");
        }
    }

    #[test]
    fn unknown_names_are_answered_with_the_known_ones() {
        let error = "aes-127-gcm".parse::<Suite>().expect_err("unknown").to_string();
        assert!(error.starts_with("\"aes-127-gcm\" is no suite. Known: aes-128-gcm, "));
        let error = "rot13+hmac-md5".parse::<Suite>().expect_err("unknown").to_string();
        assert_eq!(
            error,
            "\"rot13\" is no cipher. Known: null, des-cbc, 3des-cbc, aes-128-cbc, aes-192-cbc, aes-256-cbc"
        );
    }

    #[test]
    fn a_key_in_place_of_a_name_is_not_repeated() {
        let error = "0123456789abcdef0123456789abcdef".parse::<Suite>().expect_err("unknown");
        assert!(error.to_string().starts_with("\"01234567\" is no suite"), "{error}");
    }
}
