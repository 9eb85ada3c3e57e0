//! Sections of `study.json`: columns and rows with the paper's figures and ours.

use headroom_lab_results::analysis::measured::Estimate;
use headroom_lab_results::analysis::stats::MIN_RUNS;
use serde::{Deserialize, Serialize};

use super::measure::{self, Form};
use super::section::{Chart, PublishedSource};

/// A section.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SectionResults {
    /// Short name.
    pub id: String,
    /// The title.
    pub title: String,
    /// The paper's statement.
    pub paper: Option<String>,
    /// Findings from checking its figures.
    pub note: Option<String>,
    /// Why ours differ.
    pub because: Option<String>,
    /// Ours beside the paper's in a sentence, made of the figures; null where the paper
    /// has none here.
    pub compared: Option<String>,
    /// Origin of its published columns.
    pub source: PublishedSource,
    /// The columns.
    pub columns: Vec<ColumnResults>,
    /// The rows.
    pub rows: Vec<RowResults>,
    /// The chart.
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
    /// The title.
    pub title: String,
    /// Of all its figures; empty for numbers.
    pub unit: String,
    /// Whether these are overheads: a sign means something.
    pub signed: bool,
    /// Whether the paper has such a column.
    pub published: bool,
    /// The measure.
    pub measure: String,
    /// In which form.
    pub form: Form,
    /// Whether the chart has it.
    pub drawn: bool,
    /// The part of the chart that has it.
    pub panel: Option<String>,
}

/// A row: a value for each column.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RowResults {
    /// The name in the study.
    pub name: String,
    /// The title.
    pub label: String,
    /// Its place on the chart's horizontal axis.
    pub x: Option<f64>,
    /// One for each column.
    pub values: Vec<Value>,
}

/// The printed and the measured figure.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Value {
    /// The printed figure; null: none.
    pub published: Option<f64>,
    /// Null: not measured, at this scale or on this machine.
    pub measured: Option<Estimate>,
    /// Whether it is the time of a transfer that was too short for the link's token
    /// bucket to delay.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub not_shaped: bool,
    /// The cell that was measured; null of what is made of other figures.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<Origin>,
}

/// A cell that was measured, and the part that has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    /// Name of the part.
    pub part: String,
    /// Name of the stack.
    pub stack: String,
    /// Name of the workload.
    pub workload: String,
    /// Bytes; null: whatever the workload has.
    pub size_bytes: Option<u64>,
    /// The stack that it is compared with.
    pub against: Option<String>,
}

/// Why a figure cannot be compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lack {
    /// Runs.
    Runs,
    /// A link that shaped it.
    Shaping,
    /// An interval: it is a mean of other figures, or of a model.
    Interval,
}

impl Value {
    /// Whether it rests on enough runs, and on a link that shaped it, for a comparison.
    pub(super) fn supports_comparison(&self, column: &ColumnResults) -> bool {
        self.measured.is_some() && self.lack(column).is_none()
    }

    /// Returns why a measured figure cannot be compared.
    pub(super) fn lack(&self, column: &ColumnResults) -> Option<Lack> {
        if self.has_few_runs(column) {
            Some(Lack::Runs)
        } else if self.not_shaped {
            Some(Lack::Shaping)
        } else if self.measured?.ci95.is_none() && !column.counts() {
            Some(Lack::Interval)
        } else {
            None
        }
    }

    /// Whether it rests on fewer runs than a comparison needs. A count that was the same
    /// in every run does not.
    pub(super) fn has_few_runs(&self, column: &ColumnResults) -> bool {
        let Some(Estimate { ci95, n: Some(n), .. }) = self.measured else { return false };
        let is_same_count = n > 1 && ci95.is_none() && column.counts();
        n < MIN_RUNS && !is_same_count
    }

