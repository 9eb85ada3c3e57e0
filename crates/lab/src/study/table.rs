//! A section filled with what its parts have measured.

use std::collections::BTreeMap;

use super::measure::Form;
use super::results::{ChartResults, ColumnResults, RowResults, SectionResults, Value};
use super::section::{Column, Section};
use super::template::{self, Row};
use super::{Study, file, verdict};
use crate::results::Results;

/// The results of the parts that were run, by name.
pub(super) type Parts = BTreeMap<String, Results>;

/// The sections of a study, each with the figures of any in its reasons; a reason of
/// which one was not measured is left out.
pub(super) fn sections(study: &Study, parts: &Parts) -> Vec<SectionResults> {
    let mut all: Vec<_> = study.sections.iter().map(|one| section(one, parts)).collect();
    let reason = |because: &String| {
        let (text, is_complete) = figured(because, study, &all);
        is_complete.then_some(text)
    };
    let reasons: Vec<Option<String>> =
        study.sections.iter().map(|section| section.because.as_ref().and_then(reason)).collect();
    for (section, because) in all.iter_mut().zip(reasons) {
        section.because = because;
    }
    all
}

fn section(section: &Section, parts: &Parts) -> SectionResults {
    let columns: Vec<ColumnResults> = section
        .columns
        .iter()
        .map(|column| ColumnResults {
            id: column.id.clone(),
            title: column.title.clone(),
            unit: column.measure.unit_as(column.form).to_owned(),
            signed: matches!(column.form, Form::OverheadPct | Form::LossPct),
            published: column.published.is_some(),
        })
        .collect();
    let rows: Vec<RowResults> = section
        .rows
        .iter()
        .map(|(label, row)| RowResults {
            label: label.clone(),
            x: section.chart.as_ref().and_then(|chart| chart.x_of(row).ok()),
            values: section.columns.iter().map(|column| value(column, row, parts)).collect(),
        })
        .collect();
    SectionResults {
        id: section.id.clone(),
        title: section.title.clone(),
        paper: section.paper.clone(),
        note: section.note.clone(),
        because: None, // until all sections have figures
        compared: verdict::sentence(&columns, &rows),
        chart: section.chart.as_ref().map(ChartResults::from),
        columns,
        rows,
    }
}

fn value(column: &Column, row: &Row, parts: &Parts) -> Value {
    let printed = column.published.as_ref().and_then(|name| row.get(name));
    let measured = || {
        let place = column.cell.of(row).ok()?;
        let results = parts.get(&place.part)?;
        column.measure.of(results, &place.cell, column.form, place.against.as_deref())
    };
    Value { published: printed.and_then(|text| text.parse().ok()), measured: measured() }
}

/// A text of the study with our figures in it, and whether none was missing.
pub(super) fn figured(text: &str, study: &Study, sections: &[SectionResults]) -> (String, bool) {
    let mut is_complete = true;
    let shown = |reference: &str| {
        let (section, column, row) = file::find(&study.sections, reference)
            .ok_or_else(|| format!("there is no {reference}"))?;
        let section = &sections[section];
        let unit = &section.columns[column].unit;
        let value = section.rows[row].values[column].measured;
        is_complete &= value.is_some();
        Ok(value.map_or_else(|| "(not measured)".to_owned(), |value| value.told(unit)))
    };
    let filled = template::fill_with(text, shown).unwrap_or_else(|why| why);
    (filled, is_complete)
}
