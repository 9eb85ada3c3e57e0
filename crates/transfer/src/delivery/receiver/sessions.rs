//! Receives ranges of one file into a directory, while other sessions of the client receive other
//! ranges: all sessions write into one partial file.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use headroom_transfer_proto::message::{ANY_UPLOAD, MAX_VALUES, Message, PartsRequest};
use headroom_transfer_proto::path::RelPath;

use super::destination::make_directories_as;
use super::incoming::Incoming;
use super::opening::{Begun, HANDOVER, LINGER};
use super::sent::SentRanges;
use super::shared::WorkerEvent;
use super::worker::Worker;
use crate::claims::{Claim, FileClaims, FoundUpload, Others, Receiving, Wake};
use crate::failure::Failure;
use crate::files::{Offer, Partial};
use crate::proof::random;

impl Worker {
    /// Opens a file that is divided among sessions, or one whose ranges are all here.
    pub(super) fn begin_parts(
        &self,
        id: u64,
        path: &RelPath,
        offer: &Offer,
        parts: PartsRequest,
    ) -> Result<Arc<Incoming>, Failure> {
        let root = &self.destination.root;
        if self.receives_parts()
            && let Some(parent) = path.parent()
        {
            // the request at the end gives it its mode, which may hide what is in it from others
            make_directories_as(root, &parent, &|_| 0o700)?;
        }
        let file = (root.path(), path, offer.size, offer.mtime);
        let is_complete = parts.completes == Some(true);
        match (&self.claims, parts.upload) {
            (Some(claims), Some(name)) if is_complete => {
                let ended = claims.end_upload(name, file, &self.connection);
                let Some((partial, claim, others)) = ended else {
                    return self.begin_whole(id, path, offer);
                };
                wait_for_others(path, &partial, &others)?;
                // what the sender finds to be different has to replace it
                partial.reopen();
                Ok(self.open_known(id, partial, claim, None))
            }
            (Some(claims), Some(ANY_UPLOAD)) => self.join_or_begin_upload(id, path, offer, claims),
            (Some(claims), Some(name)) => {
                let joined = claims.join_upload(name, file, &self.connection, self.wake(id));
                let Some((name, partial, receiving)) = joined else {
                    let reason = "this server does not have its upload, or not any more";
                    return Err(Failure::from(format!("{path} cannot be stored: {reason}")));
                };
                self.parts_begun(id, name, &partial);
                Ok(self.open_known(id, partial, None, Some(receiving)))
            }
            (Some(claims), None) if !is_complete => self.begin_upload(id, path, offer, claims),
            _ => self.begin_whole(id, path, offer),
        }
    }

    /// Opens a file that comes as a whole.
    pub(super) fn begin_whole(
        &self,
        id: u64,
        path: &RelPath,
        offer: &Offer,
    ) -> Result<Arc<Incoming>, Failure> {
        Ok(self.have(id, self.begin(path, offer)?)?)
    }

    /// Takes part in whichever upload of a file there is, and begins one where there is none. If
    /// another session begins one, it is waited for: that may have to hash a large partial file.
    fn join_or_begin_upload(
        &self,
        id: u64,
        path: &RelPath,
        offer: &Offer,
        claims: &FileClaims,
    ) -> Result<Arc<Incoming>, Failure> {
        let file = (self.destination.root.path(), path, offer.size, offer.mtime);
        let refused = |reason: String| format!("{path} cannot be stored: {reason}");
        self.answers.flush();
        while self.connection.close_reason().is_none() {
            let found = claims.join_any_upload(file, &self.connection, self.wake(id));
            match found.map_err(refused)? {
                FoundUpload::Upload(name, partial, receiving) => {
                    self.parts_begun(id, name, &partial);
                    return Ok(self.open_known(id, partial, None, Some(receiving)));
                }
                FoundUpload::Nothing(beginning) => {
                    let begun = self.begin_upload(id, path, offer, claims);
                    drop(beginning);
                    return begun;
                }
                FoundUpload::Begins => std::thread::sleep(HANDOVER.0),
            }
        }
        Err(Failure::from(refused("the session has ended".to_owned())))
    }

    /// Begins an upload, in which other sessions may take part.
    fn begin_upload(
        &self,
        id: u64,
        path: &RelPath,
        offer: &Offer,
        claims: &FileClaims,
    ) -> Result<Arc<Incoming>, Failure> {
        let refused = |reason: String| format!("{path} cannot be stored: {reason}");
        // before hashing the partial file, which may take long
        claims.may_begin_upload(offer.size).map_err(refused)?;
        let Begun { mut partial, claim } = self.begin(path, offer)?;
        partial.remember();
        let mut next = partial.next_present(0)?;
        while let Some(span) = next.filter(|_| self.connection.close_reason().is_none()) {
            partial.present(span)?;
            next = partial.next_present(span + 1)?;
        }
        let partial = Arc::new(partial);
        let name = random("name an upload").map_err(|error| error.to_string())?;
        let file = (self.destination.root.path(), path, offer.size, offer.mtime);
        let shared = (Arc::clone(&partial), claim);
        let begun = claims.begin_upload(name, file, shared, &self.connection, self.wake(id));
        let receiving = begun.map_err(refused)?;
        self.parts_begun(id, name, &partial);
        Ok(self.open_known(id, partial, None, Some(receiving)))
    }

    /// Opens a file, and sends the known values of the spans that are here.
    fn open_known(
        &self,
        id: u64,
        partial: Arc<Partial>,
        claim: Option<Claim>,
        receiving: Option<Receiving>,
    ) -> Arc<Incoming> {
        let (mut first_span, mut values) = (0, Vec::new());
        for span in 0..partial.spans().count() {
            let known = partial.known(span);
            if !values.is_empty() && (known.is_none() || values.len() == MAX_VALUES) {
                let values = std::mem::take(&mut values);
                self.send(Message::Have { id, first_span, values, last: false, old: None });
            }
            if let Some(known) = known {
                if values.is_empty() {
                    first_span = span;
                }
                values.push(known.value());
            }
        }
        let incoming = Arc::new(Incoming {
            _claim: claim,
            receiving,
            ranges: None,
            sent: self.receives_parts().then(SentRanges::default),
            sealed: AtomicU64::new(u64::MAX),
            writing: AtomicU64::new(0),
            partial,
        });
        self.shared.open().insert(id, Arc::clone(&incoming));
        self.send(Message::Have { id, first_span, values, last: true, old: None });
        incoming
    }

    /// Returns a callback that makes this worker check again whether ranges of a file are here:
    /// another session may have been writing spans that this one received, too.
    fn wake(&self, id: u64) -> Wake {
        let events = self.in_flight.events();
        Box::new(move || {
            if let Some(events) = events.upgrade() {
                // if the queue of events is full, the worker is about to check
                let _ = events.try_send(WorkerEvent::PieceStored(id));
            }
        })
    }
}

/// Waits until no other session writes into a partial file. Those that do not end are closed.
fn wait_for_others(path: &RelPath, partial: &Arc<Partial>, others: &Others) -> Result<(), Failure> {
    for waits in 0..HANDOVER.1 {
        if Arc::strong_count(partial) == 1 {
            return Ok(());
        }
        // a session that is done releases it at once
        if waits == LINGER {
            others.close();
        }
        std::thread::sleep(HANDOVER.0);
    }
    let reason = "another session still writes it. Repeat the transfer later";
    Err(Failure::from(format!("{path} cannot be stored: {reason}")))
}
