//! The engine for many machines: NATS JetStream, whose cluster keeps everything.
//!
//! A work-queue stream has the items, and gives each to one worker at a time: the time for its
//! acknowledgement is the lease, and a worker that lives extends it. What was decided about each
//! item is in a log, another stream, in which a transition is added only behind the one that it
//! follows from. Receipts and what is left of an item are in a third stream, directories in a
//! fourth. Values that steer the job are in buckets, and change by compare-and-set. So no two
//! writers need a lock, and whatever a crash repeats is seen to have been done.
//!
//! No clock is compared but for pauses before something that failed is tried again. Leases end by
//! the servers' clocks.

mod cells;
mod items;
mod link;
mod listing;
mod lock;
mod names;
mod receipts;
mod record;
mod setup;
#[cfg(test)]
mod tests;
mod totals;
mod workers;

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use headroom_transfer::files::Requests;
use tokio::sync::Mutex as AsyncMutex;

use self::cells::CONTROL;
use self::link::{Link, Patience, check_lock, wrong};
use self::listing::{Listing, Noted, Pages};
pub use self::lock::NatsLock;
use self::names::Names;
use self::record::{PhaseName, Progress, Steering};
use self::totals::{Totals, Walk};
use self::workers::Said;
use crate::engine::{
    Aside, Checkpoint, Control, CopiedFile, Counts, Engine, Item, Lease, Orders, Phase, Receipt,
    Settlement, State, WorkerReport,
};
use crate::entry::Entry;
use crate::error::Error;
use crate::job::{Batch, Job, NatsServers};
use crate::key::DirectoryKey;
use crate::process::machine;
use crate::stop::Stop;

/// How long a run waits for its first connection.
const FIRST: Duration = Duration::from_secs(30);
/// How long a command waits for NATS.
const COMMAND: Duration = Duration::from_secs(15);
/// How old the figures of workers may be.
const FIGURES: Duration = Duration::from_secs(1);

/// A job whose queue is at NATS, and a connection that all its handles share.
#[derive(Debug)]
pub struct NatsJob {
    link: Arc<Link>,
    job: Job,
    servers: NatsServers,
}

impl NatsJob {
    /// Connects for a run, within 30 s. Once connected, it waits for servers that are lost until
    /// the end is requested.
    ///
    /// # Errors
    /// The job has no NATS servers, none of them can be reached, or they refuse the credentials.
    pub fn connect(job: &Job, stop: &Stop) -> Result<Self, Error> {
        Self::connected(job, Patience::Until { stop: stop.clone(), first: Some(FIRST) })
    }

    /// Connects for a worker, which may be started while no server can be reached: it waits for the
    /// first, too, until the end is requested.
    ///
    /// # Errors
    /// The job has no NATS servers, or they refuse the credentials.
    pub fn connect_patiently(job: &Job, stop: &Stop) -> Result<Self, Error> {
        Self::connected(job, Patience::Until { stop: stop.clone(), first: None })
    }

    /// Connects for a command that ends at once: it waits for servers no longer than 15 s.
    ///
    /// # Errors
    /// As those of [`Self::connect`].
    pub fn connect_briefly(job: &Job) -> Result<Self, Error> {
        Self::connected(job, Patience::For(COMMAND))
    }

    fn connected(job: &Job, patience: Patience) -> Result<Self, Error> {
        let Some(servers) = job.nats.clone() else {
            return Err(wrong("connect to", "the job file has no table [nats]"));
        };
        let link = Link::connect(&servers, Names::of(&job.name), patience)?;
        link.check_payload()?;
        Ok(Self { link, job: job.clone(), servers })
    }

    /// Returns the job, as its file describes it.
    #[must_use]
    pub const fn job(&self) -> &Job {
        &self.job
    }

    /// Keeps other runs out.
    ///
    /// # Errors
    /// Another run has the job ([`Error::Busy`]), or NATS refuses.
    pub fn lock(&self) -> Result<NatsLock, Error> {
        let (link, servers) = (Arc::clone(&self.link), self.servers.clone());
        self.link.wait(async move { link.make_state(&servers).await })?;
        NatsLock::take(&self.link)
    }

