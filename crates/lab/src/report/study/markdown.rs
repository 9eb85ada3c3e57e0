//! A study in Markdown.

use std::fmt::Write as _;

use super::{NOT_MEASURED, chart, machines, measured, period, published};
use crate::report::markdown::Table;
use crate::study::results::{SectionResults, StudyResults};

pub(super) fn summary(study: &StudyResults) -> String {
    let mut text = format!("# {}\n\n", study.question);
    let _ = writeln!(text, "{}\n", study.paper);
    let _ = writeln!(text, "The paper: {}\n", study.says);
    let _ = writeln!(text, "Measured again: {}\n", study.answer);
    if study.scale != "full" {
        let _ = writeln!(
            text,
            "This is a run at the scale {}: fewer and smaller samples.\n",
            study.scale
        );
    }
    if !study.missing.is_empty() {
        let _ = writeln!(text, "Not measured yet: {}.\n", study.missing.join(", "));
    }
    for one in &study.sections {
        section(&mut text, one);
    }
    text += "## How the set-up differs\n\n";
    for difference in &study.differs {
        let _ = writeln!(text, "- {difference}");
    }
    if let Some((from, to)) = period(study) {
        let _ = writeln!(
            text,
            "\nMeasured from {from} to {to} on {}. Brackets are 95 % intervals.",
            machines(study)
        );
    }
    text
}

fn section(text: &mut String, section: &SectionResults) {
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
        let _ = writeln!(text, "{}", table(section).markdown());
    }
}

fn table(section: &SectionResults) -> Table {
    let mut header = vec![String::new()];
    for column in &section.columns {
        let unit =
            if column.unit.is_empty() { String::new() } else { format!(", {}", column.unit) };
        if column.published {
            header.push(format!("{}{unit}: paper", column.title));
            header.push("measured".to_owned());
        } else {
            header.push(format!("{}{unit}", column.title));
        }
    }
    let rows = section.filled().map(|row| {
        let mut cells = vec![row.label.clone()];
        for (column, value) in section.columns.iter().zip(&row.values) {
            cells.extend(column.published.then(|| published(value)));
            cells.push(measured(value));
        }
        cells
    });
    Table { rows: rows.collect(), header }
}
