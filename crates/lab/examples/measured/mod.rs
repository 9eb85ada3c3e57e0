//! Runs of the lab, for the examples that write docs/benchmarks.md.

use std::error::Error;
use std::path::Path;

use headroom_lab_results::analysis::measured::Measured;
use headroom_lab_results::analysis::stats::MIN_RUNS;
use headroom_lab_results::schema::Results;

/// A run of the lab.
pub(crate) struct Run {
    pub(crate) results: Results,
}

impl Run {
    /// The run whose results are in this folder.
    pub(crate) fn read(folder: &Path) -> Result<Self, Box<dyn Error>> {
        Ok(Self { results: headroom_lab_results::report::read(folder)? })
    }

    /// The blocks that its plan asked for.
    pub(crate) fn blocks(&self) -> u32 {
        self.results.plan.repetitions
    }

    pub(crate) fn figures(&self) -> Measured<'_> {
        Measured { results: &self.results }
    }
}

/// In words, where more is better.
pub(crate) fn verdict(found: Option<f64>, least: f64, aim: f64) -> String {
    match found {
        None => "not measured",
        Some(found) if found >= aim => "aim reached",
        Some(found) if found >= least => "reached",
        Some(_) => "**missed**",
    }
    .to_owned()
}

/// In words, where the figure is of so many blocks: no conclusion is drawn from fewer than
/// [`MIN_RUNS`].
pub(crate) fn verdict_of(blocks: u32, found: Option<f64>, least: f64, aim: f64) -> String {
    match (blocks as usize) < MIN_RUNS && found.is_some() {
        true => format!("n = {blocks}: no conclusion"),
        false => verdict(found, least, aim),
    }
}
