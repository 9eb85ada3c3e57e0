//! The values that steer a job, each a key of a bucket that is changed by compare-and-set.

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::link::Link;
use super::names::{stream_of, subject_of};
use super::record::{Progress, Steering, json, read};
use crate::engine::Control;
use crate::entry::Damaged;
use crate::error::Error;

/// The job, as JSON has it.
pub(super) const JOB: &str = "job";
/// [`Steering`].
pub(super) const CONTROL: &str = "control";
/// [`Progress`].
pub(super) const LISTING: &str = "listing";
/// The figures that follow from the log, up to one of its sequences.
pub(super) const TOTALS: &str = "totals";
/// The run that has the job.
pub(super) const RUN: &str = "run";

impl Link {
    /// Returns a value and its revision.
    pub(super) async fn cell<T: DeserializeOwned>(
        &self,
        key: &str,
    ) -> Result<Option<(T, u64)>, Error> {
        let bucket = self.names.state();
        let last = self.last(&stream_of(&bucket), &subject_of(&bucket, key)).await?;
        let Some(last) = last else { return Ok(None) };
        Ok(Some((self.whole(read(&last.payload), key)?, last.sequence)))
    }

    /// Sets a value whose revision is this one: 0 if there is none. Returns the new revision, or
    /// nothing if somebody else has set it meanwhile.
    pub(super) async fn set_cell(
        &self,
        key: &str,
        value: &impl Serialize,
        revision: u64,
    ) -> Result<Option<u64>, Error> {
        let bucket = self.names.state();
        let subject = subject_of(&bucket, key);
        self.append(&stream_of(&bucket), &subject, revision, json(value)).await
    }

    /// Returns what steers the job.
    pub(super) async fn steering(&self) -> Result<(Steering, u64), Error> {
        self.cell(CONTROL).await?.ok_or_else(|| self.no_job())
    }

    /// Changes what steers the job; returns what it is then.
    pub(super) async fn steer(&self, change: impl Fn(&mut Steering)) -> Result<Steering, Error> {
        loop {
            let (before, revision) = self.steering().await?;
            let mut steering = before.clone();
            change(&mut steering);
            if steering == before {
                return Ok(steering);
            }
            if self.set_cell(CONTROL, &steering, revision).await?.is_some() {
                return Ok(steering);
            }
        }
    }

    /// Returns how far the listing is.
    pub(super) async fn progress(&self) -> Result<(Progress, u64), Error> {
        self.cell(LISTING).await?.ok_or_else(|| self.no_job())
    }

    /// Makes an error of what was read and is damaged.
    pub(super) fn whole<T>(&self, read: Result<T, Damaged>, what: &str) -> Result<T, Error> {
        read.map_err(|Damaged| {
            let found = format!("`{what}` is damaged, or of another version of this program");
            Error::State { path: format!("NATS at {}", self.servers).into(), found }
        })
    }
}

impl From<&Steering> for Control {
    fn from(steering: &Steering) -> Self {
        Self {
            state: steering.state.into(),
            phase: steering.phase.into(),
            rate_bps: steering.rate_bps,
        }
    }
}
