//! `headroom fleet`: large trees by several workers.

pub(super) mod arguments;
mod figures;
mod progress;
mod report;
mod run;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use headroom_fleet::{Engine, Error, Job, Sqlite, State, StateFolder};

use self::arguments::{Fleet, FleetCommand, Which};
use crate::output::print_line as say;

pub(super) fn run(fleet: &Fleet) -> anyhow::Result<ExitCode> {
    match &fleet.command {
        FleetCommand::Run(arguments) => return run::run(arguments),
        FleetCommand::Worker(arguments) => return run::worker(arguments),
        FleetCommand::Status(arguments) => {
            report::status(&mut engine(&arguments.which)?, arguments.json)?;
        }
        FleetCommand::Pause(which) => set_state(which, State::Paused, "is paused")?,
        FleetCommand::Resume(which) => set_state(which, State::Running, "continues")?,
        FleetCommand::Cancel(which) => set_state(which, State::Cancelled, "is cancelled")?,
        FleetCommand::Rate(arguments) => {
            let mut engine = engine(&arguments.which)?;
            engine.set_rate(arguments.limit.0)?;
            let rate = arguments.limit.0.map(|rate_bps| headroom_units::rate(rate_bps as f64));
            let rate = rate.map_or_else(|| "has no limit".to_owned(), |rate| format!("has {rate}"));
            say(&format!("{} {rate}", engine.job().name));
        }
        FleetCommand::Receipts(which) => report::receipts(&mut engine(which)?)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn set_state(which: &Which, state: State, done: &str) -> anyhow::Result<()> {
    let mut engine = engine(which)?;
    if engine.set_state(state)?.state != state {
        return Err(Error::Cancelled.into());
    }
    say(&format!("{} {done}", engine.job().name));
    Ok(())
}

/// Opens the state of a job that was begun.
fn engine(which: &Which) -> anyhow::Result<Sqlite> {
    let folder = match (&which.state, &which.job) {
        (Some(state), _) => StateFolder::new(state.clone()),
        (None, Some(job)) => folder(&Job::read(job)?, None)?,
        (None, None) => StateFolder::new(PathBuf::new()),
    };
    Ok(folder.open()?)
}

/// The folder with a job's state: the one that was named, or one among the user's states.
fn folder(job: &Job, named: Option<&Path>) -> anyhow::Result<StateFolder> {
    if let Some(named) = named {
        let absolute = std::path::absolute(named);
        let absolute = absolute.with_context(|| format!("cannot find {}", named.display()))?;
        return Ok(StateFolder::new(absolute));
    }
    let of =
        |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let states = of("XDG_STATE_HOME")
        .or_else(|| of("HOME").map(|home| home.join(".local/state")))
        .context(
            "cannot tell where to keep the job's state: neither XDG_STATE_HOME nor HOME is set. Name a folder with --state",
        )?;
    Ok(StateFolder::new(states.join("headroom/fleet").join(&job.name)))
}
