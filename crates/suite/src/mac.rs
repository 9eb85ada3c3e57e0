//! Integrity algorithms with their keys: truncated HMACs.

use std::fmt;

use ::hmac::{Hmac, KeyInit, Mac as _};
use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::hmac;
use md5::Md5;

use crate::{Forged, Key, KeyError, Mac};

/// An integrity algorithm with its key and the HMAC's inner and outer states.
pub struct Authenticator {
    mac: Mac,
    state: State,
}

enum State {
    Sha(Box<hmac::Key>),
    /// AWS-LC's public interface has no HMAC-MD5.
    Md5(Hmac<Md5>),
}

/// AWS-LC erases its states when they are dropped. An `Hmac<Md5>` has two states of MD5; this
/// checks that they erase themselves.
const _: () = {
    const fn erased<T: zeroize::ZeroizeOnDrop>() {}
    erased::<Md5>();
};

impl Mac {
    /// Prepares the algorithm with its key.
    ///
    /// # Errors
    /// The key has the wrong length.
    pub fn bind(self, key: &Key) -> Result<Authenticator, KeyError> {
        if key.len() != self.key_len() {
            return Err(KeyError::MacLength { mac: self, found: key.len() });
        }
        Authenticator::new(self, key.as_bytes())
    }
}

impl Authenticator {
    /// Prepares a key of any length.
    pub(crate) fn new(mac: Mac, key: &[u8]) -> Result<Self, KeyError> {
        let sha = |algorithm| State::Sha(Box::new(hmac::Key::new(algorithm, key)));
        let state = match mac {
            Mac::HmacMd5 => State::Md5(Hmac::new_from_slice(key).map_err(|_| KeyError::Refused)?),
            Mac::HmacSha1 => sha(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY),
            Mac::HmacSha256 => sha(hmac::HMAC_SHA256),
            Mac::HmacSha384 => sha(hmac::HMAC_SHA384),
            Mac::HmacSha512 => sha(hmac::HMAC_SHA512),
        };
        Ok(Self { mac, state })
    }

    /// Returns the length of an ICV in bytes.
    #[must_use]
    pub fn icv_len(&self) -> usize {
        self.mac.icv_len()
    }

    /// Writes the ICV of the concatenated `parts`.
    ///
    /// # Panics
    /// `icv` does not have the ICV's length.
    pub fn sign(&self, parts: &[&[u8]], icv: &mut [u8]) {
        self.digest(parts, |digest| icv.copy_from_slice(&digest[..self.icv_len()]));
    }

    /// Checks whether `icv` is the ICV of the concatenated `parts`. The time does not depend on the
    /// first difference.
    ///
    /// # Errors
    /// `icv` is wrong, or has another length.
    pub fn verify(&self, parts: &[&[u8]], icv: &[u8]) -> Result<(), Forged> {
        self.digest(parts, |digest| {
            verify_slices_are_equal(&digest[..self.icv_len()], icv).map_err(|_| Forged)
        })
    }

    /// Passes the whole HMAC of `parts` to `then`, to examine packets whose ICV was truncated to
    /// another length.
    #[inline]
    pub fn digest<T>(&self, parts: &[&[u8]], then: impl FnOnce(&[u8]) -> T) -> T {
        match &self.state {
            State::Sha(key) => {
                let mut context = hmac::Context::with_key(key);
                parts.iter().for_each(|part| context.update(part));
                then(context.sign().as_ref())
            }
            State::Md5(state) => {
                let mut state = state.clone();
                parts.iter().for_each(|part| state.update(part));
                then(&state.finalize().into_bytes())
            }
        }
    }
}

impl fmt::Debug for Authenticator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} with its key", self.mac)
    }
}
