//! Verifies a server's certificate in the handshake: by a known key or an authority. Its
//! signature always proves that it holds the key.

use std::sync::Mutex;

use headroom_mutex::lock;
use rustls::CertificateError;
use rustls::client::danger::{ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};

use super::authority::Authority;
use super::tls::by_signature_of_tls13;
use crate::key::{Fingerprint, PublicKey};

/// The keys that a server may have.
#[derive(Debug, Clone)]
pub enum HostKeys {
    /// One of these.
    Keys(Vec<PublicKey>),
    /// The one with this fingerprint.
    Fingerprint(Fingerprint),
}

impl HostKeys {
    /// Accepts no key: only to learn the key of a server.
    pub const fn none() -> Self {
        Self::Keys(Vec::new())
    }

    fn hold(&self, key: &PublicKey) -> bool {
        match self {
            Self::Keys(keys) => keys.contains(key),
            Self::Fingerprint(fingerprint) => key.fingerprint() == *fingerprint,
        }
    }
}

/// A client's view of a server.
#[derive(Debug)]
pub(crate) struct ServerVerifier {
    host_keys: HostKeys,
    authority: Option<Authority>,
    refused_server: Mutex<Option<RefusedServer>>,
}

/// A certificate that was refused.
#[derive(Debug, Clone)]
pub(crate) struct RefusedServer {
    /// Its key, if it is an Ed25519 key. That the server holds it is not proven.
    pub(crate) key: Option<PublicKey>,
    /// Why no authority accepts it.
    pub(crate) authority: Option<String>,
}

impl ServerVerifier {
    pub(crate) fn new(host_keys: HostKeys, authority: Option<Authority>) -> Self {
        Self { host_keys, authority, refused_server: Mutex::new(None) }
    }

    /// Returns the certificate that was refused, if one was.
    pub(crate) fn refused(&self) -> Option<RefusedServer> {
        lock(&self.refused_server).clone()
    }
}

impl ServerCertVerifier for ServerVerifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        _ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let key = PublicKey::of_certificate(certificate);
        if key.is_some_and(|key| self.host_keys.hold(&key)) {
            return Ok(ServerCertVerified::assertion());
        }
        let vouched = self
            .authority
            .as_ref()
            .map(|authority| authority.verify_server(certificate, between, name, now));
        if let Some(Ok(())) = vouched {
            return Ok(ServerCertVerified::assertion());
        }
        let authority = vouched.and_then(Result::err).map(|error| error.to_string());
        *lock(&self.refused_server) = Some(RefusedServer { key, authority });
        Err(CertificateError::ApplicationVerificationFailure.into())
    }

    by_signature_of_tls13!();
}
