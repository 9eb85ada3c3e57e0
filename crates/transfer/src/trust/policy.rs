//! Who comes in to a server, and what for.

use rustls::pki_types::{CertificateDer, UnixTime};

use super::authority::Authority;
use super::authorized_keys::{Access, AuthorizedKeys};
use crate::key::PublicKey;

/// Who comes in to a server, and what for.
#[derive(Debug, Clone, Default)]
pub struct AccessPolicy {
    /// Keys that are let in.
    pub keys: AuthorizedKeys,
    /// Whoever it vouches for is let in, for everything.
    pub authority: Option<Authority>,
    /// Whether anybody else may read.
    pub anonymous_read: bool,
}

impl AccessPolicy {
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
