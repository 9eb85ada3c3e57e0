//! Room for the results: looked for before a run, so that a full disk is found out at
//! once and not after hours.

use std::path::Path;

use headroom_lab_host::error::{Error, Result};
use headroom_lab_host::scratch;

use super::blocks::{Blocks, LARGEST_ACCOUNTED};
use super::estimate::samples;
use super::fit::MAX_ROUNDS;
use super::{Options, captures, journal};
use crate::plan::Plan;
use crate::units;

/// A sample's line in the journal, its rows in the results and its part of the page.
const SAMPLE_BYTES: u64 = 16 << 10;
/// The page without samples, and what the analysis adds.
const PAGE_BYTES: u64 = 4 << 20;

/// Refuses a folder whose disk has no room for the results of a plan.
///
/// # Errors
/// [`Error::Failed`] with what is free and what is needed.
pub(super) fn require(plan: &Plan, options: &Options, folder: &Path) -> Result<()> {
    let rounds = if options.time.is_some() { MAX_ROUNDS } else { 1 };
    let needed = needed(plan, rounds.into(), options.keep_captures);
    let free = scratch::free_space(folder)?;
    if free >= needed {
        return Ok(());
    }
    Err(Error::Failed(format!(
        "the output folder {} has {} free and this plan needs {} for its results; choose another with --out",
        folder.display(),
        units::size(free),
        units::size(needed)
    )))
}

/// Says that what was measured is not lost with the results that could not be written.
pub(super) fn with_what_is_left(error: Error, folder: &Path) -> Error {
    let journal = folder.join(journal::NAME);
    if !journal.exists() {
        return error;
    }
    Error::Failed(format!(
        "{error}. All that was measured is in {}: make room, then write the results with `headroom lab report {}`",
        journal.display(),
        folder.display()
    ))
}

/// Bytes that the results take, where blocks are measured up to `rounds` times as often as the
/// plan says.
fn needed(plan: &Plan, rounds: u64, keep_captures: bool) -> u64 {
    let results = PAGE_BYTES + SAMPLE_BYTES * samples(plan) * rounds;
    if !keep_captures {
        return results;
    }
    let cells = Blocks::of(plan, &plan.link, &plan.workloads).cells;
    let counted = cells.iter().filter(|cell| cell.bytes() <= LARGEST_ACCOUNTED);
    results + counted.map(|cell| captures::largest_file(cell.bytes())).sum::<u64>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_needed_for_samples_and_for_captures() {
        let text = "stacks = [\"http\", \"https\"]\nrepetitions = 100\n[[workload]]\n\
                    kind = \"download\"\nsizes = [\"1KiB\", \"16MiB\"]\n";
        let plan = Plan::from_toml(text, "x").expect("a plan");
        let without = needed(&plan, 1, false);
        assert_eq!(without, (4 << 20) + 2 * 2 * 120 * (16 << 10));
        assert_eq!(needed(&plan, 2, false), 2 * without - (4 << 20));
        assert!(needed(&plan, 1, true) > without + 2 * (16 << 20));
    }

    #[test]
    fn an_error_names_the_journal_where_there_is_one() {
        let folder = tempfile::tempdir().expect("a folder");
        let error = || Error::Failed("cannot write results.json: no space".to_owned());
        let said = with_what_is_left(error(), folder.path()).to_string();
        assert_eq!(said, "cannot write results.json: no space");
        std::fs::write(folder.path().join(journal::NAME), "").expect("a file");
        let said = with_what_is_left(error(), folder.path()).to_string();
        assert!(said.contains("journal.jsonl") && said.contains("headroom lab report /"), "{said}");
    }
}
