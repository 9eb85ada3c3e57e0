//! Where a job's queue and state are: in a folder of this machine, or at NATS.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::Context;
use headroom_fleet::{
    Engine, Error, Job, JobPlace, Lock, NatsJob, NatsLock, StateFolder, Stop, Watch,
};

use super::arguments::Which;
use crate::transfer::exit::Usage;
use crate::transfer::settings;

/// A handle of whichever engine the job has.
pub(super) type AnyEngine = Box<dyn Engine + Send>;

/// Where a job's queue and state are.
pub(super) enum Place {
    Folder(StateFolder),
    Nats(Box<NatsJob>),
}

/// Keeps other runs out until it is dropped.
pub(super) struct Held {
    _folder: Option<Lock>,
    _nats: Option<NatsLock>,
}

impl Place {
    /// Finds the place of a job for a run, which ends when it is told to.
    pub(super) fn of(job: &Job, named: Option<&Path>, stop: &Stop) -> anyhow::Result<Self> {
        match (&job.nats, named) {
            (None, named) => Ok(Self::Folder(folder(job, named)?)),
            (Some(_), None) => Ok(Self::Nats(Box::new(NatsJob::connect(job, stop)?))),
            (Some(_), Some(_)) => {
                let reason = "--state is for jobs whose state is in a folder, and the job file has a table [nats]";
                Err(Usage(reason.to_owned()).into())
            }
        }
    }

    /// Keeps other runs out, and opens the state of a job, or makes it; afresh if it shall restart.
    pub(super) fn begin(&self, job: &Job, file: &Path, restart: bool) -> Result<Held, Error> {
        match self {
            Self::Folder(folder) => {
                let lock = folder.lock()?;
                if restart {
                    folder.clear(&lock)?;
                }
                drop(folder.begin(&lock, job, file)?);
                Ok(Held { _folder: Some(lock), _nats: None })
            }
            Self::Nats(nats) => {
                let lock = nats.lock()?;
                if restart {
                    nats.clear(&lock)?;
                }
                drop(nats.begin(&lock, file)?);
                Ok(Held { _folder: None, _nats: Some(lock) })
            }
        }
    }

    /// Opens a handle.
    pub(super) fn open(&self) -> Result<AnyEngine, Error> {
        let engine: AnyEngine = match self {
            Self::Folder(folder) => Box::new(folder.open()?),
            Self::Nats(nats) => Box::new(nats.open()?),
        };
        Ok(engine)
    }

    /// Returns the words by which a worker finds the place, behind `headroom fleet worker`.
    pub(super) fn words(&self, file: &Path) -> anyhow::Result<Vec<OsString>> {
        Ok(match self {
            Self::Folder(folder) => vec!["--state".into(), folder.path().into()],
            Self::Nats(_) => {
                let file = std::path::absolute(file).context("cannot find the job file")?;
                vec![file.into()]
            }
        })
    }
}

/// Opens the state of a job that was begun, for a command that ends at once.
pub(super) fn opened(which: &Which) -> anyhow::Result<(Job, AnyEngine)> {
    if let (None, Some(file)) = (&which.state, &which.job) {
        let job = Job::read(file)?;
        if job.nats.is_some() {
            let engine: AnyEngine = Box::new(NatsJob::connect_briefly(&job)?.open()?);
            return Ok((job, engine));
        }
    }
    let engine = folder_of(which)?.open_beside()?;
    let job = engine.job().clone();
    let engine: AnyEngine = Box::new(engine);
    Ok((job, engine))
}

/// Finds a job that was begun, to look at it again and again.
pub(super) fn watched(which: &Which) -> anyhow::Result<Watch> {
    if let (None, Some(file)) = (&which.state, &which.job) {
        let job = Job::read(file)?;
        if job.nats.is_some() {
            return Ok(Watch::new(JobPlace::nats(&job)?));
        }
    }
    Ok(Watch::new(JobPlace::Folder(folder_of(which)?)))
}

/// Finds the job that a worker works for, and its place.
pub(super) fn of_worker(which: &Which, stop: &Stop) -> anyhow::Result<(Job, Place)> {
    if let (None, Some(file)) = (&which.state, &which.job) {
        let job = Job::read(file)?;
        if job.nats.is_some() {
            // local folders, keys and certificates are where they are on this machine
            let nats = NatsJob::connect_patiently(&job, stop)?;
            return Ok((job, Place::Nats(Box::new(nats))));
        }
    }
    let folder = folder_of(which)?;
    let job = folder.open()?.job().clone();
    Ok((job, Place::Folder(folder)))
}

fn folder_of(which: &Which) -> anyhow::Result<StateFolder> {
    match (&which.state, &which.job) {
        (Some(state), _) => {
            let state = std::path::absolute(state);
            Ok(StateFolder::new(state.context("cannot find the state folder")?))
        }
        (None, Some(job)) => folder(&Job::read(job)?, None),
        (None, None) => Ok(StateFolder::new(PathBuf::new())),
    }
}

/// The folder with a job's state: the one that was named, or one among the user's states.
fn folder(job: &Job, named: Option<&Path>) -> anyhow::Result<StateFolder> {
    if let Some(named) = named {
        let absolute = std::path::absolute(named);
        let absolute = absolute.with_context(|| format!("cannot find {}", named.display()))?;
        return Ok(StateFolder::new(absolute));
    }
    let states = settings::fleets().context(
        "cannot tell where to keep the job's state: neither XDG_STATE_HOME nor HOME is set. Name a folder with --state",
    )?;
    Ok(StateFolder::new(states.join(&job.name)))
}
