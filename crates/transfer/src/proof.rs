//! Proves a client's key by a message. A client of our own signs keying material that only this
//! session exports; a browser signs that, or what its session is bound to otherwise, with nonces of
//! both sides. No proof can be forwarded to another server or used again.

use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::signature::{ED25519, Ed25519KeyPair, UnparsedPublicKey};
use headroom_transfer_proto::message::{ErrorCode, Message};
use headroom_transfer_proto::proof::{
    Binding, EXPORTED_BYTES, EXPORTER_LABEL, NONCE_BYTES, WEBTRANSPORT_EXPORTER_LABEL, to_sign,
    webtransport_exporter_context,
};
use quinn::Connection;

use crate::error::Error;
use crate::identity::Identity;
use crate::key::PublicKey;

/// Makes the proof that this client holds its identity's key, for this connection.
pub(crate) fn make(identity: &Identity, connection: &Connection) -> Result<Message, Error> {
    let key = identity.public().bytes();
    let signature = sign(identity, &to_sign(&key, &exported(connection)?))?;
    Ok(Message::Proof { key, signature, binding: None, nonce: None })
}

/// Signs with an identity's key.
pub(crate) fn sign(identity: &Identity, bytes: &[u8]) -> Result<[u8; 64], Error> {
    let cannot = |cause: String| Error::System {
        doing: "sign with this identity".to_owned(),
        cause: std::io::Error::other(cause),
    };
    let (_, key) = identity.credentials();
    let pair = Ed25519KeyPair::from_pkcs8_maybe_unchecked(key.secret_der())
        .map_err(|error| cannot(error.to_string()))?;
    let signature = pair.sign(bytes);
    signature.as_ref().try_into().map_err(|_| cannot("it is no Ed25519 key".to_owned()))
}

/// Verifies the proof of a client of our own, and returns the key.
///
/// # Errors
/// The signature is of another key, or for another connection.
pub(crate) fn check(
    key: [u8; 32],
    signature: &[u8; 64],
    connection: &Connection,
) -> Result<PublicKey, Error> {
    verify(key, signature, &to_sign(&key, &exported(connection)?))
}

/// To what the proofs of a browser's session may be bound, and the nonce that they contain. It is
/// made for one session, and used for one proof.
#[derive(Debug, Clone)]
pub(crate) struct BrowserBinding {
    /// The server's nonce.
    pub(crate) nonce: [u8; NONCE_BYTES],
    /// What WebTransport's exporter gives for the session.
    exported: Option<[u8; EXPORTED_BYTES]>,
    /// The SHA-256 hash of the certificate of this session, which pages pin.
    certificate: Option<[u8; 32]>,
    /// The SHA-256 hash of the page's origin, where the session comes from the server of the page
    /// itself.
    origin: Option<[u8; 32]>,
}

impl BrowserBinding {
    /// Makes the binding of a WebTransport session: to its exporter, and to the certificate that it
    /// was shown, which pages pin.
    pub(crate) fn of_webtransport(
        session: &wtransport::Connection,
        certificate: [u8; 32],
    ) -> Result<Self, Error> {
        let context =
            webtransport_exporter_context(session.session_id().into_u64(), EXPORTER_LABEL, b"");
        let mut bytes = [0; EXPORTED_BYTES];
        let exported = context.filter(|context| {
            session.export_keying_material(&mut bytes, WEBTRANSPORT_EXPORTER_LABEL, context).is_ok()
        });
        let exported = exported.map(|_| bytes);
        Ok(Self {
            nonce: random("make a nonce")?,
            exported,
            certificate: Some(certificate),
            origin: None,
        })
    }

    /// Makes the binding of a session through the HTTPS server of the page: to the page's origin.
    pub(crate) fn of_origin(origin: &str) -> Result<Self, Error> {
        let origin = Some(sha256(origin.as_bytes()));
        Ok(Self { nonce: random("make a nonce")?, exported: None, certificate: None, origin })
    }

    /// Verifies a browser's proof, and returns the key.
    ///
    /// # Errors
    /// The signature is of another key, for another session, or bound to something that does not
    /// identify this server.
    pub(crate) fn check(
        &self,
        key: [u8; 32],
        signature: &[u8; 64],
        binding: Option<Binding>,
        client_nonce: Option<[u8; NONCE_BYTES]>,
    ) -> Result<PublicKey, Error> {
        let refused = |what: &str| wrong(format!("the proof of its key {what}"));
        let (Some(binding), Some(client_nonce)) = (binding, client_nonce) else {
            return Err(refused("is not one of a browser"));
        };
        let bound_to = match binding {
            Binding::Exporter => self.exported,
            Binding::Certificate => self.certificate,
            Binding::Origin => self.origin,
        };
        let bound_to = bound_to.ok_or_else(|| refused("is bound to what does not count here"))?;
        verify(key, signature, &binding.to_sign(&key, &bound_to, &self.nonce, &client_nonce))
    }
}

