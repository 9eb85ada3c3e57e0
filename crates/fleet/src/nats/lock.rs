//! The run that has a job. Of two runs of one job, the second is kept out.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::cells::RUN;
use super::link::Link;
use super::record::{Owner, nonce};
use crate::error::Error;
use crate::process::{is_gone, machine, name_of};

/// How often a run says that it lives.
const BEAT: Duration = Duration::from_secs(2);
/// How long another run's silence is listened to before it counts as dead.
const SILENCE: Duration = Duration::from_secs(10);
/// How often it is looked at meanwhile.
const LOOK: Duration = Duration::from_millis(500);

/// Keeps other runs out until it is dropped.
#[derive(Debug)]
pub struct NatsLock {
    link: Arc<Link>,
    nonce: u64,
    is_dropped: Arc<AtomicBool>,
}

impl NatsLock {
    /// Keeps other runs out.
    pub(super) fn take(link: &Arc<Link>) -> Result<Self, Error> {
        let (nonce, taking) = (nonce(), Arc::clone(link));
        let revision = link.wait(async move { take(&taking, nonce).await })?;
        let is_dropped = Arc::new(AtomicBool::new(false));
        let (beating, ended) = (Arc::clone(link), Arc::clone(&is_dropped));
        link.spawn(async move { beat(&beating, nonce, revision, &ended).await });
        Ok(Self { link: Arc::clone(link), nonce, is_dropped })
    }
}

impl Drop for NatsLock {
    fn drop(&mut self) {
        self.is_dropped.store(true, Ordering::Relaxed);
        let (link, nonce) = (Arc::clone(&self.link), self.nonce);
        // otherwise the next run waits until this one was silent for long enough
        let released = self.link.wait(async move {
            let given_back = tokio::time::timeout(BEAT, release(&link, nonce)).await;
            given_back.unwrap_or(Ok(()))
        });
        if let Err(error) = released {
            tracing::debug!("{error}");
        }
    }
}

/// Returns what this run says about itself at first.
fn owner(nonce: u64) -> Owner {
    Owner { process: name_of(std::process::id()), machine: machine(), nonce, beat: 0 }
}

/// Takes the job; returns the revision. A run whose process has died here is not waited for.
async fn take(link: &Link, nonce: u64) -> Result<u64, Error> {
    let own = owner(nonce);
    let mut watched: Option<(u64, Duration)> = None;
    loop {
        let found = link.cell::<Owner>(RUN).await?;
        let revision = found.as_ref().map_or(0, |(_, revision)| *revision);
        let is_here = |owner: &Owner| owner.machine == own.machine;
        let has_ended =
            |owner: &Owner| owner.nonce == 0 || is_here(owner) && is_gone(&owner.process);
        let is_free = found.as_ref().is_none_or(|(owner, _)| has_ended(owner));
        let is_silent = watched
            .is_some_and(|(seen, silent): (u64, Duration)| seen == revision && silent >= SILENCE);
        if is_free || is_silent {
            if let Some(taken) = link.set_cell(RUN, &own, revision).await? {
                return Ok(taken);
            }
            continue;
        }
        watched = match watched {
            Some((seen, _)) if seen != revision => {
                let place = format!("the job at NATS ({})", link.servers);
                return Err(Error::Busy(place.into()));
            }
            Some((seen, silent)) => Some((seen, silent + LOOK)),
            None => Some((revision, Duration::ZERO)),
        };
        tokio::time::sleep(LOOK).await;
    }
}

/// Says again and again that the run lives, until it has ended or lost the job.
async fn beat(link: &Link, nonce: u64, mut revision: u64, ended: &AtomicBool) {
    let mut own = owner(nonce);
    loop {
        tokio::time::sleep(BEAT).await;
        if ended.load(Ordering::Relaxed) {
            return;
        }
        own.beat += 1;
        match link.set_cell(RUN, &own, revision).await {
            Ok(Some(set)) => revision = set,
            Ok(None) => {
                let is_lost = !ended.load(Ordering::Relaxed);
                link.is_lock_lost.store(is_lost, Ordering::Relaxed);
                return;
            }
            Err(error) => tracing::debug!("{error}"),
        }
    }
}

/// Gives the job back, if this run has it.
async fn release(link: &Link, nonce: u64) -> Result<(), Error> {
    loop {
        match link.cell::<Owner>(RUN).await? {
            Some((owner, revision)) if owner.nonce == nonce => {
                let free = Owner { nonce: 0, ..owner };
                if link.set_cell(RUN, &free, revision).await?.is_some() {
                    return Ok(());
                }
            }
            _ => return Ok(()),
        }
    }
}
