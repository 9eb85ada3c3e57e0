//! Seals and opens messages: SK (RFC 7296 §3.14, RFC 5282) and SKF (RFC 7383).

use std::fmt;

use aws_lc_rs::aead::{self, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::cipher::{
    self, DecryptingKey, DecryptionContext, EncryptingKey, EncryptionContext, UnboundCipherKey,
};
use aws_lc_rs::iv::FixedLength;
use headroom_suite::{Aead, Authenticator, Cipher, Key, Suite};
use thiserror::Error;

use super::Random;
use crate::wire::{Encrypted, Fragment, HEADER_LEN, Header, PayloadType, finish};

/// The least length that messages may be fragmented to: 576 bytes of IPv4 (RFC 7383 §2.5.1) less IP
/// and UDP headers and the non-ESP marker.
pub const FRAGMENT_MIN: usize = 576 - 20 - 8 - 4;
/// Bytes of the generic payload header.
const GENERIC_LEN: usize = 4;

/// One direction of an IKE SA: a suite with its keys.
pub struct Protector {
    suite: Suite,
    kind: Kind,
}

enum Kind {
    Aead { key: Box<LessSafeKey>, salt: Key },
    Cbc { key: Key, mac: Authenticator },
}

/// A message does not verify: damaged, forged, or sealed with other keys.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
#[error("the message does not verify")]
pub struct Forged;

/// A way to make IVs.
enum Iv<'a> {
    /// The next number under the key, for an AEAD: never used twice (RFC 5282 §3.1).
    Counter(&'a mut u64),
    /// Random bytes, for CBC.
    Random(&'a mut dyn Random),
}

impl Protector {
    /// Prepares keys. None if IKE may not use the suite, or a key has another length.
    #[must_use]
    pub fn new(suite: Suite, key: &Key, mac_key: &Key) -> Option<Self> {
        if key.len() != suite.key_len() || mac_key.len() != suite.mac_key_len() {
            return None;
        }
        let kind = match suite {
            Suite::Aead(aead) => {
                let (key, salt) = key.as_bytes().split_last_chunk::<4>()?;
                let algorithm = match aead {
                    Aead::Aes128Gcm => &aead::AES_128_GCM,
                    Aead::Aes192Gcm => &aead::AES_192_GCM,
                    Aead::Aes256Gcm => &aead::AES_256_GCM,
                    Aead::ChaCha20Poly1305 => &aead::CHACHA20_POLY1305,
                };
                let key = Box::new(LessSafeKey::new(UnboundKey::new(algorithm, key).ok()?));
                Kind::Aead { key, salt: Key::from_bytes(salt) }
            }
            Suite::Separate(cipher, mac) => {
                cbc_algorithm(cipher)?;
                Kind::Cbc { key: Key::from_bytes(key.as_bytes()), mac: mac.bind(mac_key).ok()? }
            }
        };
        Some(Self { suite, kind })
    }

    /// Returns the suite.
    #[must_use]
    pub fn suite(&self) -> Suite {
        self.suite
    }

    /// Opens the last payload of `message`, which is `encrypted`, and returns the payloads inside.
    ///
    /// # Errors
    /// The message does not verify.
    pub fn open(&self, message: &[u8], encrypted: &Encrypted<'_>) -> Result<Vec<u8>, Forged> {
        let body = encrypted.body;
        let additional = message.len().checked_sub(body.len()).ok_or(Forged)?;
        let (iv, rest) = body.split_at_checked(self.suite.iv_len()).ok_or(Forged)?;
        let mut text = match &self.kind {
            Kind::Aead { key, salt } => {
                let mut text = rest.to_vec();
                let aad = aead::Aad::from(&message[..additional]);
                let len =
                    key.open_in_place(nonce(salt, iv)?, aad, &mut text).map_err(|_| Forged)?.len();
                text.truncate(len);
                text
            }
            Kind::Cbc { key, mac } => {
                let end = rest.len().checked_sub(mac.icv_len()).ok_or(Forged)?;
                let (text, icv) = rest.split_at(end);
                mac.verify(&[&message[..message.len() - icv.len()]], icv).map_err(|_| Forged)?;
                let mut text = text.to_vec();
                if text.is_empty() || !text.len().is_multiple_of(self.suite.block_len()) {
                    return Err(Forged);
                }
                let iv = FixedLength::from(<[u8; 16]>::try_from(iv).map_err(|_| Forged)?);
                let key = DecryptingKey::cbc(self.unbound(key)?).map_err(|_| Forged)?;
                key.decrypt(&mut text, DecryptionContext::Iv128(iv)).map_err(|_| Forged)?;
                text
            }
        };
        // the padding may have any content (RFC 7296 §3.14)
        let pad = usize::from(text.pop().ok_or(Forged)?);
        let len = text.len().checked_sub(pad).ok_or(Forged)?;
        text.truncate(len);
        Ok(text)
    }

    /// Writes header, SK or SKF with `inner`, and returns the message.
    fn seal(
        &self,
        header: &Header,
        first: PayloadType,
        fragment: Option<Fragment>,
        inner: &[u8],
        iv: &mut Iv<'_>,
    ) -> Vec<u8> {
        let mut message = Vec::with_capacity(
            HEADER_LEN + GENERIC_LEN + Fragment::LEN + self.sealed_len(inner.len()),
        );
        header.emit(&mut message);
        message.extend([first.into(), 0, 0, 0]);
        let payload_type = match fragment {
            None => PayloadType::Encrypted,
            Some(Fragment { number, total }) => {
                message.extend(number.to_be_bytes());
                message.extend(total.to_be_bytes());
                PayloadType::EncryptedFragment
            }
        };
        let additional = message.len();
        message.resize(additional + self.sealed_len(inner.len()), 0);
        finish(&mut message, payload_type, 0);
        let length = u16::try_from(message.len() - HEADER_LEN).expect("a message below 64 KiB");
        message[HEADER_LEN + 2..HEADER_LEN + GENERIC_LEN].copy_from_slice(&length.to_be_bytes());
        let (aad, body) = message.split_at_mut(additional);
        let (iv_field, rest) = body.split_at_mut(self.suite.iv_len());
        let (text, icv) = rest.split_at_mut(rest.len() - self.suite.icv_len());
        text[..inner.len()].copy_from_slice(inner);
        // padding of zeros, then its length
        text[text.len() - 1] = (text.len() - inner.len() - 1) as u8;
        iv.fill(iv_field);
        match &self.kind {
            Kind::Aead { key, salt } => {
                let nonce = nonce(salt, iv_field).expect("an IV of 8 bytes");
                let tag = key.seal_in_place_separate_tag(nonce, aead::Aad::from(&*aad), text);
                icv.copy_from_slice(tag.expect("a short message").as_ref());
            }
            Kind::Cbc { key, mac } => {
                let iv = <[u8; 16]>::try_from(&*iv_field).expect("an IV of a block");
                let key = self.unbound(key).and_then(|key| {
                    let key = EncryptingKey::cbc(key).map_err(|_| Forged)?;
                    let context = EncryptionContext::Iv128(FixedLength::from(iv));
                    key.less_safe_encrypt(text, context).map_err(|_| Forged)
                });
                key.expect("whole blocks under a key of the right length");
                mac.sign(&[aad, iv_field, text], icv);
            }
        }
        message
    }

    /// Bytes of IV, padded text and ICV. An AEAD's text needs no alignment (RFC 5282 §3).
    fn sealed_len(&self, inner: usize) -> usize {
        let block = if matches!(self.suite, Suite::Aead(_)) { 1 } else { self.suite.block_len() };
        self.suite.overhead() + (inner + 1).next_multiple_of(block)
    }

    fn unbound(&self, key: &Key) -> Result<UnboundCipherKey, Forged> {
        let Suite::Separate(cipher, _) = self.suite else { return Err(Forged) };
        let algorithm = cbc_algorithm(cipher).ok_or(Forged)?;
        UnboundCipherKey::new(algorithm, key.as_bytes()).map_err(|_| Forged)
    }
}

impl fmt::Debug for Protector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} with its keys", self.suite)
    }
}

