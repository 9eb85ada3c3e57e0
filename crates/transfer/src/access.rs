//! Access control of a server: which clients are accepted, and which are connected. Both may
//! change at any time.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};

use headroom_mutex::lock;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{CertificateError, DistinguishedName};

use crate::connection::Connection;
use crate::error::{Closing, Error};
use crate::key::PublicKey;
use crate::trust::{Access, AccessPolicy, Share, by_signature_of_tls13};

/// A policy that can be replaced, and the clients that it accepted.
#[derive(Debug)]
pub(crate) struct AccessControl {
    policy: RwLock<Arc<AccessPolicy>>,
    /// The server's own key, if its holder may do everything.
    own: OnceLock<PublicKey>,
    admitted: Mutex<HashMap<usize, Admitted>>,
}

#[derive(Debug)]
struct Admitted {
    connection: Connection,
    principal: Principal,
    access: Access,
}

/// What a client has proven about itself.
#[derive(Debug, Clone)]
pub(crate) enum Principal {
    /// The holder of the first certificate's key, by the TLS handshake.
    Certified(Vec<CertificateDer<'static>>),
    /// The holder of this key, by a message.
    Signed(PublicKey),
    /// The holder of this key, who has shown the secret of this share.
    Shared(PublicKey, Arc<Share>),
    /// Nothing.
    Anonymous,
}

/// An accepted client, until this is dropped.
#[derive(Debug)]
pub(crate) struct Grant {
    /// The client's key.
    pub(crate) key: Option<PublicKey>,
    /// The comment of the key in `authorized_keys`.
    pub(crate) comment: Option<String>,
    /// What the client may do.
    pub(crate) access: Access,
    /// Whether the client's key is listed.
    pub(crate) is_known: bool,
    /// Whether the key is the server's own.
    pub(crate) is_own: bool,
    /// The share that it uses.
    pub(crate) share: Option<Arc<Share>>,
    access_control: Arc<AccessControl>,
    id: usize,
}

impl AccessControl {
    pub(crate) fn new(policy: AccessPolicy) -> Arc<Self> {
        Arc::new(Self {
            policy: RwLock::new(Arc::new(policy)),
            own: OnceLock::new(),
            admitted: Mutex::default(),
        })
    }

    /// Accepts the holder of the server's own key, who could be the server itself.
    pub(crate) fn accept_own(&self, key: PublicKey) {
        let _ = self.own.set(key);
    }

    /// Accepts a client, if the policy allows it.
    pub(crate) fn admit(
        self: &Arc<Self>,
        connection: &Connection,
        principal: Principal,
    ) -> Result<Grant, Error> {
        // looked up with the list locked, so that no change of the policy misses this client
        let mut admitted = self.admitted();
        let policy = self.policy();
        let share = principal.share().cloned();
        let access = self.access(&principal, &policy).ok_or_else(|| match share {
            Some(_) => Error::share_ended(),
            None => Error::not_let_in(),
        })?;
        let (id, key) = (connection.stable_id(), principal.key());
        let comment = key.and_then(|key| policy.keys.comment(&key).map(str::to_owned));
        let is_own = share.is_none() && key.is_some() && key.as_ref() == self.own.get();
        let is_listed = key.is_some_and(|key| policy.keys.access(&key).is_some());
        let is_known = share.is_none() && (is_listed || is_own);
        let entry = Admitted { connection: connection.clone(), principal, access: access.clone() };
        admitted.insert(id, entry);
        drop(admitted);
        let access_control = Arc::clone(self);
        Ok(Grant { key, comment, access, is_known, is_own, share, access_control, id })
    }

    /// Returns what a client may do, if it is accepted.
    fn access(&self, principal: &Principal, policy: &AccessPolicy) -> Option<Access> {
        match principal {
            Principal::Shared(_, share) => share.access(&share.maker(policy, self.own.get())?),
            _ => {
                let is_own = || {
                    let own = self.own.get()?;
                    let is_it = principal.key().as_ref() == Some(own);
                    (is_it && policy.keys.access(own).is_none()).then(Access::default)
                };
                is_own().or_else(|| principal.access(policy))
            }
        }
    }

