//! A study in Markdown.

use std::fmt::Write as _;

use super::{NOT_MEASURED, answers, chart, figures, machines, notices, period, programs, set_up};
use crate::study::results::{SectionResults, StudyResults};

pub(super) fn summary(study: &StudyResults) -> String {
    let mut text = format!("# {}\n\n", study.question);
    if let Some(paper) = &study.paper {
        let _ = writeln!(text, "{paper}\n");
    }
    for (what, answer) in answers(study) {
        let _ = writeln!(text, "{what}: {answer}\n");
    }
    for notice in notices(study) {
        let _ = writeln!(text, "> {notice}\n");
    }
    for one in &study.sections {
        section(&mut text, study, one);
    }
    let _ = writeln!(text, "## {}\n", set_up(study));
    for difference in &study.differs {
        let _ = writeln!(text, "- {difference}");
    }
    if let Some((from, to)) = period(study) {
        let _ = writeln!(
            text,
            "\nMeasured from {from} to {to} on {}. Brackets are 95 % intervals.\n\n{}",
            machines(study),
            programs(study)
        );
    }
    text
}

fn section(text: &mut String, study: &StudyResults, section: &SectionResults) {
    let _ = writeln!(text, "## {}\n", section.title);
    let said = [
        ("The paper: ", &section.paper),
        ("", &section.compared),
        ("Checked: ", &section.note),
        ("Why: ", &section.because),
    ];
    for (what, sentence) in said {
        if let Some(sentence) = sentence {
            let _ = writeln!(text, "{what}{sentence}\n");
        }
    }
    if chart::alone(section).is_some() {
        let _ = writeln!(text, "![{}]({}.svg)\n", section.title, section.id);
    }
    if !section.is_measured() {
        let _ = writeln!(text, "{NOT_MEASURED}\n");
    }
    if section.filled().next().is_some() {
        for columns in figures::tables(section) {
            let _ = writeln!(text, "{}", table(section, &columns));
        }
        if let Some(note) = figures::note(study, section) {
            let _ = writeln!(text, "{}\n", note.replace('*', "\\*"));
        }
    }
}

/// A table in which no cell sets text in italics.
fn table(section: &SectionResults, columns: &[usize]) -> String {
    let mut table = figures::table(section, columns);
    for cell in table.rows.iter_mut().flat_map(|row| row.iter_mut().skip(1)) {
        *cell = cell.replace('*', "\\*");
    }
    table.markdown()
}
