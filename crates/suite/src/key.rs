//! Secret keys: parsed, generated, fingerprinted, never printed, erased when dropped.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;
use zeroize::{Zeroize, Zeroizing};

use crate::KeyError;

/// The bytes of a secret key. Erased when dropped; `Debug` does not print them.
pub struct Key(Zeroizing<Vec<u8>>);

impl Key {
    /// Returns the empty key, for suites without a key (NULL encryption).
    #[must_use]
    pub fn empty() -> Self {
        Self(Zeroizing::new(Vec::new()))
    }

    /// Copies `bytes`; the caller must erase the original.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Self {
        Self(Zeroizing::new(bytes.to_vec()))
    }

    /// Parses hexadecimal digits, two per byte, after an optional `0x`.
    ///
    /// # Errors
    /// A character is no digit, or a digit is missing. The message contains the position, but no
    /// part of the key.
    pub fn from_hex(text: &str) -> Result<Self, KeyError> {
        let skipped = if text.starts_with("0x") { 2 } else { 0 };
        let digits = &text.as_bytes()[skipped..];
        // Exact capacity: a reallocation would leave a copy in memory.
        let mut bytes = Zeroizing::new(Vec::with_capacity(digits.len() / 2));
        let mut high = None;
        for (position, &byte) in digits.iter().enumerate() {
            let digit = (byte as char)
                .to_digit(16)
                .ok_or(KeyError::Digit { position: skipped + position + 1 })?
                as u8;
            match high.take() {
                None => high = Some(digit << 4),
                Some(high) => bytes.push(high | digit),
            }
        }
        if high.is_some() {
            return Err(KeyError::OddDigits { found: digits.len() });
        }
        Ok(Self(bytes))
    }

    /// Generates a key of `len` random bytes.
    ///
    /// # Errors
    /// The system returned no random bytes.
    pub fn generate(len: usize) -> Result<Self, KeyError> {
        let mut bytes = Zeroizing::new(vec![0; len]);
        aws_lc_rs::rand::fill(&mut bytes).map_err(|_| KeyError::Random)?;
        Ok(Self(bytes))
    }

    /// Returns the bytes. A caller that copies them must erase the copy.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns the key as hexadecimal digits for [`Key::from_hex`], in a text that is erased when
    /// dropped.
    #[must_use]
    pub fn to_hex(&self) -> Zeroizing<String> {
        // Exact capacity, as above.
        let mut text = Zeroizing::new(String::with_capacity(2 * self.len()));
        for byte in self.0.iter() {
            for digit in [byte >> 4, byte & 0x0f] {
                text.push(char::from_digit(digit.into(), 16).unwrap_or_default());
            }
        }
        text
    }

    /// Returns the length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Checks whether this is the empty key.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns a public name of the key: the same for equal keys, and useless for finding a key
    /// with full entropy. (The 56 bits of a DES key can be searched with it, as with any packet.)
    #[must_use]
    pub fn fingerprint(&self) -> Fingerprint {
        let mut hasher = blake3::Hasher::new_derive_key("headroom 2026 IPsec key fingerprint");
        hasher.update(&self.0);
        let mut bytes = [0; 16];
        let mut output = hasher.finalize_xof();
        output.fill(&mut bytes);
        // Both contain the key, which is shorter than a block.
        hasher.zeroize();
        output.zeroize();
        Fingerprint(bytes)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(..)")
    }
}

/// The public name of a key: 16 bytes, printed as 32 hexadecimal digits.
#[derive(Clone, Copy, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Fingerprint([u8; 16]);

impl Fingerprint {
    /// Makes a fingerprint of bytes read from elsewhere.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// Returns the bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fingerprint({self})")
    }
}

impl FromStr for Fingerprint {
    type Err = NotAFingerprint;

    fn from_str(text: &str) -> Result<Self, NotAFingerprint> {
        let digits = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        match u128::from_str_radix(text, 16) {
            Ok(number) if digits => Ok(Self(number.to_be_bytes())),
            _ => Err(NotAFingerprint),
        }
    }
}

/// The text is no fingerprint.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
#[error("a key's fingerprint is 32 hexadecimal digits")]
pub struct NotAFingerprint;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hexadecimal_is_read_with_and_without_prefix() {
        for text in ["00ff1A", "0x00fF1a"] {
            let key = Key::from_hex(text).expect("a key");
            assert_eq!(key.as_bytes(), [0, 0xff, 0x1a]);
            assert_eq!(*key.to_hex(), "00ff1a");
        }
        assert!(Key::from_hex("").expect("the empty key").is_empty());
    }

    #[test]
    fn a_bad_digit_is_told_by_its_place_alone() {
        let error = |text| Key::from_hex(text).expect_err("no key");
        assert_eq!(error("12g4"), KeyError::Digit { position: 3 });
        assert_eq!(error("0x12g4"), KeyError::Digit { position: 5 });
        assert_eq!(error("12é4"), KeyError::Digit { position: 3 });
        assert_eq!(error("123"), KeyError::OddDigits { found: 3 });
        assert!(!error("c0ffeeg").to_string().contains("c0ffee"));
    }

    #[test]
    fn keys_are_not_printed() {
        let key = Key::from_bytes(&[0xde, 0xad]);
        assert_eq!(format!("{key:?}"), "Key(..)");
        assert_eq!(format!("{key:#?}"), "Key(..)");
    }

    #[test]
    fn drawn_keys_differ() {
        let [one, other] = [(); 2].map(|()| Key::generate(32).expect("random numbers"));
        assert_eq!(one.len(), 32);
        assert_ne!(one.fingerprint(), other.fingerprint());
    }

    #[test]
    fn a_fingerprint_is_stable_and_reads_back() {
        let fingerprint = Key::from_bytes(&[7; 20]).fingerprint();
        let text = fingerprint.to_string();
        assert_eq!(text.len(), 32);
        assert_eq!(text.parse(), Ok(fingerprint));
        assert_ne!(Key::from_bytes(&[7; 19]).fingerprint(), fingerprint);
        for bad in ["", "+1234567890123456789012345678901", &text[1..], "é"] {
            assert_eq!(bad.parse::<Fingerprint>(), Err(NotAFingerprint));
        }
    }
}