/// Seals messages with the keys of one direction, and numbers their IVs.
#[derive(Debug)]
pub struct Sealer {
    protector: Protector,
    next_iv: u64,
}

impl Sealer {
    /// Takes keys that have sealed nothing yet.
    #[must_use]
    pub fn new(protector: Protector) -> Self {
        Self { protector, next_iv: 0 }
    }

    /// Seals a chain of payloads, the first of the type `first`, and returns the message; or its
    /// fragments if it is longer than `max` bytes.
    ///
    /// # Panics
    /// `max` is below [`FRAGMENT_MIN`], or the payloads fill more than 65535 fragments.
    pub fn seal(
        &mut self,
        header: &Header,
        first: PayloadType,
        inner: &[u8],
        max: Option<usize>,
        random: &mut dyn Random,
    ) -> Vec<Vec<u8>> {
        let Self { protector, next_iv } = self;
        let mut iv = match protector.kind {
            Kind::Aead { .. } => Iv::Counter(next_iv),
            Kind::Cbc { .. } => Iv::Random(random),
        };
        let whole = HEADER_LEN + GENERIC_LEN + protector.sealed_len(inner.len());
        let Some(max) = max.filter(|&max| whole > max) else {
            return vec![protector.seal(header, first, None, inner, &mut iv)];
        };
        assert!(max >= FRAGMENT_MIN, "fragments of {max} bytes");
        let room = max - HEADER_LEN - GENERIC_LEN - Fragment::LEN;
        // what a fragment holds: at least the padding length, at most a block of padding less
        let room = room - protector.suite.overhead() - protector.suite.block_len();
        let total = u16::try_from(inner.len().div_ceil(room)).expect("a message below 64 KiB");
        let numbered = inner.chunks(room).zip(1..);
        let fragments = numbered.map(|(chunk, number)| {
            let first = if number == 1 { first } else { PayloadType::None };
            let fragment = Some(Fragment { number, total });
            protector.seal(header, first, fragment, chunk, &mut iv)
        });
        fragments.collect()
    }
}

