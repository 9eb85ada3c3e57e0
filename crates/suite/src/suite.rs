//! The suites, their names and lengths.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

use crate::aead::AeadTransform;
use crate::separate::Separate;
use crate::{Authenticator, Key, KeyError, Transform};

/// How packets of one security association are encrypted and authenticated.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Suite {
    /// Both in one.
    Aead(Aead),
    /// A cipher, then an integrity algorithm over its result.
    Separate(Cipher, Mac),
}

/// Authenticated encryption with a 16-octet ICV and an 8-octet IV.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Aead {
    /// AES-GCM with a 128-bit key (RFC 4106).
    Aes128Gcm,
    /// AES-GCM with a 192-bit key (RFC 4106).
    Aes192Gcm,
    /// AES-GCM with a 256-bit key (RFC 4106).
    Aes256Gcm,
    /// ChaCha20 and Poly1305 (RFC 7634).
    ChaCha20Poly1305,
}

/// Encryption alone.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Cipher {
    /// None (RFC 2410).
    Null,
    /// DES in CBC mode (RFC 2405).
    DesCbc,
    /// 3DES with three keys in CBC mode (RFC 2451).
    TripleDesCbc,
    /// AES in CBC mode with a 128-bit key (RFC 3602).
    Aes128Cbc,
    /// AES in CBC mode with a 192-bit key (RFC 3602).
    Aes192Cbc,
    /// AES in CBC mode with a 256-bit key (RFC 3602).
    Aes256Cbc,
}

/// Integrity alone: an HMAC cut to a part of its length.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Mac {
    /// HMAC-MD5-96 (RFC 2403).
    HmacMd5,
    /// HMAC-SHA1-96 (RFC 2404).
    HmacSha1,
    /// HMAC-SHA-256-128 (RFC 4868).
    HmacSha256,
    /// HMAC-SHA-384-192 (RFC 4868).
    HmacSha384,
    /// HMAC-SHA-512-256 (RFC 4868).
    HmacSha512,
}

/// Octets of salt at the end of an AEAD's key (RFC 4106 §8.1, RFC 7634 §2).
pub(crate) const SALT_LEN: usize = 4;

impl Suite {
    /// Every suite there is.
    pub const ALL: [Self; COUNT] = all();

    /// Octets of the key: an AEAD's with its salt of 4 at the end (RFC 4106 §8.1, RFC 7634 §2).
    #[must_use]
    pub const fn key_len(&self) -> usize {
        match self {
            Self::Aead(aead) => aead.key_len(),
            Self::Separate(cipher, _) => cipher.key_len(),
        }
    }

    /// Octets of the integrity key: none for an AEAD.
    #[must_use]
    pub const fn mac_key_len(&self) -> usize {
        match self {
            Self::Aead(_) => 0,
            Self::Separate(_, mac) => mac.key_len(),
        }
    }

    /// Octets of the IV that goes ahead of the text.
    #[must_use]
    pub const fn iv_len(&self) -> usize {
        match self {
            Self::Aead(_) => crate::aead::IV_LEN,
            Self::Separate(cipher, _) => cipher.iv_len(),
        }
    }

    /// What the text is padded to, in octets: the cipher's block, at least 4 (RFC 4303 §2.4).
    #[must_use]
    pub const fn block_len(&self) -> usize {
        match self {
            Self::Aead(_) => 4,
            Self::Separate(cipher, _) => cipher.block_len(),
        }
    }

    /// Octets of the ICV behind the text.
    #[must_use]
    pub const fn icv_len(&self) -> usize {
        match self {
            Self::Aead(_) => crate::aead::ICV_LEN,
            Self::Separate(_, mac) => mac.icv_len(),
        }
    }

    /// Octets that IV and ICV add to the padded text.
    #[must_use]
    pub const fn overhead(&self) -> usize {
        self.iv_len() + self.icv_len()
    }

    /// Whether the text is encrypted at all.
    #[must_use]
    pub const fn encrypts(&self) -> bool {
        !matches!(self, Self::Separate(Cipher::Null, _))
    }

    /// Whether the suite may be used without asking. See [`Cipher::is_secure`] and [`Mac::is_secure`].
    #[must_use]
    pub const fn is_secure(&self) -> bool {
        match self {
            Self::Aead(_) => true,
            Self::Separate(cipher, mac) => cipher.is_secure() && mac.is_secure(),
        }
    }

    /// Prepares the suite with its keys, for one direction.
    ///
    /// # Errors
    /// When a key is missing, superfluous, of the wrong length, or weak.
    pub fn bind(&self, key: &Key, mac_key: Option<&Key>) -> Result<Box<dyn Transform>, KeyError> {
        if key.len() != self.key_len() {
            return Err(KeyError::Length {
                suite: *self,
                expected: self.key_len(),
                found: key.len(),
                salt: match self {
                    Self::Aead(_) => ", the last 4 of them its salt",
                    Self::Separate(..) => "",
                },
            });
        }
        match (self, mac_key) {
            (Self::Aead(aead), None) => Ok(Box::new(AeadTransform::new(*aead, key)?)),
            (Self::Aead(_), Some(_)) => Err(KeyError::MacKeySurplus { suite: *self }),
            (Self::Separate(cipher, mac), Some(mac_key)) => {
                Ok(Box::new(Separate::new(*cipher, key, mac.bind(mac_key)?)?))
            }
            (Self::Separate(_, mac), None) => {
                Err(KeyError::MacKeyMissing { suite: *self, expected: mac.key_len() })
            }
        }
    }
}

