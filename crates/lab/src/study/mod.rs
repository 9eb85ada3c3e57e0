//! A study: several plans, and one report over them. Where it repeats a published one, the report
//! puts what the paper says beside what was measured.

mod check;
mod claim;
mod derived;
mod file;
mod kept;
pub mod measure;
mod published;
pub mod report;
pub mod results;
mod run;
mod section;
mod section_results;
mod sentence;
mod table;
mod template;
mod verdict;

use std::path::{Path, PathBuf};

use headroom_lab_host::error::{Error, Result};
use headroom_lab_host::programs::Program;

use crate::plan::{Plan, Scale, has_parts};
use crate::run::{self as lab_run, Options};

pub use check::contradictions;
pub use claim::Claim;
pub use kept::{keep, kept};
pub use results::StudyResults;
pub use run::{FOLDER_OF_PARTS, had_pinned_programs, rebuild, remaining, run};
pub use section::{Chart, Column, PublishedSource, Section};

/// A study that can be run: its parts are plans, and every section refers to what
/// these measure.
#[derive(Debug, Clone)]
pub struct Study {
    /// Short name; part of the output folder's name.
    pub name: String,
    /// The question, as a title.
    pub question: String,
    /// Authors and title of the paper; none: it repeats no paper.
    pub paper: Option<String>,
    /// The paper's answer.
    pub says: Option<String>,
    /// Our answer, with placeholders for figures: `{section/column/row}`; none: the tables are it.
    pub answer: Option<String>,
    /// The same, of what is measured at the smaller scales.
    answer_quick: Option<String>,
    /// Differences from the original set-up.
    pub differs: Vec<String>,
    /// The parts, named as their plans.
    pub parts: Vec<Plan>,
    /// Sections of the report, in order.
    pub sections: Vec<Section>,
    /// Sentences that the figures choose.
    pub claims: Vec<Claim>,
    source: kept::Source,
}

