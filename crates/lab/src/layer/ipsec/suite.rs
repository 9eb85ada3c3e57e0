//! The algorithms of the IPsec layers: names, lengths, and the kernel's names.

/// A cipher; with a key, what it adds to a packet.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Cipher {
    /// The name in stacks and in `headroom tunnel`.
    pub(super) name: &'static str,
    /// Bytes of key; of an AEAD with the salt (RFC 4106 §8.1, RFC 7634 §2).
    pub(super) key: usize,
    /// Bytes of IV in each packet.
    pub(super) iv: u32,
    /// The alignment of the padded text, at least 4 bytes (RFC 4303 §2.4).
    pub(super) block: u32,
    /// Bytes of tag, where it authenticates by itself.
    pub(super) tag: Option<u32>,
    /// The name in the kernel's `ip xfrm`.
    pub(super) kernel: &'static str,
    /// Loads only where a configuration says that it may.
    pub(super) insecure: bool,
}

/// An algorithm that authenticates.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Mac {
    /// The name in stacks and in `headroom tunnel`.
    pub(super) name: &'static str,
    /// Bytes of key.
    pub(super) key: usize,
    /// Bytes of integrity check value.
    pub(super) icv: u32,
    /// The name in the kernel's `ip xfrm`.
    pub(super) kernel: &'static str,
    /// Loads only where a configuration says that it may.
    pub(super) insecure: bool,
}

pub(super) const CIPHERS: &[Cipher] = &[
    aead("aes-128-gcm", 20, "rfc4106(gcm(aes))"),
    aead("aes-192-gcm", 28, "rfc4106(gcm(aes))"),
    aead("aes-256-gcm", 36, "rfc4106(gcm(aes))"),
    aead("chacha20-poly1305", 36, "rfc7539esp(chacha20,poly1305)"),
    cbc("aes-128-cbc", 16, 16, "cbc(aes)"),
    cbc("aes-192-cbc", 24, 16, "cbc(aes)"),
    cbc("aes-256-cbc", 32, 16, "cbc(aes)"),
    Cipher { insecure: true, ..cbc("3des-cbc", 24, 8, "cbc(des3_ede)") },
    Cipher { insecure: true, ..cbc("des-cbc", 8, 8, "cbc(des)") },
    Cipher { iv: 0, block: 4, insecure: true, ..cbc("null", 0, 0, "ecb(cipher_null)") },
];

pub(super) const MACS: &[Mac] = &[
    mac("hmac-sha256", 32, 16, "hmac(sha256)"),
    mac("hmac-sha384", 48, 24, "hmac(sha384)"),
    mac("hmac-sha512", 64, 32, "hmac(sha512)"),
    mac("hmac-sha1", 20, 12, "hmac(sha1)"),
    Mac { insecure: true, ..mac("hmac-md5", 16, 12, "hmac(md5)") },
];

/// The default.
pub(super) const CIPHER: &Cipher = &CIPHERS[0];
pub(super) const MAC: &Mac = &MACS[0];
/// What two gateways agree on where IKE negotiates.
pub(super) const IKE_CIPHER: &Cipher = &CIPHERS[2];

const fn aead(name: &'static str, key: usize, kernel: &'static str) -> Cipher {
    Cipher { name, key, iv: 8, block: 4, tag: Some(16), kernel, insecure: false }
}

const fn cbc(name: &'static str, key: usize, block: u32, kernel: &'static str) -> Cipher {
    Cipher { name, key, iv: block, block, tag: None, kernel, insecure: false }
}

const fn mac(name: &'static str, key: usize, icv: u32, kernel: &'static str) -> Mac {
    Mac { name, key, icv, kernel, insecure: false }
}

impl Cipher {
    /// Whether it hides the text at all.
    pub(super) fn encrypts(&self) -> bool {
        self.key > 0
    }
}

#[cfg(test)]
mod tests {
    use headroom_suite as suite;

    use super::*;

    /// The tables here add the kernel's names to the algorithms of `headroom tunnel`.
    #[test]
    fn the_tables_list_the_algorithms_of_headroom_tunnel() {
        let separate = |cipher: suite::Cipher| suite::Suite::Separate(cipher, suite::Mac::HmacSha1);
        let aeads = suite::Aead::ALL.map(suite::Suite::Aead);
        let ciphers = aeads.into_iter().chain(suite::Cipher::ALL.map(separate));
        let names = suite::Aead::ALL.map(suite::Aead::name);
        let names = names.into_iter().chain(suite::Cipher::ALL.map(suite::Cipher::name));
        for (name, theirs) in names.zip(ciphers) {
            let ours = CIPHERS.iter().find(|ours| ours.name == name).expect(name);
            assert_eq!(ours.key, theirs.key_len(), "{name}");
            assert_eq!(ours.iv as usize, theirs.iv_len(), "{name}");
            assert_eq!(ours.block as usize, theirs.block_len(), "{name}");
            assert_eq!(ours.encrypts(), theirs.encrypts(), "{name}");
            assert_eq!(ours.insecure, !theirs.is_secure(), "{name}");
            let tag = matches!(theirs, suite::Suite::Aead(_)).then(|| theirs.icv_len() as u32);
            assert_eq!(ours.tag, tag, "{name}");
        }
        assert_eq!(CIPHERS.len(), suite::Aead::ALL.len() + suite::Cipher::ALL.len());
        for theirs in suite::Mac::ALL {
            let name = theirs.name();
            let ours = MACS.iter().find(|ours| ours.name == name).expect(name);
            assert_eq!(ours.key, theirs.key_len(), "{name}");
            assert_eq!(ours.icv as usize, theirs.icv_len(), "{name}");
            assert_eq!(ours.insecure, !theirs.is_secure(), "{name}");
        }
        assert_eq!(MACS.len(), suite::Mac::ALL.len());
    }
}
