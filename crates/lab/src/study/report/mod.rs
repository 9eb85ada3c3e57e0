//! Writes reports of studies.

mod chart;
mod figures;
mod index;
mod markdown;
mod page;

use std::collections::BTreeSet;
use std::path::Path;

use headroom_lab_host::error::{Doing, Result};
use headroom_lab_results::report::columns::{aligned, hint, wrapped};
use headroom_lab_results::report::csv;
use headroom_lab_results::report::terminal::Detail;

use crate::study::results::{SCHEMA, SectionResults, StudyResults};

pub use index::write as write_index;

/// The file in a study's folder that the others are made of.
pub const JSON: &str = "study.json";

/// Replaces a figure that a section lacks.
const NOT_MEASURED: &str = "Not measured at this scale, or on this machine.";

/// Writes `study.json` and the files made from it into `folder`.
///
/// # Errors
/// A file could not be written.
pub fn write(folder: &Path, study: &StudyResults) -> Result<()> {
    let json = serde_json::to_string_pretty(study).doing(|| format!("write {JSON}"))?;
    let mut files = vec![
        (JSON.to_owned(), json),
        ("study.csv".to_owned(), table(study)),
        ("study.md".to_owned(), markdown::summary(study)),
        ("report.html".to_owned(), page::page(study)),
    ];
    let drawn = study
        .sections
        .iter()
        .filter_map(|section| Some((format!("{}.svg", section.id), chart::alone(section)?)));
    files.extend(drawn);
    for (name, content) in files {
        let path = folder.join(name);
        std::fs::write(&path, content).doing(|| format!("write {}", path.display()))?;
    }
    Ok(())
}

/// Reads the `study.json` of a folder.
///
/// # Errors
/// It is not there, not JSON, or of another schema.
pub fn read(folder: &Path) -> Result<StudyResults> {
    let path = folder.join(JSON);
    let text = std::fs::read_to_string(&path).doing(|| format!("read {}", path.display()))?;
    let study: StudyResults = serde_json::from_slice(text.as_bytes())
        .doing(|| format!("read {} as a study's results", path.display()))?;
    if study.schema != SCHEMA {
        let (path, schema) = (path.display(), study.schema);
        let sentence = format!("{path} has schema {schema}, this program reads {SCHEMA}");
        return Err(headroom_lab_results::Error::NotResults(sentence).into());
    }
    Ok(study)
}

/// Prints the paper's answer and ours for a terminal; in full also the comparison of every
/// table, which `command` prints otherwise. Where there is no paper, or no answer, the tables are
/// what was asked for.
pub fn terminal(study: &StudyResults, command: &str, width: usize, detail: Detail) -> String {
    let mut text = wrapped(&study.question, width);
    for notice in notices(study) {
        text += &wrapped(&format!("! {notice}"), width);
    }
    for (what, answer) in answers(study) {
        text += &wrapped(&format!("{what}: {answer}"), width);
    }
    if study.paper.is_none() || study.answer.is_none() {
        for section in &study.sections {
            text += &format!("\n{}", wrapped(&section.title, width));
            text += &tables(study, section, width);
        }
    }
    let mut compared = study.sections.iter().filter_map(|section| {
        section.compared.as_ref().map(|compared| format!("{}. {compared}", section.title))
    });
    match detail {
        Detail::Main if compared.next().is_none() => text,
        Detail::Main => text + &hint("More:", command, width),
        Detail::Full => {
            compared.fold(text, |text, compared| text + "\n" + &wrapped(&compared, width))
        }
    }
}

/// The paper's answer and ours, where there are such, each behind what it is.
fn answers(study: &StudyResults) -> impl Iterator<Item = (&'static str, &str)> {
    let measured = if study.paper.is_some() { "Measured again" } else { "Measured" };
    let all = [("The paper", study.says.as_deref()), (measured, study.answer.as_deref())];
    all.into_iter().filter_map(|(what, answer)| Some((what, answer?)))
}

