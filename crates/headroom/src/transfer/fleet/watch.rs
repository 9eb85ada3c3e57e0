//! `headroom fleet status --watch`.

use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use headroom_fleet::{Error, Phase, State};

use super::arguments::Which;
use super::place::watched;
use super::progress::Progress;
use super::report::{MAX_ASIDE, print};
use super::run::interrupted;
use crate::interruption::interruption;
use crate::output::print_line as say;

/// How often the job is looked at, and how often Ctrl-C meanwhile.
const TICK: Duration = Duration::from_millis(500);
const STEP: Duration = Duration::from_millis(50);
/// How often a line is printed where there is no terminal.
const LINE: Duration = Duration::from_secs(10);
/// Columns of such a line.
const WIDTH: usize = 120;
/// How long a state that cannot be read is tried again: a run may start its job again, and servers
/// may come back.
const PATIENCE: Duration = Duration::from_secs(60);

/// Shows how far a job is until it is done or cancelled, or until Ctrl-C.
pub(super) fn watch(which: &Which, as_json: bool) -> anyhow::Result<ExitCode> {
    let mut watch = watched(which)?;
    // who names no job is not kept waiting
    let mut look = watch.look(MAX_ASIDE)?;
    let is_interrupted = interruption()?;
    let mut progress = Progress::new(as_json);
    let mut printed: Option<(Instant, State, Phase)> = None;
    let is_ended = loop {
        let (state, phase) = (look.control.state, look.control.phase);
        progress.show(&look.control, &look.counts);
        let is_due = printed.is_none_or(|(at, before, phase_before)| {
            at.elapsed() >= LINE || (before, phase_before) != (state, phase)
        });
        if is_due && !as_json && !progress.is_shown() {
            say(&progress.line(&look.control, &look.counts, WIDTH));
            printed = Some((Instant::now(), state, phase));
        }
        if state == State::Cancelled || phase == Phase::Done {
            break true;
        }
        if !wait(&is_interrupted) {
            break false;
        }
        let since = Instant::now();
        look = loop {
            match watch.look(MAX_ASIDE) {
                Ok(look) => break look,
                Err(error) if since.elapsed() < PATIENCE && is_temporary(&error) => {}
                Err(error) => return Err(error.into()),
            }
            if !wait(&is_interrupted) {
                return Ok(interrupted());
            }
        };
    };
    progress.clear();
    print(&look.job, &look.control, &look.counts, &look.aside, as_json);
    Ok(if is_ended { ExitCode::SUCCESS } else { interrupted() })
}

/// Whether a later look may succeed.
const fn is_temporary(error: &Error) -> bool {
    matches!(error, Error::NoJob(_) | Error::Database { .. } | Error::Nats { .. })
}

/// Waits for the next look; returns whether there is one.
fn wait(is_interrupted: &AtomicBool) -> bool {
    let until = Instant::now() + TICK;
    while Instant::now() < until {
        if is_interrupted.load(Ordering::Relaxed) {
            return false;
        }
        std::thread::sleep(STEP);
    }
    !is_interrupted.load(Ordering::Relaxed)
}
