//! The figures that follow from the log. Nobody counts anything: each transition says what it adds,
//! and the sum up to a sequence of the log is exact, whoever computes it.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_nats::jetstream::message::StreamMessage;
use headroom_transfer::files::Requests;
use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;

use super::cells::TOTALS;
use super::link::{Link, wrong};
use super::record::{Done, Next, Record, read};
use crate::error::Error;
use crate::requests::RequestCounts;

/// How many messages are asked for at once.
const AT_ONCE: u64 = 64;
/// After how many transitions the sums are kept, so that others begin there.
const KEPT_AFTER: u64 = 200;

/// The sums up to a sequence of the log.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(super) struct Totals {
    /// Of the last transition that is in the sums.
    pub(super) sequence: u64,
    pub(super) files: u64,
    pub(super) bytes: u64,
    pub(super) unchanged: u64,
    pub(super) vanished: u64,
    pub(super) removed: u64,
    /// Items that splitting made.
    pub(super) split: u64,
    /// Items of which nothing is left.
    pub(super) closed: u64,
    /// Items that are set aside now.
    pub(super) aside: u64,
    /// Bytes of ranges that have ended, of files that have not.
    #[serde(default)]
    pub(super) ranged: u64,
    /// Requests to stores.
    #[serde(default, with = "RequestCounts")]
    pub(super) requests: Requests,
    /// The transitions since these sums were kept.
    #[serde(skip)]
    fresh: u64,
}

impl Totals {
    fn add(&mut self, record: &Record) {
        match record {
            Record::Taken { .. } | Record::RangesEnded { .. } => {}
            Record::Requested { requests } => self.requests = self.requests.and(requests),
            Record::Settled { done, next, ranged, requests, .. } => {
                self.add_done(*done);
                self.requests = self.requests.and(requests);
                let ranged_so_far = self.ranged.saturating_add(ranged.added);
                self.ranged = ranged_so_far.saturating_sub(ranged.removed);
                match next {
                    Next::Done => self.closed += 1,
                    Next::Again { .. } => {}
                    Next::Split { .. } => self.split += 1,
                    Next::Aside { .. } => self.aside += 1,
                }
            }
            Record::Reopened { .. } => self.aside = self.aside.saturating_sub(1),
            Record::Corrected { done, .. } => self.add_done(*done),
            Record::Removed { names } => self.removed = self.removed.saturating_add(*names),
        }
    }

    fn add_done(&mut self, done: Done) {
        self.files = self.files.saturating_add(done.files);
        self.bytes = self.bytes.saturating_add(done.bytes);
        self.unchanged = self.unchanged.saturating_add(done.unchanged);
        self.vanished = self.vanished.saturating_add(done.vanished);
    }

    /// Adds what was decided since.
    pub(super) async fn refresh(&mut self, link: &Arc<Link>) -> Result<(), Error> {
        if self.sequence == 0
            && let Some((kept, _)) = link.cell::<Self>(TOTALS).await?
        {
            *self = kept;
        }
        let log = link.names.log();
        let (last, _) = link.extent(&log).await?;
        let mut walk = Walk::new(log, self.sequence + 1, last);
        while let Some(message) = walk.next(link).await? {
            self.add(&link.whole(read(&message.payload), "log")?);
            self.sequence = message.sequence;
            self.fresh += 1;
        }
        if self.fresh >= KEPT_AFTER {
            self.keep(link).await?;
        }
        Ok(())
    }

    /// Keeps the sums. Those of somebody who has come further stay.
    async fn keep(&mut self, link: &Link) -> Result<(), Error> {
        let (kept, revision) = match link.cell::<Self>(TOTALS).await? {
            Some((kept, revision)) => (kept.sequence, revision),
            None => (0, 0),
        };
        if kept < self.sequence {
            // whoever was faster has sums that are as exact
            link.set_cell(TOTALS, &*self, revision).await?;
        }
        self.fresh = 0;
        Ok(())
    }
}

/// Reads the messages of a stream from one sequence to another, in order, several at once.
pub(super) struct Walk {
    stream: String,
    next: u64,
    last: u64,
    read: BTreeMap<u64, StreamMessage>,
}

impl Walk {
    pub(super) fn new(stream: String, first: u64, last: u64) -> Self {
        Self { stream, next: first, last, read: BTreeMap::new() }
    }

    /// Returns the next message. Sequences that have none are left out.
    pub(super) async fn next(&mut self, link: &Arc<Link>) -> Result<Option<StreamMessage>, Error> {
        loop {
            if let Some((_, message)) = self.read.pop_first() {
                return Ok(Some(message));
            }
            if self.next > self.last {
                return Ok(None);
            }
            let end = self.last.min(self.next.saturating_add(AT_ONCE - 1));
            let mut asked = JoinSet::new();
            for sequence in self.next..=end {
                let (link, stream) = (Arc::clone(link), self.stream.clone());
                asked.spawn(async move { link.get(&stream, sequence).await });
            }
            while let Some(answer) = asked.join_next().await {
                let answer = answer.map_err(|error| wrong("read from", error))?;
                if let Some(message) = answer? {
                    self.read.insert(message.sequence, message);
                }
            }
            self.next = end + 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::record::RangedDone;
    use super::*;

    #[test]
    fn sums_follow_from_the_transitions() {
        let done = Done { files: 2, bytes: 30, unchanged: 1, vanished: 1 };
        let settled = |next: Next| Record::Settled {
            round: 0,
            worker: "one".to_owned(),
            time_ms: 0,
            attempts: 1,
            body: None,
            done,
            next,
            ranges: 0,
            ranged: RangedDone { added: 10, removed: 5 },
            requests: Requests { put: 3, ..Requests::default() },
        };
        let requests = Requests { list: 2, put: 1, ..Requests::default() };
        let mut totals = Totals::default();
        for record in [
            Record::Taken { round: 0, worker: "one".to_owned(), nonce: 1, message: 1, losses: 0 },
            settled(Next::Again { attempts: 0, ready_ms: 0 }),
            settled(Next::Split { attempts: 1, losses: 0 }),
            settled(Next::Aside { reason: "it failed".to_owned() }),
            settled(Next::Done),
            Record::Reopened { round: 1, body: 5 },
            Record::Removed { names: 3 },
            Record::RangesEnded { indexes: [1].into() },
            Record::Requested { requests },
        ] {
            totals.add(&record);
        }
        let Totals { files, bytes, unchanged, vanished, removed, .. } = totals;
        assert_eq!((files, bytes, unchanged, vanished, removed), (8, 120, 4, 4, 3));
        assert_eq!((totals.split, totals.closed, totals.aside), (1, 1, 0));
        assert_eq!(totals.ranged, 20);
        assert_eq!(totals.requests, Requests { list: 2, put: 13, ..Requests::default() });
    }
}
