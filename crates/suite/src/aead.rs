//! AES-GCM (RFC 4106) and ChaCha20-Poly1305 (RFC 7634).

use std::fmt;

use aws_lc_rs::aead::{
    AES_128_GCM, AES_192_GCM, AES_256_GCM, Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce,
    UnboundKey,
};
use zeroize::Zeroizing;

use crate::algorithm::{AEAD_ICV_LEN as ICV_LEN, AEAD_IV_LEN as IV_LEN, SALT_LEN};
use crate::{AadInput, Aead, Forged, Key, KeyError, SealError, Transform};

const _: () = assert!(SALT_LEN + IV_LEN == NONCE_LEN);

/// An AEAD with its key and salt.
pub(crate) struct AeadTransform {
    aead: Aead,
    key: LessSafeKey,
    salt: Zeroizing<[u8; SALT_LEN]>,
}

impl AeadTransform {
    /// Prepares `key`, whose last bytes are the salt.
    pub(crate) fn new(aead: Aead, key: &Key) -> Result<Self, KeyError> {
        let algorithm = match aead {
            Aead::Aes128Gcm => &AES_128_GCM,
            Aead::Aes192Gcm => &AES_192_GCM,
            Aead::Aes256Gcm => &AES_256_GCM,
            Aead::ChaCha20Poly1305 => &CHACHA20_POLY1305,
        };
        let (key, salt) = key.as_bytes().split_last_chunk().ok_or(KeyError::Refused)?;
        let key = UnboundKey::new(algorithm, key).map_err(|_| KeyError::Refused)?;
        Ok(Self { aead, key: LessSafeKey::new(key), salt: Zeroizing::new(*salt) })
    }

    /// Returns the nonce: the salt, then the packet's IV (RFC 4106 §4, RFC 7634 §2).
    #[inline]
    fn nonce(&self, iv: [u8; IV_LEN]) -> [u8; NONCE_LEN] {
        let mut nonce = [0; NONCE_LEN];
        nonce[..SALT_LEN].copy_from_slice(&*self.salt);
        nonce[SALT_LEN..].copy_from_slice(&iv);
        nonce
    }

    /// Encrypts `text` in place and writes its tag.
    #[inline]
    pub(crate) fn seal_raw(
        &self,
        nonce: [u8; NONCE_LEN],
        additional: &[u8],
        text: &mut [u8],
        tag: &mut [u8],
    ) -> Result<(), SealError> {
        let nonce = Nonce::assume_unique_for_key(nonce);
        self.key
            .seal_in_place_scatter(nonce, Aad::from(additional), text, &[], tag)
            .map_err(|_| SealError::Refused)
    }

    /// Verifies `tag`, then decrypts `text` in place.
    #[inline]
    pub(crate) fn open_raw(
        &self,
        nonce: [u8; NONCE_LEN],
        additional: &[u8],
        text: &mut [u8],
        tag: &[u8],
    ) -> Result<(), Forged> {
        let nonce = Nonce::assume_unique_for_key(nonce);
        self.key
            .open_in_place_separate_tag(nonce, Aad::from(additional), tag, text)
            .map(|_| ())
            .map_err(|_| Forged)
    }
}

impl Transform for AeadTransform {
    fn iv_len(&self) -> usize {
        IV_LEN
    }

    fn block_len(&self) -> usize {
        4
    }

    fn icv_len(&self) -> usize {
        ICV_LEN
    }

    fn seal(&self, aad: &AadInput<'_>, body: &mut [u8]) -> Result<(), SealError> {
        aad.check_seal()?;
        let additional = aad.additional()?;
        let found = body.len();
        let (iv, text, tag) = parts(body)
            .filter(|(_, text, _)| text.len().is_multiple_of(self.block_len()))
            .ok_or(SealError::Length {
                found,
                iv_len: IV_LEN,
                block_len: self.block_len(),
                icv_len: ICV_LEN,
            })?;
        // Unique as long as the sequence number is (RFC 4106 §3.1, RFC 7634 §2).
        *iv = aad.sequence.to_be_bytes();
        self.seal_raw(self.nonce(*iv), additional.as_ref(), text, tag)
    }

    fn open(&self, aad: &AadInput<'_>, body: &mut [u8]) -> Result<(), Forged> {
        let additional = aad.additional().map_err(|_| Forged)?;
        let (iv, text, tag) = parts(body).ok_or(Forged)?;
        self.open_raw(self.nonce(*iv), additional.as_ref(), text, tag)
    }

    fn verifies_truncated(&self, aad: &AadInput<'_>, body: &[u8], icv_len: usize) -> bool {
        let Ok(additional) = aad.additional() else { return false };
        let Some((iv, rest)) = body.split_first_chunk() else { return false };
        let Some(end) = rest.len().checked_sub(icv_len) else { return false };
        let (text, icv) = rest.split_at(end);
        let (mut text, mut tag) = (Zeroizing::new(text.to_vec()), [0; ICV_LEN]);
        // Both ciphers add a key stream: sealing the ciphertext decrypts it, and sealing the result
        // again gives the whole tag. The plaintext does not leave this function
        let mut seal =
            || self.seal_raw(self.nonce(*iv), additional.as_ref(), &mut text, &mut tag).is_ok();
        seal() && seal() && icv_len > 0 && tag.starts_with(icv)
    }
}

impl fmt::Debug for AeadTransform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} with its key", self.aead)
    }
}

/// The IV, the text and the tag of a body.
#[inline]
fn parts(body: &mut [u8]) -> Option<(&mut [u8; IV_LEN], &mut [u8], &mut [u8; ICV_LEN])> {
    let (iv, rest) = body.split_first_chunk_mut()?;
    let (text, tag) = rest.split_last_chunk_mut()?;
    Some((iv, text, tag))
}
