//! Workers: that they live, what they are to do, and what they leave.

use std::time::{Duration, Instant};

use headroom_mutex::lock;

use super::Inner;
use super::link::Held;
use super::names::{stream_of, subject_of};
use super::record::{WorkerValue, json, read};
use crate::engine::{Lease, Orders, Phase, State, WorkerReport};
use crate::error::Error;
use crate::process::machine;
use crate::share::Division;

/// How long a worker counts as live that was not heard of.
pub(super) const LIVE: Duration = Duration::from_secs(10);
/// How often a worker says that it lives.
const ANNOUNCE: Duration = Duration::from_secs(2);

/// What a worker has said last: its name, where its item is acknowledged, if it has one, and when.
pub(super) type Said = Option<(String, Option<String>, Instant)>;

impl Inner {
    /// Notes that a worker lives, extends its lease, and says what it is to do.
    pub(super) async fn beat(
        &self,
        worker: &str,
        lease: Option<Lease>,
        in_flight: u64,
    ) -> Result<Orders, Error> {
        let key = lease.map(|lease| (lease.item, lease.take));
        let held = key.and_then(|key| self.link.held().get(&key).cloned());
        let holds_lease = match (lease, &held) {
            (Some(lease), Some(held)) => {
                self.link.extend(&held.reply).await;
                self.holds(lease, held).await?
            }
            // it was settled meanwhile
            (Some(_), None) => false,
            (None, _) => true,
        };
        if self.is_due(worker, held.as_ref()) {
            self.announce(worker, held.as_ref(), in_flight).await?;
        }
        let (steering, _) = self.link.steering().await?;
        let state = State::from(steering.state);
        let division = match steering.rate_bps {
            Some(rate_bps) => {
                let workers = self.sharers(lease.is_some()).await?;
                Some(Division { rate_bps, workers })
            }
            None => None,
        };
        let is_done = Phase::from(steering.phase) == Phase::Done || state == State::Cancelled;
        Ok(Orders { state, is_done, division, holds_lease })
    }

    /// Returns how many workers share the limit: all that live, for one without an item. For one
    /// with an item, those that have one, or more: who has which, each worker's value says, and
    /// the queue says in one answer how many it has given.
    async fn sharers(&self, has_item: bool) -> Result<u64, Error> {
        let bucket = stream_of(&self.link.names.workers());
        let (_, live) = self.link.extent(&bucket).await?;
        if !has_item {
            return Ok(live);
        }
        Ok(self.link.unacknowledged().await?.min(live))
    }

    fn is_due(&self, worker: &str, held: Option<&Held>) -> bool {
        let said = lock(&self.said);
        let reply = held.map(|held| held.reply.as_str());
        said.as_ref().is_none_or(|(name, said, at)| {
            name != worker || said.as_deref() != reply || at.elapsed() >= ANNOUNCE
        })
    }

    /// Says that a worker lives, and what it has.
    pub(super) async fn announce(
        &self,
        worker: &str,
        held: Option<&Held>,
        in_flight: u64,
    ) -> Result<(), Error> {
        let reply = held.map(|held| held.reply.to_string());
        let (name, machine) = (worker.to_owned(), machine());
        let value = WorkerValue { name, machine, in_flight, reply: reply.clone() };
        let subject = subject_of(&self.link.names.workers(), &key_of(worker));
        self.link.publish(&subject, None, json(&value)).await?;
        let said = Some((worker.to_owned(), reply, Instant::now()));
        *lock(&self.said) = said;
        Ok(())
    }

    /// Notes that a worker has ended; its item is delivered again at once.
    pub(super) async fn leave(&self, worker: &str) -> Result<(), Error> {
        let bucket = self.link.names.workers();
        let (stream, subject) = (stream_of(&bucket), subject_of(&bucket, &key_of(worker)));
        if let Some(message) = self.link.last(&stream, &subject).await? {
            let value: WorkerValue = self.link.whole(read(&message.payload), "workers")?;
            if let Some(reply) = value.reply {
                self.link.put_back(&reply.into(), Duration::ZERO).await;
            }
        }
        self.link.forget(&stream, &subject).await;
        Ok(())
    }

    /// Returns the workers that live, or lived seconds ago.
    pub(super) async fn workers(&self) -> Result<Vec<WorkerValue>, Error> {
        Ok(self.heard().await?.into_iter().map(|(worker, _)| worker).collect())
    }

    /// Returns what each of them has reported last.
    pub(super) async fn reports(&self) -> Result<Vec<WorkerReport>, Error> {
        let report = |(worker, heard_ms): (WorkerValue, u64)| WorkerReport {
            name: worker.name,
            heard_ms,
            has_item: worker.reply.is_some(),
            in_flight: worker.in_flight,
        };
        let mut reports: Vec<_> = self.heard().await?.into_iter().map(report).collect();
        reports.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(reports)
    }

    /// Returns them, and when each was heard, in milliseconds since 1970 by the servers' clocks.
    async fn heard(&self) -> Result<Vec<(WorkerValue, u64)>, Error> {
        let bucket = self.link.names.workers();
        let (stream, all) = (stream_of(&bucket), subject_of(&bucket, ">"));
        let (mut workers, mut from) = (Vec::new(), 1);
        while let Some(message) = self.link.next_of(&stream, &all, from).await? {
            from = message.sequence + 1;
            let heard_ms = message.time.unix_timestamp_nanos() / 1_000_000;
            let heard_ms = u64::try_from(heard_ms).unwrap_or(0);
            workers.push((self.link.whole(read(&message.payload), "workers")?, heard_ms));
        }
        Ok(workers)
    }
}

/// Returns the key of a worker: its name, whose dots would separate words.
fn key_of(worker: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-';
    worker.chars().map(|c| if is_plain(c) { c } else { '_' }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_has_a_key_of_one_word() {
        assert_eq!(key_of("build1.example.org.4711"), "build1_example_org_4711");
        assert_eq!(key_of("ä *>.1"), "_____1");
    }
}
