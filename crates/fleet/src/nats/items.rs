//! Items: taken with a lease, settled, split, set aside.
//!
//! The queue says who gets an item next, and until when. What became of an item, its log says, a
//! subject of one stream: each transition is added only if the log has not changed since it was
//! read. So a delivery may be late, repeated or too early: whoever gets one compares its round with
//! the log.
//!
//! A settlement is one message of the log. What follows from it, new items and the end of the old
//! delivery, is done afterwards. If the worker dies before, the old delivery is repeated, and
//! whoever gets it does what is left to do.

use std::collections::BTreeSet;
use std::slice;
use std::time::Duration;

use headroom_transfer::files::Requests;

use super::Inner;
use super::link::{Delivery, Held};
use super::listing::Sight;
use super::names::{stream_of, subject_of};
use super::record::{
    AsideValue, Done, Next, Ranged, RangedDone, Record, WorkHead, body, bounded, json, nonce, read,
    read_body, read_with_entries, with_entries,
};
use crate::engine::{
    Aside, Item, Lease, MAX_LOSSES, Outcome, Phase, SILENT, Settlement, State, pause_ms,
};
use crate::entry::Entry;
use crate::error::Error;
use crate::key::DirectoryKey;

/// The pause before an item that comes too early is delivered again.
const EARLY: Duration = Duration::from_millis(500);
/// The most that clocks of machines differ, in milliseconds: who shall wait longer does not.
const MAX_WAIT_MS: u64 = 60_000;
/// How many deliveries of one call may be of no use.
const MAX_USELESS: u32 = 64;

/// What is to be done with a delivery.
#[derive(Debug, PartialEq, Eq)]
enum Use {
    /// It is the item's turn. The log's last transition has this sequence, and so many workers lost
    /// the item in a row.
    Take { sequence: u64, losses: u32 },
    /// The item was settled so; what follows may be left to do.
    Follow(Box<Record>),
    /// It comes too early: what it follows from is not decided yet.
    Early,
    /// It comes too late.
    Late,
}

/// Compares a delivery with the log's last transition of its item. `message` is its sequence in the
/// queue.
fn use_of(head: &WorkHead, message: i64, last: Option<(u64, Record)>) -> Use {
    let Some((sequence, record)) = last else {
        return match head.round {
            0 => Use::Take { sequence: 0, losses: head.losses },
            _ => Use::Early,
        };
    };
    match record {
        // the queue has the item twice, and the other message is the lease: this one would end that
        Record::Taken { round, message: other, .. } if round == head.round && other != message => {
            Use::Late
        }
        Record::Taken { round, losses, .. } if round == head.round => {
            Use::Take { sequence, losses: losses.saturating_add(1) }
        }
        Record::Reopened { round, .. } if round == head.round => {
            Use::Take { sequence, losses: head.losses }
        }
        Record::Taken { round, .. } | Record::Reopened { round, .. } if round < head.round => {
            Use::Early
        }
        Record::Settled { round, .. } if round == head.round => Use::Follow(Box::new(record)),
        Record::Settled { round, next: Next::Again { .. } | Next::Split { .. }, .. }
            if round + 1 == head.round =>
        {
            Use::Take { sequence, losses: head.losses }
        }
        // its end, or that it was set aside, may have been undone since
        Record::Settled { round, .. } if round < head.round => Use::Early,
        _ => Use::Late,
    }
}

