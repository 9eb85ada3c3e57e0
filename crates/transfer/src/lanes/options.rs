//! Options of lanes: what a client may choose, and what a server accepts.

use headroom_transfer_proto::lane::{Chunk, Cipher};
use headroom_transfer_proto::message::LanesOffer;

use crate::error::Error;

/// Options of lanes, for anything but the default.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LaneOptions {
    /// The cipher; `None` is the fastest that both sides have.
    pub cipher: Option<Cipher>,
    /// Bytes of files in each packet, for measurement; `None` is what the path carries. Longer
    /// packets travel as IP fragments.
    pub chunk: Option<Chunk>,
    /// Whether to allow what protects nothing or is for measurement only. The server must allow it,
    /// too.
    pub insecure_measurement: bool,
}

impl LaneOptions {
    /// Whether anything but the default is chosen, which applies to lanes only.
    pub(crate) const fn is_any(&self) -> bool {
        self.cipher.is_some() || self.chunk.is_some()
    }

    /// Returns the ciphers to offer, the best first.
    pub(super) fn ciphers(&self) -> Vec<Cipher> {
        self.cipher.map_or_else(|| usual(has_aes()), |cipher| vec![cipher])
    }

    /// Checks whether the options are allowed.
    ///
    /// # Errors
    /// Something is for measurement only, and that is not allowed.
    pub fn check(&self) -> Result<(), Error> {
        let allow = "use --insecure-measurement, here and with `headroom serve`";
        match *self {
            Self { insecure_measurement: true, .. } => Ok(()),
            Self { cipher: Some(cipher), .. } if !cipher.is_secure() => Err(Error::Usage(format!(
                "the cipher `{cipher}` encrypts nothing: anybody on the path can read and change the files. To measure with it anyway, {allow}"
            ))),
            Self { chunk: Some(_), .. } => Err(Error::Usage(format!(
                "--chunk is for measurement: it fixes the length of packets, and long ones travel as IP fragments. To measure with it, {allow}"
            ))),
            _ => Ok(()),
        }
    }
}

/// Returns why a server that allows no measurement refuses an offer.
pub(super) fn refusal(offer: &LanesOffer) -> Option<String> {
    let without = "this server was started without --insecure-measurement";
    let mut named = offer.suites.iter().filter_map(|suite| Cipher::numbered(*suite));
    if let Some(cipher) = named.find(|cipher| !cipher.is_secure()) {
        return Some(format!("{without}: it always encrypts, and `{cipher}` is no encryption"));
    }
    offer.chunk.map(|_| format!("{without}: it does not fix the length of packets"))
}

/// Chooses the best of the offered ciphers. One that protects nothing is chosen only if that is
/// allowed and nothing else is offered.
pub(super) fn choose(offered: &[u32], insecure_measurement: bool) -> Option<Cipher> {
    let secure = if has_aes() {
        [Cipher::Aes128Gcm, Cipher::Aes256Gcm, Cipher::ChaCha20Poly1305]
    } else {
        [Cipher::ChaCha20Poly1305, Cipher::Aes128Gcm, Cipher::Aes256Gcm]
    };
    let bare = [Cipher::Null, Cipher::SimpleCrypt].into_iter().filter(|_| insecure_measurement);
    secure.into_iter().chain(bare).find(|cipher| offered.contains(&cipher.number()))
}

/// Returns what a client offers by default: AES only if the processor has instructions for it.
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
    fn no_encryption_is_chosen_only_if_allowed_and_last() {
        let bare = [Cipher::Null, Cipher::SimpleCrypt];
        for cipher in bare {
            assert_eq!(choose(&[cipher.number()], false), None);
            assert_eq!(choose(&[cipher.number()], true), Some(cipher));
            let all = [bare[0].number(), bare[1].number(), Cipher::ChaCha20Poly1305.number()];
            assert_eq!(choose(&all, true), Some(Cipher::ChaCha20Poly1305));
        }
    }

    #[test]
    fn measurement_options_need_insecure_measurement() {
        let chunk = Chunk::new(1000);
        for cipher in [None, Some(Cipher::Aes256Gcm), Some(Cipher::Null), Some(Cipher::SimpleCrypt)]
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
