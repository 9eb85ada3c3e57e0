//! A log of negotiated keys as tables of Wireshark, which decrypts IKE and ESP with them.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use headroom_ike::crypto::{IkeKeys, Spis};
use headroom_ipsec::SaSpec;
use headroom_suite::{Aead, Cipher, Key, Mac, Suite};
use zeroize::Zeroizing;

use crate::wireshark;

/// Wireshark's table of the keys of IKE SAs.
const IKE_TABLE: &str = "ikev2_decryption_table";
/// Its table of the keys of ESP.
const ESP_TABLE: &str = "esp_sa";

/// An open log.
#[derive(Debug)]
pub struct KeyLog {
    ike: File,
    esp: File,
}

impl KeyLog {
    /// Opens the tables in `folder`, which is made if it is not there. Lines are appended.
    ///
    /// # Errors
    /// The folder or a file cannot be written.
    pub fn open(folder: &Path) -> io::Result<Self> {
        std::fs::create_dir_all(folder)?;
        let open =
            |name| OpenOptions::new().append(true).create(true).mode(0o600).open(folder.join(name));
        Ok(Self { ike: open(IKE_TABLE)?, esp: open(ESP_TABLE)? })
    }

    /// Adds the keys of an IKE SA. Wireshark has no name for ChaCha20-Poly1305 in IKE.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn add_ike(&mut self, spis: Spis, keys: &IkeKeys) -> io::Result<()> {
        match ike_line(spis, keys) {
            Some(line) => self.ike.write_all(line.as_bytes()),
            None => Ok(()),
        }
    }

    /// Adds the keys of associations of ESP and Q-ESP.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn add_children(&mut self, specs: &[SaSpec]) -> io::Result<()> {
        let mut lines = specs.iter().filter_map(wireshark::esp_line);
        lines.try_for_each(|line| self.esp.write_all(line.as_bytes()))
    }
}

/// Returns a line of [`IKE_TABLE`], erased when dropped.
fn ike_line(spis: Spis, keys: &IkeKeys) -> Option<Zeroizing<String>> {
    let (encryption, integrity) = match keys.suite {
        Suite::Aead(aead) => (gcm_name(aead)?, "NONE [RFC4306]"),
        Suite::Separate(cipher, mac) => (cbc_name(cipher)?, mac_name(mac)?),
    };
    let [ei, er, ai, ar] = [&keys.sk_ei, &keys.sk_er, &keys.sk_ai, &keys.sk_ar].map(Key::to_hex);
    let Spis { initiator, responder } = spis;
    Some(Zeroizing::new(format!(
        "{initiator:016x},{responder:016x},{},{},\"{encryption}\",{},{},\"{integrity}\"\n",
        *ei, *er, *ai, *ar
    )))
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

    #[test]
    fn files_are_for_their_owner_alone() {
        use std::os::unix::fs::PermissionsExt;
        let folder = std::env::temp_dir().join(format!("headroom-key-log-{}", std::process::id()));
        drop(KeyLog::open(&folder).expect("a log"));
        let mode = |table| {
            let file = std::fs::metadata(folder.join(table)).expect("a file");
            file.permissions().mode() & 0o777
        };
        let modes = [IKE_TABLE, ESP_TABLE].map(mode);
        std::fs::remove_dir_all(&folder).expect("it is there");
        assert_eq!(modes, [0o600; 2]);
    }
}
