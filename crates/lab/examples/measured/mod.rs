//! Runs of the lab, for the examples that write docs/benchmarks.md.

use std::error::Error;
use std::path::Path;

use headroom_lab_results::analysis::measured::Measured;
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

    pub(crate) fn figures(&self) -> Measured<'_> {
        Measured { results: &self.results }
    }
}

/// In words, where more is better.
pub(crate) fn verdict(found: Option<f64>, least: f64, aim: f64) -> &'static str {
    match found {
        None => "not measured",
        Some(found) if found >= aim => "aim reached",
        Some(found) if found >= least => "reached",
        Some(_) => "**missed**",
    }
}
