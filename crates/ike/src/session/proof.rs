//! The proof of identity of both roles in IKE_AUTH (RFC 7296 §2.15).

use std::time::Duration;

use headroom_suite::Key;

use super::Setup;
use crate::config::{Auth, LocalAuth, RemoteAuth};
use crate::contents::Contents;
use crate::crypto::{HASHES, IkeKeys, SignedOctets, shared_key_mac};
use crate::event::Reason;
use crate::identity::Identity;
use crate::sa::{Role, same_mac};
use crate::wire::{
    AuthMethod, Authentication, Certificate, HashAlgorithmId, Identification, NotifyType,
};

/// The proof of identity of one side.
pub(super) struct Proof<'a> {
    pub(super) setup: &'a Setup,
    pub(super) keys: &'a IkeKeys,
    /// The ID of the IKE_AUTH exchange.
    pub(super) message_id: u32,
    /// Who proves.
    pub(super) by: Role,
}

/// What a peer shows.
pub(super) struct Claim<'a> {
    pub(super) id: &'a Identification<'a>,
    pub(super) auth: &'a Authentication<'a>,
    pub(super) certificates: &'a [Certificate<'a>],
}

impl Proof<'_> {
    /// Makes the method and the data of our AUTH payload.
    pub(super) fn make(
        &self,
        auth: &LocalAuth,
        id_body: &[u8],
    ) -> Result<(AuthMethod, Vec<u8>), Reason> {
        let octets = self.octets(id_body);
        match auth {
            LocalAuth::SharedKey(key) => {
                let mac = shared_key_mac(self.keys.prf, key, &octets);
                Ok((AuthMethod::SharedKey, mac.as_bytes().to_vec()))
            }
            LocalAuth::Certificate(credential) => {
                let signed = credential.sign(self.setup.hashes.as_deref(), &octets);
                signed.map_err(|why| Reason::Certificate {
                    peer: "this host".to_owned(),
                    why: why.into(),
                })
            }
        }
    }

    /// Checks what the peer shows, and returns its name.
    pub(super) fn check(
        &self,
        auth: &RemoteAuth,
        claim: &Claim<'_>,
        time: Option<Duration>,
    ) -> Result<Identity, Reason> {
        let name = Identity::from_payload(claim.id)
            .ok_or_else(|| Reason::Identity("by an unknown type of name".to_owned()))?;
        let octets = self.octets(&claim.id.body());
        let Authentication { method, data } = *claim.auth;
        match auth {
            RemoteAuth::SharedKey(key) => {
                let mac = shared_key_mac(self.keys.prf, key, &octets);
                match method == AuthMethod::SharedKey && same_mac(mac.as_bytes(), data) {
                    true => Ok(name),
                    false => Err(Reason::Authentication(name.to_string())),
                }
            }
            RemoteAuth::Certificate(authorities) => {
                authorities
                    .check(claim.certificates, &name, (method, data), &octets, time)
                    .map_err(|why| Reason::Certificate {
                        peer: name.to_string(),
                        why: why.into(),
                    })?;
                Ok(name)
            }
            RemoteAuth::Eap(_) => Err(Reason::Authentication(name.to_string())),
        }
    }

    /// Makes the data of an AUTH payload with the key that EAP agreed on (RFC 7296 §2.16).
    pub(super) fn mac(&self, msk: &Key, id_body: &[u8]) -> Key {
        shared_key_mac(self.keys.prf, msk, &self.octets(id_body))
    }

    fn octets(&self, id_body: &[u8]) -> Vec<u8> {
        let setup = self.setup;
        let mut int_auth = Vec::new();
        if !setup.int_auth[0].is_empty() {
            int_auth = setup.int_auth.concat();
            int_auth.extend(self.message_id.to_be_bytes());
        }
        let (message, nonce, sk_p) = match self.by {
            Role::Initiator => (&setup.request, &setup.nonce_responder, &self.keys.sk_pi),
            Role::Responder => (&setup.response, &setup.nonce_initiator, &self.keys.sk_pr),
        };
        let octets = SignedOctets { message, nonce, id_body, int_auth: &int_auth };
        octets.concat(self.keys.prf, sk_p)
    }
}

impl Auth {
    /// Checks whether one of the sides signs.
    pub(super) fn signs(&self) -> bool {
        matches!(self.local, LocalAuth::Certificate(_)) || self.remote.authorities().is_some()
    }
}

impl LocalAuth {
    /// Returns what goes into CERT payloads.
    pub(super) fn certificates(&self) -> impl Iterator<Item = Certificate<'_>> {
        let credential = match self {
            Self::Certificate(credential) => Some(credential),
            Self::SharedKey(_) => None,
        };
        credential.into_iter().flat_map(|one| one.payloads())
    }
}

impl RemoteAuth {
    /// Checks whether it is a proof of this kind.
    pub(super) fn fits(&self, method: AuthMethod) -> bool {
        match self {
            Self::SharedKey(_) => method == AuthMethod::SharedKey,
            Self::Certificate(_) => method != AuthMethod::SharedKey,
            Self::Eap(_) => false,
        }
    }
}

/// Returns the data of our SIGNATURE_HASH_ALGORITHMS.
pub(super) fn our_hashes() -> Vec<u8> {
    HASHES.iter().flat_map(|&hash| u16::from(hash).to_be_bytes()).collect()
}

/// Returns what the peer's SIGNATURE_HASH_ALGORITHMS names; none if it knows no RFC 7427.
pub(super) fn peer_hashes(contents: &Contents<'_>) -> Option<Vec<HashAlgorithmId>> {
    let notify = contents.notify(NotifyType::SignatureHashAlgorithms)?;
    let (numbers, _) = notify.data.as_chunks::<2>();
    Some(numbers.iter().map(|&number| u16::from_be_bytes(number).into()).collect())
}
