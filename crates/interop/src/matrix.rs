//! Writes the results: a table for each peer and protocol.

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::trial::{Outcome, Trial};

/// The results with one peer.
#[derive(Debug)]
pub struct Section {
    /// The peer.
    pub title: String,
    /// Versions, set-up, the steps of a check, missing features.
    pub about: Vec<String>,
    /// The cases; empty: the peer was missing.
    pub trials: Vec<Trial>,
    /// Further tests.
    pub others: Vec<Other>,
}

/// A test that is no combination.
#[derive(Debug)]
pub struct Other {
    /// Its description.
    pub what: String,
    /// Number of directions: one or two.
    pub directions: usize,
    /// The result.
    pub outcome: Outcome,
}

impl Section {
    /// Makes the section of a peer that could not be tested, and why.
    pub fn missing(title: &str, why: &str) -> Self {
        let about = vec![format!("Not tried: {why}.")];
        Self { title: title.to_owned(), about, trials: Vec::new(), others: Vec::new() }
    }

    /// Returns a sentence for each failure.
    pub fn failures(&self) -> Vec<String> {
        let transfers = self.others.iter().filter_map(|other| match &other.outcome {
            Outcome::Failed(why) => Some(format!("{}: {}: {why}", self.title, other.what)),
            _ => None,
        });
        self.trials.iter().flat_map(Trial::failures).chain(transfers).collect()
    }

    fn tally(&self) -> Tally {
        let transfers = self
            .others
            .iter()
            .flat_map(|other| std::iter::repeat_n(&other.outcome, other.directions));
        Tally::of(outcomes(self.trials.iter()).chain(transfers))
    }
}

/// Writes the document: `about`, then the sections.
pub fn document(about: &[String], sections: &[Section]) -> String {
    let mut text = "# Interoperation\n".to_owned();
    for paragraph in about {
        let _ = write!(text, "\n{paragraph}\n");
    }
    text += "\n| peer | combinations | directions that passed | not supported by the peer | failed |\n|---|---:|---:|---:|---:|\n";
    for section in sections {
        let tally = section.tally();
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} |",
            section.title,
            section.trials.len() + section.others.len(),
            tally.passed,
            tally.lacking,
            tally.failed
        );
    }
    for section in sections {
        write_section(&mut text, section);
    }
    text
}

fn write_section(text: &mut String, section: &Section) {
    let _ = write!(text, "\n## {}\n", section.title);
    for paragraph in &section.about {
        let _ = write!(text, "\n{paragraph}\n");
    }
    if !section.others.is_empty() {
        text.push_str("\n| test | result |\n|---|---|\n");
    }
    for Other { what, outcome, .. } in &section.others {
        let came = match outcome {
            Outcome::Passed => "passed".to_owned(),
            Outcome::Lacks(why) => (*why).to_owned(),
            Outcome::Failed(why) => format!("FAILED: {}", why.replace('\n', " ")),
        };
        let _ = writeln!(text, "| {what} | {came} |");
    }
    let mut notes = Notes::default();
    for protocols in ["ESP", "AH", "AH+ESP"] {
        let of = |trial: &&Trial| trial.case.protocols() == protocols;
        let trials: Vec<&Trial> = section.trials.iter().filter(of).collect();
        if !trials.is_empty() {
            write_table(text, protocols, &trials, &mut notes);
        }
    }
    if !notes.0.is_empty() {
        text.push('\n');
    }
    for (at, note) in notes.0.iter().enumerate() {
        let _ = writeln!(text, "[{}] {note}", at + 1);
    }
}

