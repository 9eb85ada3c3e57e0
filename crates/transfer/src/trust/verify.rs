//! What rustls asks during a handshake: is this the peer? A pinned key or an
//! authority answers; that the peer holds the key is always proven by its signature.

use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use rustls::CertificateError;
use rustls::client::danger::{ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};

use super::{Access, Authority, AuthorizedKeys};
use crate::key::{Fingerprint, PublicKey};

/// The one cryptographic library, with AES-128-GCM first: on machines with AES
/// instructions it costs least, and nothing here needs more.
pub(crate) fn provider() -> Arc<CryptoProvider> {
    static PROVIDER: LazyLock<Arc<CryptoProvider>> = LazyLock::new(|| {
        let cipher_suites = vec![
            aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256,
            aws_lc_rs::cipher_suite::TLS13_AES_256_GCM_SHA384,
            aws_lc_rs::cipher_suite::TLS13_CHACHA20_POLY1305_SHA256,
        ];
        Arc::new(CryptoProvider { cipher_suites, ..aws_lc_rs::default_provider() })
    });
    Arc::clone(&PROVIDER)
}

/// The half of rustls' verifiers that is the same for servers and clients: that a peer
/// holds the key of the certificate that it shows is proven by its signature, as TLS 1.3
/// has it and nothing older.
macro_rules! by_signature_of_tls13 {
    () => {
        fn verify_tls12_signature(
            &self,
            _message: &[u8],
            _certificate: &rustls::pki_types::CertificateDer<'_>,
            _signature: &rustls::DigitallySignedStruct,
        ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
            Err(rustls::PeerIncompatible::Tls12NotOffered.into())
        }

        fn verify_tls13_signature(
            &self,
            message: &[u8],
            certificate: &rustls::pki_types::CertificateDer<'_>,
            signature: &rustls::DigitallySignedStruct,
        ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
            let algorithms = &$crate::trust::provider().signature_verification_algorithms;
            rustls::crypto::verify_tls13_signature(message, certificate, signature, algorithms)
        }

        fn supported_verify_schemes(&self) -> Vec<rustls::SignatureScheme> {
            $crate::trust::provider().signature_verification_algorithms.supported_schemes()
        }
    };
}
pub(crate) use by_signature_of_tls13;

/// Which keys a server may have.
#[derive(Debug, Clone)]
pub enum Pins {
    /// One of these.
    Keys(Vec<PublicKey>),
    /// The one with this fingerprint.
    Fingerprint(Fingerprint),
}

impl Pins {
    /// No key is right: whoever answers is only looked at.
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
    pins: Pins,
    authority: Option<Authority>,
    seen: Mutex<Option<Seen>>,
}

/// What a server showed, when it was refused.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    /// Its key, if it is one of ours. That it holds the private half is not proven.
    pub(crate) key: Option<PublicKey>,
    /// Why no authority vouches for it.
    pub(crate) authority: Option<String>,
}

impl ServerVerifier {
    pub(crate) fn new(pins: Pins, authority: Option<Authority>) -> Self {
        Self { pins, authority, seen: Mutex::new(None) }
    }

    /// What was refused, if anything was.
    pub(crate) fn refused(&self) -> Option<Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).clone()
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
        if key.is_some_and(|key| self.pins.hold(&key)) {
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
        *self.seen.lock().unwrap_or_else(PoisonError::into_inner) = Some(Seen { key, authority });
        Err(CertificateError::ApplicationVerificationFailure.into())
    }

    by_signature_of_tls13!();
}

/// Who comes in to a server, and what for.
#[derive(Debug, Clone, Default)]
pub struct Gate {
    /// Keys that are let in.
    pub keys: AuthorizedKeys,
    /// Whoever it vouches for is let in, for everything.
    pub authority: Option<Authority>,
    /// Whether anybody else may read.
    pub anonymous_read: bool,
}

impl Gate {
    /// What somebody with these certificates, their own first, may do. That they hold
    /// the key is for the handshake to see to.
    pub(crate) fn access(&self, certificates: &[CertificateDer<'_>]) -> Option<Access> {
        let anonymous =
            self.anonymous_read.then(|| Access { read_only: true, ..Access::default() });
        let Some((own, between)) = certificates.split_first() else { return anonymous };
        let listed = PublicKey::of_certificate(own).and_then(|key| self.keys.access(&key).cloned());
        let vouched = || {
            let authority = self.authority.as_ref()?;
            authority.verify_client(own, between, UnixTime::now()).ok()?;
            Some(Access::default())
        };
        listed.or_else(vouched).or(anonymous)
    }

    /// What somebody who has proven that they hold this key may do.
    pub(crate) fn access_of_key(&self, key: &PublicKey) -> Option<Access> {
        self.keys.access(key).cloned().or_else(|| self.access(&[]))
    }
}