/// The title of what differs from the paper's set-up and of what was measured.
fn set_up(study: &StudyResults) -> &'static str {
    if study.paper.is_some() { "How the set-up differs" } else { "Set-up" }
}

/// A section's tables for a terminal, with what the reader has to know of them.
fn tables(study: &StudyResults, section: &SectionResults, width: usize) -> String {
    if !section.is_measured() {
        return wrapped(NOT_MEASURED, width);
    }
    let all = figures::tables(section);
    let tables: String =
        all.iter().map(|columns| aligned(&figures::table(section, columns))).collect();
    tables + &figures::note(study, section).map_or_else(String::new, |note| wrapped(&note, width))
}

/// Whether there are folders of studies in `folder`.
pub fn has_studies(folder: &Path) -> bool {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.into_iter().any(|entry| entry.path().join(JSON).is_file())
}

/// Writes one line for each figure.
fn table(study: &StudyResults) -> String {
    let names = [
        "section",
        "row",
        "column",
        "unit",
        "published",
        "measured",
        "ci95_low",
        "ci95_high",
        "n",
        "not_shaped",
    ];
    let number = |value: Option<f64>| value.map_or_else(String::new, |value| value.to_string());
    let rows = study.sections.iter().flat_map(|section| {
        section.rows.iter().flat_map(move |row| {
            section.columns.iter().zip(&row.values).map(move |(column, value)| {
                let ends = value.measured.and_then(|measured| measured.ci95);
                [
                    section.id.clone(),
                    row.label.clone(),
                    column.heading(),
                    column.unit.clone(),
                    number(value.published),
                    number(value.measured.map(|measured| measured.value)),
                    number(ends.map(|[lo, _]| lo)),
                    number(ends.map(|[_, hi]| hi)),
                    value.measured.and_then(|m| m.n).map_or_else(String::new, |n| n.to_string()),
                    value.not_shaped.to_string(),
                ]
            })
        })
    });
    csv::text(names, rows)
}

/// The machines that measured it; where there are several, with the parts of each.
fn machines(study: &StudyResults) -> String {
    let mut machines: Vec<(String, Vec<&str>)> = Vec::new();
    for part in &study.parts {
        let machine = format!("{}, {} cores, Linux {}", part.cpu, part.cores, part.kernel);
        let name = label(study, &part.name);
        match machines.iter_mut().find(|(same, _)| *same == machine) {
            Some((_, parts)) => parts.push(name),
            None => machines.push((machine, vec![name])),
        }
    }
    match machines.as_slice() {
        [(machine, _)] => machine.clone(),
        several => {
            let told: Vec<String> = several
                .iter()
                .map(|(machine, parts)| format!("{machine} ({})", parts.join("; ")))
                .collect();
            format!("{}: their figures are not comparable", told.join(", and "))
        }
    }
}

/// The programs that were measured, each once.
fn programs(study: &StudyResults) -> String {
    let all: BTreeSet<&str> =
        study.parts.iter().flat_map(|part| &part.programs).map(String::as_str).collect();
    let all: Vec<&str> = all.into_iter().collect();
    format!("Programs: {}.", all.join("; "))
}

/// The name of a part for a reader: the label of the row that shows it, where a section has
/// a row for each part.
fn label<'a>(study: &'a StudyResults, part: &'a str) -> &'a str {
    let mut rows = study.sections.iter().flat_map(|section| &section.rows);
    rows.find(|row| row.name == part).map_or(part, |row| row.label.as_str())
}

/// Returns the start of the first part and the end of the last.
fn period(study: &StudyResults) -> Option<(&str, &str)> {
    let from = study.parts.iter().map(|part| part.started.as_str()).min()?;
    let to = study.parts.iter().map(|part| part.finished.as_str()).max()?;
    Some((from, to))
}