/// Writes a table: rows are algorithms, columns shapes; a cell counts how many of its
/// directions, with and without ESN, passed.
fn write_table(text: &mut String, protocols: &str, trials: &[&Trial], notes: &mut Notes) {
    let mut rows: Vec<String> = Vec::new();
    let mut columns: Vec<String> = Vec::new();
    let mut cells: BTreeMap<(String, String), Vec<&Trial>> = BTreeMap::new();
    for trial in trials {
        let (row, column) = (trial.case.algorithms(), trial.case.shape());
        if !rows.contains(&row) {
            rows.push(row.clone());
        }
        if !columns.contains(&column) {
            columns.push(column.clone());
        }
        cells.entry((row, column)).or_default().push(trial);
    }
    let _ = write!(text, "\n### {protocols}\n\n| algorithms | {} |\n", columns.join(" | "));
    let _ = writeln!(text, "|---|{}", "---:|".repeat(columns.len()));
    for row in rows {
        let _ = write!(text, "| {row} |");
        for column in &columns {
            let trials = cells.get(&(row.clone(), column.clone())).map_or(&[][..], Vec::as_slice);
            if !trials.is_empty() {
                let tally = Tally::of(outcomes(trials.iter().copied()));
                let _ = write!(text, " {}/{}", tally.passed, 2 * trials.len());
            }
            for number in trials.iter().flat_map(|trial| notes.numbers(trial)) {
                let _ = write!(text, " [{number}]");
            }
            text.push_str(" |");
        }
        text.push('\n');
    }
}

/// Counts of directions by outcome.
#[derive(Default)]
struct Tally {
    passed: usize,
    lacking: usize,
    failed: usize,
}

impl Tally {
    fn of<'a>(outcomes: impl Iterator<Item = &'a Outcome>) -> Self {
        let mut tally = Self::default();
        for outcome in outcomes {
            match outcome {
                Outcome::Passed => tally.passed += 1,
                Outcome::Lacks(_) => tally.lacking += 1,
                Outcome::Failed(_) => tally.failed += 1,
            }
        }
        tally
    }
}

fn outcomes<'a>(trials: impl Iterator<Item = &'a Trial>) -> impl Iterator<Item = &'a Outcome> {
    trials.flat_map(|trial| [&trial.outbound, &trial.inbound])
}

/// Numbered explanations of what did not pass.
#[derive(Default)]
struct Notes(Vec<String>);

impl Notes {
    fn numbers(&mut self, trial: &Trial) -> Vec<usize> {
        let mut numbers = Vec::new();
        let ways = [("outbound", &trial.outbound), ("inbound", &trial.inbound)];
        for (way, outcome) in ways {
            let note = match outcome {
                Outcome::Passed => continue,
                Outcome::Lacks(why) => (*why).to_owned(),
                Outcome::Failed(why) => format!("FAILED: {}, {way}: {why}", trial.case),
            };
            let at = self.0.iter().position(|known| *known == note).unwrap_or_else(|| {
                self.0.push(note);
                self.0.len() - 1
            });
            if !numbers.contains(&(at + 1)) {
                numbers.push(at + 1);
            }
        }
        numbers
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::Case;

    #[test]
    fn a_cell_counts_directions_and_a_note_says_what_did_not_pass() {
        let cases = Case::ah();
        let shape = cases[0].shape();
        let of_one_cell: Vec<Case> = cases
            .iter()
            .filter(|case| case.shape() == shape && case.algorithms() == cases[0].algorithms())
            .copied()
            .collect();
        assert_eq!(of_one_cell.len(), 2, "with and without ESN");
        let trials = vec![
            Trial { case: of_one_cell[0], outbound: Outcome::Passed, inbound: Outcome::Passed },
            Trial {
                case: of_one_cell[1],
                outbound: Outcome::Lacks("it has no ESN"),
                inbound: Outcome::Failed("no answer".to_owned()),
            },
        ];
        let section = Section {
            title: "peer".to_owned(),
            about: vec!["about".to_owned()],
            trials,
            others: vec![Other {
                what: "a file".to_owned(),
                directions: 2,
                outcome: Outcome::Passed,
            }],
        };
        let text = document(&["all".to_owned()], &[section]);
        assert!(text.contains("| peer | 3 | 4 | 1 | 1 |"), "{text}");
        assert!(text.contains("| hmac-md5 | 2/4 [1] [2] |"), "{text}");
        assert!(text.contains("[1] it has no ESN\n"), "{text}");
        assert!(
            text.contains("[2] FAILED: AH hmac-md5, transport, IPv4, ESN, inbound: no answer"),
            "{text}"
        );
    }
}
