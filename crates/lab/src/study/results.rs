//! `study.json`: what a study leaves beside the results of its parts.

use serde::{Deserialize, Serialize};

use super::section::Chart;
use crate::analysis::measured::Estimate;

/// Version of the schema.
pub const SCHEMA: u32 = 1;

/// What a study found.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct StudyResults {
    /// [`SCHEMA`].
    pub schema: u32,
    /// Short name.
    pub name: String,
    /// The question.
    pub question: String,
    /// Authors and title.
    pub paper: String,
    /// What the paper answers.
    pub says: String,
    /// What we answer, figures filled in.
    pub answer: String,
    /// How the set-up differs from the original.
    pub differs: Vec<String>,
    /// `full`, `quick` or `cut`.
    pub scale: String,
    /// What was measured.
    pub parts: Vec<PartResults>,
    /// Names of the parts that were not yet, or failed.
    #[serde(default)]
    pub missing: Vec<String>,
    /// The report's sections.
    pub sections: Vec<SectionResults>,
}

/// A part, whose results lie in a folder of their own.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[allow(missing_docs, reason = "named as what they hold")]
pub struct PartResults {
    pub name: String,
    pub question: String,
    /// Beside `study.json`.
    pub folder: String,
    pub link: String,
    pub family: String,
    pub started: String,
    pub finished: String,
    pub cpu: String,
    pub cores: usize,
    pub kernel: String,
    pub samples: usize,
    pub failed: usize,
    pub warnings: Vec<String>,
    /// Why it is not complete; null: it is.
    pub incomplete: Option<String>,
}

/// A section.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SectionResults {
    /// Short name.
    pub id: String,
    /// As shown.
    pub title: String,
    /// What the paper says.
    pub paper: Option<String>,
    /// What its figures say when checked.
    pub note: Option<String>,
    /// Why ours differ.
    pub because: Option<String>,
    /// Ours beside the paper's in a sentence, made of the figures; null where the paper
    /// has none here.
    pub compared: Option<String>,
    /// The columns.
    pub columns: Vec<ColumnResults>,
    /// The rows.
    pub rows: Vec<RowResults>,
    /// How it is drawn.
    pub chart: Option<ChartResults>,
}

impl SectionResults {
    /// The rows that have a figure, of the paper's or of ours.
    pub fn filled(&self) -> impl Iterator<Item = &RowResults> {
        let has = |value: &Value| value.published.is_some() || value.measured.is_some();
        self.rows.iter().filter(move |row| row.values.iter().any(has))
    }

    /// Whether a figure of it was measured.
    pub fn is_measured(&self) -> bool {
        self.rows.iter().flat_map(|row| &row.values).any(|value| value.measured.is_some())
    }
}

/// A column.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ColumnResults {
    /// Short name.
    pub id: String,
    /// As shown.
    pub title: String,
    /// Of all its figures; empty for numbers.
    pub unit: String,
    /// Whether these are overheads: a sign means something.
    pub signed: bool,
    /// Whether the paper has such a column.
    pub published: bool,
}

/// A row: a value for each column.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RowResults {
    /// As shown.
    pub label: String,
    /// Its place on the chart's horizontal axis.
    pub x: Option<f64>,
    /// One for each column.
    pub values: Vec<Value>,
}

/// What the paper printed and what we measured.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Value {
    /// As printed; null: nothing.
    pub published: Option<f64>,
    /// Null: not measured, at this scale or on this machine.
    pub measured: Option<Estimate>,
}

/// How a section is drawn: a line for each column.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[allow(missing_docs, reason = "named as what they hold")]
pub struct ChartResults {
    pub x_title: String,
    pub y_title: String,
    pub log_x: bool,
    pub log_y: bool,
    pub x_is_octets: bool,
}

impl From<&Chart> for ChartResults {
    fn from(chart: &Chart) -> Self {
        let (x_title, y_title) = (chart.x_title.clone(), chart.y_title.clone());
        let Chart { log_x, log_y, x_is_octets, .. } = *chart;
        Self { x_title, y_title, log_x, log_y, x_is_octets }
    }
}