    /// Opens the state of the job, or makes it. What has changed in the job file applies from now
    /// on.
    ///
    /// # Errors
    /// It is that of another job, or NATS refuses.
    pub fn begin(&self, _lock: &NatsLock, file: &Path) -> Result<Nats, Error> {
        let (link, job, servers) = (Arc::clone(&self.link), self.job.clone(), self.servers.clone());
        let stored = self.link.wait(async move {
            let stored = link.stored_job().await?;
            if stored.is_none() {
                link.make(&job, &servers).await?;
            }
            Ok(stored)
        })?;
        if let Some(stored) = stored.filter(|stored| *stored != self.job) {
            if let Some((setting, there, here)) = self.job.difference(&stored) {
                let folder = format!("NATS at {}", self.link.servers).into();
                let job = file.to_owned();
                return Err(Error::OtherJob { folder, job, setting, there, here });
            }
            let (link, job) = (Arc::clone(&self.link), self.job.clone());
            self.link.wait(async move { change_job(&link, &stored, &job).await })?;
        }
        self.open()
    }

    /// Removes the state, so that the job starts again.
    ///
    /// # Errors
    /// NATS refuses.
    pub fn clear(&self, _lock: &NatsLock) -> Result<(), Error> {
        let link = Arc::clone(&self.link);
        self.link.wait(async move { link.remove().await })
    }

    /// Opens the state of the job, which was begun.
    ///
    /// # Errors
    /// There is none ([`Error::NoJob`]), or it is that of another job.
    pub fn open(&self) -> Result<Nats, Error> {
        let link = Arc::clone(&self.link);
        let stored = self.link.wait(async move { link.stored_job().await })?;
        let Some(stored) = stored else { return Err(self.link.no_job()) };
        if let Some((setting, there, here)) = self.job.difference_elsewhere(&stored) {
            let folder = format!("NATS at {}", self.link.servers).into();
            let job = format!("{}.toml", self.job.name).into();
            return Err(Error::OtherJob { folder, job, setting, there, here });
        }
        Ok(Nats { inner: Arc::new(Inner::new(Arc::clone(&self.link), Rules::of(&stored))) })
    }
}

/// Replaces the job. A rate that the user has set since stays, unless the job file has another one
/// than before.
async fn change_job(link: &Link, before: &Job, job: &Job) -> Result<(), Error> {
    link.replace_job(job).await?;
    link.steer(|steering| {
        if job.rate_bps != before.rate_bps {
            steering.rate_bps = job.rate_bps;
        }
        steering.phase = match (before.delete, job.delete, steering.phase) {
            (true, false, PhaseName::Deleting) => PhaseName::Done,
            // the delete pass is left to do, if nothing was set aside
            (false, true, PhaseName::Done) => PhaseName::Finishing,
            (_, _, phase) => phase,
        };
    })
    .await?;
    Ok(())
}

/// What transitions depend on.
#[derive(Debug, Clone, Copy)]
struct Rules {
    attempts: u32,
    batch: Batch,
    delete: bool,
    lease: Duration,
}

impl Rules {
    const fn of(job: &Job) -> Self {
        let Job { attempts, batch, delete, lease, .. } = *job;
        Self { attempts, batch, delete, lease }
    }
}

/// A handle of the engine for many machines.
#[derive(Debug)]
pub struct Nats {
    inner: Arc<Inner>,
}

/// What a handle has, for the connection's own thread.
#[derive(Debug)]
struct Inner {
    link: Arc<Link>,
    rules: Rules,
    /// How far the listing was known to be.
    known: Mutex<Progress>,
    pages: Mutex<Pages>,
    said: Mutex<Said>,
    listing: AsyncMutex<Listing>,
    totals: AsyncMutex<Totals>,
    figures: Mutex<Option<(Instant, Figures)>>,
}

/// The figures of workers.
#[derive(Debug, Clone, Copy)]
struct Figures {
    workers: u64,
    leased: u64,
    in_flight: u64,
}

impl Inner {
    fn new(link: Arc<Link>, rules: Rules) -> Self {
        Self {
            link,
            rules,
            known: Mutex::default(),
            pages: Mutex::default(),
            said: Mutex::default(),
            listing: AsyncMutex::default(),
            totals: AsyncMutex::default(),
            figures: Mutex::default(),
        }
    }

    async fn totals(&self) -> Result<Totals, Error> {
        let mut totals = self.totals.lock().await;
        totals.refresh(&self.link).await?;
        Ok(totals.clone())
    }

