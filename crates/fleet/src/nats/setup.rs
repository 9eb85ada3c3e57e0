//! The streams and buckets of a job: made when it begins, removed when it starts again.

use std::time::Duration;

use async_nats::jetstream::consumer::{AckPolicy, pull};
use async_nats::jetstream::stream::{Config, RetentionPolicy, StorageType};
use async_nats::jetstream::{ErrorCode, kv};

use super::cells::{CONTROL, JOB, LISTING, RUN, TOTALS};
use super::link::{Attempts, Failure, Link, wrong};
use super::names::{CONSUMER, stream_of, subject_of};
use super::record::{PhaseName, Progress, StateName, Steering, json};
use super::workers::LIVE;
use crate::clock::now_ms;
use crate::engine::{Phase, State};
use crate::error::Error;
use crate::job::{Job, NatsServers};

/// How long servers may refuse to make a stream, as they do until a new cluster has a leader.
const REFUSALS: Duration = Duration::from_secs(30);
/// The most items that are with workers, or wait for their next attempt.
const MAX_PENDING: i64 = 20_000;

impl Link {
    /// Makes the bucket that has the lock of the run, before anything else.
    pub(super) async fn make_state(&self, servers: &NatsServers) -> Result<(), Error> {
        if self.has_state().await? {
            return Ok(());
        }
        self.make_bucket(self.names.state(), Duration::ZERO, servers).await
    }

    /// Makes the state of a job that has none.
    pub(super) async fn make(&self, job: &Job, servers: &NatsServers) -> Result<(), Error> {
        // what a removal may have left that was killed
        self.remove().await?;
        self.make_bucket(self.names.aside(), Duration::ZERO, servers).await?;
        self.make_bucket(self.names.workers(), LIVE, servers).await?;
        let stream = |name: String, subject: String, retention| Config {
            name,
            subjects: vec![subject],
            retention,
            storage: StorageType::File,
            num_replicas: replicas(servers),
            ..Config::default()
        };
        let names = &self.names;
        let (work, receipts) = (names.work_subject(), names.receipts_subject());
        let (log, directories) = (names.log_subject(">"), names.directories_subject());
        for config in [
            stream(names.work(), work, RetentionPolicy::WorkQueue),
            stream(names.log(), log, RetentionPolicy::Limits),
            stream(names.receipts(), receipts, RetentionPolicy::Limits),
            stream(names.directories(), directories, RetentionPolicy::Limits),
        ] {
            self.make_stream(config).await?;
        }
        self.make_consumer(job).await?;
        let steering = Steering {
            state: StateName::from(State::Running),
            phase: PhaseName::from(Phase::Copying),
            rate_bps: job.rate_bps,
            finish_round: 0,
            finish_items: 0,
        };
        // a worker that has missed the removal of a former state takes no epoch of this one for one
        // of that
        let epoch = now_ms();
        let progress = Progress { epoch, has_root: true, ..Progress::default() };
        self.put_cell(CONTROL, json(&steering)).await?;
        self.put_cell(LISTING, json(&progress)).await?;
        // last: a job that is there has all else
        self.put_cell(JOB, job.to_json().into_bytes()).await
    }

    /// Removes the state of a job, but for the lock of the run.
    pub(super) async fn remove(&self) -> Result<(), Error> {
        let bucket = self.names.state();
        // first: what is left of a job without this is nobody's
        for key in [JOB, CONTROL, LISTING, TOTALS] {
            let (stream, subject) = (stream_of(&bucket), subject_of(&bucket, key));
            let mut attempts = self.attempts("remove a value from");
            while self.last(&stream, &subject).await?.is_some() {
                self.forget(&stream, &subject).await;
                attempts.failed(Failure::Temporary("it is still there".to_owned())).await?;
            }
        }
        let names = &self.names;
        for stream in [
            names.work(),
            names.log(),
            names.receipts(),
            names.directories(),
            stream_of(&names.aside()),
            stream_of(&names.workers()),
        ] {
            self.remove_stream(&stream).await?;
        }
        Ok(())
    }

    async fn put_cell(&self, key: &str, value: Vec<u8>) -> Result<(), Error> {
        let subject = subject_of(&self.names.state(), key);
        self.publish(&subject, None, value).await?;
        Ok(())
    }

