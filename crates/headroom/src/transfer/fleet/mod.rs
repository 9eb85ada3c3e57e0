//! `headroom fleet`: large trees by several workers.

pub(super) mod arguments;
mod figures;
mod hosts;
mod place;
mod progress;
mod report;
mod run;
mod watch;

use std::process::ExitCode;

use headroom_fleet::{Engine, Error, State};

use self::arguments::{Fleet, FleetCommand, Which};
use self::place::opened;
use crate::output::print_line as say;

pub(super) fn run(fleet: &Fleet) -> anyhow::Result<ExitCode> {
    match &fleet.command {
        FleetCommand::Run(arguments) => return run::run(arguments),
        FleetCommand::Worker(arguments) => return run::worker(arguments),
        FleetCommand::Status(arguments) if arguments.watch => {
            return watch::watch(&arguments.which, arguments.json);
        }
        FleetCommand::Status(arguments) => {
            let (job, mut engine) = opened(&arguments.which)?;
            report::status(&job, &mut engine, arguments.json)?;
        }
        FleetCommand::Pause(which) => set_state(which, State::Paused, "is paused")?,
        FleetCommand::Resume(which) => set_state(which, State::Running, "continues")?,
        FleetCommand::Cancel(which) => set_state(which, State::Cancelled, "is cancelled")?,
        FleetCommand::Rate(arguments) => {
            let (job, mut engine) = opened(&arguments.which)?;
            engine.set_rate(arguments.limit.0)?;
            let rate = arguments.limit.0.map(|rate_bps| headroom_units::rate(rate_bps as f64));
            let rate = rate.map_or_else(|| "has no limit".to_owned(), |rate| format!("has {rate}"));
            say(&format!("{} {rate}", job.name));
        }
        FleetCommand::Receipts(which) => report::receipts(&mut opened(which)?.1)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn set_state(which: &Which, state: State, done: &str) -> anyhow::Result<()> {
    let (job, mut engine) = opened(which)?;
    if engine.set_state(state)?.state != state {
        return Err(Error::Cancelled.into());
    }
    say(&format!("{} {done}", job.name));
    Ok(())
}
