//! Derives the keys of lanes from the TLS exporter of their QUIC connection.

use aws_lc_rs::aead::{
    AES_128_GCM, AES_256_GCM, Aad, Algorithm, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey,
};
use headroom_transfer_proto::lane::{
    Cipher, Context, Derived, Keys, PacketKey, Refused, TAG_LEN, Unencrypted,
};
use quinn::Connection;
use zeroize::Zeroizing;

const IV_LEN: usize = 12;
/// Bytes of the longest key.
const MAX_KEY: usize = 32;

/// A connection's TLS exporter.
pub(crate) struct Exporter {
    pub(crate) connection: Connection,
    pub(crate) cipher: Cipher,
}

impl Keys for Exporter {
    type Key = Key;

    fn derive(&mut self, context: &Context) -> Result<Derived<Key>, Refused> {
        let making = Making::of(self.cipher);
        let key_len = making.key_len();
        // AWS-LC erases its copies when it frees them; this one is ours
        let mut secret = Zeroizing::new([0; MAX_KEY + IV_LEN]);
        let secret = &mut secret[..key_len + IV_LEN];
        self.connection
            .export_keying_material(secret, Context::LABEL, &context.bytes())
            .map_err(|_| Refused)?;
        let (key, iv) = secret.split_last_chunk::<IV_LEN>().ok_or(Refused)?;
        Ok(Derived { key: making.key(key)?, iv: *iv })
    }
}

/// The kind of key to make of a secret.
enum Making {
    Sealed(&'static Algorithm),
    Null,
    SimpleCrypt,
}

impl Making {
    fn of(cipher: Cipher) -> Self {
        match cipher {
            Cipher::Aes128Gcm => Self::Sealed(&AES_128_GCM),
            Cipher::Aes256Gcm => Self::Sealed(&AES_256_GCM),
            Cipher::ChaCha20Poly1305 => Self::Sealed(&CHACHA20_POLY1305),
            Cipher::Null => Self::Null,
            Cipher::SimpleCrypt => Self::SimpleCrypt,
        }
    }

    fn key_len(&self) -> usize {
        match self {
            Self::Sealed(algorithm) => algorithm.key_len(),
            Self::Null => 0,
            Self::SimpleCrypt => 8,
        }
    }

    fn key(&self, bytes: &[u8]) -> Result<Key, Refused> {
        Ok(match self {
            Self::Sealed(algorithm) => {
                let unbound = UnboundKey::new(algorithm, bytes).map_err(|_| Refused)?;
                Key::Sealed(LessSafeKey::new(unbound))
            }
            Self::Null => Key::Unencrypted(Unencrypted::Null),
            Self::SimpleCrypt => {
                Key::Unencrypted(Unencrypted::SimpleCrypt(bytes.try_into().map_err(|_| Refused)?))
            }
        })
    }
}

/// The key of one direction's epoch.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "there are three of them, used for each packet")]
pub(crate) enum Key {
    Sealed(LessSafeKey),
    /// For measurement.
    Unencrypted(Unencrypted),
}

impl PacketKey for Key {
    #[inline]
    fn seal(
        &self,
        nonce: [u8; 12],
        additional: &[u8],
        text: &mut [u8],
        tag: &mut [u8; TAG_LEN],
    ) -> Result<(), Refused> {
        let key = match self {
            Self::Sealed(key) => key,
            Self::Unencrypted(bare) => return bare.seal(nonce, additional, text, tag),
        };
        let nonce = Nonce::assume_unique_for_key(nonce);
        key.seal_in_place_scatter(nonce, Aad::from(additional), text, &[], tag).map_err(|_| Refused)
    }

    #[inline]
    fn seal_with(
        &self,
        nonce: [u8; 12],
        additional: &[u8],
        packet_bytes: &mut [u8],
        rest: &[u8],
    ) -> Result<(), Refused> {
        let key = match self {
            Self::Sealed(key) => key,
            Self::Unencrypted(bare) => {
                return bare.seal_with(nonce, additional, packet_bytes, rest);
            }
        };
        let head = packet_bytes.len().checked_sub(rest.len() + TAG_LEN).ok_or(Refused)?;
        let (head, out) = packet_bytes.split_at_mut(head);
        let nonce = Nonce::assume_unique_for_key(nonce);
        key.seal_in_place_scatter(nonce, Aad::from(additional), head, rest, out)
            .map_err(|_| Refused)
    }

    #[inline]
    fn open(
        &self,
        nonce: [u8; 12],
        additional: &[u8],
        text: &mut [u8],
        tag: &[u8; TAG_LEN],
    ) -> Result<(), Refused> {
        let key = match self {
            Self::Sealed(key) => key,
            Self::Unencrypted(bare) => return bare.open(nonce, additional, text, tag),
        };
        let nonce = Nonce::assume_unique_for_key(nonce);
        key.open_in_place_separate_tag(nonce, Aad::from(additional), tag, text)
            .map(|_| ())
            .map_err(|_| Refused)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sealing_from_a_separate_buffer_gives_the_same_packet() {
        for cipher in Cipher::ALL {
            let making = Making::of(cipher);
            let key = making.key(&vec![7; making.key_len()]).expect("a key");
            for (head, rest) in [(0, 0), (13, 0), (0, 40), (13, 1), (13, 1427), (16, 64), (1, 4000)]
            {
                let text: Vec<u8> = (0..head + rest).map(|at| at as u8).collect();
                let mut whole = [&text[..], &[0; TAG_LEN]].concat();
                let (packet_bytes, tag) = whole.split_last_chunk_mut().expect("a tag");
                key.seal([3; 12], b"additional", packet_bytes, tag).expect("sealed");
                let mut parted = vec![0xff; text.len() + TAG_LEN];
                parted[..head].copy_from_slice(&text[..head]);
                let sealed = key.seal_with([3; 12], b"additional", &mut parted, &text[head..]);
                assert_eq!((sealed, &parted), (Ok(()), &whole), "{cipher} {head} {rest}");
                let (packet_bytes, tag) = parted.split_last_chunk_mut().expect("a tag");
                key.open([3; 12], b"additional", packet_bytes, tag).expect("opened");
                assert_eq!(packet_bytes, text);
            }
            let none = key.seal_with([3; 12], b"", &mut [0; TAG_LEN + 3], &[1; 4]);
            assert_eq!(none, Err(Refused), "there is no room for four bytes");
        }
    }
}
