//! The table of what was tried with whom.

use std::fmt::Write;

use super::Trial;
use super::scapy::Check;
use crate::trial::Outcome;

/// What was tried with one peer.
#[derive(Debug)]
pub struct Column {
    /// The peer and its version.
    pub title: String,
    /// The results.
    pub outcomes: Vec<(Trial, Outcome)>,
}

impl Column {
    /// Returns a sentence for each failure.
    pub fn failures(&self) -> impl Iterator<Item = String> {
        self.outcomes.iter().filter_map(|(trial, outcome)| match outcome {
            Outcome::Failed(why) => Some(format!("{}: {trial}: {why}", self.title)),
            _ => None,
        })
    }
}

/// Writes the section: a row for each trial, a column for each peer, notes on what did not pass.
pub fn document(about: &[String], columns: &[Column], missing: &[String]) -> String {
    let mut text = "\n## IKEv2\n".to_owned();
    for paragraph in about {
        let _ = write!(text, "\n{paragraph}\n");
    }
    for peer in missing {
        let _ = write!(text, "\nNot tried: {peer}.\n");
    }
    let titles: Vec<&str> = columns.iter().map(|column| column.title.as_str()).collect();
    let _ = write!(text, "\n| | {} |\n|---|{}\n", titles.join(" | "), "---|".repeat(titles.len()));
    let mut notes: Vec<String> = Vec::new();
    for trial in Trial::ALL {
        let _ = write!(text, "| {trial} |");
        for column in columns {
            let outcome = column.outcomes.iter().find(|(tried, _)| *tried == trial);
            let note = match outcome.map(|(_, outcome)| outcome) {
                None => {
                    text.push_str(" |");
                    continue;
                }
                Some(Outcome::Passed) => {
                    text.push_str(" passed |");
                    continue;
                }
                Some(Outcome::Lacks(why)) => (*why).to_owned(),
                Some(Outcome::Failed(why)) => {
                    format!("FAILED: {}: {trial}: {}", column.title, why.replace('\n', " "))
                }
            };
            let at = notes.iter().position(|known| *known == note).unwrap_or_else(|| {
                notes.push(note.clone());
                notes.len() - 1
            });
            let what = match note.split(':').next() {
                Some(what @ ("FAILED" | "not tried")) => what.to_owned(),
                _ => "no".to_owned(),
            };
            let _ = write!(text, " {what} [{}] |", at + 1);
        }
        text.push('\n');
    }
    if !notes.is_empty() {
        text.push('\n');
    }
    for (at, note) in notes.iter().enumerate() {
        let _ = writeln!(text, "[{}] {note}", at + 1);
    }
    text
}

/// Writes the section on exchanges with scapy: rows of sound ones, then of hostile ones.
pub fn document_of_checks(about: &[String], checks: &[Check]) -> String {
    let mut text = "\n### scapy as an initiator\n".to_owned();
    for paragraph in about {
        let _ = write!(text, "\n{paragraph}\n");
    }
    for is_hostile in [false, true] {
        let title = if is_hostile { "hostile" } else { "exchange" };
        let _ = write!(text, "\n| {title} | |\n|---|---|\n");
        for Check { what, outcome, .. } in
            checks.iter().filter(|check| check.is_hostile == is_hostile)
        {
            let said = match outcome {
                Outcome::Passed => "passed".to_owned(),
                Outcome::Lacks(why) => (*why).to_owned(),
                Outcome::Failed(why) => format!("FAILED: {}", why.replace('\n', " ")),
            };
            let _ = writeln!(text, "| {what} | {said} |");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_says_what_passed_and_why_something_did_not() {
        let outcomes = vec![
            (Trial::WeInitiate, Outcome::Passed),
            (Trial::TheyInitiate, Outcome::Failed("no\nanswer".to_owned())),
            (Trial::PostQuantumByUs, Outcome::Lacks("it has none")),
            (Trial::PostQuantumByThem, Outcome::Lacks("it has none")),
        ];
        let column = Column { title: "peer 1.0".to_owned(), outcomes };
        assert_eq!(column.failures().count(), 1);
        let text = document(&["about".to_owned()], &[column], &["other: no gcc".to_owned()]);
        assert!(text.contains("| set-up with X25519, we initiate | passed |"), "{text}");
        assert!(text.contains("the peer initiates | FAILED [1] |"), "{text}");
        assert_eq!(text.matches(" no [2] |").count(), 2, "{text}");
        assert!(
            text.contains(
                "[1] FAILED: peer 1.0: set-up with X25519, the peer initiates: no answer"
            ),
            "{text}"
        );
        assert!(text.contains("\nNot tried: other: no gcc.\n"), "{text}");
    }
}
