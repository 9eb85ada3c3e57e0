//! The parts of a study, one after the other, and the report of them all.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use headroom_lab_host::error::{Doing, Error, Result};
use headroom_lab_results::report;
use headroom_lab_results::schema::Results;

use super::results::{PartResults, SCHEMA, StudyResults};
use super::table::{self, Parts};
use super::{Study, check};
use crate::plan::{Plan, Scale};
use crate::run::{self, JOURNAL, Options, Progress, Resumption};

/// In a study's folder: the folders of its parts.
pub const FOLDER_OF_PARTS: &str = "parts";

/// Runs what `folder` does not have yet of a study at a scale, and writes the report;
/// also where a part was interrupted.
///
/// # Errors
/// A part failed, was begun otherwise, or the user stopped it; what was measured stays,
/// and the same call goes on.
pub fn run(
    study: &Study,
    scale: Scale,
    options: &Options,
    folder: &Path,
    allow_changed_environment: bool,
    progress: &dyn Progress,
) -> Result<StudyResults> {
    let study = study.clone().at_scale(scale)?;
    for part in study.parts.iter().filter(|part| !is_measured(part, folder)) {
        run::require(part, options)?;
    }
    let mut failed = None;
    for (number, part) in study.parts.iter().enumerate() {
        let later = study.parts[number + 1..].iter().filter(|part| !is_measured(part, folder));
        let later = later.map(run::expected_time).sum();
        let (number, of) = (number + 1, study.parts.len());
        let told = Told { progress, part: &part.name, number, of, later };
        match one(part, options, folder, allow_changed_environment, &told) {
            Ok(()) => {}
            Err(Error::Interrupted) => {
                failed = Some(Error::Interrupted);
                break;
            }
            // what the other parts measure is worth having
            Err(error) => {
                let error = Error::Failed(format!("the part {}: {error}", part.name));
                failed = failed.or(Some(error));
            }
        }
    }
    let written = write(&study, scale, folder);
    match failed {
        Some(error) => Err(error),
        None => written,
    }
}

/// Returns how many parts `folder` does not have yet, and how long these will probably take.
///
/// # Errors
/// The study cannot be run at that scale.
pub fn remaining(study: &Study, scale: Scale, folder: &Path) -> Result<(usize, Duration)> {
    let study = study.clone().at_scale(scale)?;
    let parts = || study.parts.iter().filter(|part| !is_measured(part, folder));
    Ok((parts().count(), parts().map(run::expected_time).sum()))
}

/// Writes the report of what `folder` has.
///
/// # Errors
/// It has no part of the study, or something cannot be written.
pub fn rebuild(study: &Study, scale: Scale, folder: &Path) -> Result<StudyResults> {
    write(&study.clone().at_scale(scale)?, scale, folder)
}

/// Returns the folder of a part's results.
fn home_of(part: &Plan, folder: &Path) -> PathBuf {
    folder.join(FOLDER_OF_PARTS).join(&part.name)
}

/// Whether the parts of the study in `folder` have measured pinned programs; none: there is none yet.
///
/// # Errors
/// What a part has left is damaged.
pub fn had_pinned_programs(folder: &Path) -> Result<Option<bool>> {
    let parts = std::fs::read_dir(folder.join(FOLDER_OF_PARTS)).into_iter().flatten().flatten();
    for part in parts {
        if let Some(had) = run::had_pinned_programs(&part.path())? {
            return Ok(Some(had));
        }
    }
    Ok(None)
}

/// Whether a part is complete, so that its programs are needed no more.
fn is_measured(part: &Plan, folder: &Path) -> bool {
    let home = home_of(part, folder);
    home.join("results.json").exists() && !home.join(JOURNAL).exists()
}

fn one(
    part: &Plan,
    options: &Options,
    folder: &Path,
    allow_changed_environment: bool,
    progress: &dyn Progress,
) -> Result<()> {
    let home = &home_of(part, folder);
    if is_measured(part, folder) {
        let there = report::read(home)?;
        let differences = part.differences_from(&there.plan);
        if !differences.is_empty() {
            return Err(Error::Plan(format!(
                "{} was measured with another plan ({}): remove that folder, or choose another for the study with --out",
                home.display(),
                differences.join("; ")
            )));
        }
        return Ok(());
    }
    let outcome = if home.join(JOURNAL).exists() {
        let how = Resumption { plan: Some(part), allow_changed_environment };
        run::resume(home, how, options, progress)?
    } else {
        std::fs::create_dir_all(home).doing(|| format!("create {}", home.display()))?;
        Some(run::run(part, options, home, progress)?)
    };
    match outcome.and_then(|outcome| outcome.interrupted_by) {
        Some(error) => Err(error),
        None => Ok(()),
    }
}