impl Inner {
    /// Takes the next item.
    pub(super) async fn take(&self, worker: &str, now_ms: u64) -> Result<Option<Item>, Error> {
        let (steering, _) = self.link.steering().await?;
        if State::from(steering.state) != State::Running {
            return Ok(None);
        }
        for _ in 0..MAX_USELESS {
            let next = self.link.next_item(self.rules.lease).await;
            let Some(delivery) = next else { return Ok(None) };
            let read = read_with_entries(&delivery.payload);
            let (head, entries): (WorkHead, Vec<Entry>) = self.link.whole(read, "work")?;
            let wait_ms = head.ready_ms.saturating_sub(now_ms);
            if (1..=MAX_WAIT_MS).contains(&wait_ms) {
                self.link.put_back(&delivery.reply, Duration::from_millis(wait_ms)).await;
                continue;
            }
            match self.use_of_delivery(&head, item_of(delivery.reply.as_str())).await? {
                Use::Early => {
                    self.link.put_back(&delivery.reply, EARLY).await;
                    return Ok(None);
                }
                Use::Late => self.link.acknowledge(&delivery.reply).await,
                Use::Follow(record) => {
                    self.follow(&head, entries.first(), &record).await?;
                    self.link.acknowledge(&delivery.reply).await;
                }
                Use::Take { sequence, losses } => {
                    let taken = self.try_take(worker, delivery, head, entries, sequence, losses);
                    if let Some(item) = taken.await? {
                        return Ok(Some(item));
                    }
                }
            }
        }
        Ok(None)
    }

    async fn use_of_delivery(&self, head: &WorkHead, message: i64) -> Result<Use, Error> {
        if let Some(staged) = head.staged {
            match self.sight_of(staged).await? {
                Sight::Seen => {}
                Sight::Unseen => return Ok(Use::Early),
                Sight::Discarded => return Ok(Use::Late),
            }
        }
        if let Some(finish) = head.finish_round() {
            let (steering, _) = self.link.steering().await?;
            if finish > steering.finish_round {
                return Ok(Use::Early);
            }
        }
        Ok(use_of(head, message, self.last_of(&head.id).await?))
    }

    /// Returns the last transition of an item, and its sequence.
    async fn last_of(&self, id: &str) -> Result<Option<(u64, Record)>, Error> {
        let names = &self.link.names;
        let last = self.link.last(&names.log(), &names.log_subject(id)).await?;
        let Some(last) = last else { return Ok(None) };
        Ok(Some((last.sequence, self.link.whole(read(&last.payload), "log")?)))
    }

    /// Adds a transition of an item whose last one has this sequence; returns its own, or nothing
    /// if there is another one by now.
    async fn decide(&self, id: &str, sequence: u64, record: &Record) -> Result<Option<u64>, Error> {
        let names = &self.link.names;
        let (log, subject) = (names.log(), names.log_subject(id));
        self.link.append(&log, &subject, sequence, json(record)).await
    }

    /// Takes a delivered item, unless somebody was faster or it has ended too many workers.
    async fn try_take(
        &self,
        worker: &str,
        delivery: Delivery,
        head: WorkHead,
        entries: Vec<Entry>,
        sequence: u64,
        losses: u32,
    ) -> Result<Option<Item>, Error> {
        if losses >= MAX_LOSSES {
            let next = match entries.len() {
                // the file's own item copies what it has left
                0 | 1 if head.range().is_some() => Next::Done,
                0 | 1 => Next::Aside { reason: SILENT.to_owned() },
                // each half is tried once, and split again if it ends that worker, too
                _ => Next::Split { attempts: head.attempts, losses: MAX_LOSSES - 1 },
            };
            let body = self.keep_body(&body(&[], &entries)).await?;
            let record = Record::Settled {
                round: head.round,
                worker: worker.to_owned(),
                time_ms: 0,
                attempts: head.attempts,
                body: Some(body),
                done: Done::default(),
                ranges: 0,
                ranged: ranged_done(&head, &next),
                requests: Requests::default(),
                next,
            };
            if self.decide(&head.id, sequence, &record).await?.is_some() {
                self.follow(&head, entries.first(), &record).await?;
                self.link.acknowledge(&delivery.reply).await;
            }
            return Ok(None);
        }
        let message = item_of(delivery.reply.as_str());
        let record = Record::Taken {
            round: head.round,
            worker: worker.to_owned(),
            nonce: nonce(),
            message,
            losses,
        };
        let Some(taken) = self.decide(&head.id, sequence, &record).await? else {
            // somebody was faster. It is not put back: servers know a message, not its deliveries,
            // and would end the lease of whoever has it
            return Ok(None);
        };
        let lease = Lease { item: message, take: int(taken) };
        let step = head.step();
        // half of an item that was split has no transition of its own
        let was_taken = sequence > 0 || head.attempts > 0 || losses > 0;
        let file = head.ranged.and(entries.first()).cloned();
        let held = Held { head, worker: worker.to_owned(), reply: delivery.reply, file };
        self.announce(worker, Some(&held), 0).await?;
        self.link.held().insert((lease.item, lease.take), held);
        Ok(Some(Item { lease, step, was_taken, entries }))
    }