    /// Replaces the job, whose settings may change between runs.
    pub(super) async fn replace_job(&self, job: &Job) -> Result<(), Error> {
        self.put_cell(JOB, job.to_json().into_bytes()).await?;
        self.make_consumer(job).await
    }

    /// Returns the job as it was begun; nothing if it was not.
    pub(super) async fn stored_job(&self) -> Result<Option<Job>, Error> {
        let bucket = self.names.state();
        let last = self.last(&stream_of(&bucket), &subject_of(&bucket, JOB)).await?;
        let Some(last) = last else { return Ok(None) };
        let json = String::from_utf8_lossy(&last.payload).into_owned();
        let job = Job::from_json(&json);
        job.map(Some).map_err(|found| Error::State {
            path: format!("NATS at {}", self.servers).into(),
            found,
        })
    }

    async fn make_bucket(
        &self,
        bucket: String,
        max_age: Duration,
        servers: &NatsServers,
    ) -> Result<(), Error> {
        let mut attempts = self.attempts("make a bucket of");
        let mut refusals = Refusals::new();
        loop {
            let config = kv::Config {
                bucket: bucket.clone(),
                history: 1,
                max_age,
                storage: StorageType::File,
                num_replicas: replicas(servers),
                ..kv::Config::default()
            };
            match self.context().create_key_value(config).await {
                Ok(_) => return Ok(()),
                Err(error) => refusals.wait(&mut attempts, "make a bucket of", &error).await?,
            }
        }
    }

    async fn make_stream(&self, config: Config) -> Result<(), Error> {
        let mut attempts = self.attempts("make a stream of");
        let mut refusals = Refusals::new();
        loop {
            match self.context().create_stream(config.clone()).await {
                Ok(_) => return Ok(()),
                Err(error) => refusals.wait(&mut attempts, "make a stream of", &error).await?,
            }
        }
    }

    /// Makes the queue's consumer, or changes it: what it delivers is leased for as long as the job
    /// says.
    async fn make_consumer(&self, job: &Job) -> Result<(), Error> {
        let config = pull::Config {
            durable_name: Some(CONSUMER.to_owned()),
            ack_policy: AckPolicy::Explicit,
            ack_wait: job.lease,
            max_deliver: -1,
            max_ack_pending: MAX_PENDING,
            ..pull::Config::default()
        };
        let mut attempts = self.attempts("make a consumer of");
        let mut refusals = Refusals::new();
        loop {
            let made =
                self.context().create_consumer_on_stream(config.clone(), self.names.work()).await;
            match made {
                Ok(_) => return Ok(()),
                Err(error) => refusals.wait(&mut attempts, "make a consumer of", &error).await?,
            }
        }
    }

    async fn remove_stream(&self, stream: &str) -> Result<(), Error> {
        let mut attempts = self.attempts("remove a stream of");
        loop {
            let Err(error) = self.context().delete_stream(stream).await else { return Ok(()) };
            let is_missing = matches!(error.kind(),
                async_nats::jetstream::context::GetStreamErrorKind::JetStream(cause)
                    if cause.error_code() == ErrorCode::STREAM_NOT_FOUND);
            if is_missing {
                return Ok(());
            }
            attempts.failed(Failure::Temporary(error.to_string())).await?;
        }
    }

    /// Whether the bucket of the run's lock is there: without it, no job is.
    async fn has_state(&self) -> Result<bool, Error> {
        let bucket = self.names.state();
        match self.last(&stream_of(&bucket), &subject_of(&bucket, RUN)).await {
            Ok(_) => Ok(true),
            Err(Error::NoJob(_)) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

fn replicas(servers: &NatsServers) -> usize {
    usize::try_from(servers.replicas).unwrap_or(1)
}

/// How long servers have refused something: unlike silence, that does not end by itself, except
/// soon after a cluster has started.
struct Refusals(std::time::Instant);

impl Refusals {
    fn new() -> Self {
        Self(std::time::Instant::now())
    }

    async fn wait(
        &mut self,
        attempts: &mut Attempts<'_>,
        doing: &'static str,
        error: &impl std::fmt::Display,
    ) -> Result<(), Error> {
        if self.0.elapsed() >= REFUSALS {
            return Err(wrong(doing, error));
        }
        attempts.failed(Failure::Temporary(error.to_string())).await
    }
}
