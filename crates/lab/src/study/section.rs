//! A section of a study's report: a table of what the paper printed beside what was
//! measured, row by row, perhaps drawn.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

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
    /// The title in the report.
    pub title: String,
    /// The paper's statement.
    pub paper: Option<String>,
    /// Findings from checking its figures.
    pub note: Option<String>,
    /// Why ours differ, with places for figures of any section, as in the answer.
    pub because: Option<String>,
    /// Name and variables of each row.
    pub(super) rows: Vec<(String, Row)>,
    /// Labels of rows in the report, if not their names.
    pub(super) labels: BTreeMap<String, String>,
    /// Origin of the published columns.
    pub source: PublishedSource,
    /// The columns.
    pub columns: Vec<Column>,
    /// The chart, if any.
    pub chart: Option<Chart>,
}

/// A column of a section.
#[derive(Debug, Clone)]
pub struct Column {
    /// Short name, for references.
    pub id: String,
    /// The title in the report.
    pub title: String,
    /// The published column that stands beside it.
    pub published: Option<String>,
    /// Whether the chart has it.
    pub drawn: bool,
    /// The part of the chart that has it, where a chart has several.
    pub panel: Option<String>,
    pub(super) shows: Shows,
}

/// Origin of the published columns of a section.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PublishedSource {
    /// Printed by the paper.
    #[default]
    Paper,
    /// Computed by a formula that the section names.
    Formula,
}

/// Content of a column.
#[derive(Debug, Clone)]
pub(super) enum Shows {
    /// The measured value of a part's cell.
    Cell { measure: &'static Measure, form: Form, cell: CellTemplate },
    /// The mean of figures of the page: references, filled by a row's variables.
    Mean(Vec<String>),
    /// A straight line through another column of the page.
    Line(LineTemplate),
}

/// A straight line over the logarithm of the size in KiB, through a column of overheads.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct LineTemplate {
    /// `section/column`, filled by a row's variables.
    pub(super) over: String,
    pub(super) show: LineValue,
    #[serde(default)]
    pub(super) weights: Weights,
    /// The size at which the line is read.
    pub(super) at: Option<String>,
}

/// The shown property of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum LineValue {
    /// Its value at 1 KiB.
    Intercept,
    /// Change per factor e of size.
    Slope,
    /// Its value at a size.
    At,
}

/// Weights of a line's points.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Weights {
    /// All alike.
    #[default]
    Equal,
    /// By 1/ratio²: errors proportional to the time.
    Ratio,
}

/// Which cell a column shows: names in braces are those of a row.
#[derive(Debug, Clone)]
pub(super) struct CellTemplate {
    /// Parts, of which the first that has measured the cell is shown.
    pub(super) parts: Vec<String>,
    pub(super) stack: String,
    pub(super) workload: String,
    pub(super) size: Option<String>,
    pub(super) against: Option<String>,
    /// Which second, of what is told over time.
    pub(super) at: Option<String>,
    /// Stacks that are called otherwise in the published table.
    pub(super) names: BTreeMap<String, String>,
}

/// A cell, and the part of the study that has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) part: String,
    pub(super) cell: Cell,
    pub(super) against: Option<String>,
}

/// A line for each column over the rows, or bars.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Chart {
    /// Each row's place: a number, or a template of one. Bars have none.
    pub(super) x: Option<String>,
    /// Title of the horizontal axis.
    #[serde(default)]
    pub x_title: String,
    /// Title of the axis of values: the vertical one, or of bars the horizontal one.
    pub y_title: String,
    /// Whether each row is a group of horizontal bars.
    #[serde(default)]
    pub bars: bool,
    /// Whether y is linear within ±1 and logarithmic beyond.
    #[serde(default)]
    pub symlog_y: bool,
    /// Whether y need not begin at 0.
    #[serde(default)]
    pub free_y: bool,
    /// Whether x is drawn on a logarithmic scale.
    #[serde(default)]
    pub log_x: bool,
    /// Whether y is.
    #[serde(default)]
    pub log_y: bool,
    /// Whether x is a number of bytes, and labelled so.
    #[serde(default)]
    pub x_is_bytes: bool,
}

impl CellTemplate {
    /// The cell of a row in each of the parts that may have it.
    pub(super) fn places(&self, row: &Row) -> Result<Vec<Place>, String> {
        let stack = |template: &str| {
            let written = fill(template, row)?;
            Ok::<_, String>(canonical(self.names.get(&written).unwrap_or(&written)))
        };
        let size = self.size.as_ref().map(|size| units::parse_size(&fill(size, row)?));
        let at = self.at.as_ref().map(|at| {
            let text = fill(at, row)?;
            text.parse::<u32>().map_err(|_| format!("`{text}` is no whole second"))
        });
        let cell = Cell {
            stack: stack(&self.stack)?,
            workload: workload::canonical(&fill(&self.workload, row)?),
            size_bytes: size.transpose()?,
            at_s: at.transpose()?,
        };
        let against = self.against.as_deref().map(stack).transpose()?;
        let place = |part: &String| {
            Ok(Place { part: fill(part, row)?, cell: cell.clone(), against: against.clone() })
        };
        self.parts.iter().map(place).collect()
    }
}

impl Chart {
    pub(super) fn x_of(&self, row: &Row) -> Result<Option<f64>, String> {
        let Some(x) = self.x.as_ref().filter(|_| !self.bars) else {
            return if self.bars { Ok(None) } else { Err("a chart of lines needs `x`".to_owned()) };
        };
        let text = fill(x, row)?;
        let number = text.parse::<f64>().ok().filter(|x| x.is_finite());
        number
            .or_else(|| units::parse_size(&text).ok().map(|bytes| bytes as f64))
            .map(Some)
            .ok_or_else(|| format!("`{text}` is no place on an axis"))
    }
}

