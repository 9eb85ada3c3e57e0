//! Known answers of others: RFCs, NIST and Wycheproof, held against the inner
//! functions that sealing and opening use.

mod nist;
mod rfc;
mod wycheproof;

use crate::Key;
use crate::cbc::Cbc;

/// Bytes from hexadecimal digits with white space between.
fn bytes(hex: &str) -> Vec<u8> {
    let digits: String = hex.split_whitespace().collect();
    Key::from_hex(&digits).expect("hexadecimal").as_bytes().to_vec()
}

/// Both directions of a CBC cipher turn `plaintext` and `ciphertext` into each other.
fn check_cbc(cipher: crate::Cipher, key: &[u8], iv: &[u8], plaintext: &[u8], ciphertext: &[u8]) {
    let cbc = Cbc::new(cipher, &Key::from_bytes(key)).expect("a key of the right length");
    let mut text = plaintext.to_vec();
    assert!(cbc.encrypt(iv, &mut text).is_ok());
    assert_eq!(text, ciphertext, "{cipher} encrypts");
    assert!(cbc.decrypt(iv, &mut text).is_ok());
    assert_eq!(text, plaintext, "{cipher} decrypts");
}