    /// Whether a lease still holds: the log's last transition is the taking.
    pub(super) async fn holds(&self, lease: Lease, held: &Held) -> Result<bool, Error> {
        let names = &self.link.names;
        let last = self.link.last(&names.log(), &names.log_subject(&held.head.id)).await?;
        Ok(last.is_some_and(|last| int(last.sequence) == lease.take))
    }

    /// Records what became of an item, if the lease still holds.
    pub(super) async fn settle(
        &self,
        lease: Lease,
        settlement: &Settlement,
        now_ms: u64,
    ) -> Result<bool, Error> {
        let key = (lease.item, lease.take);
        let held = self.link.held().get(&key).cloned();
        let Some(held) = held else { return Ok(false) };
        let Held { head, worker, reply, file } = &held;
        let Settlement { copied, left, vanished, outcome, requests } = settlement;
        let tried = head.attempts.saturating_add(1);
        let next = match (outcome, left.len()) {
            (_, 0) => Next::Done,
            // it was no attempt
            (Outcome::Interrupted, _) => Next::Again { attempts: head.attempts, ready_ms: 0 },
            // the file's own item copies what it has left
            (Outcome::Failed(_), 1) if tried >= self.rules.attempts && head.range().is_some() => {
                Next::Done
            }
            (Outcome::Failed(reason), 1) if tried >= self.rules.attempts => {
                Next::Aside { reason: bounded(reason) }
            }
            (Outcome::Failed(_), 1) => {
                let ready_ms = now_ms.saturating_add(pause_ms(tried));
                Next::Again { attempts: tried, ready_ms }
            }
            // nobody knows which one is to blame
            (Outcome::Failed(_), _) => Next::Split { attempts: tried, losses: 0 },
        };
        let body = match copied.is_empty() && left.is_empty() {
            true => None,
            false => Some(self.keep_body(&body(copied, left)).await?),
        };
        let record = Record::Settled {
            round: head.round,
            worker: worker.clone(),
            time_ms: now_ms,
            attempts: tried,
            body,
            done: Done::of(copied, *vanished),
            ranges: match head.range() {
                None => head.ranged.map_or(0, |ranged| ranged.ranges),
                Some(_) => 0,
            },
            ranged: ranged_done(head, &next),
            requests: *requests,
            next,
        };
        let decided = self.decide(&head.id, int_back(lease.take), &record).await?;
        if decided.is_some() {
            self.follow(head, file.as_ref(), &record).await?;
            self.link.acknowledge(reply).await;
        }
        self.link.held().remove(&key);
        self.announce(worker, None, 0).await?;
        Ok(decided.is_some())
    }

    /// Keeps what was copied and is left; returns where. Nobody reads it unless a transition says
    /// so.
    pub(super) async fn keep_body(&self, body: &[u8]) -> Result<u64, Error> {
        let subject = self.link.names.receipts_subject();
        self.link.publish(&subject, None, body.to_vec()).await
    }

