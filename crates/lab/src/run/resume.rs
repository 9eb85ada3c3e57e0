//! Resumes an interrupted run, and reads what it left.

use std::io::Read;
use std::path::Path;

use headroom_lab_host::error::{Error, Result};
use headroom_lab_results::report;
use headroom_lab_results::schema::Results;

use super::journal::{self, Contents, Journal};
use super::record::Record;
use super::{Begun, Options, Outcome, Progress, analysed, environment, require};
use crate::plan::Plan;

/// Options of resuming.
#[derive(Debug, Clone, Copy)]
pub struct Resumption<'a> {
    /// The plan, where the user has named it: it must be the one that was begun.
    pub plan: Option<&'a Plan>,
    /// Whether to go on although machine or programs are no longer the same.
    pub allow_changed_environment: bool,
}

/// Goes on with the run in `folder`: what its journal has is not measured again.
/// Returns nothing where that run is complete.
///
/// # Errors
/// There is no run that could be continued, it is of another plan, machine or
/// program, or what [`super::run`] fails of.
pub fn resume(
    folder: &Path,
    how: Resumption<'_>,
    options: &Options,
    progress: &dyn Progress,
) -> Result<Option<Outcome>> {
    if !folder.join(journal::NAME).exists() {
        return without_journal(folder);
    }
    let (journal, Contents { header, entries }) = Journal::reopen(folder)?;
    let plan = Plan::of_record(&header.plan)?;
    if let Some(given) = how.plan {
        let differences = given.differences_from(&header.plan);
        if !differences.is_empty() {
            return Err(Error::Plan(format!(
                "the run in {} was begun with another plan ({}); continue it without naming a plan, or run yours into \
                 another folder",
                folder.display(),
                differences.join("; ")
            )));
        }
    }
    let mut record = Record::default();
    entries.into_iter().for_each(|entry| record.apply(entry));
    if record.is_done() {
        // killed between its last measurement and its report
        report::write(folder, &analysed(&record, &header)?)?;
        journal.remove()?;
        return Ok(None);
    }
    require(&plan, options)?;
    let allow_changed_environment = how.allow_changed_environment;
    let begun = Begun { journal, header: Some(header), record, folder, allow_changed_environment };
    begun.run(&plan, options, progress).map(Some)
}

/// Whether the run in `folder` measures on this machine and is to be continued.
///
/// # Errors
/// Its journal is damaged.
pub fn is_on_this_machine(folder: &Path) -> Result<bool> {
    if !folder.join(journal::NAME).exists() {
        return Ok(false);
    }
    let (Contents { header, .. }, _) = journal::read(folder)?;
    Ok(Plan::of_record(&header.plan)?.hosts.is_none())
}

/// Whether the run in `folder` has measured pinned programs; none: there is no run.
///
/// # Errors
/// Its journal or its results are damaged.
pub fn had_pinned_programs(folder: &Path) -> Result<Option<bool>> {
    let environment = if folder.join(journal::NAME).exists() {
        journal::read(folder)?.0.header.environment
    } else if folder.join("results.json").exists() {
        report::read(folder)?.environment
    } else {
        return Ok(None);
    };
    Ok(Some(environment.settings.contains_key(environment::PINNED_PROGRAMS)))
}

/// Refuses to mix two machines in one result: half of the blocks would be of
/// another one, and no interval says that.
pub(super) fn require_unchanged(folder: &Path, changed: &[String]) -> Result<()> {
    if changed.is_empty() {
        return Ok(());
    }
    Err(Error::Plan(format!(
        "the run in {} was begun on another machine or with other programs ({}); to mix both in one result all the \
         same, add --allow-changed-environment",
        folder.display(),
        changed.join("; ")
    )))
}

/// Reads the samples of the unfinished run in `folder`; none: it has no journal, so the run
/// is complete.
///
/// # Errors
/// The journal is damaged, or has no complete block.
pub fn unfinished(folder: &Path) -> Result<Option<Results>> {
    if !folder.join(journal::NAME).exists() {
        return Ok(None);
    }
    let (contents, lives) = journal::read(folder)?;
    let mut results = results_of(contents)?;
    if lives {
        results.ended = Some("it is still going on".to_owned());
    }
    super::reanalyse(&mut results);
    Ok(Some(results))
}

/// Reads a journal's samples, without an analysis. Errors name `path`.
///
/// # Errors
/// As [`unfinished`].
pub fn measured(journal: impl Read, path: &Path) -> Result<Results> {
    results_of(journal::parse(journal, path)?)
}

fn results_of(Contents { header, entries }: Contents) -> Result<Results> {
    let mut record = Record::default();
    entries.into_iter().for_each(|entry| record.apply(entry));
    record.results(&header)
}

fn without_journal(folder: &Path) -> Result<Option<Outcome>> {
    let there = folder.join("results.json").exists();
    if there && report::read(folder)?.complete {
        return Ok(None);
    }
    let what = if there { "it is not complete and its" } else { "there is no" };
    Err(Error::Plan(format!(
        "the run in {} cannot be continued: {what} {}{}",
        folder.display(),
        journal::NAME,
        if there { " is gone" } else { " in this folder" }
    )))
}
