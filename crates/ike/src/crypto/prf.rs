//! The pseudorandom function and prf+ (RFC 7296 §2.13).

use std::fmt;

use aws_lc_rs::hmac;
use headroom_suite::Key;
use zeroize::Zeroizing;

use crate::wire::PrfId;

/// A pseudorandom function: HMAC with a SHA-2 hash (RFC 4868). It takes keys of any length.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Prf {
    /// PRF_HMAC_SHA2_256.
    HmacSha256,
    /// PRF_HMAC_SHA2_384.
    HmacSha384,
    /// PRF_HMAC_SHA2_512.
    HmacSha512,
}

impl Prf {
    /// All functions.
    pub const ALL: [Self; 3] = [Self::HmacSha256, Self::HmacSha384, Self::HmacSha512];

    /// Returns the number in the registry.
    #[must_use]
    pub fn id(self) -> PrfId {
        match self {
            Self::HmacSha256 => PrfId::HmacSha256,
            Self::HmacSha384 => PrfId::HmacSha384,
            Self::HmacSha512 => PrfId::HmacSha512,
        }
    }

    /// Returns the length of its output in bytes, which is also that of a key it prefers.
    #[must_use]
    pub fn output_len(self) -> usize {
        self.algorithm().tag_len()
    }

    /// Computes prf(key, the concatenated `parts`).
    #[must_use]
    pub fn compute(self, key: &[u8], parts: &[&[u8]]) -> Key {
        Key::from_bytes(self.sign(&hmac::Key::new(self.algorithm(), key), parts).as_ref())
    }

    /// Computes the first `len` bytes of prf+(key, the concatenated `seed`).
    ///
    /// # Panics
    /// `len` is above 255 outputs; no suite needs a tenth of that.
    #[must_use]
    pub fn plus(self, key: &[u8], seed: &[&[u8]], len: usize) -> Key {
        assert!(len <= 255 * self.output_len(), "prf+ of {len} bytes");
        let key = hmac::Key::new(self.algorithm(), key);
        // exact capacity: a reallocation would leave a copy
        let mut stream = Zeroizing::new(Vec::with_capacity(len + self.output_len()));
        let mut counter = 0_u8;
        while stream.len() < len {
            counter += 1;
            let previous = stream.len().saturating_sub(self.output_len());
            let parts: Vec<&[u8]> =
                [&stream[previous..]].into_iter().chain(seed.iter().copied()).collect();
            let output = self.sign(&key, &[&parts[..], &[&[counter]]].concat());
            stream.extend(output.as_ref());
        }
        Key::from_bytes(&stream[..len])
    }

    fn sign(self, key: &hmac::Key, parts: &[&[u8]]) -> hmac::Tag {
        let mut context = hmac::Context::with_key(key);
        parts.iter().for_each(|part| context.update(part));
        context.sign()
    }

    fn algorithm(self) -> hmac::Algorithm {
        match self {
            Self::HmacSha256 => hmac::HMAC_SHA256,
            Self::HmacSha384 => hmac::HMAC_SHA384,
            Self::HmacSha512 => hmac::HMAC_SHA512,
        }
    }
}

impl fmt::Display for Prf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::HmacSha256 => "prf-hmac-sha256",
            Self::HmacSha384 => "prf-hmac-sha384",
            Self::HmacSha512 => "prf-hmac-sha512",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prf_plus_chains_its_outputs() {
        for prf in Prf::ALL {
            let first = prf.compute(b"key", &[b"seed", &[1]]);
            let second = prf.compute(b"key", &[first.as_bytes(), b"seed", &[2]]);
            let len = 2 * prf.output_len() - 3;
            let stream = prf.plus(b"key", &[b"se", b"ed"], len);
            let expected = [first.as_bytes(), second.as_bytes()].concat();
            assert_eq!(stream.as_bytes(), &expected[..len], "{prf}");
        }
    }
}
