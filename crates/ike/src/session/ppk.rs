//! Post-quantum pre-shared keys, in IKE_AUTH (RFC 8784) and in IKE_INTERMEDIATE (RFC 9867).

use std::net::IpAddr;
use std::sync::Arc;

use super::{Context, Session};
use crate::config::{Config, Connection, Ppk};
use crate::contents::Contents;
use crate::crypto::{IkeKeys, Nonces, Prf, Spis};
use crate::event::{Reason, UsedPpk};
use crate::proposal::{IkeChoice, IkeProposal};
use crate::sa::same_mac;
use crate::wire::NotifyType;

/// The type of an identity of a fixed key (RFC 8784 §5.1).
const FIXED: u8 = 2;
/// The length of what shows that an initiator has a key, in bytes.
const CONFIRMATION: usize = 8;
/// The most keys of an initiator that are looked at: each may cost a computation, and it is not
/// authenticated yet.
const MAX_OFFERED: usize = 8;

/// Whether and how the set-up of an IKE SA uses a post-quantum pre-shared key.
#[derive(Debug)]
pub(crate) enum PpkUse {
    /// Not at all.
    None,
    /// In IKE_AUTH, if both have the same.
    InAuth,
    /// In the last IKE_INTERMEDIATE, if both have the same.
    InIntermediate,
    /// The keys have that of this connection. As responder, the peer may turn out to be another's.
    Mixed(Arc<Connection>),
}

impl Ppk {
    /// Returns the data of our PPK_IDENTITY.
    pub(super) fn identity(&self) -> Vec<u8> {
        [&[FIXED], &self.id[..]].concat()
    }

    /// Returns the data of our PPK_IDENTITY_KEY: the name, and what shows that we have the key.
    pub(super) fn identity_key(&self, prf: Prf, nonces: Nonces<'_>, spis: Spis) -> Vec<u8> {
        let confirmation = prf.compute(
            self.key.as_bytes(),
            &[
                nonces.initiator,
                nonces.responder,
                &spis.initiator.to_be_bytes(),
                &spis.responder.to_be_bytes(),
            ],
        );
        [&self.identity(), &confirmation.as_bytes()[..CONFIRMATION]].concat()
    }

    pub(super) fn is_named(&self, contents: &Contents<'_>) -> bool {
        contents.notify(NotifyType::PpkIdentity).is_some_and(|one| one.data == self.identity())
    }
}

impl PpkUse {
    /// Returns how an initiator goes on after the answer to IKE_SA_INIT.
    pub(super) fn agreed(connection: &Connection, contents: &Contents<'_>) -> Self {
        let intermediate = contents.has(NotifyType::IntermediateExchangeSupported)
            && contents.has(NotifyType::UsePpkInt);
        match &connection.ppk {
            Some(ppk) if ppk.exchange.permits_intermediate() && intermediate => {
                Self::InIntermediate
            }
            Some(ppk) if ppk.exchange.permits_auth() && contents.has(NotifyType::UsePpk) => {
                Self::InAuth
            }
            _ => Self::None,
        }
    }