impl Aead {
    /// Every one.
    pub const ALL: [Self; 4] =
        [Self::Aes128Gcm, Self::Aes192Gcm, Self::Aes256Gcm, Self::ChaCha20Poly1305];

    /// Octets of the key with its salt.
    #[must_use]
    pub const fn key_len(self) -> usize {
        SALT_LEN
            + match self {
                Self::Aes128Gcm => 16,
                Self::Aes192Gcm => 24,
                Self::Aes256Gcm | Self::ChaCha20Poly1305 => 32,
            }
    }

    /// The name in configurations.
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
    /// Every one.
    pub const ALL: [Self; 6] = [
        Self::Null,
        Self::DesCbc,
        Self::TripleDesCbc,
        Self::Aes128Cbc,
        Self::Aes192Cbc,
        Self::Aes256Cbc,
    ];

    /// Octets of the key: 8 for each DES key, its parity bits included (RFC 2451 §2.1).
    #[must_use]
    pub const fn key_len(self) -> usize {
        match self {
            Self::Null => 0,
            Self::DesCbc => 8,
            Self::Aes128Cbc => 16,
            Self::TripleDesCbc | Self::Aes192Cbc => 24,
            Self::Aes256Cbc => 32,
        }
    }

    /// Octets of the IV: a block of the cipher.
    #[must_use]
    pub const fn iv_len(self) -> usize {
        match self {
            Self::Null => 0,
            Self::DesCbc | Self::TripleDesCbc => 8,
            Self::Aes128Cbc | Self::Aes192Cbc | Self::Aes256Cbc => 16,
        }
    }

    /// What the text is padded to, in octets: a block, at least 4 (RFC 4303 §2.4).
    #[must_use]
    pub const fn block_len(self) -> usize {
        match self {
            Self::Null => 4,
            _ => self.iv_len(),
        }
    }

    /// Whether it may be used without asking. RFC 8221 §5: AES-CBC MUST be
    /// supported, DES MUST NOT and 3DES SHOULD NOT. It wants NULL, but whoever
    /// configures encryption has to know that there is none.
    #[must_use]
    pub const fn is_secure(self) -> bool {
        !matches!(self, Self::Null | Self::DesCbc | Self::TripleDesCbc)
    }

    /// The name in configurations.
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
    /// Every one.
    pub const ALL: [Self; 5] =
        [Self::HmacMd5, Self::HmacSha1, Self::HmacSha256, Self::HmacSha384, Self::HmacSha512];

    /// Octets of the key: as many as the hash has (RFC 2403 §2, RFC 2404 §3, RFC 4868 §2.1.1).
    #[must_use]
    pub const fn key_len(self) -> usize {
        match self {
            Self::HmacMd5 => 16,
            Self::HmacSha1 => 20,
            Self::HmacSha256 => 32,
            Self::HmacSha384 => 48,
            Self::HmacSha512 => 64,
        }
    }

    /// Octets of the ICV: the first of the HMAC (RFC 2403 §2, RFC 2404 §2, RFC 4868 §2.1.2).
    #[must_use]
    pub const fn icv_len(self) -> usize {
        match self {
            Self::HmacMd5 | Self::HmacSha1 => 12,
            Self::HmacSha256 => 16,
            Self::HmacSha384 => 24,
            Self::HmacSha512 => 32,
        }
    }

    /// Whether it may be used without asking. RFC 8221 §6: HMAC-MD5 MUST NOT be
    /// supported; HMAC-SHA1 still MUST ("MUST-"), SHA-2 MUST or SHOULD.
    #[must_use]
    pub const fn is_secure(self) -> bool {
        !matches!(self, Self::HmacMd5)
    }

    /// The name in configurations.
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

    /// Prepares the algorithm with its key.
    ///
    /// # Errors
    /// When the key is of the wrong length.
    pub fn bind(self, key: &Key) -> Result<Authenticator, KeyError> {
        if key.len() != self.key_len() {
            return Err(KeyError::MacLength {
                mac: self,
                expected: self.key_len(),
                found: key.len(),
            });
        }
        Authenticator::new(self, key.as_bytes())
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

impl FromStr for Suite {
    type Err = UnknownSuite;

    fn from_str(text: &str) -> Result<Self, UnknownSuite> {
        match text.split_once('+') {
            Some((cipher, mac)) => Ok(Self::Separate(cipher.parse()?, mac.parse()?)),
            None => text.parse().map(Self::Aead),
        }
    }
}

/// A name that is no suite's.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[error("\"{name}\" is no {kind}: there is {known}")]
pub struct UnknownSuite {
    name: String,
    kind: &'static str,
    known: String,
}

/// `Display` and `FromStr` by name.
macro_rules! by_name {
    ($type:ty, $kind:literal, $more:expr, $parse:expr) => {
        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.name())
            }
        }