impl Section {
    /// Lists the names by which its figures are quoted.
    pub(super) fn outline(&self) -> String {
        let columns: Vec<&str> = self.columns.iter().map(|column| column.id.as_str()).collect();
        let rows: Vec<&str> = self.rows.iter().map(|(name, _)| name.as_str()).collect();
        let (columns, rows) = (columns.join(", "), rows.join(", "));
        format!("{}: {}; columns {columns}; rows {rows}", self.id, self.title)
    }

    /// Returns the label of a row in the report.
    pub(super) fn label<'a>(&'a self, name: &'a str) -> &'a str {
        self.labels.get(name).map_or(name, String::as_str)
    }

    /// Refuses a section that no run of these parts could fill.
    pub(super) fn check(&self, parts: &[Plan]) -> Result<(), String> {
        for (label, row) in &self.rows {
            if let Some(chart) = &self.chart {
                chart.x_of(row)?;
            }
            for column in &self.columns {
                let told = |why: &str| format!("row {label}, column {}: {why}", column.id);
                if let Some(name) =
                    column.published.as_ref().filter(|name| !row.contains_key(*name))
                {
                    return Err(told(&format!("the published table has no column `{name}`")));
                }
                let Shows::Cell { measure, form, cell } = &column.shows else { continue };
                let mut places = cell.places(row)?;
                require_any(parts, &places).map_err(|why| told(&why))?;
                if *form != Form::Value && !measure.is_of_samples() {
                    return Err(told(&format!(
                        "`form` compares what single samples measure, and `{}` is of the whole run or of a second: \
                         leave out `form`, or name a measure of single samples, such as `transfer`",
                        measure.name
                    )));
                }
                if form.is_relative() {
                    places = compared(parts, places).map_err(|why| told(&why))?;
                }
                if measure.is_of_a_size() {
                    require_one_size(parts, &places).map_err(|why| told(&why))?;
                }
                if cell.at.is_some() != measure.is_over_time() {
                    let name = measure.name;
                    return Err(told(&format!(
                        "`at` says which second of a stream, for the measures that end in `-at`, and `{name}` is one \
                         that has none, or lacks it"
                    )));
                }
            }
        }
        Ok(())
    }
}

/// Refuses a cell that none of its parts measures.
pub(super) fn require_any(parts: &[Plan], places: &[Place]) -> Result<(), String> {
    let mut first = None;
    for place in places {
        match require(parts, place) {
            Ok(()) => return Ok(()),
            Err(why) => first = first.or(Some(why)),
        }
    }
    Err(first.unwrap_or_else(|| "it names no part".to_owned()))
}

/// The cells that are compared with another stack, by default with the baseline.
fn compared(parts: &[Plan], places: Vec<Place>) -> Result<Vec<Place>, String> {
    let baseline = |place: &Place| {
        let part = parts.iter().find(|known| known.name == place.part)?;
        part.stack(&place.cell.stack)?.baseline.clone()
    };
    let compared = places.into_iter().filter_map(|place| {
        let against = place.against.clone().or_else(|| baseline(&place))?;
        Some(Place { against: Some(against), ..place })
    });
    let compared: Vec<Place> = compared.collect();
    if compared.is_empty() {
        return Err("its stack has no baseline there: name the other stack by `against`".to_owned());
    }
    require_any(parts, &compared)?;
    Ok(compared)
}

/// Refuses a cell without a size where a part has several: their mean would be of nothing.
fn require_one_size(parts: &[Plan], places: &[Place]) -> Result<(), String> {
    for Place { part, cell, against } in
        places.iter().filter(|place| place.cell.size_bytes.is_none())
    {
        let Some(part) = parts.iter().find(|known| known.name == *part) else { continue };
        let stacks: Vec<&String> = std::iter::once(&cell.stack).chain(against).collect();
        let works = part.workloads.iter().filter(|work| {
            work.name() == cell.workload && stacks.iter().any(|stack| work.stacks.contains(stack))
        });
        let sizes: BTreeSet<u64> = works.flat_map(|work| work.sizes.iter().copied()).collect();
        if sizes.len() > 1 {
            let sizes: Vec<String> = sizes.into_iter().map(units::chosen_size).collect();
            return Err(format!(
                "the part `{}` has `{}` of several sizes, {}: say which by `size`",
                part.name,
                cell.workload,
                sizes.join(", ")
            ));
        }
    }
    Ok(())
}

/// Refuses a cell that its part does not measure.
fn require(parts: &[Plan], place: &Place) -> Result<(), String> {
    let Place { part, cell: Cell { stack, workload, size_bytes, .. }, against } = place;
    let part = parts.iter().find(|known| known.name == *part).ok_or_else(|| {
        let names: Vec<&str> = parts.iter().map(|known| known.name.as_str()).collect();
        format!("there is no part `{part}`; there are `{}`", names.join("`, `"))
    })?;
    let does = |stack: &String| {
        part.workloads.iter().any(|work| {
            work.name() == *workload
                && work.stacks.contains(stack)
                && size_bytes.is_none_or(|size| work.sizes.contains(&size))
        })
    };
    let size = size_bytes.map_or(String::new(), |size| format!(" of {}", units::chosen_size(size)));
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

/// Section, column and row of a reference.
pub(super) fn find(sections: &[Section], reference: &str) -> Option<(usize, usize, usize)> {
    let mut names = reference.splitn(3, '/');
    let (section, column, label) = (names.next()?, names.next()?, names.next()?);
    let at = sections.iter().position(|known| known.id == section)?;
    let column = sections[at].columns.iter().position(|known| known.id == column)?;
    let row = sections[at].rows.iter().position(|(known, _)| known == label)?;
    Some((at, column, row))
}