const fn wrong(reason: String) -> Error {
    Error::Denied { code: ErrorCode::PROOF, reason }
}

fn verify(key: [u8; 32], signature: &[u8; 64], signed: &[u8]) -> Result<PublicKey, Error> {
    if has_small_order(&key) {
        return Err(wrong("its key is one for which anybody can sign".to_owned()));
    }
    let verified = UnparsedPublicKey::new(&ED25519, key).verify(signed, signature);
    verified.map_err(|_| wrong("the proof of its key is wrong".to_owned()))?;
    Ok(key.into())
}

/// Whether a key is a point of small order, in any encoding: verification accepts signatures for
/// it that need no private key (RFC 8032 does not forbid them).
fn has_small_order(key: &[u8; 32]) -> bool {
    // y of the points of order 1 to 8, and the same plus the prime where that fits
    const LAST: [u8; 32] = {
        let mut bytes = [0xff; 32];
        bytes[31] = 0x7f;
        bytes
    };
    const EIGHTH: [[u8; 32]; 2] = [
        [
            0x26, 0xe8, 0x95, 0x8f, 0xc2, 0xb2, 0x27, 0xb0, 0x45, 0xc3, 0xf4, 0x89, 0xf2, 0xef,
            0x98, 0xf0, 0xd5, 0xdf, 0xac, 0x05, 0xd3, 0xc6, 0x33, 0x39, 0xb1, 0x38, 0x02, 0x88,
            0x6d, 0x53, 0xfc, 0x05,
        ],
        [
            0xc7, 0x17, 0x6a, 0x70, 0x3d, 0x4d, 0xd8, 0x4f, 0xba, 0x3c, 0x0b, 0x76, 0x0d, 0x10,
            0x67, 0x0f, 0x2a, 0x20, 0x53, 0xfa, 0x2c, 0x39, 0xcc, 0xc6, 0x4e, 0xc7, 0xfd, 0x77,
            0x92, 0xac, 0x03, 0x7a,
        ],
    ];
    let mut y = *key;
    y[31] &= 0x7f;
    let small = y[1..].iter().all(|byte| *byte == 0) && y[0] <= 1;
    // the prime is 2^255 - 19
    let large = y[1..] == LAST[1..] && (0xec..=0xee).contains(&y[0]);
    small || large || EIGHTH.contains(&y)
}

/// Returns the SHA-256 hash.
pub(crate) fn sha256(bytes: &[u8]) -> [u8; 32] {
    let mut hash = [0; 32];
    hash.copy_from_slice(digest(&SHA256, bytes).as_ref());
    hash
}

/// Makes random bytes; `doing` is what they are for.
pub(crate) fn random<const N: usize>(doing: &str) -> Result<[u8; N], Error> {
    let mut bytes = [0; N];
    aws_lc_rs::rand::fill(&mut bytes).map_err(|_| Error::System {
        doing: doing.to_owned(),
        cause: std::io::Error::other("there is no randomness"),
    })?;
    Ok(bytes)
}

fn exported(connection: &Connection) -> Result<[u8; EXPORTED_BYTES], Error> {
    let mut bytes = [0; EXPORTED_BYTES];
    let exported = connection.export_keying_material(&mut bytes, EXPORTER_LABEL, b"");
    // this fails only for lengths that no exporter supports
    exported.map_err(|_| Error::Protocol("its session exports no key".to_owned()))?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_of_small_order_proves_nothing() {
        // R = A, S = 0: verification alone accepts these for the identity, whatever is signed
        let mut identity = [0; 32];
        identity[0] = 1;
        let mut signature = [0; 64];
        signature[..32].copy_from_slice(&identity);
        let accepted = |key: [u8; 32]| {
            UnparsedPublicKey::new(&ED25519, key).verify(b"anything", &signature).is_ok()
        };
        assert!(accepted(identity), "the library does not check it");
        for sign in [0, 0x80] {
            for (first, last) in [(0, 0), (1, 0), (0xec, 0x7f), (0xed, 0x7f), (0xee, 0x7f)] {
                let mut key = [if last == 0 { 0 } else { 0xff }; 32];
                (key[0], key[31]) = (first, last | sign);
                let error = verify(key, &signature, b"anything").expect_err("of small order");
                assert!(error.to_string().contains("anybody can sign"), "{error}");
            }
        }
        let usual = Identity::ephemeral().expect("a key").public().bytes();
        assert!(!has_small_order(&usual));
    }
}
