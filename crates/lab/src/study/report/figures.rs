//! A section's table as every report shows it: which columns stand together, what is in a
//! cell, and what the reader has to know of all of them.

use std::collections::BTreeSet;

use headroom_lab_results::analysis::stats::MIN_RUNS;
use headroom_lab_results::report::table::Table;

use crate::study::PublishedSource;
use crate::study::results::{ColumnResults, SectionResults, StudyResults, Value};

/// Cells that a row of a table has at most, beside its label.
const WIDEST: usize = 8;

/// The columns of each table that a section is shown as: as few tables as are not too
/// wide, with about as many cells in each.
pub(super) fn tables(section: &SectionResults) -> Vec<Vec<usize>> {
    let cells = |column: &ColumnResults| if column.published { 2 } else { 1 };
    let all: usize = section.columns.iter().map(cells).sum();
    let wanted = all.div_ceil(all.div_ceil(WIDEST).max(1));
    let mut tables: Vec<(usize, Vec<usize>)> = Vec::new();
    for (index, column) in section.columns.iter().enumerate() {
        match tables.last_mut() {
            Some((width, table)) if *width + cells(column) <= wanted.max(2) => {
                *width += cells(column);
                table.push(index);
            }
            _ => tables.push((cells(column), vec![index])),
        }
    }
    tables.into_iter().map(|(_, table)| table).collect()
}

/// One of these tables.
pub(super) fn table(section: &SectionResults, columns: &[usize]) -> Table {
    let mut header = vec![String::new()];
    for column in columns.iter().map(|index| &section.columns[*index]) {
        let unit =
            if column.unit.is_empty() { String::new() } else { format!(", {}", column.unit) };
        let title = column.heading();
        if column.published {
            header.push(format!("{title}{unit}: {}", source(section)));
            header.push("measured".to_owned());
        } else {
            header.push(format!("{title}{unit}"));
        }
    }
    let rows = section.filled().map(|row| {
        let mut cells = vec![row.label.clone()];
        for index in columns {
            let (column, value) = (&section.columns[*index], &row.values[*index]);
            cells.extend(column.published.then(|| published(value)));
            cells.push(measured(section, value));
        }
        cells
    });
    Table { rows: rows.collect(), header }
}

/// Names the origin of the published column.
pub(super) fn source(section: &SectionResults) -> &'static str {
    match section.source {
        PublishedSource::Paper => "paper",
        PublishedSource::Formula => "formula",
    }
}

/// Ours as it stands in a table: † not shaped, ‡ without the interval of two runs, * few
/// runs where other cells have enough.
pub(super) fn measured(section: &SectionResults, value: &Value) -> String {
    let Some(figure) = value.measured else { return "–".to_owned() };
    let mut text = figure.rounded();
    if value.not_shaped {
        text += " †";
    }
    if figure.is_of_two() {
        text += " ‡";
    }
    let runs = runs(section);
    let is_mixed = runs.last().is_some_and(|most| *most >= MIN_RUNS);
    if is_mixed && figure.n.is_some_and(|n| n < MIN_RUNS) {
        text += " *";
    }
    text
}

/// The paper's, as it printed it.
pub(super) fn published(value: &Value) -> String {
    value.published.map_or_else(|| "–".to_owned(), |published| published.to_string())
}

fn values(section: &SectionResults) -> impl Iterator<Item = &Value> {
    section.rows.iter().flat_map(|row| &row.values)
}

/// Lists the numbers of runs of cells.
fn runs(section: &SectionResults) -> BTreeSet<usize> {
    values(section).filter_map(|value| value.measured?.n).collect()
}

