//! The lines of Wireshark's table `esp_sa`.

use std::net::IpAddr;

use headroom_ipsec::SaSpec;
use headroom_ipsec::spec::{Direction, Protection, Secrets};
use headroom_suite::{Aead, Cipher, Mac, Suite};
use zeroize::Zeroizing;

use crate::config::Config;

/// The integrity algorithm beside an AEAD.
const NO_INTEGRITY: &str = "NULL";

/// Returns a line for each SA of ESP and Q-ESP, erased when dropped, and notes about the SAs that
/// Wireshark cannot open.
pub fn esp_keys(config: &Config) -> (Zeroizing<String>, Vec<String>) {
    let mut lines = Zeroizing::new(String::new());
    let mut notes = Vec::new();
    for association in config.associations.iter().filter(|one| !one.negotiated) {
        let spec = &association.spec;
        match esp_line(spec) {
            Some(line) => lines.push_str(&line),
            None => notes.push(format!(
                "`{}` is AH, which encrypts nothing: Wireshark shows it without a key",
                spec.name
            )),
        }
    }
    (lines, notes)
}

/// Returns the line of an SA of ESP or Q-ESP, erased when dropped.
pub(crate) fn esp_line(spec: &SaSpec) -> Option<Zeroizing<String>> {
    match &spec.protection {
        Protection::Esp(secrets) | Protection::QEsp { secrets, .. } => Some(line(spec, secrets)),
        Protection::Ah { .. } => None,
    }
}

fn line(spec: &SaSpec, secrets: &Secrets) -> Zeroizing<String> {
    let Secrets { suite, key, mac_key } = secrets;
    let family = if spec.source.is_ipv4() { "IPv4" } else { "IPv6" };
    // A followed peer may send from any address.
    let any = spec.follow_peer && spec.direction == Direction::In;
    let address = |address: IpAddr, any: bool| if any { "*".into() } else { address.to_string() };
    let (cipher, mac) = match suite {
        Suite::Aead(aead) => (aead_name(*aead), NO_INTEGRITY),
        Suite::Separate(cipher, mac) => (cipher_name(*cipher), mac_name(*mac)),
    };
    let hex = |key: &headroom_suite::Key| {
        let digits = key.to_hex();
        Zeroizing::new(if digits.is_empty() { String::new() } else { format!("0x{}", *digits) })
    };
    let mac_key = mac_key.as_ref().map(hex).unwrap_or_default();
    Zeroizing::new(format!(
        "\"{family}\",\"{}\",\"{}\",\"0x{:08x}\",\"{cipher}\",\"{}\",\"{mac}\",\"{}\"\n",
        address(spec.source, any),
        address(spec.destination, false),
        spec.spi,
        *hex(key),
        *mac_key
    ))
}

/// Returns the suite of two names of the table and the length of a key, which tells AES-128 from
/// AES-256.
pub(super) fn suite(cipher: &str, key_len: usize, mac: &str) -> Option<Suite> {
    Suite::ALL.into_iter().find(|suite| {
        let names = match *suite {
            Suite::Aead(aead) => (aead_name(aead), NO_INTEGRITY),
            Suite::Separate(cipher, mac) => (cipher_name(cipher), mac_name(mac)),
        };
        names == (cipher, mac) && suite.key_len() == key_len
    })
}

fn aead_name(aead: Aead) -> &'static str {
    match aead {
        Aead::ChaCha20Poly1305 => "ChaCha20 with Poly1305 [RFC7634]",
        Aead::Aes128Gcm | Aead::Aes192Gcm | Aead::Aes256Gcm => {
            "AES-GCM with 16 octet ICV [RFC4106]"
        }
    }
}

fn cipher_name(cipher: Cipher) -> &'static str {
    match cipher {
        Cipher::Null => "NULL",
        Cipher::DesCbc => "DES-CBC [RFC2405]",
        Cipher::TripleDesCbc => "TripleDES-CBC [RFC2451]",
        Cipher::Aes128Cbc | Cipher::Aes192Cbc | Cipher::Aes256Cbc => "AES-CBC [RFC3602]",
    }
}

fn mac_name(mac: Mac) -> &'static str {
    match mac {
        Mac::HmacMd5 => "HMAC-MD5-96 [RFC2403]",
        Mac::HmacSha1 => "HMAC-SHA-1-96 [RFC2404]",
        Mac::HmacSha256 => "HMAC-SHA-256-128 [RFC4868]",
        Mac::HmacSha384 => "HMAC-SHA-384-192 [RFC4868]",
        Mac::HmacSha512 => "HMAC-SHA-512-256 [RFC4868]",
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::config::Purpose;

    #[test]
    fn every_association_that_encrypts_has_a_line() {
        let sa = |name: &str, protocol: &str, spi: u32, more: &str| {
            format!(
                "[[sa]]\nname = \"{name}\"\ndirection = \"in\"\nprotocol = \"{protocol}\"\nmode = \"tunnel\"\n\
                 spi = {spi}\nsource = \"fd00::1\"\ndestination = \"fd00::2\"\n{more}"
            )
        };
        let gcm = format!("suite = \"aes-128-gcm\"\nkey = \"{}\"\n", "01".repeat(20));
        let cbc = format!(
            "suite = \"aes-256-cbc+hmac-sha512\"\nkey = \"{}\"\nintegrity_key = \"{}\"\n",
            "02".repeat(32),
            "03".repeat(64)
        );
        let mac = format!("suite = \"hmac-sha1\"\nkey = \"{}\"\n", "04".repeat(20));
        let followed =
            format!("{gcm}udp = {{ source = 4500, destination = 4500 }}\nfollow_peer = true\n");
        let text = [
            "name = \"hr0\"\n".to_owned(),
            sa("a", "qesp", 0x1000, &gcm),
            sa("b", "esp", 0x2000, &cbc),
            sa("c", "ah", 0x3000, &mac),
            sa("d", "esp", 0x4000, &followed.replace("01", "05")),
        ]
        .concat();
        let config =
            Config::parse_with(&text, Path::new("f"), Purpose::Decode, |_, _| Err("".into()));
        let (lines, notes) = esp_keys(&config.expect("a configuration"));
        let expected = [
            format!(
                "\"IPv6\",\"fd00::1\",\"fd00::2\",\"0x00001000\",\"AES-GCM with 16 octet ICV [RFC4106]\",\"0x{}\",\"NULL\",\"\"",
                "01".repeat(20)
            ),
            format!(
                "\"IPv6\",\"fd00::1\",\"fd00::2\",\"0x00002000\",\"AES-CBC [RFC3602]\",\"0x{}\",\"HMAC-SHA-512-256 [RFC4868]\",\"0x{}\"",
                "02".repeat(32),
                "03".repeat(64)
            ),
            format!(
                "\"IPv6\",\"*\",\"fd00::2\",\"0x00004000\",\"AES-GCM with 16 octet ICV [RFC4106]\",\"0x{}\",\"NULL\",\"\"",
                "05".repeat(20)
            ),
        ];
        assert_eq!(lines.lines().collect::<Vec<_>>(), expected);
        assert!(notes.len() == 1 && notes[0].contains("`c` is AH"), "{notes:?}");
    }
}
