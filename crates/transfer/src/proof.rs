//! Proves a client's key by a message. A client of our own signs keying material that only this
//! session exports; a browser signs that, or what its session is bound to otherwise, with nonces of
//! both sides. No proof can be forwarded to another server or used again.

use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::signature::{ED25519, Ed25519KeyPair, UnparsedPublicKey};
use headroom_transfer_proto::message::Message;
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
        Ok(Self { nonce: nonce()?, exported, certificate: Some(certificate), origin: None })
    }

    /// Makes the binding of a session through the HTTPS server of the page: to the page's origin.
    pub(crate) fn of_origin(origin: &str) -> Result<Self, Error> {
        let origin = Some(sha256(origin.as_bytes()));
        Ok(Self { nonce: nonce()?, exported: None, certificate: None, origin })
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
        let refused = |what: &str| Error::Refused(format!("the proof of its key {what}"));
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

fn verify(key: [u8; 32], signature: &[u8; 64], signed: &[u8]) -> Result<PublicKey, Error> {
    let verified = UnparsedPublicKey::new(&ED25519, key).verify(signed, signature);
    verified.map_err(|_| Error::Refused("the proof of its key is wrong".to_owned()))?;
    Ok(key.into())
}

/// Returns the SHA-256 hash.
pub(crate) fn sha256(bytes: &[u8]) -> [u8; 32] {
    let mut hash = [0; 32];
    hash.copy_from_slice(digest(&SHA256, bytes).as_ref());
    hash
}

fn nonce() -> Result<[u8; NONCE_BYTES], Error> {
    let mut bytes = [0; NONCE_BYTES];
    aws_lc_rs::rand::fill(&mut bytes).map_err(|_| Error::System {
        doing: "make a nonce".to_owned(),
        cause: std::io::Error::other("no randomness"),
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