/// Writes the line below a table: runs, marks, and the offload profile of an unshaped link.
pub(super) fn note(study: &StudyResults, section: &SectionResults) -> Option<String> {
    let mut sentences = Vec::new();
    let runs = runs(section);
    if let (Some(least), Some(most)) = (runs.first(), runs.last()) {
        let few =
            "no comparison is drawn from fewer than five runs, which wait for a full measurement";
        sentences.push(match (least == most, *least < MIN_RUNS, *most < MIN_RUNS) {
            (true, false, _) => format!("n = {least} runs."),
            (true, true, _) => format!("n = {least} runs; {few}."),
            (false, false, _) => format!("n = {least} to {most} runs."),
            (false, true, true) => format!("n = {least} to {most} runs; {few}."),
            (false, true, false) => {
                format!("n = {least} to {most} runs; * fewer than five; {few}.")
            }
        });
    }
    if values(section).filter_map(|value| value.measured).any(|figure| figure.is_of_two()) {
        sentences.push("‡ two runs, whose interval says nothing.".to_owned());
    }
    if values(section).any(|value| value.not_shaped) {
        sentences.push(
            "† not shaped: such a transfer takes less than 100 ms, and the link's token bucket lets its beginning pass \
             undelayed."
                .to_owned(),
        );
    }
    let parts: BTreeSet<&str> =
        values(section).filter_map(|value| Some(value.origin.as_ref()?.part.as_str())).collect();
    let profiles: BTreeSet<&str> = study
        .parts
        .iter()
        .filter(|part| parts.contains(part.name.as_str()) && part.link == "unshaped")
        .map(|part| part.offload.as_str())
        .collect();
    if !profiles.is_empty() {
        let profiles: Vec<&str> = profiles.into_iter().map(profile).collect();
        sentences.push(format!("Link without a limit; interfaces {}.", profiles.join(", and ")));
    }
    (!sentences.is_empty()).then(|| sentences.join(" "))
}

/// Describes an offload profile.
fn profile(name: &str) -> &str {
    match name {
        "on" => "with checksum and segmentation offload",
        "off" => "without checksum and segmentation offload (per packet)",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn section(columns: &[bool], n: &[usize], not_shaped: bool) -> SectionResults {
        let column = |(index, published): (usize, &bool)| {
            serde_json::json!({
                "id": format!("c{index}"), "title": "C", "unit": "s", "signed": false, "published": published,
                "measure": "session", "form": "value", "drawn": true, "panel": null
            })
        };
        let values: Vec<_> = n
            .iter()
            .map(|n| {
                serde_json::json!({
                    "published": null, "measured": {"value": 1.0, "ci95": [0.9, 1.1], "n": n},
                    "not_shaped": not_shaped
                })
            })
            .collect();
        serde_json::from_value(serde_json::json!({
            "id": "s", "title": "S", "paper": null, "note": null, "because": null, "compared": null,
            "source": "paper", "chart": null,
            "columns": columns.iter().enumerate().map(column).collect::<Vec<_>>(),
            "rows": [{"name": "r", "label": "R", "x": null, "values": values}]
        }))
        .expect("a section")
    }

    fn study() -> StudyResults {
        serde_json::from_value(serde_json::json!({
            "schema": 2, "name": "", "question": "", "paper": "", "says": "", "answer": "", "differs": [],
            "scale": "full", "parts": [], "sections": [], "claims": [], "sentences": [], "contradicted": []
        }))
        .expect("a study")
    }

    #[test]
    fn wide_tables_are_split_evenly() {
        assert_eq!(tables(&section(&[true; 6], &[5; 6], false)), [vec![0, 1, 2], vec![3, 4, 5]]);
        assert_eq!(tables(&section(&[false; 8], &[5; 8], false)).len(), 1);
        assert_eq!(tables(&section(&[true, false], &[5; 2], false)), [vec![0, 1]]);
    }

    #[test]
    fn runs_and_marks_stand_at_the_table() {
        let of = |section: &SectionResults| note(&study(), section).expect("a note");
        assert_eq!(of(&section(&[false], &[5], false)), "n = 5 runs.");
        let few = section(&[false], &[3], true);
        assert!(of(&few).starts_with("n = 3 runs; no comparison"), "{}", of(&few));
        assert!(of(&few).contains("wait for a full measurement"), "{}", of(&few));
        assert!(of(&few).contains("† not shaped"));
        assert_eq!(measured(&few, &few.rows[0].values[0]), "1.00 [0.90, 1.10] †");
        let mixed = section(&[false, false], &[3, 7], false);
        assert!(of(&mixed).contains("* fewer than five"), "{}", of(&mixed));
        assert!(of(&mixed).contains("wait for a full measurement"), "{}", of(&mixed));
        let two = section(&[false], &[2], false);
        assert!(of(&two).contains("‡ two runs"), "{}", of(&two));
        assert_eq!(measured(&two, &two.rows[0].values[0]), "1 ‡");
        assert!(!of(&few).contains('‡'), "{}", of(&few));
        assert_eq!(measured(&mixed, &mixed.rows[0].values[0]), "1.00 [0.90, 1.10] *");
        assert_eq!(measured(&mixed, &mixed.rows[0].values[1]), "1.00 [0.90, 1.10]");
    }
}
