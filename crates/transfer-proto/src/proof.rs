//! What a client signs to prove its key, where it can show no certificate.

/// The label under which the TLS exporter (RFC 8446, section 7.5) gives what is
/// signed. Its context is empty.
pub const EXPORTER_LABEL: &[u8] = b"EXPORTER-headroom-client-proof";
/// Octets that are exported.
pub const EXPORTED_OCTETS: usize = 32;
/// What everything that is signed begins with: no signature that is made for
/// something else, such as those of TLS, which begin with spaces, is one of these.
const PURPOSE: &[u8; 32] = b"headroom client proof 1\0\0\0\0\0\0\0\0\0";

/// The octets to sign by Ed25519 (RFC 8032): the purpose, the key, and what was
/// exported from the one session in which this proves anything.
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
