//! What a client that shows no certificate signs to prove its key.
//!
//! A client of our own binds its proof to the TLS session. A browser does so where it can; else
//! to the certificate that it pinned by its hash, or to the origin of the page. Each kind has a
//! purpose of its own, so that no signature of one kind can be taken for another.

/// The label for the TLS exporter (RFC 8446, section 7.5). The context is empty.
pub const EXPORTER_LABEL: &[u8] = b"EXPORTER-headroom-client-proof";
/// Bytes to export.
pub const EXPORTED_BYTES: usize = 32;
/// Bytes of a nonce of either side.
pub const NONCE_BYTES: usize = 32;
/// Bytes that a browser signs.
pub const BROWSER_BYTES: usize = 160;
/// The label of WebTransport for the TLS exporter (draft-ietf-webtrans-http3, section 4.8).
pub const WEBTRANSPORT_EXPORTER_LABEL: &[u8] = b"EXPORTER-WebTransport";
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

/// To what a browser binds its proof.
#[derive(Debug, Clone, Copy, PartialEq, Eq, minicbor::Encode, minicbor::Decode)]
#[cbor(index_only)]
pub enum Binding {
    /// The session, by WebTransport's exporter: 32 bytes for [`EXPORTER_LABEL`] without a context.
    #[n(0)]
    Exporter,
    /// The server's certificate, which the page pinned: the SHA-256 hash of its DER encoding.
    #[n(1)]
    Certificate,
    /// The origin of the page, as its SHA-256 hash: that its server is the right one rests on the
    /// browser's check of a certificate.
    #[n(2)]
    Origin,
}

impl Binding {
    const fn purpose(self) -> &'static [u8; 32] {
        match self {
            Self::Exporter => b"headroom browser proof exporter\0",
            Self::Certificate => b"headroom browser proof pinned 1\0",
            Self::Origin => b"headroom browser proof origin 1\0",
        }
    }

    /// Returns the bytes that a browser signs with Ed25519: the purpose of this kind, the key, what
    /// it is bound to, and a nonce of the server and one of the browser.
    #[must_use]
    pub fn to_sign(
        self,
        key: &[u8; 32],
        bound_to: &[u8; 32],
        server_nonce: &[u8; NONCE_BYTES],
        client_nonce: &[u8; NONCE_BYTES],
    ) -> [u8; BROWSER_BYTES] {
        let mut bytes = [0; BROWSER_BYTES];
        let parts = [self.purpose(), key, bound_to, server_nonce, client_nonce];
        for (place, part) in bytes.chunks_exact_mut(32).zip(parts) {
            place.copy_from_slice(part);
        }
        bytes
    }
}

/// Returns the context with which a WebTransport session exports keying material from its TLS
/// connection (draft-ietf-webtrans-http3, section 4.8); `None` if the label or the context is
/// longer than 255 bytes.
#[must_use]
pub fn webtransport_exporter_context(
    session: u64,
    label: &[u8],
    context: &[u8],
) -> Option<Vec<u8>> {
    let (label_len, context_len) =
        (u8::try_from(label.len()).ok()?, u8::try_from(context.len()).ok()?);
    let mut bytes = session.to_be_bytes().to_vec();
    bytes.push(label_len);
    bytes.extend_from_slice(label);
    bytes.push(context_len);
    bytes.extend_from_slice(context);
    Some(bytes)
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

    #[test]
    fn every_part_of_a_browsers_proof_is_signed_and_kinds_differ() {
        let signed = |kind: Binding| kind.to_sign(&[1; 32], &[2; 32], &[3; 32], &[4; 32]);
        let kinds = [Binding::Exporter, Binding::Certificate, Binding::Origin].map(signed);
        for bytes in &kinds {
            assert!(bytes.starts_with(b"headroom browser proof "));
            for (part, value) in bytes[32..].chunks_exact(32).zip(1..) {
                assert_eq!(part, [value; 32]);
            }
        }
        assert!(kinds[0] != kinds[1] && kinds[1] != kinds[2] && kinds[0] != kinds[2]);
    }

    #[test]
    fn the_context_of_webtransport_is_its_session_label_and_context() {
        let context = webtransport_exporter_context(4, b"ab", b"").expect("it is short");
        assert_eq!(context, [0, 0, 0, 0, 0, 0, 0, 4, 2, b'a', b'b', 0]);
        assert_eq!(webtransport_exporter_context(0, &[0; 256], b""), None);
    }
}
