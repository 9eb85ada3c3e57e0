//! NIST's known answers for CBC mode, from the Cryptographic Algorithm Validation
//! Program (csrc.nist.gov: aesmmt, KAT_AES, tdesmmt, KAT_TDES; a work of the US
//! government, not under copyright), and those of SP 800-38A and SP 800-67.

use super::{bytes, check_cbc};
use crate::{Cipher, Key, KeyError};

/// The cases of a response file: each the values of these fields.
fn cases<const N: usize>(file: &str, fields: [&str; N]) -> Vec<[Vec<u8>; N]> {
    file.split("COUNT")
        .skip(1)
        .map(|case| {
            fields.map(|field| {
                let value = case
                    .lines()
                    .filter_map(|line| line.split_once(" = "))
                    .find_map(|(name, value)| (name == field).then_some(value));
                bytes(value.expect("the field"))
            })
        })
        .collect()
}

#[test]
fn aes_cbc() {
    let files = [
        (Cipher::Aes128Cbc, include_str!("../../vectors/CBCMMT128.rsp"), 20),
        (Cipher::Aes192Cbc, include_str!("../../vectors/CBCMMT192.rsp"), 20),
        (Cipher::Aes256Cbc, include_str!("../../vectors/CBCMMT256.rsp"), 20),
        (Cipher::Aes128Cbc, include_str!("../../vectors/CBCKeySbox128.rsp"), 42),
        (Cipher::Aes192Cbc, include_str!("../../vectors/CBCKeySbox192.rsp"), 48),
        (Cipher::Aes256Cbc, include_str!("../../vectors/CBCKeySbox256.rsp"), 32),
        (Cipher::Aes128Cbc, include_str!("../../vectors/CBCGFSbox128.rsp"), 14),
        (Cipher::Aes192Cbc, include_str!("../../vectors/CBCGFSbox192.rsp"), 12),
        (Cipher::Aes256Cbc, include_str!("../../vectors/CBCGFSbox256.rsp"), 10),
    ];
    for (cipher, file, count) in files {
        let cases = cases(file, ["KEY", "IV", "PLAINTEXT", "CIPHERTEXT"]);
        assert_eq!(cases.len(), count);
        for [key, iv, plaintext, ciphertext] in cases {
            check_cbc(cipher, &key, &iv, &plaintext, &ciphertext);
        }
    }
}

#[test]
fn triple_des_cbc() {
    let file = include_str!("../../vectors/TCBCMMT3.rsp");
    let cases = cases(file, ["KEY1", "KEY2", "KEY3", "IV", "PLAINTEXT", "CIPHERTEXT"]);
    assert_eq!(cases.len(), 20);
    for [key1, key2, key3, iv, plaintext, ciphertext] in cases {
        let key = [key1, key2, key3].concat();
        check_cbc(Cipher::TripleDesCbc, &key, &iv, &plaintext, &ciphertext);
    }
}

/// SP 800-67 Rev. 1, Appendix B.1 ("qufck": sic): electronic code book, so a block at a time.
#[test]
fn triple_des_blocks() {
    let key = bytes("0123456789abcdef 23456789abcdef01 456789abcdef0123");
    let plaintext = b"The qufck brown fox jump";
    let ciphertext = bytes("a826fd8ce53b855f cce21c8112256fe6 68d5c05dd9b6b900");
    for (plaintext, ciphertext) in plaintext.chunks(8).zip(ciphertext.chunks(8)) {
        check_cbc(Cipher::TripleDesCbc, &key, &[0; 8], plaintext, ciphertext);
    }
}

/// These were made for 3DES with three equal keys, which is DES.
#[test]
fn des_cbc() {
    let files = [
        (include_str!("../../vectors/TCBCsubtab.rsp"), 38),
        (include_str!("../../vectors/TCBCpermop.rsp"), 64),
        (include_str!("../../vectors/TCBCvarkey.rsp"), 112),
    ];
    for (file, count) in files {
        let cases = cases(file, ["KEYs", "IV", "PLAINTEXT", "CIPHERTEXT"]);
        assert_eq!(cases.len(), count);
        for [key, iv, plaintext, ciphertext] in cases {
            check_cbc(Cipher::DesCbc, &key, &iv, &plaintext, &ciphertext);
            let key = Key::from_bytes(&key.repeat(3));
            let error = crate::cbc::Cbc::new(Cipher::TripleDesCbc, &key).err();
            assert_eq!(error, Some(KeyError::EqualParts));
        }
    }
}

/// FIPS 81, Table C1: three blocks chained.
#[test]
fn des_cbc_chained() {
    let key = bytes("0123456789abcdef");
    let iv = bytes("1234567890abcdef");
    let ciphertext = bytes("e5c7cdde872bf27c 43e934008c389c0f 683788499a7c05f6");
    check_cbc(Cipher::DesCbc, &key, &iv, b"Now is the time for all ", &ciphertext);
}
