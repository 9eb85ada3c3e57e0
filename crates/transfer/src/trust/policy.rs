//! Which clients a server accepts, and what they may do.

use rustls::pki_types::{CertificateDer, UnixTime};

use super::authority::Authority;
use super::authorized_keys::{Access, AuthorizedKeys};
use crate::key::PublicKey;

/// Which clients a server accepts, and what they may do.
#[derive(Debug, Clone, Default)]
pub struct AccessPolicy {
    /// Accepted keys.
    pub keys: AuthorizedKeys,
    /// An authority whose clients may do everything.
    pub authority: Option<Authority>,
    /// Whether all other clients may read.
    pub anonymous_read: bool,
}

impl AccessPolicy {
    /// Returns what a client with these certificates, its own first, may do. The handshake proves
    /// that it holds the key.
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

    /// Returns what a client that has proven this key may do.
    pub(crate) fn access_of_key(&self, key: &PublicKey) -> Option<Access> {
        self.keys.access(key).cloned().or_else(|| self.access(&[]))
    }
}
