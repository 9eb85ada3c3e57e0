//! The ciphers of [lanes](super) and their numbers in messages.

use std::fmt;
use std::str::FromStr;

/// A cipher of a lane.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Cipher {
    /// AES-128-GCM (RFC 5116).
    Aes128Gcm,
    /// ChaCha20-Poly1305 (RFC 8439).
    ChaCha20Poly1305,
    /// AES-256-GCM (RFC 5116).
    Aes256Gcm,
    /// No encryption, for measurement.
    Null,
    /// The XOR scheme of a study, which protects nothing either, for measurement.
    SimpleCrypt,
}

impl Cipher {
    /// All ciphers.
    pub const ALL: [Self; 5] =
        [Self::Aes128Gcm, Self::Aes256Gcm, Self::ChaCha20Poly1305, Self::Null, Self::SimpleCrypt];

    /// Returns its number in messages.
    #[must_use]
    pub const fn number(self) -> u32 {
        match self {
            Self::Aes128Gcm => 0,
            Self::ChaCha20Poly1305 => 1,
            Self::Aes256Gcm => 2,
            Self::Null => 0xff00,
            Self::SimpleCrypt => 0xff01,
        }
    }

    /// Returns the cipher of this number, if there is one.
    #[must_use]
    pub fn numbered(number: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|cipher| cipher.number() == number)
    }

    /// Returns its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Aes128Gcm => "aes-128-gcm",
            Self::ChaCha20Poly1305 => "chacha20-poly1305",
            Self::Aes256Gcm => "aes-256-gcm",
            Self::Null => "none",
            Self::SimpleCrypt => "simplecrypt",
        }
    }

    /// Whether it encrypts and authenticates. One that does not is for measurements that both ends
    /// allow.
    #[must_use]
    pub const fn is_secure(self) -> bool {
        !matches!(self, Self::Null | Self::SimpleCrypt)
    }
}

impl fmt::Display for Cipher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// There is no cipher of this name.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("there is no cipher `{0}`; ciphers are {names}", names = names())]
pub struct UnknownCipher(String);

fn names() -> String {
    Cipher::ALL.map(Cipher::name).join(", ")
}

impl FromStr for Cipher {
    type Err = UnknownCipher;

    fn from_str(text: &str) -> Result<Self, UnknownCipher> {
        let named = Self::ALL.into_iter().find(|cipher| cipher.name() == text);
        named.ok_or_else(|| UnknownCipher(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_names_are_those_of_one_cipher() {
        for cipher in Cipher::ALL {
            assert_eq!(Cipher::numbered(cipher.number()), Some(cipher));
            assert_eq!(cipher.name().parse(), Ok(cipher));
            // whoever looks at numbers alone sees which protect
            assert_eq!(cipher.is_secure(), cipher.number() < 0xff00);
        }
        assert_eq!(Cipher::numbered(3), None);
        let error = "des".parse::<Cipher>().expect_err("no cipher").to_string();
        assert!(error.contains("`des`") && error.contains("chacha20-poly1305"), "{error}");
    }
}
