//! Post-quantum pre-shared keys (RFC 8784).

use super::Session;
use crate::config::{Connection, Ppk};
use crate::contents::Contents;
use crate::crypto::IkeKeys;
use crate::event::Reason;
use crate::wire::NotifyType;

/// The type of an identity of a fixed key (RFC 8784 §5.1).
const FIXED: u8 = 2;

impl Ppk {
    /// Returns the data of our PPK_IDENTITY.
    pub(super) fn identity(&self) -> Vec<u8> {
        [&[FIXED], &self.id[..]].concat()
    }

    fn is_named(&self, contents: &Contents<'_>) -> bool {
        contents.notify(NotifyType::PpkIdentity).is_some_and(|one| one.data == self.identity())
    }
}

impl Connection {
    /// Returns the key that both ends use, and the keys of the IKE SA with it. A responder is shown the
    /// name of the key, an initiator that it is used.
    pub(super) fn mixed_keys(
        &self,
        keys: &IkeKeys,
        contents: &Contents<'_>,
        is_responder: bool,
    ) -> Result<Option<(&Ppk, IkeKeys)>, Reason> {
        let Some(ppk) = &self.ppk else { return Ok(None) };
        let is_used = match is_responder {
            true => ppk.is_named(contents),
            false => contents.has(NotifyType::PpkIdentity),
        };
        match (is_used, ppk.is_required) {
            (true, _) => Ok(Some((ppk, keys.copy().with_ppk(&ppk.key)))),
            (false, false) => Ok(None),
            (false, true) => Err(Reason::NoPpk),
        }
    }
}

impl Session {
    /// Uses the key in all that is derived from now on.
    pub(super) fn mix(&mut self, spi: u64, ppk: &Ppk) {
        if let Some(sa) = self.sa(spi) {
            sa.mix(&ppk.key);
            self.has_ppk = true;
        }
    }
}
