//! A section of a study's report: a table of what the paper printed beside what was
//! measured, row by row, perhaps drawn.

use super::measure::{Cell, Form, Measure};
use super::template::{Row, fill};
use crate::plan::Plan;
use crate::stack::canonical;
use crate::units;
use crate::workload;

/// A section whose every cell refers to something that the study measures.
#[derive(Debug, Clone)]
pub struct Section {
    /// Short name, for references and links.
    pub id: String,
    /// As the report shows it.
    pub title: String,
    /// What the paper says.
    pub paper: Option<String>,
    /// What its figures say when checked.
    pub note: Option<String>,
    /// Why ours differ, with places for figures of any section, as in the answer.
    pub because: Option<String>,
    /// Label and variables of each row.
    pub(super) rows: Vec<(String, Row)>,
    /// What stands in each.
    pub columns: Vec<Column>,
    /// How it is drawn, if it is.
    pub chart: Option<Chart>,
}

/// A column of a section.
#[derive(Debug, Clone)]
pub struct Column {
    /// Short name, for references.
    pub id: String,
    /// As the report shows it.
    pub title: String,
    /// The published column that stands beside it.
    pub published: Option<String>,
    /// What is shown.
    pub measure: &'static Measure,
    /// In which form.
    pub form: Form,
    pub(super) cell: CellTemplate,
}

/// Which cell a column shows: names in braces are those of a row.
#[derive(Debug, Clone)]
pub(super) struct CellTemplate {
    pub(super) part: String,
    pub(super) stack: String,
    pub(super) workload: String,
    pub(super) size: Option<String>,
    pub(super) against: Option<String>,
    /// Which second, of what is told over time.
    pub(super) at: Option<String>,
    /// Stacks that are called otherwise in the published table.
    pub(super) names: std::collections::BTreeMap<String, String>,
}

/// A cell, and the part of the study that has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) part: String,
    pub(super) cell: Cell,
    pub(super) against: Option<String>,
}

/// A line for each column over the rows.
#[derive(Debug, Clone, serde::Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Chart {
    /// Each row's place: a number, or a template of one.
    pub(super) x: String,
    /// What the horizontal axis says.
    pub x_title: String,
    /// What the vertical axis says.
    pub y_title: String,
    /// Whether x is drawn on a logarithmic scale.
    #[serde(default)]
    pub log_x: bool,
    /// Whether y is.
    #[serde(default)]
    pub log_y: bool,
    /// Whether x is a number of octets, and labelled so.
    #[serde(default)]
    pub x_is_octets: bool,
}

impl CellTemplate {
    /// The cell of a row.
    pub(super) fn of(&self, row: &Row) -> Result<Place, String> {
        let stack = |template: &str| {
            let written = fill(template, row)?;
            Ok::<_, String>(canonical(self.names.get(&written).unwrap_or(&written)))
        };
        let size = self.size.as_ref().map(|size| units::parse_size(&fill(size, row)?));
        let at = self.at.as_ref().map(|at| {
            let text = fill(at, row)?;
            text.parse::<u32>().map_err(|_| format!("`{text}` is no whole second"))
        });
        Ok(Place {
            part: fill(&self.part, row)?,
            cell: Cell {
                stack: stack(&self.stack)?,
                workload: workload::canonical(&fill(&self.workload, row)?),
                size_bytes: size.transpose()?,
                at_s: at.transpose()?,
            },
            against: self.against.as_deref().map(stack).transpose()?,
        })
    }
}

impl Chart {
    pub(super) fn x_of(&self, row: &Row) -> Result<f64, String> {
        let text = fill(&self.x, row)?;
        let number = text.parse::<f64>().ok().filter(|x| x.is_finite());
        number
            .or_else(|| units::parse_size(&text).ok().map(|octets| octets as f64))
            .ok_or_else(|| format!("`{text}` is no place on an axis"))
    }
}

impl Section {
    /// Refuses a section that no run of these parts could fill.
    pub(super) fn check(&self, parts: &[Plan]) -> Result<(), String> {
        for (label, row) in &self.rows {
            if let Some(chart) = &self.chart {
                chart.x_of(row)?;
            }
            for column in &self.columns {
                let place = column.cell.of(row)?;
                let told = |why: &str| format!("row {label}, column {}: {why}", column.id);
                require(parts, &place).map_err(|why| told(&why))?;
                if column.form != Form::Value && !column.measure.is_of_samples() {
                    return Err(told(&format!(
                        "`form` compares what single samples measure, and `{}` is of the whole run or of a second",
                        column.measure.name
                    )));
                }
                if place.cell.at_s.is_some() != column.measure.is_over_time() {
                    let name = column.measure.name;
                    return Err(told(&format!(
                        "`at` says which second of a stream, for the measures that end in `-at`, and `{name}` is one \
                         that has none, or lacks it"
                    )));
                }
                if let Some(name) =
                    column.published.as_ref().filter(|name| !row.contains_key(*name))
                {
                    return Err(told(&format!("the published table has no column `{name}`")));
                }
            }
        }
        Ok(())
    }
}

/// Refuses a cell that its part does not measure.
pub(super) fn require(parts: &[Plan], place: &Place) -> Result<(), String> {
    let Place { part, cell: Cell { stack, workload, size_bytes, .. }, against } = place;
    let part = parts
        .iter()
        .find(|known| known.name == *part)
        .ok_or_else(|| format!("there is no part `{part}`"))?;
    let does = |stack: &String| {
        part.workloads.iter().any(|work| {
            work.name() == *workload
                && work.stacks.contains(stack)
                && size_bytes.is_none_or(|size| work.sizes.contains(&size))
        })
    };
    let size = size_bytes.map_or(String::new(), |size| format!(" of {}", units::size(size)));
    for stack in std::iter::once(stack).chain(against) {
        if part.stack(stack).is_none() {
            return Err(format!("the part `{}` has no stack `{stack}`", part.name));
        }
        if !does(stack) {
            return Err(format!("the part `{}` has no `{workload}`{size} of `{stack}`", part.name));
        }
    }
    Ok(())
}