    /// Returns what a responder answers to what an initiator may do: one of both, or none.
    pub(super) fn choose<'a>(
        possible: impl Iterator<Item = &'a Arc<Connection>>,
        contents: &Contents<'_>,
    ) -> Self {
        let ppks: Vec<_> = possible.filter_map(|one| one.ppk.as_ref()).collect();
        let intermediate = contents.has(NotifyType::IntermediateExchangeSupported)
            && contents.has(NotifyType::UsePpkInt)
            && ppks.iter().any(|ppk| ppk.exchange.permits_intermediate());
        let in_auth =
            contents.has(NotifyType::UsePpk) && ppks.iter().any(|ppk| ppk.exchange.permits_auth());
        match (intermediate, in_auth) {
            (true, _) => Self::InIntermediate,
            (false, true) => Self::InAuth,
            (false, false) => Self::None,
        }
    }

    /// Returns the notification that says so.
    pub(super) fn notify_type(&self) -> Option<NotifyType> {
        match self {
            Self::InIntermediate => Some(NotifyType::UsePpkInt),
            Self::InAuth => Some(NotifyType::UsePpk),
            Self::None | Self::Mixed(_) => None,
        }
    }

    /// As responder: finds the first of the initiator's keys that one of the connections has. Fails if
    /// all connections need one.
    pub(super) fn find(
        config: &Config,
        from: IpAddr,
        choice: &IkeChoice,
        contents: &Contents<'_>,
        (nonces, spis): (Nonces<'_>, Spis),
    ) -> Result<Option<Arc<Connection>>, Reason> {
        let possible = config
            .connections
            .iter()
            .filter(|one| one.accepts(from) && IkeProposal::permit(&one.ike, choice));
        let permits = |ppk: &&Ppk| ppk.exchange.permits_intermediate();
        let offered =
            contents.notifies.iter().filter(|one| one.notify_type == NotifyType::PpkIdentityKey);
        let mut wrong = None;
        for notify in offered.take(MAX_OFFERED) {
            let Some(named) = notify.data.len().checked_sub(CONFIRMATION) else { continue };
            let found = possible.clone().find(|&connection| {
                let ppk = connection.ppk.as_ref().filter(permits);
                let ppk = ppk.filter(|ppk| notify.data[..named] == ppk.identity());
                wrong = wrong.or(ppk);
                ppk.is_some_and(|ppk| {
                    same_mac(&ppk.identity_key(choice.prf, nonces, spis), notify.data)
                })
            });
            if let Some(found) = found {
                return Ok(Some(found.clone()));
            }
        }
        let needs = |one: &Arc<Connection>| one.ppk.as_ref().is_some_and(|ppk| ppk.is_required);
        match (possible.clone().all(needs), wrong) {
            (false, _) => Ok(None),
            (true, None) => Err(Reason::NoPpk),
            // a guess counts as any other
            (true, Some(ppk)) => {
                let id = String::from_utf8_lossy(&ppk.id);
                let who = format!("who has another post-quantum pre-shared key of the name {id:?}");
                Err(Reason::Authentication(who))
            }
        }
    }
}

impl Connection {
    /// Returns the key that both ends use in IKE_AUTH, and the keys of the IKE SA with it. A responder
    /// is shown the name of the key, an initiator that it is used.
    pub(super) fn mixed_keys(
        &self,
        keys: &IkeKeys,
        contents: &Contents<'_>,
        agreed: &PpkUse,
        is_responder: bool,
    ) -> Result<Option<(&Ppk, IkeKeys)>, Reason> {
        if let PpkUse::Mixed(other) = agreed {
            let same = self.ppk.as_ref().zip(other.ppk.as_ref());
            let same = same.is_some_and(|(ppk, other)| ppk.is_same_key(other));
            return if same { Ok(None) } else { Err(Reason::OtherPpk) };
        }
        let Some(ppk) = &self.ppk else { return Ok(None) };
        let is_used = match agreed {
            PpkUse::InAuth if is_responder => ppk.exchange.permits_auth() && ppk.is_named(contents),
            PpkUse::InAuth => contents.has(NotifyType::PpkIdentity),
            _ => false,
        };
        match (is_used, ppk.is_required) {
            (true, _) => Ok(Some((ppk, keys.copy().with_ppk(&ppk.key)))),
            (false, false) => Ok(None),
            (false, true) => Err(Reason::NoPpk),
        }
    }
}

impl Session {
    /// Uses the key in all that is derived after IKE_AUTH.
    pub(super) fn mix(&mut self, spi: u64, ppk: &Ppk) {
        if let Some(sa) = self.sa(spi) {
            sa.mix(&ppk.key);
            self.ppk = Some(UsedPpk::AllButFirst);
        }
    }

    /// Turns to the keys that an IKE_INTERMEDIATE made, of a key exchange and of the pre-shared key of
    /// a connection, which comes last.
    pub(super) fn renew_keys(
        &mut self,
        secret: Option<&headroom_suite::Key>,
        mixed: Option<Arc<Connection>>,
        ctx: &mut Context<'_>,
    ) {
        let Some(setup) = &mut self.setup else { return };
        let [sa] = &mut self.sas[..] else { return };
        let Some(mut keys) = sa.keys().map(IkeKeys::copy) else { return };
        if let Some(secret) = secret {
            keys = keys.with_secret(secret, setup.nonces(), sa.spis);
            setup.exchanged += 1;
        }
        if let Some(ppk) = mixed.as_ref().and_then(|connection| connection.ppk.as_ref()) {
            keys = keys.with_intermediate_ppk(&ppk.key, setup.nonces(), sa.spis);
            self.ppk = Some(UsedPpk::All);
        }
        if secret.is_none() && mixed.is_none() {
            return;
        }
        if let Some(connection) = mixed {
            setup.ppk = PpkUse::Mixed(connection);
        }
        if !sa.set_keys(keys) {
            self.close(Reason::NoProposal, ctx);
        }
    }
}