    /// Does what follows from a settlement of an item, whose first entry this is if it is of a file
    /// that has ranges. It may have been done before.
    async fn follow(
        &self,
        head: &WorkHead,
        first: Option<&Entry>,
        record: &Record,
    ) -> Result<(), Error> {
        let Record::Settled { round, body, next, .. } = record else { return Ok(()) };
        if let (Next::Done, Some(index), Some(file)) = (next, head.range(), first) {
            return self.end_range(index, file).await;
        }
        let Some(body) = *body else { return Ok(()) };
        let round = *round;
        match next {
            Next::Done => {}
            Next::Again { attempts, ready_ms } => {
                let left = self.left_of(body).await?;
                let again = WorkHead {
                    id: head.id.clone(),
                    round: round + 1,
                    attempts: *attempts,
                    losses: 0,
                    ready_ms: *ready_ms,
                    staged: None,
                    ranged: head.ranged,
                };
                self.queue(&again, &left).await?;
            }
            Next::Split { attempts, losses } => {
                let left = self.left_of(body).await?;
                let (one, other) = left.split_at(left.len() / 2);
                let half = |id: String, round: u64| WorkHead {
                    round,
                    attempts: *attempts,
                    losses: *losses,
                    ..WorkHead::new(id)
                };
                self.queue(&half(head.id.clone(), round + 1), one).await?;
                if let Some(first) = other.first() {
                    self.queue(&half(head.sibling(first.number), 0), other).await?;
                }
            }
            Next::Aside { reason } => {
                let left = self.left_of(body).await?;
                let path = match left.as_slice() {
                    [entry] => Some(entry.path.as_bytes().to_vec()),
                    _ => None,
                };
                let (id, reason) = (head.id.clone(), reason.clone());
                let value = AsideValue::Item { id: id.clone(), round, body, path, reason };
                self.put_aside(&format!("i.{id}"), &value).await?;
            }
        }
        Ok(())
    }

    /// Notes that a range of a file has ended. When all of them have, the file is an item.
    async fn end_range(&self, index: u32, file: &Entry) -> Result<(), Error> {
        let id = format!("g.{}", file.number);
        loop {
            let (sequence, mut indexes) = match self.last_of(&id).await? {
                None => (0, BTreeSet::new()),
                Some((sequence, Record::RangesEnded { indexes })) => (sequence, indexes),
                Some(_) => return self.link.whole(Err(crate::entry::Damaged), "log"),
            };
            let is_new = indexes.insert(index);
            let is_last = indexes.len() as u64 == u64::from(file.ranges());
            let record = Record::RangesEnded { indexes };
            if is_new && self.decide(&id, sequence, &record).await?.is_none() {
                // another range was faster
                continue;
            }
            if is_last {
                let entries = slice::from_ref(file);
                let ranged = Ranged::of(entries);
                let head = WorkHead { ranged, ..WorkHead::new(format!("c.{}", file.number)) };
                self.queue(&head, entries).await?;
            }
            return Ok(());
        }
    }

    /// Puts an item into the queue.
    pub(super) async fn queue(&self, head: &WorkHead, entries: &[Entry]) -> Result<(), Error> {
        let subject = self.link.names.work_subject();
        let id = match head.staged {
            Some((epoch, number)) => format!("s.{epoch}.{number}"),
            None => format!("{}.{}", head.id, head.round),
        };
        self.link.publish(&subject, Some(&id), with_entries(head, entries)).await?;
        Ok(())
    }

    pub(super) async fn put_aside(&self, key: &str, value: &AsideValue) -> Result<(), Error> {
        let subject = subject_of(&self.link.names.aside(), key);
        self.link.publish(&subject, None, json(value)).await?;
        Ok(())
    }

    /// Returns what a settlement has left.
    async fn left_of(&self, body: u64) -> Result<Vec<Entry>, Error> {
        let message = self.link.get(&self.link.names.receipts(), body).await?;
        let read = message.map_or(Err(crate::entry::Damaged), |body| read_body(&body.payload));
        Ok(self.link.whole(read, "receipts")?.1)
    }

