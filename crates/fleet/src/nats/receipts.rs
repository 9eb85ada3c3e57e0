//! Receipts: what the log says was copied, each file once.

use std::collections::{HashMap, HashSet};

use headroom_transfer::files::Requests;
use headroom_transfer::path::RelPath;

use super::Inner;
use super::record::{Done, Record, body, chunks, json, nonce, read, read_body};
use super::totals::Walk;
use crate::engine::{CopiedFile, Phase, Receipt};
use crate::entry::{Damaged, Entry, Kind};
use crate::error::Error;
use crate::requests::are_none;

/// The last word of the subject of what the delete pass did.
const DELETE_PASS: &str = "delete";
/// The last word of the subject of requests to stores that no settlement has.
const REQUESTS: &str = "requests";

impl Inner {
    /// Reads a transition: its receipts, and whether they replace those of the same files.
    pub(super) async fn receipts_of(&self, record: Record) -> Result<(Vec<Receipt>, bool), Error> {
        let (worker, time_ms, (attempts, ranges), at, replaces) = match record {
            Record::Settled {
                worker, time_ms, attempts, ranges, body: Some(body), done, ..
            } if done.files > 0 => (worker, time_ms, (attempts, ranges), body, false),
            Record::Corrected { worker, time_ms, body, .. } => {
                (worker, time_ms, (1, 0), body, true)
            }
            _ => return Ok((Vec::new(), false)),
        };
        let message = self.link.get(&self.link.names.receipts(), at).await?;
        let read = message.map_or(Err(Damaged), |body| read_body(&body.payload));
        let (copied, _) = self.link.whole(read, "receipts")?;
        let receipt = |file| Receipt { file, worker: worker.clone(), time_ms, attempts, ranges };
        Ok((copied.into_iter().map(receipt).collect(), replaces))
    }

    /// Begins to read the log.
    pub(super) async fn walk_log(&self) -> Result<Walk, Error> {
        let log = self.link.names.log();
        let (last, _) = self.link.extent(&log).await?;
        Ok(Walk::new(log, 1, last))
    }

    /// Reads the next transition of the log that has receipts.
    pub(super) async fn next_receipts(
        &self,
        walk: &mut Walk,
    ) -> Result<Option<(u64, Vec<Receipt>, bool)>, Error> {
        while let Some(message) = walk.next(&self.link).await? {
            let record = self.link.whole(read(&message.payload), "log")?;
            let (receipts, replaces) = self.receipts_of(record).await?;
            if !receipts.is_empty() {
                return Ok(Some((message.sequence, receipts, replaces)));
            }
        }
        Ok(None)
    }

    /// Returns the files that a delete pass has copied, with the sequence of the last transition
    /// that says so.
    pub(super) async fn corrected(&self) -> Result<HashMap<RelPath, u64>, Error> {
        let names = &self.link.names;
        let (log, subject) = (names.log(), names.log_subject(DELETE_PASS));
        let (mut corrected, mut from) = (HashMap::new(), 1);
        while let Some(message) = self.link.next_of(&log, &subject, from).await? {
            from = message.sequence + 1;
            let record = self.link.whole(read(&message.payload), "log")?;
            for receipt in self.receipts_of(record).await?.0 {
                corrected.insert(receipt.file.path, message.sequence);
            }
        }
        Ok(corrected)
    }

    /// Records a delete pass.
    pub(super) async fn record_delete_pass(
        &self,
        copied: &[CopiedFile],
        removed: u64,
        is_complete: bool,
        worker: &str,
        now_ms: u64,
    ) -> Result<(), Error> {
        let new = self.without_receipts(copied).await?;
        for part in parts(copied) {
            let is_new = |file: &&CopiedFile| new.contains(&file.path);
            let counted: Vec<_> = part.iter().filter(is_new).cloned().collect();
            let at = self.keep_body(&body(part, &[])).await?;
            let (worker, done) = (worker.to_owned(), Done::of(&counted, 0));
            let corrected = Record::Corrected { worker, time_ms: now_ms, body: at, done };
            self.note(DELETE_PASS, &corrected).await?;
        }
        if removed > 0 {
            self.note(DELETE_PASS, &Record::Removed { names: removed }).await?;
        }
        if is_complete {
            self.link.steer(|steering| steering.phase = Phase::Done.into()).await?;
        }
        Ok(())
    }

    /// Adds requests to stores that no settlement has.
    pub(super) async fn add_requests(&self, requests: Requests) -> Result<(), Error> {
        match are_none(&requests) {
            true => Ok(()),
            false => self.note(REQUESTS, &Record::Requested { requests }).await,
        }
    }

    /// Adds what is of no item to the log.
    async fn note(&self, about: &str, record: &Record) -> Result<(), Error> {
        let subject = self.link.names.log_subject(about);
        let id = format!("d.{}", nonce());
        self.link.publish(&subject, Some(&id), json(record)).await?;
        Ok(())
    }

    /// Returns which of these files have no receipt yet.
    async fn without_receipts(&self, copied: &[CopiedFile]) -> Result<HashSet<RelPath>, Error> {
        let mut new: HashSet<_> = copied.iter().map(|file| file.path.clone()).collect();
        if new.is_empty() {
            return Ok(new);
        }
        let mut walk = self.walk_log().await?;
        while let Some((_, receipts, _)) = self.next_receipts(&mut walk).await? {
            for receipt in receipts {
                new.remove(&receipt.file.path);
            }
        }
        Ok(new)
    }
}

/// Splits files into as few messages as they fit into.
fn parts(copied: &[CopiedFile]) -> Vec<&[CopiedFile]> {
    // as many as entries with these names
    let mtime = headroom_transfer::Time { seconds: 0, nanoseconds: 0 };
    let entry = |file: &CopiedFile| Entry {
        number: file.number,
        path: file.path.clone(),
        kind: Kind::File { size: file.size, mode: 0, mtime, ranges: 0 },
    };
    let entries: Vec<_> = copied.iter().map(entry).collect();
    let (mut parts, mut rest) = (Vec::new(), copied);
    for part in chunks(&entries, usize::MAX) {
        let (one, others) = rest.split_at(part.len());
        parts.push(one);
        rest = others;
    }
    parts
}