impl Iv<'_> {
    fn fill(&mut self, iv: &mut [u8]) {
        match self {
            Self::Counter(next) => {
                iv.copy_from_slice(&next.to_be_bytes());
                **next += 1;
            }
            Self::Random(random) => random.fill(iv),
        }
    }
}

/// The salt, then the IV (RFC 5282 §4, RFC 7634 §2).
fn nonce(salt: &Key, iv: &[u8]) -> Result<Nonce, Forged> {
    Nonce::try_assume_unique_for_key(&[salt.as_bytes(), iv].concat()).map_err(|_| Forged)
}

/// The ciphers without integrity that RFC 8247 §2.1 permits.
fn cbc_algorithm(cipher: Cipher) -> Option<&'static cipher::Algorithm> {
    match cipher {
        Cipher::Aes128Cbc => Some(&cipher::AES_128),
        Cipher::Aes192Cbc => Some(&cipher::AES_192),
        Cipher::Aes256Cbc => Some(&cipher::AES_256),
        Cipher::Null | Cipher::DesCbc | Cipher::TripleDesCbc => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crypto::SystemRandom;
    use crate::wire::{ExchangeType, Message, Payload};

    const HEADER: Header = Header {
        spi_initiator: 1,
        spi_responder: 2,
        exchange: ExchangeType::Informational,
        from_initiator: true,
        response: false,
        message_id: 7,
    };

    fn suites() -> impl Iterator<Item = Suite> {
        Suite::ALL.into_iter().filter(Suite::is_secure)
    }

    fn protector(suite: Suite) -> Protector {
        let key = Key::from_bytes(&vec![1; suite.key_len()]);
        let mac_key = Key::from_bytes(&vec![2; suite.mac_key_len()]);
        Protector::new(suite, &key, &mac_key).expect("keys of the right lengths")
    }

    fn open(protector: &Protector, message: &[u8]) -> Result<Vec<u8>, Forged> {
        let parsed = Message::parse(message).map_err(|_| Forged)?;
        let Some(Payload::Encrypted(encrypted)) = parsed.payloads.last() else {
            return Err(Forged);
        };
        protector.open(message, encrypted)
    }

    #[test]
    fn what_was_sealed_opens_with_every_suite_and_length() {
        for suite in suites() {
            let mut sealer = Sealer::new(protector(suite));
            for len in 0..40 {
                let inner = vec![9; len];
                let first = PayloadType::VendorId;
                let sealed = sealer.seal(&HEADER, first, &inner, None, &mut SystemRandom);
                assert_eq!(open(&protector(suite), &sealed[0]), Ok(inner), "{suite}");
            }
        }
    }

    #[test]
    fn any_changed_bit_is_noticed() {
        for suite in suites() {
            let mut sealer = Sealer::new(protector(suite));
            let first = PayloadType::VendorId;
            let sealed = sealer.seal(&HEADER, first, &[5; 9], None, &mut SystemRandom).remove(0);
            for bit in 0..8 * sealed.len() {
                let mut message = sealed.clone();
                message[bit / 8] ^= 1 << (bit % 8);
                assert_eq!(open(&protector(suite), &message), Err(Forged), "{suite}, bit {bit}");
            }
            for len in 0..sealed.len() {
                assert_eq!(open(&protector(suite), &sealed[..len]), Err(Forged));
            }
        }
    }

    #[test]
    fn fragments_keep_to_their_limit_and_join_to_the_whole() {
        for suite in suites() {
            let mut sealer = Sealer::new(protector(suite));
            let inner: Vec<u8> = (0..3000_u32).map(|at| at as u8).collect();
            for max in [FRAGMENT_MIN, 1252, 2999] {
                let first = PayloadType::KeyExchange;
                let sealed = sealer.seal(&HEADER, first, &inner, Some(max), &mut SystemRandom);
                assert!(sealed.len() > 1 && sealed.iter().all(|one| one.len() <= max), "{suite}");
                let parts = sealed.iter().map(|one| open(&protector(suite), one));
                let joined = parts.collect::<Result<Vec<_>, _>>().expect("all verify").concat();
                assert_eq!(joined, inner, "{suite}");
            }
        }
    }

    #[test]
    fn no_iv_of_an_aead_is_used_twice() {
        let suite = Suite::Aead(Aead::Aes128Gcm);
        let mut sealer = Sealer::new(protector(suite));
        let mut seal = || {
            let first = PayloadType::None;
            sealer.seal(&HEADER, first, &[0; 1000], Some(FRAGMENT_MIN), &mut SystemRandom)
        };
        let messages = [seal(), seal()].concat();
        let ivs: std::collections::HashSet<_> =
            messages.iter().map(|message| message[36..44].to_vec()).collect();
        assert_eq!(ivs.len(), messages.len());
    }
}