fn write(study: &Study, scale: Scale, folder: &Path) -> Result<StudyResults> {
    let mut parts = Parts::new();
    for part in &study.parts {
        let home = home_of(part, folder);
        if let Some(results) = read_part(&home)? {
            // samples alone are what is published, and those of an interrupted part become more
            if results.incomplete().is_some() || !home.join("report.html").exists() {
                report::write(&home, &results)?;
            }
            parts.insert(part.name.clone(), results);
        }
    }
    if parts.is_empty() {
        return Err(Error::Failed(format!(
            "{} has no part of the study {}",
            folder.display(),
            study.name
        )));
    }
    let page = table::page(study, &parts);
    let mut results = StudyResults {
        schema: SCHEMA,
        name: study.name.clone(),
        question: study.question.clone(),
        paper: study.paper.clone(),
        says: study.says.clone(),
        answer: page.answer,
        differs: study.differs.clone(),
        scale: scale.name().to_owned(),
        parts: study
            .parts
            .iter()
            .filter_map(|part| Some(told_of(&part.name, parts.get(&part.name)?)))
            .collect(),
        missing: study
            .parts
            .iter()
            .filter(|part| !parts.contains_key(&part.name))
            .map(|part| part.name.clone())
            .collect(),
        sections: page.sections,
        claims: page.claims,
        sentences: page.sentences,
        contradicted: Vec::new(),
    };
    results.contradicted = check::contradictions(&results);
    super::report::write(folder, &results)?;
    Ok(results)
}

/// Reads the results of a part, complete or not; none: it has none.
fn read_part(home: &Path) -> Result<Option<Results>> {
    match run::unfinished(home) {
        Ok(Some(results)) => Ok(Some(results)),
        Ok(None) if home.join("results.json").exists() => {
            let mut results = report::read(home)?;
            run::reanalyse(&mut results);
            Ok(Some(results))
        }
        Ok(None) => Ok(None),
        Err(Error::NothingMeasured) => Ok(None),
        Err(error) => Err(error),
    }
}

fn told_of(name: &str, results: &Results) -> PartResults {
    let environment = &results.environment;
    PartResults {
        name: name.to_owned(),
        question: results.plan.question.clone(),
        folder: format!("{FOLDER_OF_PARTS}/{name}"),
        link: results.link.name.clone(),
        offload: results.link.offload.clone(),
        family: results.plan.family.clone(),
        started: environment.started.clone(),
        finished: environment.finished.clone(),
        cpu: environment.cpu.clone(),
        cores: environment.cores,
        kernel: environment.kernel.clone(),
        programs: environment.programs_under_test(),
        samples: results.samples.len(),
        failed: results.samples.iter().filter(|sample| !sample.ok).count(),
        warnings: results.warnings.clone(),
        incomplete: results.incomplete(),
        user_space: user_space(&environment.stacks),
    }
}

/// Stacks that have a layer in user space: those that say so, and those over Headroom's own
/// tunnel, which is a process.
fn user_space(stacks: &BTreeMap<String, BTreeMap<String, String>>) -> Vec<String> {
    let is = |fact: &String| fact.contains("user space") || fact == "headroom tunnel";
    let stacks = stacks.iter().filter(|(_, facts)| facts.values().any(is));
    stacks.map(|(name, _)| name.clone()).collect()
}

/// Says which part a stage is of.
struct Told<'a> {
    progress: &'a dyn Progress,
    part: &'a str,
    number: usize,
    of: usize,
    /// Expected time of the parts after it.
    later: Duration,
}

impl Progress for Told<'_> {
    fn stage(&self, text: &str) {
        let Self { part, number, of, .. } = self;
        self.progress.stage(&format!("part {number} of {of}, {part}: {text}"));
    }

    fn left(&self, time: Duration) {
        self.progress.left(time + self.later);
    }

    fn done(&self, what: &str) {
        self.progress.done(what);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_measured_once_its_results_are_there_and_its_journal_is_gone() {
        let folder = tempfile::tempdir().expect("a folder");
        let plan =
            "[[part]]\nstacks = [\"ftp\"]\nname = \"p\"\n[[part.workload]]\nkind = \"download\"\n";
        let text = format!("question = \"\"\n{plan}");
        let study = Study::from_toml(&text, "s", &|_| Err(String::new())).expect("a study");
        let part = &study.parts[0];
        let home = home_of(part, folder.path());
        assert!(!is_measured(part, folder.path()));
        std::fs::create_dir_all(&home).expect("a folder");
        for (file, expected) in [("results.json", true), (JOURNAL, false)] {
            std::fs::write(home.join(file), "").expect("a file");
            assert_eq!(is_measured(part, folder.path()), expected, "with {file}");
        }
    }

    #[test]
    fn headrooms_own_tunnel_is_in_user_space() {
        let facts = [("ftp", "none"), ("ftp/esp", "headroom tunnel"), ("ftp/x", "in user space")];
        let facts = facts.map(|(stack, fact)| {
            (stack.to_owned(), BTreeMap::from([("backend".to_owned(), fact.to_owned())]))
        });
        assert_eq!(user_space(&facts.into()), ["ftp/esp", "ftp/x"]);
    }
}
