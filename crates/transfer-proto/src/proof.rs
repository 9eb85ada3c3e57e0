//! What a client that shows no certificate signs to prove its key.

/// The label for the TLS exporter (RFC 8446, section 7.5). The context is empty.
pub const EXPORTER_LABEL: &[u8] = b"EXPORTER-headroom-client-proof";
/// Bytes to export.
pub const EXPORTED_OCTETS: usize = 32;
/// The beginning of everything that is signed: no signature made for another purpose, such as
/// those of TLS, which begin with spaces, can be taken for one of these.
const PURPOSE: &[u8; 32] = b"headroom client proof 1\0\0\0\0\0\0\0\0\0";

/// Returns the bytes to sign with Ed25519 (RFC 8032): the purpose, the key, and what the TLS
/// exporter gave for the one session in which the signature is valid.
#[must_use]
pub fn to_sign(key: &[u8; 32], exported: &[u8; EXPORTED_OCTETS]) -> [u8; 96] {
    let mut octets = [0; 96];
    octets[..32].copy_from_slice(PURPOSE);
    octets[32..64].copy_from_slice(key);
    octets[64..].copy_from_slice(exported);
    octets
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn purpose_key_and_session_are_signed() {
        let octets = to_sign(&[1; 32], &[2; 32]);
        assert!(octets.starts_with(b"headroom client proof 1\0"));
        assert_eq!((&octets[32..64], &octets[64..]), (&[1; 32][..], &[2; 32][..]));
    }
}
