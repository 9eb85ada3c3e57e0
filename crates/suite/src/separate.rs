//! A cipher and an integrity algorithm in sequence (RFC 4303 §3.3.2.1).

use std::fmt;

use crate::cbc::Cbc;
use crate::random;
use crate::{AadInput, Authenticator, Cipher, Forged, Key, KeyError, SealError, Transform};

/// A cipher and an integrity algorithm with their keys.
pub(crate) struct Separate {
    cipher: Cipher,
    cbc: Cbc,
    mac: Authenticator,
}

impl Separate {
    pub(crate) fn new(cipher: Cipher, key: &Key, mac: Authenticator) -> Result<Self, KeyError> {
        Ok(Self { cipher, cbc: Cbc::new(cipher, key)?, mac })
    }

    /// Splits a body into IV, text and ICV; None if its length is impossible.
    #[inline]
    fn parts<'a>(&self, body: &'a mut [u8], unit: usize) -> Option<[&'a mut [u8]; 3]> {
        let (iv, rest) = body.split_at_mut_checked(self.iv_len())?;
        let text_len = rest.len().checked_sub(self.icv_len())?;
        let (text, icv) = rest.split_at_mut(text_len);
        text_len.is_multiple_of(unit).then_some([iv, text, icv])
    }

    /// Passes the bytes that the ICV covers to `then`: header, IV and ciphertext, the high half of
    /// an extended sequence number (RFC 4303 §2.2.1), addresses.
    #[inline]
    fn covered<T>(
        aad: &AadInput<'_>,
        iv: &[u8],
        text: &[u8],
        then: impl FnOnce(&[&[u8]]) -> T,
    ) -> T {
        let high = aad.high();
        let high: &[u8] = if aad.extended { &high } else { &[] };
        then(&[aad.header, iv, text, high, aad.addresses])
    }
}

impl Transform for Separate {
    fn iv_len(&self) -> usize {
        self.cipher.iv_len()
    }

    fn block_len(&self) -> usize {
        self.cipher.block_len()
    }

    fn icv_len(&self) -> usize {
        self.mac.icv_len()
    }

    fn seal(&self, aad: &AadInput<'_>, body: &mut [u8]) -> Result<(), SealError> {
        aad.check_seal()?;
        let found = body.len();
        let [iv, text, icv] = self.parts(body, self.block_len()).ok_or(SealError::Length {
            found,
            iv_len: self.iv_len(),
            block_len: self.block_len(),
            icv_len: self.icv_len(),
        })?;
        random::fill(iv)?;
        self.cbc.encrypt(iv, text).map_err(|_| SealError::Refused)?;
        Self::covered(aad, iv, text, |parts| self.mac.sign(parts, icv));
        Ok(())
    }

    fn open(&self, aad: &AadInput<'_>, body: &mut [u8]) -> Result<(), Forged> {
        aad.split().map_err(|_| Forged)?;
        // Whole blocks of the cipher, regardless of ESP's alignment.
        let unit = self.cipher.iv_len().max(1);
        let [iv, text, icv] = self.parts(body, unit).ok_or(Forged)?;
        Self::covered(aad, iv, text, |parts| self.mac.verify(parts, icv))?;
        self.cbc.decrypt(iv, text).map_err(|_| Forged)
    }
}

impl fmt::Debug for Separate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} and {:?}", self.cipher, self.mac)
    }
}