    /// Ours in its unit, with what a reader must know of it: `3.2 [2.9, 3.5] ms (n = 3)`.
    pub fn told(&self, column: &ColumnResults) -> Option<String> {
        let measured = self.measured?;
        let few = measured.n.filter(|_| self.has_few_runs(column)).map(|n| format!("n = {n}"));
        let marks: Vec<String> =
            few.into_iter().chain(self.not_shaped.then(|| "not shaped".to_owned())).collect();
        let figure = measured.told(&column.unit);
        Some(if marks.is_empty() { figure } else { format!("{figure} ({})", marks.join(", ")) })
    }
}

impl ColumnResults {
    /// Returns its title, with its panel.
    pub fn heading(&self) -> String {
        match &self.panel {
            Some(panel) => format!("{panel}: {}", self.title),
            None => self.title.clone(),
        }
    }

    /// Whether it has counts and not times or rates: what is the same in every run needs
    /// no interval.
    fn counts(&self) -> bool {
        measure::find(&self.measure).is_ok_and(measure::Measure::counts)
    }
}

/// The chart of a section: a line for each column.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[allow(missing_docs, reason = "named as what they hold")]
pub struct ChartResults {
    pub x_title: String,
    pub y_title: String,
    pub log_x: bool,
    pub log_y: bool,
    #[serde(default)]
    pub symlog_y: bool,
    #[serde(default)]
    pub free_y: bool,
    #[serde(default)]
    pub bars: bool,
    pub x_is_bytes: bool,
}

impl From<&Chart> for ChartResults {
    fn from(chart: &Chart) -> Self {
        let (x_title, y_title) = (chart.x_title.clone(), chart.y_title.clone());
        let Chart { log_x, log_y, symlog_y, free_y, bars, x_is_bytes, .. } = *chart;
        Self { x_title, y_title, log_x, log_y, symlog_y, free_y, bars, x_is_bytes }
    }
}

#[cfg(test)]
pub(super) mod testing {
    //! Sections for tests.

    use super::*;

    pub(in crate::study) fn column(id: &str) -> ColumnResults {
        ColumnResults {
            id: id.into(),
            title: id.to_uppercase(),
            unit: "s".into(),
            signed: false,
            published: false,
            measure: "session".into(),
            form: Form::Value,
            drawn: true,
            panel: None,
        }
    }

    /// A value, the half of its interval, and the number of runs.
    pub(in crate::study) type Figure = (f64, f64, usize);

    /// A section of columns and rows.
    pub(in crate::study) fn section(
        id: &str,
        columns: &[&str],
        rows: &[(&str, &[Figure])],
    ) -> SectionResults {
        let value = |&(value, half, n): &Figure| Value {
            measured: Some(Estimate {
                value,
                ci95: Some([value - half, value + half]),
                n: Some(n),
            }),
            ..Value::default()
        };
        let row = |(name, values): &(&str, &[Figure])| RowResults {
            name: (*name).into(),
            label: (*name).into(),
            x: None,
            values: values.iter().map(value).collect(),
        };
        SectionResults {
            id: id.into(),
            title: id.into(),
            paper: None,
            note: None,
            because: None,
            compared: None,
            source: PublishedSource::Paper,
            columns: columns.iter().map(|id| column(id)).collect(),
            rows: rows.iter().map(row).collect(),
            chart: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_no_interval_is_evidence_only_if_it_is_a_count() {
        let estimate = |n| Some(Estimate { value: 5.0, ci95: None, n });
        let lack = |measure: &str, n| {
            let column = ColumnResults { measure: measure.into(), ..testing::column("a") };
            Value { measured: estimate(n), ..Value::default() }.lack(&column)
        };
        assert_eq!(lack("session", Some(5)), Some(Lack::Interval));
        assert_eq!(lack("cost-model", Some(5)), Some(Lack::Interval));
        assert_eq!(lack("session", None), Some(Lack::Interval));
        assert_eq!(lack("session", Some(3)), Some(Lack::Runs));
        assert_eq!(lack("packets", Some(3)), None);
        assert_eq!(lack("setup-packets", None), None);
    }
}
