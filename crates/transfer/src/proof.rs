//! Proves a client's key by a message: a signature over keying material that only this session
//! exports. Another session exports other material, so a proof cannot be forwarded.

use aws_lc_rs::signature::{ED25519, Ed25519KeyPair, UnparsedPublicKey};
use headroom_transfer_proto::message::Message;
use headroom_transfer_proto::proof::{EXPORTED_BYTES, EXPORTER_LABEL, to_sign};
use quinn::Connection;

use crate::error::Error;
use crate::identity::Identity;
use crate::key::PublicKey;

/// Makes the proof that this client holds its identity's key, for this connection.
pub(crate) fn make(identity: &Identity, connection: &Connection) -> Result<Message, Error> {
    let cannot = |cause: String| Error::System {
        doing: "sign with this identity".to_owned(),
        cause: std::io::Error::other(cause),
    };
    let (_, key) = identity.credentials();
    let pair = Ed25519KeyPair::from_pkcs8_maybe_unchecked(key.secret_der())
        .map_err(|error| cannot(error.to_string()))?;
    let key = identity.public().bytes();
    let signature = pair.sign(&to_sign(&key, &exported(connection)?));
    let signature = signature.as_ref().try_into();
    let signature = signature.map_err(|_| cannot("it is no Ed25519 key".to_owned()))?;
    Ok(Message::Proof { key, signature })
}

/// Verifies a proof, and returns the key.
///
/// # Errors
/// The signature is of another key, or for another connection.
pub(crate) fn check(
    key: [u8; 32],
    signature: &[u8; 64],
    connection: &Connection,
) -> Result<PublicKey, Error> {
    let signed = to_sign(&key, &exported(connection)?);
    let verified = UnparsedPublicKey::new(&ED25519, key).verify(&signed, signature);
    verified.map_err(|_| Error::Refused("the proof of its key is wrong".to_owned()))?;
    Ok(key.into())
}

fn exported(connection: &Connection) -> Result<[u8; EXPORTED_BYTES], Error> {
    let mut bytes = [0; EXPORTED_BYTES];
    let exported = connection.export_keying_material(&mut bytes, EXPORTER_LABEL, b"");
    // this fails only for lengths that no exporter supports
    exported.map_err(|_| Error::Protocol("its session exports no key".to_owned()))?;
    Ok(bytes)
}
