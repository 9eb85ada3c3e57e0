//! On what terms lanes are used: what a client may wish, and what a server takes.

use headroom_transfer_proto::lane::{Chunk, Cipher};
use headroom_transfer_proto::message::LanesOffer;

use crate::error::Error;

/// How lanes are to be, where the usual is not wanted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LaneOptions {
    /// The cipher; else what both sides do fastest.
    pub cipher: Option<Cipher>,
    /// Octets of files in each packet; else what the path takes. Longer packets than
    /// that travel as IP fragments: this is for measurement.
    pub chunk: Option<Chunk>,
    /// Whether what protects nothing, and what is for measurement alone, may be wished
    /// for. The server must allow it, too.
    pub insecure_measurement: bool,
}

impl LaneOptions {
    /// Whether anything but the usual is wanted, which lanes alone can have.
    pub(crate) const fn is_any(&self) -> bool {
        self.cipher.is_some() || self.chunk.is_some()
    }

    /// The ciphers that are offered, the best first.
    pub(super) fn ciphers(&self) -> Vec<Cipher> {
        self.cipher.map_or_else(|| usual(has_aes()), |cipher| vec![cipher])
    }

    /// Whether they may be wished for.
    ///
    /// # Errors
    /// Something is for measurement alone, which was not allowed.
    pub fn check(&self) -> Result<(), Error> {
        let allow = "say --insecure-measurement, here and to `headroom serve`";
        match *self {
            Self { insecure_measurement: true, .. } => Ok(()),
            Self { cipher: Some(cipher), .. } if !cipher.is_secure() => Err(Error::Usage(format!(
                "the cipher `{cipher}` encrypts nothing: everybody on the way can read and change the files. To measure \
                 with it all the same, {allow}"
            ))),
            Self { chunk: Some(_), .. } => Err(Error::Usage(format!(
                "chunks are for measurement: packets of a given length, whatever the path takes, in IP fragments where \
                 it must be. To measure with them, {allow}"
            ))),
            _ => Ok(()),
        }
    }
}

/// Why a server that allows no measurement does not do as a client wishes.
pub(super) fn refusal(offer: &LanesOffer) -> Option<String> {
    let without = "this server was started without --insecure-measurement";
    let mut named = offer.suites.iter().filter_map(|suite| Cipher::numbered(*suite));
    if let Some(cipher) = named.find(|cipher| !cipher.is_secure()) {
        return Some(format!("{without}: it encrypts always, and `{cipher}` is no encryption"));
    }
    offer.chunk.map(|_| format!("{without}: its packets are as long as the path takes"))
}

/// Of what a client offers, the cipher that is best for both. What protects nothing is
/// taken only if it may be, and if nothing else is offered.
pub(super) fn choose(offered: &[u32], insecure_measurement: bool) -> Option<Cipher> {
    let secure = if has_aes() {
        [Cipher::Aes128Gcm, Cipher::Aes256Gcm, Cipher::ChaCha20Poly1305]
    } else {
        [Cipher::ChaCha20Poly1305, Cipher::Aes128Gcm, Cipher::Aes256Gcm]
    };
    let bare = [Cipher::Clear, Cipher::SimpleCrypt].into_iter().filter(|_| insecure_measurement);
    secure.into_iter().chain(bare).find(|cipher| offered.contains(&cipher.number()))
}

/// What a client offers that wishes nothing: AES only where the processor has
/// instructions for it.
fn usual(has_aes: bool) -> Vec<Cipher> {
    let aes = has_aes.then_some(Cipher::Aes128Gcm);
    aes.into_iter().chain([Cipher::ChaCha20Poly1305]).collect()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ends_agree_on_a_cipher_that_both_have() {
        let ours: Vec<u32> = usual(true).iter().map(|cipher| cipher.number()).collect();
        assert!(choose(&ours, false).is_some_and(|cipher| usual(true).contains(&cipher)));
        assert_eq!(choose(&[7, 1], false), Some(Cipher::ChaCha20Poly1305));
        assert_eq!((choose(&[], true), choose(&[3, 99], true)), (None, None));
        assert!(usual(false).iter().chain(&usual(true)).all(|cipher| cipher.is_secure()));
    }

    #[test]
    fn what_does_not_encrypt_is_never_chosen_unless_it_may_be_and_is_last() {
        let bare = [Cipher::Clear, Cipher::SimpleCrypt];
        for cipher in bare {
            assert_eq!(choose(&[cipher.number()], false), None);
            assert_eq!(choose(&[cipher.number()], true), Some(cipher));
            let all = [bare[0].number(), bare[1].number(), Cipher::ChaCha20Poly1305.number()];
            assert_eq!(choose(&all, true), Some(Cipher::ChaCha20Poly1305));
        }
    }

    #[test]
    fn wishes_for_measurement_take_the_word_for_it() {
        let chunk = Chunk::new(1000);
        for cipher in
            [None, Some(Cipher::Aes256Gcm), Some(Cipher::Clear), Some(Cipher::SimpleCrypt)]
        {
            for chunk in [None, chunk] {
                let lane_options = LaneOptions { cipher, chunk, insecure_measurement: false };
                let harmless = chunk.is_none() && cipher.is_none_or(Cipher::is_secure);
                assert_eq!(lane_options.check().is_ok(), harmless, "{lane_options:?}");
                assert!(LaneOptions { insecure_measurement: true, ..lane_options }.check().is_ok());
            }
        }
    }
}
