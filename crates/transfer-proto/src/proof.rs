//! What a client that shows no certificate signs to prove its key.

/// The label for the TLS exporter (RFC 8446, section 7.5). The context is empty.
pub const EXPORTER_LABEL: &[u8] = b"EXPORTER-headroom-client-proof";
/// Bytes to export.
pub const EXPORTED_BYTES: usize = 32;
/// The beginning of everything that is signed: no signature made for another purpose, such as
/// those of TLS, which begin with spaces, can be taken for one of these.
const PURPOSE: &[u8; 32] = b"headroom client proof 1\0\0\0\0\0\0\0\0\0";

/// Returns the bytes to sign with Ed25519 (RFC 8032): the purpose, the key, and what the TLS
/// exporter gave for the one session in which the signature is valid.
#[must_use]
pub fn to_sign(key: &[u8; 32], exported: &[u8; EXPORTED_BYTES]) -> [u8; 96] {
    let mut bytes = [0; 96];
    bytes[..32].copy_from_slice(PURPOSE);
    bytes[32..64].copy_from_slice(key);
    bytes[64..].copy_from_slice(exported);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn purpose_key_and_session_are_signed() {
        let bytes = to_sign(&[1; 32], &[2; 32]);
        assert!(bytes.starts_with(b"headroom client proof 1\0"));
        assert_eq!((&bytes[32..64], &bytes[64..]), (&[1; 32][..], &[2; 32][..]));
    }
}