    /// Passes what was set aside to `each`, which returns whether to continue.
    async fn each_aside(
        &self,
        mut each: impl FnMut(String, AsideValue) -> bool,
    ) -> Result<(), Error> {
        let bucket = self.link.names.aside();
        let (stream, all) = (stream_of(&bucket), subject_of(&bucket, ">"));
        let mut from = 1;
        while let Some(message) = self.link.next_of(&stream, &all, from).await? {
            from = message.sequence + 1;
            let value = self.link.whole(read(&message.payload), "aside")?;
            if !each(message.subject.to_string(), value) {
                break;
            }
        }
        Ok(())
    }

    /// Returns what was set aside.
    pub(super) async fn aside(&self, most: usize) -> Result<Vec<Aside>, Error> {
        let (progress, _) = self.link.progress().await?;
        let is_now = |staged| progress.is_seen(staged) && staged > progress.retried;
        let mut found = Vec::new();
        let mut damaged = false;
        self.each_aside(|_, value| {
            let aside = match value {
                AsideValue::Item { path, reason, .. } => {
                    let path = path.map(|path| headroom_transfer::path::RelPath::parse(&path));
                    Some((path.transpose().map_err(drop), reason))
                }
                AsideValue::Directory { staged, key, reason } if is_now(staged) => {
                    let key = DirectoryKey::from_bytes(key).ok_or(());
                    Some((key.map(|key| key.path()), reason))
                }
                AsideValue::Problem { staged, reason } if progress.is_seen(staged) => {
                    Some((Ok(None), reason))
                }
                AsideValue::Directory { .. } | AsideValue::Problem { .. } => None,
            };
            match aside {
                Some((Ok(path), reason)) => found.push(Aside { path, reason }),
                Some((Err(()), _)) => damaged = true,
                None => {}
            }
            found.len() < most
        })
        .await?;
        match damaged {
            true => self.link.whole(Err(crate::entry::Damaged), "aside"),
            false => Ok(found),
        }
    }

    /// Puts what was set aside back into the queue. What cannot be copied at all stays.
    pub(super) async fn retry_aside(&self) -> Result<(), Error> {
        let (progress, _) = self.link.progress().await?;
        let mut found = Vec::new();
        self.each_aside(|subject, value| {
            let is_again = match &value {
                AsideValue::Item { .. } => true,
                AsideValue::Directory { staged, .. } => {
                    progress.is_seen(*staged) && *staged > progress.retried
                }
                AsideValue::Problem { .. } => false,
            };
            if is_again {
                found.push((subject, value));
            }
            true
        })
        .await?;
        if found.is_empty() {
            return Ok(());
        }
        // before anything is tried again: workers would end otherwise
        self.link.steer(|steering| steering.phase = Phase::Copying.into()).await?;
        let mut directories = Vec::new();
        let mut subjects = Vec::new();
        for (subject, value) in found {
            match value {
                AsideValue::Item { id, round, body, .. } => {
                    self.reopen(&id, round, body).await?;
                }
                AsideValue::Directory { key, .. } => {
                    let key = DirectoryKey::from_bytes(key).ok_or(crate::entry::Damaged);
                    directories.push(self.link.whole(key, "aside")?);
                }
                AsideValue::Problem { .. } => {}
            }
            subjects.push(subject);
        }
        if !directories.is_empty() {
            self.list_again(directories).await?;
        }
        let stream = stream_of(&self.link.names.aside());
        for subject in subjects {
            self.link.forget(&stream, &subject).await;
        }
        Ok(())
    }

    async fn reopen(&self, id: &str, round: u64, body: u64) -> Result<(), Error> {
        let reopened = Record::Reopened { round: round + 1, body };
        let is_open = match self.last_of(id).await? {
            Some((sequence, Record::Settled { round: last, next: Next::Aside { .. }, .. }))
                if last == round =>
            {
                self.decide(id, sequence, &reopened).await?.is_some()
            }
            // a run that was killed may not have come further
            Some((_, last)) => last == reopened,
            None => false,
        };
        if is_open {
            let left = self.left_of(body).await?;
            let ranged = Ranged::of(&left);
            let head = WorkHead { round: round + 1, ranged, ..WorkHead::new(id.to_owned()) };
            self.queue(&head, &left).await?;
        }
        Ok(())
    }
}

