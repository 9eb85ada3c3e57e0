//! A study in Markdown.

use std::fmt::Write as _;

use super::{NOT_MEASURED, chart, figures, machines, notices, period, programs};
use crate::study::results::{SectionResults, StudyResults};
use headroom_lab_results::report::table::Table;

pub(super) fn summary(study: &StudyResults) -> String {
    let mut text = format!("# {}\n\n", study.question);
    let _ = writeln!(text, "{}\n", study.paper);
    let _ = writeln!(text, "The paper: {}\n", study.says);
    let _ = writeln!(text, "Measured again: {}\n", study.answer);
    for notice in notices(study) {
        let _ = writeln!(text, "> {notice}\n");
    }
    for one in &study.sections {
        section(&mut text, study, one);
    }
    text += "## How the set-up differs\n\n";
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
            let _ = writeln!(text, "{}", table(section, &columns).markdown());
        }
        if let Some(note) = figures::note(study, section) {
            let _ = writeln!(text, "{}\n", note.replace('*', "\\*"));
        }
    }
}

fn table(section: &SectionResults, columns: &[usize]) -> Table {
    let mut header = vec![String::new()];
    for column in columns.iter().map(|index| &section.columns[*index]) {
        let unit =
            if column.unit.is_empty() { String::new() } else { format!(", {}", column.unit) };
        let title = column.heading();
        if column.published {
            header.push(format!("{title}{unit}: {}", figures::source(section)));
            header.push("measured".to_owned());
        } else {
            header.push(format!("{title}{unit}"));
        }
    }
    let rows = section.filled().map(|row| {
        let mut cells = vec![row.label.clone()];
        for index in columns {
            let (column, value) = (&section.columns[*index], &row.values[*index]);
            cells.extend(column.published.then(|| figures::published(value)));
            cells.push(figures::measured(section, value).replace('*', "\\*"));
        }
        cells
    });
    Table { rows: rows.collect(), header }
}
