//! The keys of lanes: from the TLS exporter of their QUIC connection.

use aws_lc_rs::aead::{
    AES_128_GCM, AES_256_GCM, Aad, Algorithm, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey,
};
use headroom_transfer_proto::lane::{
    Bare, Cipher, Context, Derived, Keys, PacketKey, Refused, TAG_LEN,
};
use quinn::Connection;

const IV_LEN: usize = 12;
/// Octets of the longest key.
const MOST_KEY: usize = 32;

/// A connection's exporter.
pub(crate) struct Exporter {
    pub(crate) connection: Connection,
    pub(crate) cipher: Cipher,
}

impl Keys for Exporter {
    type Key = Key;

    fn derive(&mut self, context: &Context) -> Result<Derived<Key>, Refused> {
        let making = Making::of(self.cipher);
        let key_len = making.key_len();
        let mut secret = [0; MOST_KEY + IV_LEN];
        let secret = &mut secret[..key_len + IV_LEN];
        self.connection
            .export_keying_material(secret, Context::LABEL, &context.bytes())
            .map_err(|_| Refused)?;
        let (key, iv) = secret.split_last_chunk::<IV_LEN>().ok_or(Refused)?;
        Ok(Derived { key: making.key(key)?, iv: *iv })
    }
}

/// What is made of a secret.
enum Making {
    Sealed(&'static Algorithm),
    Clear,
    SimpleCrypt,
}

impl Making {
    fn of(cipher: Cipher) -> Self {
        match cipher {
            Cipher::Aes128Gcm => Self::Sealed(&AES_128_GCM),
            Cipher::Aes256Gcm => Self::Sealed(&AES_256_GCM),
            Cipher::ChaCha20Poly1305 => Self::Sealed(&CHACHA20_POLY1305),
            Cipher::Clear => Self::Clear,
            Cipher::SimpleCrypt => Self::SimpleCrypt,
        }
    }

    fn key_len(&self) -> usize {
        match self {
            Self::Sealed(algorithm) => algorithm.key_len(),
            Self::Clear => 0,
            Self::SimpleCrypt => 8,
        }
    }

    fn key(&self, octets: &[u8]) -> Result<Key, Refused> {
        Ok(match self {
            Self::Sealed(algorithm) => {
                let unbound = UnboundKey::new(algorithm, octets).map_err(|_| Refused)?;
                Key::Sealed(LessSafeKey::new(unbound))
            }
            Self::Clear => Key::Bare(Bare::Clear),
            Self::SimpleCrypt => {
                Key::Bare(Bare::SimpleCrypt(octets.try_into().map_err(|_| Refused)?))
            }
        })
    }
}

/// A key of one direction's epoch.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "there are three of them, used for each packet")]
pub(crate) enum Key {
    Sealed(LessSafeKey),
    /// For measurement.
    Bare(Bare),
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
            Self::Bare(bare) => return bare.seal(nonce, additional, text, tag),
        };
        let nonce = Nonce::assume_unique_for_key(nonce);
        key.seal_in_place_scatter(nonce, Aad::from(additional), text, &[], tag).map_err(|_| Refused)
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
            Self::Bare(bare) => return bare.open(nonce, additional, text, tag),
        };
        let nonce = Nonce::assume_unique_for_key(nonce);
        key.open_in_place_separate_tag(nonce, Aad::from(additional), tag, text)
            .map(|_| ())
            .map_err(|_| Refused)
    }
}
