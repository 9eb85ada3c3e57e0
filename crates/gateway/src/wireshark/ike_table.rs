//! The lines of Wireshark's table `ikev2_decryption_table`.

use headroom_ike::crypto::{IkeKeys, Spis};
use headroom_suite::{Aead, Cipher, Key, Mac, Suite};
use zeroize::Zeroizing;

/// The integrity algorithm beside an AEAD.
const NO_INTEGRITY: &str = "NONE [RFC4306]";

/// Returns the line of an IKE SA, erased when dropped; none if Wireshark has no name for the suite.
pub(crate) fn ike_line(spis: Spis, keys: &IkeKeys) -> Option<Zeroizing<String>> {
    let (encryption, integrity) = match keys.suite {
        Suite::Aead(aead) => (gcm_name(aead)?, NO_INTEGRITY),
        Suite::Separate(cipher, mac) => (cbc_name(cipher)?, mac_name(mac)?),
    };
    let [ei, er, ai, ar] = [&keys.sk_ei, &keys.sk_er, &keys.sk_ai, &keys.sk_ar].map(Key::to_hex);
    let Spis { initiator, responder } = spis;
    Some(Zeroizing::new(format!(
        "{initiator:016x},{responder:016x},{},{},\"{encryption}\",{},{},\"{integrity}\"\n",
        *ei, *er, *ai, *ar
    )))
}

/// Returns the suite of two names of the table; none if IKE here has no such suite.
pub(super) fn suite(encryption: &str, integrity: &str) -> Option<Suite> {
    Suite::ALL.into_iter().find(|suite| match *suite {
        Suite::Aead(aead) => gcm_name(aead) == Some(encryption) && integrity == NO_INTEGRITY,
        Suite::Separate(cipher, mac) => {
            cbc_name(cipher) == Some(encryption) && mac_name(mac) == Some(integrity)
        }
    })
}

fn gcm_name(aead: Aead) -> Option<&'static str> {
    match aead {
        Aead::Aes128Gcm => Some("AES-GCM-128 with 16 octet ICV [RFC5282]"),
        Aead::Aes192Gcm => Some("AES-GCM-192 with 16 octet ICV [RFC5282]"),
        Aead::Aes256Gcm => Some("AES-GCM-256 with 16 octet ICV [RFC5282]"),
        Aead::ChaCha20Poly1305 => None,
    }
}

fn cbc_name(cipher: Cipher) -> Option<&'static str> {
    match cipher {
        Cipher::Aes128Cbc => Some("AES-CBC-128 [RFC3602]"),
        Cipher::Aes192Cbc => Some("AES-CBC-192 [RFC3602]"),
        Cipher::Aes256Cbc => Some("AES-CBC-256 [RFC3602]"),
        Cipher::Null | Cipher::DesCbc | Cipher::TripleDesCbc => None,
    }
}

fn mac_name(mac: Mac) -> Option<&'static str> {
    match mac {
        Mac::HmacSha256 => Some("HMAC_SHA2_256_128 [RFC4868]"),
        Mac::HmacSha384 => Some("HMAC_SHA2_384_192 [RFC4868]"),
        Mac::HmacSha512 => Some("HMAC_SHA2_512_256 [RFC4868]"),
        Mac::HmacMd5 | Mac::HmacSha1 => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headroom_ike::crypto::Prf;

    #[test]
    fn writes_the_line_with_which_wireshark_opens_ike_of_strongswan() {
        // crates/ike/tests/captures/psk.pcap, as Wireshark 4.0.17 opens it
        let expected = "79c94f7cfa9b9322,0d50a2143d65cbab,\
             4ac9359a04890d41087935400b5a5572527bc554,\
             cd8bed12d566d01fe2b926d5b28f5e95502e2f95,\
             \"AES-GCM-128 with 16 octet ICV [RFC5282]\",,,\"NONE [RFC4306]\"\n";
        let key = |hex: &str| Key::from_hex(hex).expect("digits");
        let unused = || Key::from_bytes(&[]);
        let keys = IkeKeys {
            suite: Suite::Aead(Aead::Aes128Gcm),
            prf: Prf::HmacSha256,
            sk_d: unused(),
            sk_ai: unused(),
            sk_ar: unused(),
            sk_ei: key("4ac9359a04890d41087935400b5a5572527bc554"),
            sk_er: key("cd8bed12d566d01fe2b926d5b28f5e95502e2f95"),
            sk_pi: unused(),
            sk_pr: unused(),
        };
        let spis = Spis { initiator: 0x79c9_4f7c_fa9b_9322, responder: 0x0d50_a214_3d65_cbab };
        assert_eq!(ike_line(spis, &keys).as_deref().map(String::as_str), Some(expected));
        let chacha = IkeKeys { suite: Suite::Aead(Aead::ChaCha20Poly1305), ..keys };
        assert_eq!(ike_line(spis, &chacha), None);
    }
}