    async fn advance(&self) -> Result<Phase, Error> {
        check_lock(&self.link)?;
        let (steering, revision) = self.link.steering().await?;
        let phase = Phase::from(steering.phase);
        if matches!(phase, Phase::Deleting | Phase::Done) {
            return Ok(phase);
        }
        let (progress, _) = self.link.progress().await?;
        if !progress.is_listed {
            return Ok(phase);
        }
        let totals = self.totals().await?;
        if open_items(&progress, &steering, &totals) > 0 {
            return Ok(phase);
        }
        let mut next = steering;
        if phase == Phase::Copying {
            // these come too early until the phase begins
            next.finish_round += 1;
            next.finish_items += self.queue_directories(next.finish_round).await?;
            next.phase = PhaseName::Finishing;
        } else {
            let has_aside = totals.aside + progress.failed + progress.problems > 0;
            let may_delete = self.rules.delete && !has_aside;
            next.phase = if may_delete { PhaseName::Deleting } else { PhaseName::Done };
        }
        let set = self.link.set_cell(CONTROL, &next, revision).await?;
        Ok(if set.is_some() { next.phase.into() } else { phase })
    }

    async fn counts(&self) -> Result<Counts, Error> {
        let (progress, _) = self.link.progress().await?;
        let (steering, _) = self.link.steering().await?;
        let totals = self.totals().await?;
        let Figures { workers, leased, in_flight } = self.figures().await?;
        Ok(Counts {
            is_listed: progress.is_listed,
            found_files: progress.files,
            found_bytes: progress.bytes,
            copied_files: totals.files,
            copied_bytes: totals.bytes,
            unchanged_files: totals.unchanged,
            left_out: progress.left_out,
            vanished: totals.vanished,
            removed: totals.removed,
            queued: open_items(&progress, &steering, &totals).saturating_sub(leased),
            leased,
            aside: totals.aside + progress.failed + progress.problems,
            workers,
            in_flight: in_flight.saturating_add(totals.ranged),
            requests: totals.requests,
        })
    }

    async fn figures(&self) -> Result<Figures, Error> {
        let known = *headroom_mutex::lock(&self.figures);
        if let Some((at, figures)) = known
            && at.elapsed() < FIGURES
        {
            return Ok(figures);
        }
        let mut figures = Figures { workers: 0, leased: 0, in_flight: 0 };
        for worker in self.workers().await? {
            figures.workers += 1;
            figures.leased += u64::from(worker.reply.is_some());
            figures.in_flight = figures.in_flight.saturating_add(worker.in_flight);
        }
        let known = Some((Instant::now(), figures));
        *headroom_mutex::lock(&self.figures) = known;
        Ok(figures)
    }
}

/// Returns how many items are neither done nor set aside.
fn open_items(progress: &Progress, steering: &Steering, totals: &Totals) -> u64 {
    let made = progress.items + steering.finish_items + totals.split;
    made.saturating_sub(totals.closed + totals.aside)
}

impl Nats {
    /// Lets the connection's own thread do something, and waits for it.
    fn wait<T, F>(&self, work: impl FnOnce(Arc<Inner>) -> F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Error>> + Send + 'static,
    {
        self.inner.link.wait(work(Arc::clone(&self.inner)))
    }
}

impl Engine for Nats {
    fn control(&mut self) -> Result<Control, Error> {
        self.wait(|inner| async move { Ok(Control::from(&inner.link.steering().await?.0)) })
    }

    fn set_state(&mut self, state: State) -> Result<Control, Error> {
        self.wait(move |inner| async move {
            let steering = inner.link.steer(|steering| {
                if State::from(steering.state) != State::Cancelled {
                    steering.state = state.into();
                }
            });
            Ok(Control::from(&steering.await?))
        })
    }

    fn set_rate(&mut self, rate_bps: Option<u64>) -> Result<(), Error> {
        self.wait(move |inner| async move {
            inner.link.steer(|steering| steering.rate_bps = rate_bps).await?;
            Ok(())
        })
    }

    fn beat(
        &mut self,
        worker: &str,
        lease: Option<Lease>,
        in_flight: u64,
        _now_ms: u64,
    ) -> Result<Orders, Error> {
        let worker = worker.to_owned();
        self.wait(move |inner| async move { inner.beat(&worker, lease, in_flight).await })
    }