impl Study {
    /// Reads a study from a file; the tables it refers to lie in `published` beside it.
    ///
    /// # Errors
    /// [`Error::Plan`] with file and line.
    pub fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path).map_err(|error| {
            Error::Plan(format!("cannot read the study {}: {error}", path.display()))
        })?;
        let name = path.file_stem().map_or("study".into(), |stem| stem.to_string_lossy());
        let folder = path.parent().unwrap_or(Path::new(".")).join("published");
        Self::from_toml(&text, &name, &|table| published::text(&folder, table))
            .map_err(|error| Error::Plan(format!("{}:{error}", path.display())))
    }

    /// Reads a study; `tables` has the text of each table that it names.
    ///
    /// # Errors
    /// `LINE: sentence`.
    pub fn from_toml(
        text: &str,
        name: &str,
        tables: &dyn Fn(&str) -> std::result::Result<String, String>,
    ) -> std::result::Result<Self, String> {
        file::read(text, name, tables)
    }

    /// Lists what it defines, under headings: a line for each part, section and claim.
    pub fn outline(&self) -> [(&'static str, Vec<String>); 3] {
        let parts = self.parts.iter().map(|part| format!("{}: {}", part.name, part.outline()));
        let sections = self.sections.iter().map(Section::outline);
        let claims = self.claims.iter().map(|claim| claim.id.clone());
        [("Parts", parts.collect()), ("Sections", sections.collect()), ("Claims", claims.collect())]
    }

    /// Whether a file is a study, and not a plan: it has parts.
    pub fn is_one(path: &Path) -> bool {
        std::fs::read_to_string(path).is_ok_and(|text| has_parts(&text))
    }

    /// Its parts as large as `scale` is, without those that are left out there, and the
    /// answer that they can give.
    ///
    /// # Errors
    /// A part cannot be that small.
    pub fn at_scale(mut self, scale: Scale) -> Result<Self> {
        let parts = self.parts.into_iter().map(|part| part.at_scale(scale));
        self.parts = parts.collect::<Result<Vec<_>>>()?.into_iter().flatten().collect();
        if self.parts.is_empty() {
            let sentence =
                format!("the study {} has no part at the scale {}", self.name, scale.name());
            return Err(Error::Plan(sentence));
        }
        if scale != Scale::Full {
            self.answer = self.answer_quick.take().or(self.answer);
        }
        Ok(self)
    }

    /// Whether a part says in what it is smaller at a scale.
    pub fn is_smaller_at(&self, scale: Scale) -> bool {
        self.parts.iter().any(|part| part.is_smaller_at(scale))
    }

    /// Returns the programs that its parts need on this machine.
    pub fn programs(&self) -> Vec<Program> {
        let here = self.parts.iter().filter(|part| part.hosts.is_none());
        here.flat_map(Plan::programs).collect()
    }

    /// Returns the absolute paths of the recorded traces that links of this machine follow.
    pub fn traces(&self) -> Vec<PathBuf> {
        let here = self.parts.iter().filter(|part| part.hosts.is_none());
        here.flat_map(Plan::traces).collect()
    }

    /// Leaves out of every part the stacks whose programs its machines lack, and parts
    /// of which nothing is left; says which.
    pub fn leave_out_missing(&mut self, options: &Options) -> Vec<String> {
        let mut said = Vec::new();
        self.parts.retain_mut(|part| {
            match lab_run::machines(part, options)
                .and_then(|machines| part.leave_out_missing(&machines, options.lacking_commands))
            {
                Ok(sentences) => {
                    said.extend(
                        sentences.iter().map(|sentence| format!("{}: {sentence}", part.name)),
                    );
                    true
                }
                Err(error) => {
                    said.push(format!("the part {} is left out: {error}", part.name));
                    false
                }
            }
        });
        said
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn published_studies() -> Vec<Study> {
        let plans = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../plans/studies");
        let entries = std::fs::read_dir(plans).expect("the studies");
        let paths = entries.map(|entry| entry.expect("an entry").path());
        paths
            .filter(|path| path.extension().is_some_and(|extension| extension == "toml"))
            .map(|path| Study::read(&path).expect("a good study"))
            .collect()
    }

    #[test]
    fn the_plan_of_six_links_is_a_study_whose_quick_version_has_the_same_blocks() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../plans/pace.toml");
        let study = Study::read(&path).expect("a good study");
        assert_eq!((study.parts.len(), study.sections[0].columns.len()), (6, 6));
        let bbr = study.parts[0].stack("https#bbr").expect("it is there");
        assert_eq!(bbr.congestion_control.as_deref(), Some("bbr"));
        let quick = study.clone().at_scale(Scale::Quick).expect("parts");
        for (part, whole) in quick.parts.iter().zip(&study.parts) {
            assert_eq!((part.stacks.len(), part.repetitions), (1, whole.repetitions));
        }
        assert_eq!(study.at_scale(Scale::Smoke).expect("parts").parts.len(), 6);
    }

    #[test]
    fn the_plan_of_post_quantum_keys_takes_ten_minutes_and_names_every_baseline() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../plans/post-quantum.toml");
        let study = Study::read(&path).expect("a good study");
        let expected: std::time::Duration = study.parts.iter().map(lab_run::expected_time).sum();
        assert_eq!(lab_run::rounded(expected), "10 min");
        let round_trips = study.parts.iter().map(|part| part.link.longest_round_trip().as_millis());
        assert_eq!(round_trips.collect::<Vec<_>>(), [0, 20, 100, 200]);
        for part in &study.parts {
            let baseline = |name: &str| part.stack(name).and_then(|one| one.baseline.as_deref());
            for (stack, same_without) in [
                ("https(mlkem768)", Some("https(x25519)")),
                ("https(mlkem768,mldsa65)", Some("https(mlkem768)")),
                ("sftp(mlkem768)", Some("sftp")),
                ("sftp(sntrup761)", Some("sftp")),
                ("ssh(mlkem768)", Some("ssh")),
                ("http/esp(ike)", Some("http/esp(ike,pq=off)")),
                ("http/strongswan(pq)", Some("http/strongswan")),
                ("headroom", None),
            ] {
                assert!(part.stack(stack).is_some(), "{}: {stack}", part.name);
                assert_eq!(baseline(stack), same_without, "{}: {stack}", part.name);
            }
        }
        let smoke = study.at_scale(Scale::Smoke).expect("parts");
        assert!(smoke.parts.iter().all(|part| part.repetitions == 2));
    }

    #[test]
    fn an_answer_lacks_no_figure_at_full_size_or_quick() {
        for study in published_studies() {
            for scale in [Scale::Full, Scale::Quick] {
                let study = study.clone().at_scale(scale).expect("parts");
                let answer = study.answer.as_deref().expect("an answer");
                template::fill_with(answer, |reference| {
                    if reference.starts_with('?') {
                        return Ok(String::new());
                    }
                    let (section, column, row) =
                        section::find(&study.sections, reference).ok_or("refers to nothing")?;
                    let section = &study.sections[section];
                    if let section::Shows::Cell { cell, .. } = &section.columns[column].shows {
                        section::require_any(&study.parts, &cell.places(&section.rows[row].1)?)?;
                    }
                    Ok(String::new())
                })
                .unwrap_or_else(|why| panic!("{}, {}: {why}", study.name, scale.name()));
            }
        }
    }
}
