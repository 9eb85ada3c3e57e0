//! Columns made of other columns of the page: means, and lines as the papers fit them.

use headroom_lab_results::analysis::fit::{Line, log_line, proportional_log_line};
use headroom_lab_results::analysis::measured::Estimate;

use super::section::{LineTemplate, LineValue, Weights};
use super::section_results::{RowResults, SectionResults, Value};
use super::template::{self, Row};
use super::{Study, section};
use crate::units;

const KIB: f64 = 1024.0;

/// The mean of figures, without interval: they come from the same blocks, so that their
/// errors are not independent.
pub(super) fn mean(
    study: &Study,
    sections: &[SectionResults],
    references: &[String],
    row: &Row,
) -> Option<Value> {
    let cell = |reference: &String| {
        let name = template::fill(reference, row).ok()?;
        let (section, column, row) = section::find(&study.sections, &name)?;
        Some(&sections[section].rows[row].values[column])
    };
    let values = references.iter().map(cell).collect::<Option<Vec<&Value>>>()?;
    let figures = values.iter().map(|value| value.measured).collect::<Option<Vec<_>>>()?;
    let sum: f64 = figures.iter().map(|figure| figure.value).sum();
    let n = figures.iter().map(|figure| figure.n.unwrap_or(0)).min();
    Some(made_of(&values, Estimate { value: sum / figures.len() as f64, ci95: None, n }))
}

/// Computes the shown property of a line through a column.
pub(super) fn line(sections: &[SectionResults], wanted: &LineTemplate, row: &Row) -> Option<Value> {
    let over = template::fill(&wanted.over, row).ok()?;
    let (section, column) = over.split_once('/')?;
    let section = sections.iter().find(|known| known.id == section)?;
    let column = section.columns.iter().position(|known| known.id == column)?;
    let point = |row: &RowResults| {
        let value = &row.values[column];
        let size = value.origin.as_ref()?.size_bytes? as f64 / KIB;
        Some((size, value.measured?, value.clone()))
    };
    let points: Vec<(f64, Estimate, Value)> = section.rows.iter().filter_map(point).collect();
    let line = fitted(&points, wanted.weights)?;
    let value = match wanted.show {
        LineValue::Intercept => line.intercept,
        LineValue::Slope => line.slope,
        LineValue::At => {
            let size = units::parse_size(&template::fill(wanted.at.as_ref()?, row).ok()?).ok()?;
            line.intercept + line.slope * (size as f64 / KIB).ln()
        }
    };
    let n = points.iter().map(|(_, figure, _)| figure.n.unwrap_or(0)).min();
    let of: Vec<&Value> = points.iter().map(|(_, _, value)| value).collect();
    Some(made_of(&of, Estimate { value, ci95: None, n }))
}

fn fitted(points: &[(f64, Estimate, Value)], weights: Weights) -> Option<Line> {
    let of = |value: fn(f64) -> f64| -> Vec<(f64, f64)> {
        points.iter().map(|(size, figure, _)| (*size, value(figure.value))).collect()
    };
    match weights {
        Weights::Equal => log_line(&of(|pct| pct)),
        Weights::Ratio => proportional_log_line(&of(|pct| 1.0 + pct / 100.0)),
    }
}

/// A figure with the marks of those that it is made of.
fn made_of(values: &[&Value], estimate: Estimate) -> Value {
    Value {
        measured: Some(estimate),
        not_shaped: values.iter().any(|value| value.not_shaped),
        ..Value::default()
    }
}
