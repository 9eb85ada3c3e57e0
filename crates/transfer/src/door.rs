//! The door of a server: who is let in, and who is inside. Both can change while it
//! is open.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use quinn::Connection;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{CertificateError, DistinguishedName};

use crate::error::{Closing, Error};
use crate::key::PublicKey;
use crate::trust::{Access, Gate, by_signature_of_tls13};

/// A gate that can be replaced, and those who came through it.
#[derive(Debug)]
pub(crate) struct Door {
    gate: RwLock<Arc<Gate>>,
    inside: Mutex<HashMap<usize, Inside>>,
}

#[derive(Debug)]
struct Inside {
    connection: Connection,
    who: Who,
    access: Access,
}

/// Who somebody has proven to be.
#[derive(Debug, Clone)]
pub(crate) enum Who {
    /// The holder of the first certificate's key, in the handshake of TLS.
    Certified(Vec<CertificateDer<'static>>),
    /// The holder of this key, by a message.
    Signed(PublicKey),
    /// Nobody in particular.
    Anybody,
}

/// Somebody who was let in, until this is dropped.
#[derive(Debug)]
pub(crate) struct Guest {
    /// Their key.
    pub(crate) key: Option<PublicKey>,
    /// What `authorized_keys` calls them.
    pub(crate) called: Option<String>,
    /// What they may do.
    pub(crate) access: Access,
    door: Arc<Door>,
    id: usize,
}

impl Door {
    pub(crate) fn new(gate: Gate) -> Arc<Self> {
        Arc::new(Self { gate: RwLock::new(Arc::new(gate)), inside: Mutex::default() })
    }

    /// Lets somebody in, if they may come.
    pub(crate) fn admit(
        self: &Arc<Self>,
        connection: &Connection,
        who: Who,
    ) -> Result<Guest, Error> {
        // looked up with the list locked: no change of the gate can miss them
        let mut inside = self.inside();
        let gate = self.gate();
        let access = who.access(&gate).ok_or_else(Error::not_let_in)?;
        let (id, key) = (connection.stable_id(), who.key());
        let called = key.and_then(|key| gate.keys.comment(&key).map(str::to_owned));
        let entry = Inside { connection: connection.clone(), who, access: access.clone() };
        inside.insert(id, entry);
        drop(inside);
        Ok(Guest { key, called, access, door: Arc::clone(self), id })
    }

    /// From now on this gate says who comes in. Connections of those who may not any
    /// longer, or may do something else than before, end.
    pub(crate) fn change(&self, gate: Gate) {
        let gate = Arc::new(gate);
        *self.gate.write().unwrap_or_else(PoisonError::into_inner) = Arc::clone(&gate);
        for inside in self.inside().values() {
            if inside.who.access(&gate).as_ref() != Some(&inside.access) {
                inside.connection.close(Closing::Changed.into(), b"");
            }
        }
    }

    fn gate(&self) -> Arc<Gate> {
        Arc::clone(&self.gate.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn inside(&self) -> MutexGuard<'_, HashMap<usize, Inside>> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.door.inside().remove(&self.id);
    }
}

impl Guest {
    /// What to call them.
    pub(crate) fn name(&self) -> String {
        self.key.map_or_else(|| "nobody".to_owned(), |key| key.fingerprint().to_string())
    }
}

impl Who {
    /// Whoever has shown a certificate in this connection's handshake.
    pub(crate) fn certified(connection: &Connection) -> Option<Self> {
        let certificates = connection.peer_identity()?;
        let certificates = certificates.downcast::<Vec<CertificateDer<'static>>>().ok()?;
        (!certificates.is_empty()).then_some(Self::Certified(*certificates))
    }

    fn key(&self) -> Option<PublicKey> {
        match self {
            Self::Certified(certificates) => PublicKey::of_certificate(certificates.first()?),
            Self::Signed(key) => Some(*key),
            Self::Anybody => None,
        }
    }

    fn access(&self, gate: &Gate) -> Option<Access> {
        match self {
            Self::Certified(certificates) => gate.access(certificates),
            Self::Signed(key) => gate.access_of_key(key),
            Self::Anybody => gate.access(&[]),
        }
    }
}

/// In the handshake: a certificate that is shown must be one of somebody who may come
/// in. Who shows none has still to say who they are.
impl ClientCertVerifier for Door {
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
        let mut all = vec![certificate.clone()];
        all.extend_from_slice(between);
        match self.gate().access(&all) {
            Some(_) => Ok(ClientCertVerified::assertion()),
            None => Err(CertificateError::ApplicationVerificationFailure.into()),
        }
    }

    by_signature_of_tls13!();
}