    /// Returns the comment of a key, if it is listed and has one.
    pub(crate) fn comment(&self, key: &PublicKey) -> Option<String> {
        self.policy().keys.comment(key).map(str::to_owned)
    }

    /// Closes the connections of a share.
    pub(crate) fn end_share(&self, id: &str) {
        for admitted in self.admitted().values() {
            if admitted.principal.share().is_some_and(|share| share.id == id) {
                admitted.connection.close(Closing::Refused, &Error::share_ended().reason());
            }
        }
    }

    /// Whether the policy lists this key.
    pub(crate) fn knows(&self, key: &PublicKey) -> bool {
        self.policy().keys.access(key).is_some()
    }

    /// Adds a key to the accepted ones.
    pub(crate) fn enroll(&self, key: PublicKey, access: Access) {
        let mut policy = self.policy.write().unwrap_or_else(PoisonError::into_inner);
        // nobody loses rights by this
        let mut more = AccessPolicy::clone(&policy);
        more.keys.insert(key, access);
        *policy = Arc::new(more);
    }

    /// Replaces the policy. Connections of clients whose rights change end.
    pub(crate) fn set_policy(&self, policy: AccessPolicy) {
        let policy = Arc::new(policy);
        *self.policy.write().unwrap_or_else(PoisonError::into_inner) = Arc::clone(&policy);
        for admitted in self.admitted().values() {
            if self.access(&admitted.principal, &policy).as_ref() != Some(&admitted.access) {
                admitted.connection.close(Closing::Changed, "");
            }
        }
    }

    fn policy(&self) -> Arc<AccessPolicy> {
        Arc::clone(&self.policy.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn admitted(&self) -> MutexGuard<'_, HashMap<usize, Admitted>> {
        lock(&self.admitted)
    }
}

impl Drop for Grant {
    fn drop(&mut self) {
        self.access_control.admitted().remove(&self.id);
    }
}

impl Grant {
    /// Returns a name for the log.
    pub(crate) fn name(&self) -> String {
        self.key.map_or_else(|| "nobody".to_owned(), |key| key.fingerprint().to_string())
    }
}

impl Principal {
    /// Returns the principal whose certificate was presented in this connection's handshake.
    pub(crate) fn certified(connection: &Connection) -> Option<Self> {
        let certificates = connection.native()?.peer_identity()?;
        let certificates = certificates.downcast::<Vec<CertificateDer<'static>>>().ok()?;
        (!certificates.is_empty()).then_some(Self::Certified(*certificates))
    }

    fn key(&self) -> Option<PublicKey> {
        match self {
            Self::Certified(certificates) => PublicKey::of_certificate(certificates.first()?),
            Self::Signed(key) | Self::Shared(key, _) => Some(*key),
            Self::Anonymous => None,
        }
    }

    const fn share(&self) -> Option<&Arc<Share>> {
        match self {
            Self::Shared(_, share) => Some(share),
            Self::Certified(_) | Self::Signed(_) | Self::Anonymous => None,
        }
    }

    /// Returns what the policy allows; to the holder of a share, nothing by its key.
    fn access(&self, policy: &AccessPolicy) -> Option<Access> {
        match self {
            Self::Certified(certificates) => policy.access(certificates),
            Self::Signed(key) => policy.access_of_key(key),
            Self::Anonymous => policy.access(&[]),
            Self::Shared(..) => None,
        }
    }
}

/// A certificate in the handshake must be that of an accepted client. A client without one
/// authenticates later.
impl ClientCertVerifier for AccessControl {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn verify_client_cert(
        &self,
        certificate: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        let mut all = vec![certificate.clone().into_owned()];
        all.extend(between.iter().map(|it| it.clone().into_owned()));
        match self.access(&Principal::Certified(all), &self.policy()) {
            Some(_) => Ok(ClientCertVerified::assertion()),
            None => Err(CertificateError::ApplicationVerificationFailure.into()),
        }
    }

    by_signature_of_tls13!();
}
