//! The suites and their lengths.

use crate::algorithm::{AEAD_ICV_LEN, AEAD_IV_LEN};
use crate::{Aead, Cipher, Mac};

/// The algorithms that encrypt and authenticate the packets of an SA.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Suite {
    /// One algorithm for both.
    Aead(Aead),
    /// A cipher, then an integrity algorithm over its result.
    Separate(Cipher, Mac),
}

impl Suite {
    /// Returns all suites.
    pub const ALL: [Self; COUNT] = all();

    /// Returns the length of the key in bytes; an AEAD's ends with 4 bytes of salt (RFC 4106 §8.1,
    /// RFC 7634 §2).
    #[must_use]
    pub const fn key_len(&self) -> usize {
        match self {
            Self::Aead(aead) => aead.key_len(),
            Self::Separate(cipher, _) => cipher.key_len(),
        }
    }

    /// Returns the length of the integrity key in bytes; 0 for an AEAD.
    #[must_use]
    pub const fn mac_key_len(&self) -> usize {
        match self {
            Self::Aead(_) => 0,
            Self::Separate(_, mac) => mac.key_len(),
        }
    }

    /// Returns the length of the IV before the text, in bytes.
    #[must_use]
    pub const fn iv_len(&self) -> usize {
        match self {
            Self::Aead(_) => AEAD_IV_LEN,
            Self::Separate(cipher, _) => cipher.iv_len(),
        }
    }

    /// Returns the number to whose multiples the text is padded: the cipher's block, at least 4
    /// bytes (RFC 4303 §2.4).
    #[must_use]
    pub const fn block_len(&self) -> usize {
        match self {
            Self::Aead(_) => 4,
            Self::Separate(cipher, _) => cipher.block_len(),
        }
    }

    /// Returns the length of the ICV after the text, in bytes.
    #[must_use]
    pub const fn icv_len(&self) -> usize {
        match self {
            Self::Aead(_) => AEAD_ICV_LEN,
            Self::Separate(_, mac) => mac.icv_len(),
        }
    }

    /// Returns the bytes that IV and ICV add to the padded text.
    #[must_use]
    pub const fn overhead(&self) -> usize {
        self.iv_len() + self.icv_len()
    }

    /// Checks whether the suite encrypts.
    #[must_use]
    pub const fn encrypts(&self) -> bool {
        !matches!(self, Self::Separate(Cipher::Null, _))
    }

    /// Checks whether the suite may be used without `allow_insecure`: [`Cipher::is_secure`] and
    /// [`Mac::is_secure`].
    #[must_use]
    pub const fn is_secure(&self) -> bool {
        match self {
            Self::Aead(_) => true,
            Self::Separate(cipher, mac) => cipher.is_secure() && mac.is_secure(),
        }
    }
}

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
    use super::*;

    #[test]
    fn what_rfc_8221_forbids_is_not_secure() {
        let secure: Vec<_> = Suite::ALL.into_iter().filter(Suite::is_secure).collect();
        assert_eq!(secure.len(), 4 + 3 * 4);
        for name in ["aes-128-gcm", "chacha20-poly1305", "aes-128-cbc+hmac-sha1"] {
            assert!(secure.contains(&name.parse().expect("a suite")), "{name}");
        }
        assert!(!Suite::Separate(Cipher::Null, Mac::HmacSha256).encrypts());
    }
}