    fn leave(&mut self, worker: &str, _now_ms: u64) -> Result<(), Error> {
        let worker = worker.to_owned();
        self.wait(move |inner| async move { inner.leave(&worker).await })
    }

    fn holders(&mut self) -> Result<Vec<String>, Error> {
        self.wait(|inner| async move {
            let (mut workers, machine) = (inner.workers().await?, machine());
            workers.retain(|worker| worker.machine == machine);
            Ok(workers.into_iter().map(|worker| worker.name).collect())
        })
    }

    fn take(&mut self, worker: &str, now_ms: u64) -> Result<Option<Item>, Error> {
        let worker = worker.to_owned();
        self.wait(move |inner| async move { inner.take(&worker, now_ms).await })
    }

    fn settle(
        &mut self,
        lease: Lease,
        settlement: &Settlement,
        now_ms: u64,
    ) -> Result<bool, Error> {
        let settlement = settlement.clone();
        self.wait(move |inner| async move { inner.settle(lease, &settlement, now_ms).await })
    }

    fn add_requests(&mut self, requests: &Requests) -> Result<(), Error> {
        let requests = *requests;
        self.wait(move |inner| async move { inner.add_requests(requests).await })
    }

    fn advance(&mut self) -> Result<Phase, Error> {
        self.wait(|inner| async move { inner.advance().await })
    }

    fn record_delete_pass(
        &mut self,
        copied: &[CopiedFile],
        removed: u64,
        is_complete: bool,
        worker: &str,
        now_ms: u64,
    ) -> Result<(), Error> {
        let (copied, worker) = (copied.to_vec(), worker.to_owned());
        self.wait(move |inner| async move {
            inner.record_delete_pass(&copied, removed, is_complete, &worker, now_ms).await
        })
    }

    fn retry_aside(&mut self) -> Result<(), Error> {
        self.wait(|inner| async move { inner.retry_aside().await })
    }

    fn begin_listing(&mut self) -> Result<u64, Error> {
        self.wait(|inner| async move { inner.begin_listing().await })
    }

    fn next_directory(
        &mut self,
        after: Option<&DirectoryKey>,
    ) -> Result<Option<DirectoryKey>, Error> {
        let after = after.cloned();
        self.wait(move |inner| async move { inner.next_directory(after.as_ref()).await })
    }

    fn stage(&mut self, entries: &[Entry]) -> Result<(), Error> {
        let entries = entries.to_vec();
        self.wait(move |inner| async move { inner.stage(&entries).await })
    }

    fn stage_directories(&mut self, found: &[(DirectoryKey, Entry)]) -> Result<(), Error> {
        let found = found.to_vec();
        self.wait(move |inner| async move { inner.stage_directories(&found).await })
    }

    fn checkpoint(&mut self, checkpoint: &Checkpoint<'_>) -> Result<(), Error> {
        let noted = Noted::from(checkpoint);
        self.wait(move |inner| async move { inner.checkpoint(&noted).await })
    }

    fn counts(&mut self, _now_ms: u64) -> Result<Counts, Error> {
        self.wait(|inner| async move { inner.counts().await })
    }

    fn workers(&mut self) -> Result<Vec<WorkerReport>, Error> {
        self.wait(|inner| async move { inner.reports().await })
    }

    fn aside(&mut self, most: usize) -> Result<Vec<Aside>, Error> {
        self.wait(move |inner| async move { inner.aside(most).await })
    }

    fn receipts(&mut self, each: &mut dyn FnMut(Receipt) -> bool) -> Result<(), Error> {
        let corrected = self.wait(|inner| async move { inner.corrected().await })?;
        let mut walk: Walk = self.wait(|inner| async move { inner.walk_log().await })?;
        loop {
            let (walked, next) = self.wait(move |inner| async move {
                let next = inner.next_receipts(&mut walk).await?;
                Ok((walk, next))
            })?;
            walk = walked;
            let Some((sequence, receipts, replaces)) = next else { return Ok(()) };
            for receipt in receipts {
                // a file that was copied again has the receipt of that
                let is_last = match corrected.get(&receipt.file.path) {
                    Some(last) => replaces && *last == sequence,
                    None => true,
                };
                if is_last && !each(receipt) {
                    return Ok(());
                }
            }
        }
    }
}
