//! The keys of lanes: from the TLS exporter of their QUIC connection.

use aws_lc_rs::aead::{
    AES_128_GCM, Aad, Algorithm, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey,
};
use headroom_transfer_proto::lane::{Context, Derived, Keys, PacketKey, Refused, TAG_LEN};
use quinn::Connection;

const IV_LEN: usize = 12;
/// Octets of the longest key.
const MOST_KEY: usize = 32;

/// How packets of lanes are sealed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Suite {
    Aes128Gcm,
    ChaCha20Poly1305,
}

impl Suite {
    /// Those that this machine offers, the best first: AES only where the processor
    /// has instructions for it.
    pub(crate) fn offered() -> Vec<Self> {
        if has_aes() {
            vec![Self::Aes128Gcm, Self::ChaCha20Poly1305]
        } else {
            vec![Self::ChaCha20Poly1305]
        }
    }

    /// Of what a peer offers the one that is best for both.
    pub(crate) fn choose(offered: &[u32]) -> Option<Self> {
        Self::offered().into_iter().find(|suite| offered.contains(&suite.number()))
    }

    /// Its number in messages.
    pub(crate) const fn number(self) -> u32 {
        match self {
            Self::Aes128Gcm => 0,
            Self::ChaCha20Poly1305 => 1,
        }
    }

    fn algorithm(self) -> &'static Algorithm {
        match self {
            Self::Aes128Gcm => &AES_128_GCM,
            Self::ChaCha20Poly1305 => &CHACHA20_POLY1305,
        }
    }
}

fn has_aes() -> bool {
    #[cfg(target_arch = "x86_64")]
    return std::arch::is_x86_feature_detected!("aes")
        && std::arch::is_x86_feature_detected!("pclmulqdq");
    #[cfg(target_arch = "aarch64")]
    return std::arch::is_aarch64_feature_detected!("aes")
        && std::arch::is_aarch64_feature_detected!("pmull");
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    return false;
}

/// A connection's exporter.
pub(crate) struct Exporter {
    pub(crate) connection: Connection,
    pub(crate) suite: Suite,
}

impl Keys for Exporter {
    type Key = Key;

    fn derive(&mut self, context: &Context) -> Result<Derived<Key>, Refused> {
        let algorithm = self.suite.algorithm();
        let key_len = algorithm.key_len();
        let mut secret = [0; MOST_KEY + IV_LEN];
        let secret = &mut secret[..key_len + IV_LEN];
        self.connection
            .export_keying_material(secret, Context::LABEL, &context.bytes())
            .map_err(|_| Refused)?;
        let (key, iv) = secret.split_last_chunk::<IV_LEN>().ok_or(Refused)?;
        let unbound = UnboundKey::new(algorithm, key).map_err(|_| Refused)?;
        Ok(Derived { key: Key(LessSafeKey::new(unbound)), iv: *iv })
    }
}

/// A key of one direction's epoch.
#[derive(Debug)]
pub(crate) struct Key(LessSafeKey);

impl PacketKey for Key {
    #[inline]
    fn seal(
        &self,
        nonce: [u8; 12],
        additional: &[u8],
        text: &mut [u8],
        tag: &mut [u8; TAG_LEN],
    ) -> Result<(), Refused> {
        let nonce = Nonce::assume_unique_for_key(nonce);
        self.0
            .seal_in_place_scatter(nonce, Aad::from(additional), text, &[], tag)
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
        let nonce = Nonce::assume_unique_for_key(nonce);
        self.0
            .open_in_place_separate_tag(nonce, Aad::from(additional), tag, text)
            .map(|_| ())
            .map_err(|_| Refused)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ends_agree_on_a_suite_that_both_have() {
        let ours: Vec<u32> = Suite::offered().iter().map(|suite| suite.number()).collect();
        assert_eq!(Suite::choose(&ours), Suite::offered().first().copied());
        assert_eq!(Suite::choose(&[7, 1]), Some(Suite::ChaCha20Poly1305));
        assert_eq!((Suite::choose(&[]), Suite::choose(&[2, 99])), (None, None));
    }
}