/// Notices above everything else.
fn notices(study: &StudyResults) -> Vec<String> {
    let mut all = Vec::new();
    match study.scale.as_str() {
        "full" => {}
        "smoke" => {
            all.push("This is a smoke test of the study. Its figures mean nothing.".to_owned());
        }
        scale => all.push(format!(
            "This is a run at the scale {scale}: fewer or smaller samples than the whole study has."
        )),
    }
    if !study.missing.is_empty() {
        all.push(format!("Not measured yet: {}.", study.missing.join(", ")));
    }
    for part in &study.parts {
        all.extend(part.incomplete.as_ref().map(|why| format!("{}: {why}", part.name)));
    }
    let contradicted = study.contradicted.iter();
    all.extend(
        contradicted.map(|why| format!("The sentence contradicts a figure on this page. {why}")),
    );
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::study::section_results::testing;

    fn measured_on(kernels: &[&str]) -> StudyResults {
        let part = |(number, kernel): (usize, &&str)| {
            serde_json::json!({
                "name": format!("part-{number}"), "question": "", "folder": "", "link": "", "offload": "", "family": "",
                "started": format!("2026-11-2{number}"), "finished": format!("2026-11-2{}", number + 1),
                "cpu": "A CPU", "cores": 2, "kernel": kernel, "samples": 1, "failed": 0, "warnings": [],
                "incomplete": null, "user_space": []
            })
        };
        let parts: Vec<_> = kernels.iter().enumerate().map(part).collect();
        serde_json::from_value(serde_json::json!({
            "schema": SCHEMA, "name": "", "question": "", "paper": "", "says": "", "answer": "", "differs": [],
            "scale": "full", "parts": parts, "sections": [], "claims": [], "sentences": [],
            "contradicted": []
        }))
        .expect("a study")
    }

    #[test]
    fn without_a_paper_or_an_answer_the_tables_are_the_answer() {
        let mut study = measured_on(&["6.1"]);
        study.sections =
            vec![testing::section("share", &["https"], &[("lossy", &[(40.0, 1.0, 5)])])];
        study.paper = Some("Somebody: Something".to_owned());
        study.says = Some("A third.".to_owned());
        study.answer = Some("Two fifths.".to_owned());
        let pages = |study: &StudyResults| {
            [terminal(study, "", 80, Detail::Main), markdown::summary(study), page::page(study)]
        };
        for text in pages(&study) {
            assert!(text.contains("The paper") && text.contains("Measured again"), "{text}");
        }
        assert!(!terminal(&study, "", 80, Detail::Main).contains("lossy"), "its answer is enough");
        (study.paper, study.says) = (None, None);
        for text in pages(&study) {
            assert!(text.contains("lossy") && text.contains("n = 5 runs."), "{text}");
            assert!(text.contains("Measured") && text.contains("Two fifths."), "{text}");
            for word in ["The paper", "Measured again", "run again", "set-up differs"] {
                assert!(!text.contains(word), "{word}: {text}");
            }
        }
        study.answer = None;
        for text in pages(&study) {
            assert!(text.contains("lossy") && !text.contains("Measured:"), "{text}");
        }
    }

    #[test]
    fn parts_of_different_machines_are_told_apart() {
        assert_eq!(machines(&measured_on(&["6.1", "6.1"])), "A CPU, 2 cores, Linux 6.1");
        assert_eq!(
            machines(&measured_on(&["6.1", "6.2", "6.1"])),
            "A CPU, 2 cores, Linux 6.1 (part-0; part-2), and A CPU, 2 cores, Linux 6.2 (part-1): their figures are not \
             comparable"
        );
        assert_eq!(period(&measured_on(&["6.1", "6.2"])), Some(("2026-11-20", "2026-11-22")));
        let mut study = measured_on(&["6.1", "6.2"]);
        study.sections =
            vec![testing::section("share", &["https"], &[("part-1", &[(40.0, 1.0, 5)])])];
        study.sections[0].rows[0].label = "1 % loss".to_owned();
        assert!(machines(&study).contains("Linux 6.2 (1 % loss)"), "{}", machines(&study));
    }
}