/// Returns how the bytes of ranges change by a settlement of an item.
fn ranged_done(head: &WorkHead, next: &Next) -> RangedDone {
    match next {
        Next::Done => head.ranged_done(),
        Next::Again { .. } | Next::Split { .. } | Next::Aside { .. } => RangedDone::default(),
    }
}

/// Returns the sequence of a delivered item from where it is acknowledged:
/// `$JS.ACK.STREAM.CONSUMER.DELIVERED.SEQUENCE.…`, or with a domain and an account before the
/// stream.
fn item_of(reply: &str) -> i64 {
    let words: Vec<_> = reply.split('.').collect();
    let at = if words.len() >= 11 { 7 } else { 5 };
    words.get(at).and_then(|word| word.parse().ok()).unwrap_or(0)
}

/// Converts a sequence for a lease.
fn int(sequence: u64) -> i64 {
    i64::try_from(sequence).unwrap_or(i64::MAX)
}

fn int_back(take: i64) -> u64 {
    u64::try_from(take).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(round: u64) -> WorkHead {
        let id = "c.1".to_owned();
        WorkHead { round, losses: 3, ..WorkHead::new(id) }
    }

    fn taken(round: u64) -> Record {
        Record::Taken { round, worker: "one".to_owned(), nonce: 1, message: 7, losses: 1 }
    }

    fn settled(round: u64, next: Next) -> Record {
        Record::Settled {
            round,
            worker: "one".to_owned(),
            time_ms: 0,
            attempts: 1,
            body: None,
            done: Done::default(),
            next,
            ranges: 0,
            ranged: RangedDone::default(),
            requests: Requests::default(),
        }
    }

    #[test]
    fn a_delivery_counts_only_if_it_is_its_turn() {
        let again = || Next::Again { attempts: 1, ready_ms: 0 };
        let aside = || Next::Aside { reason: String::new() };
        let reopened = |round| Record::Reopened { round, body: 1 };
        let take = |losses| Use::Take { sequence: 9, losses };
        for (round, last, expected) in [
            (1, taken(1), take(2)),
            (0, taken(1), Use::Late),
            (2, taken(1), Use::Early),
            (1, settled(1, again()), Use::Follow(Box::new(settled(1, again())))),
            (2, settled(1, again()), take(3)),
            (3, settled(1, again()), Use::Early),
            (0, settled(1, again()), Use::Late),
            (1, settled(1, Next::Done), Use::Follow(Box::new(settled(1, Next::Done)))),
            (2, settled(1, aside()), Use::Early),
            (2, reopened(2), take(3)),
            (1, reopened(2), Use::Late),
            (3, reopened(2), Use::Early),
        ] {
            let found = use_of(&head(round), 7, Some((9, last.clone())));
            assert_eq!(found, expected, "round {round} after {last:?}");
        }
        assert_eq!(use_of(&head(0), 7, None), Use::Take { sequence: 0, losses: 3 });
        assert_eq!(use_of(&head(1), 7, None), Use::Early);
        // a second message of the same item does not end the lease of the first
        assert_eq!(use_of(&head(1), 8, Some((9, taken(1)))), Use::Late);
    }

    #[test]
    fn an_item_is_numbered_by_its_delivery() {
        let short = "$JS.ACK.headroom-a-work.workers.2.77.99.1700000000000000000.0";
        assert_eq!(item_of(short), 77);
        let long = "$JS.ACK._.hash.headroom-a-work.workers.2.77.99.1700000000000000000.0.token";
        assert_eq!(item_of(long), 77);
        assert_eq!(item_of("nonsense"), 0);
    }
}