        impl FromStr for $type {
            type Err = UnknownSuite;

            fn from_str(text: &str) -> Result<Self, UnknownSuite> {
                let is: fn(&Self, &str) -> bool = $parse;
                Self::ALL.into_iter().find(|one| is(one, text)).ok_or_else(|| {
                    let names = Self::ALL.map(Self::name).join(", ");
                    let known = format!("{names}{}", $more);
                    // What is far too long for a name may be a key in the wrong place.
                    let shown = if text.len() > 24 { 8 } else { 24 };
                    let name = text.chars().take(shown).collect();
                    UnknownSuite { name, kind: $kind, known }
                })
            }
        }
    };
}

by_name!(
    Aead,
    "suite",
    ", and a cipher joined to an integrity algorithm, such as aes-128-cbc+hmac-sha256",
    |one, text| one.name() == text
);
by_name!(Cipher, "cipher", "", |one, text| one.name() == text);
by_name!(Mac, "integrity algorithm", "", |one, text| {
    let bits = text.strip_prefix(one.name());
    // The length of the ICV may be said, and then must be right.
    bits.is_some_and(|bits| bits.is_empty() || bits == format!("-{}", one.icv_len() * 8))
});

const COUNT: usize = Aead::ALL.len() + Cipher::ALL.len() * Mac::ALL.len();

const fn all() -> [Suite; COUNT] {
    let mut suites = [Suite::Aead(Aead::Aes128Gcm); COUNT];
    let mut at = 0;
    while at < Aead::ALL.len() {
        suites[at] = Suite::Aead(Aead::ALL[at]);
        at += 1;
    }
    while at < suites.len() {
        let pair = at - Aead::ALL.len();
        suites[at] =
            Suite::Separate(Cipher::ALL[pair / Mac::ALL.len()], Mac::ALL[pair % Mac::ALL.len()]);
        at += 1;
    }
    suites
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
        assert!(error.starts_with("\"aes-127-gcm\" is no suite: there is aes-128-gcm, "));
        let error = "rot13+hmac-md5".parse::<Suite>().expect_err("unknown").to_string();
        assert_eq!(
            error,
            "\"rot13\" is no cipher: there is null, des-cbc, 3des-cbc, aes-128-cbc, aes-192-cbc, aes-256-cbc"
        );
    }

    #[test]
    fn a_key_in_place_of_a_name_is_not_repeated() {
        let error = "0123456789abcdef0123456789abcdef".parse::<Suite>().expect_err("unknown");
        assert!(error.to_string().starts_with("\"01234567\" is no suite"), "{error}");
    }

    #[test]
    fn what_rfc_8221_forbids_is_not_secure() {
        let secure: Vec<_> = Suite::ALL.into_iter().filter(Suite::is_secure).collect();
        assert_eq!(secure.len(), 4 + 3 * 4);
        for name in ["aes-128-gcm", "chacha20-poly1305", "aes-128-cbc+hmac-sha1"] {
            assert!(secure.contains(&name.parse().expect("a suite")), "{name}");
        }
        assert!(!Suite::Separate(Cipher::Null, Mac::HmacSha256).encrypts());
    }

    #[test]
    fn keys_of_the_wrong_length_or_number_are_sentences() {
        let bind = |suite: &str, key: usize, mac_key: Option<usize>| {
            let suite: Suite = suite.parse().expect("a suite");
            let [key, mac_key] = [Some(key), mac_key]
                .map(|len| len.map(|len| Key::generate(len).expect("random numbers")));
            suite.bind(&key.expect("a key"), mac_key.as_ref()).expect_err("wrong keys").to_string()
        };
        assert_eq!(
            bind("aes-128-gcm", 16, None),
            "aes-128-gcm takes a key of 20 octets, the last 4 of them its salt, not 16"
        );
        assert_eq!(
            bind("aes-128-gcm", 20, Some(20)),
            "aes-128-gcm encrypts and authenticates with one key: give it no integrity key"
        );
        assert_eq!(
            bind("aes-128-cbc+hmac-sha1", 20, Some(20)),
            "aes-128-cbc+hmac-sha1 takes a key of 16 octets, not 20"
        );
        assert_eq!(
            bind("aes-128-cbc+hmac-sha1", 16, Some(16)),
            "hmac-sha1 takes a key of 20 octets, not 16"
        );
        assert_eq!(
            bind("aes-128-cbc+hmac-sha1", 16, None),
            "aes-128-cbc+hmac-sha1 needs an integrity key of 20 octets beside its encryption key"
        );
    }
}
