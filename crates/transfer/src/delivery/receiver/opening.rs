//! Opens a file for receiving, and answers what of it is there.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use headroom_transfer_proto::message::Message;
use headroom_transfer_proto::path::RelPath;
use headroom_transfer_proto::span::Verification;

use super::incoming::Incoming;
use super::sent::SentRanges;
use super::worker::Worker;
use crate::claims::{Claim, Others};
use crate::files::{self, ErrorKind, Offer, Partial};

/// How often, and how many times, to retry a busy file whose former transfer is about to end: a
/// server closed it, or it was this client's own and has a write in flight.
pub(super) const HANDOVER: (Duration, u32) = (Duration::from_millis(10), 500);
/// How many times a server retries a busy file that no transfer of the same client has: one of
/// a server that has just ended may still have a write in flight.
pub(super) const LINGER: u32 = 100;

/// Values of one message, fewer than it may have: the sender hashes these spans, too, while the next
/// ones are hashed here.
const VALUES_AT_ONCE: usize = 64;

/// A file that was begun and locked, and the claim that covers the lock.
pub(super) struct Begun {
    pub(super) partial: Partial,
    pub(super) claim: Option<Claim>,
}

impl Worker {
    /// Opens a file for receiving. One that an older connection of the same client still has is
    /// taken over: a client that starts again need not wait until the server notices that the first
    /// connection is dead.
    pub(super) fn begin(&self, path: &RelPath, offer: &Offer) -> Result<Begun, files::Error> {
        // it may take long
        self.answers.flush();
        let root = &self.destination.root;
        let claims = self.claims.as_ref();
        let others =
            claims.map(|claims| claims.give_up_uploads(root.path(), path, &self.connection));
        let others = others.filter(|others| !others.is_empty());
        let claim = claims.map(|claims| claims.claim(root.path(), path, &self.connection));
        let mut waits = match &claim {
            Some(claim) if !claim.supersedes() && others.is_none() => LINGER,
            _ => HANDOVER.1,
        };
        loop {
            match root.begin(path, offer) {
                Err(error) if matches!(error.kind(), ErrorKind::Busy) && waits > 0 => {
                    waits -= 1;
                    // sessions of an upload that do not end by themselves
                    if waits == HANDOVER.1 - LINGER {
                        others.iter().for_each(Others::close);
                    }
                    std::thread::sleep(HANDOVER.0);
                }
                begun => return Ok(Begun { partial: begun?, claim }),
            }
        }
    }

    /// Sends the hashes of the spans that are present.
    pub(super) fn have(&self, id: u64, begun: Begun) -> Result<Arc<Incoming>, files::Error> {
        let Begun { mut partial, claim } = begun;
        let (mut first_span, mut values) = (0, Vec::new());
        let mut has_some = false;
        let mut next = partial.next_present(0)?;
        while let Some(span) = next {
            // hashing takes long, and the client's next transfer may wait for this file
            if self.connection.close_reason().is_some() {
                break;
            }
            let value = partial.present(span)?;
            next = partial.next_present(span + 1)?;
            let is_behind = first_span + values.len() as u64 != span;
            if !values.is_empty()
                && (value.is_none() || is_behind || values.len() == VALUES_AT_ONCE)
            {
                let values = std::mem::take(&mut values);
                self.send(Message::Have { id, first_span, values, last: false, old: None });
            }
            if let Some(value) = value {
                has_some = true;
                if values.is_empty() {
                    first_span = span;
                }
                values.push(value);
            }
        }
        // the sender does the same: of what is present it compares BLAKE3's values
        if self.tree.verification == Some(Verification::Crc64) && !has_some {
            partial.set_verification(Verification::Crc64);
        }
        let old = self.old_to_reuse(&partial);
        let incoming = Arc::new(Incoming {
            partial: Arc::new(partial),
            _claim: claim,
            receiving: None,
            ranges: None,
            sent: self.receives_parts().then(SentRanges::default),
            sealed: AtomicU64::new(u64::MAX),
            writing: AtomicU64::new(0),
        });
        self.shared.open().insert(id, Arc::clone(&incoming));
        self.send(Message::Have { id, first_span, values, last: true, old });
        Ok(incoming)
    }
}
