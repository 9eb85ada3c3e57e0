//! The table of the answer, and the whole answer as Markdown.

use std::collections::BTreeSet;

use crate::results::{Portable, Results, Summary, WorkloadRecord};
use crate::units;

/// A header and rows of as many cells.
#[derive(Debug)]
pub(super) struct Table {
    pub(super) header: Vec<String>,
    pub(super) rows: Vec<Vec<String>>,
}

impl Table {
    /// Whether a column's cells are figures, which stand to the right.
    pub(super) fn has_figures(&self, column: usize) -> bool {
        let is_figure = |row: &Vec<String>| {
            row[column].starts_with(|c: char| c.is_ascii_digit() || "+-×".contains(c))
        };
        column > 0 && self.rows.iter().any(is_figure)
    }

    /// The table in Markdown.
    pub(super) fn markdown(&self) -> String {
        let line = |row: &[String]| format!("| {} |\n", row.join(" | "));
        let rule = |column| if self.has_figures(column) { "---:|" } else { "---|" };
        let rules: String = (0..self.header.len()).map(rule).collect();
        let rows: String = self.rows.iter().map(|row| line(row)).collect();
        format!("{}|{rules}\n{rows}", line(&self.header))
    }
}

/// Sentences and tables, for a README or an issue.
pub fn summary(results: &Results) -> String {
    let mut text = format!("## {}\n\n", results.plan.question);
    if let Some(sentence) = results.incomplete() {
        text += &format!("**{sentence}**\n\n");
    }
    for sentence in &results.answer {
        text += &format!("- {sentence}\n");
    }
    for table in tables(results) {
        text += "\n";
        text += &table.markdown();
    }
    let environment = &results.environment;
    text += &format!(
        "\nMeasured {} on {} ({} cores, Linux {}), link {} ({}, {}), {} blocks, headroom {}. Overhead: time from \
         the first data command to completion on the wire against the baseline, ± half of the 95 % t \
         interval on paired log-ratios. Fixed cost and cost per GB: of the whole session, login included.\n",
        environment.started,
        environment.cpu,
        environment.cores,
        environment.kernel,
        results.link.name,
        results.link.backend,
        results.link.offload,
        results.plan.repetitions,
        environment.headroom,
    );
    for link in super::links::sentences(results) {
        text += &format!("\n{link}\n");
    }
    text
}

/// One table for each workload of the main link, of which the first begins with
/// the portable costs; then models, octets and predictions.
pub(super) fn tables(results: &Results) -> Vec<Table> {
    let names: Vec<String> = results.plan.workloads.iter().map(WorkloadRecord::name).collect();
    let first_of_name = |index: usize| !names[..index].contains(&names[index]);
    (0..names.len())
        .filter(|&i| first_of_name(i))
        .map(|i| table(results, &names[i], i == 0))
        .chain(super::models::tables(results))
        .collect()
}

fn table(results: &Results, name: &str, with_portable: bool) -> Table {
    let rows = || {
        results.summary.iter().filter(|row| row.link == results.link.name && row.workload == name)
    };
    let sizes: BTreeSet<u64> = rows().map(|row| row.size_bytes).collect();
    let mut header = vec!["stack".to_owned()];
    if with_portable {
        header.extend(["round trips", "+bytes/MB", "CPU-s/GB"].map(String::from));
    }
    header.extend(sizes.iter().map(|&size| {
        if size == 0 { name.to_owned() } else { format!("{name} {}", units::size(size)) }
    }));
    header.push("limited by".to_owned());
    let rows = results
        .portable
        .iter()
        .filter(|stack| rows().any(|row| row.stack == stack.stack))
        .map(|stack| {
            let of_stack = || rows().filter(|row| row.stack == stack.stack);
            let mut cells = vec![stack.stack.clone()];
            if with_portable {
                cells.extend(portable_cells(stack));
            }
            cells.extend(sizes.iter().map(|&size| {
                of_stack()
                    .find(|row| row.size_bytes == size)
                    .map_or_else(|| "–".to_owned(), measured_cell)
            }));
            let largest =
                of_stack().max_by_key(|row| row.size_bytes).and_then(|row| row.limited_by.clone());
            cells.push(largest.unwrap_or_else(|| "–".to_owned()));
            cells
        })
        .collect();
    Table { header, rows }
}

fn portable_cells(stack: &Portable) -> [String; 3] {
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "–".to_owned());
    [
        or_dash(stack.round_trips.map(|trips| trips.to_string())),
        or_dash(stack.extra_bytes_per_mb.map(|bytes| format!("{bytes:.0}"))),
        or_dash(stack.cpu_seconds_per_gb.map(|seconds| format!("{seconds:.2}"))),
    ]
}

/// The overhead with half of its interval, as a factor where it is large; for a
/// baseline its time.
fn measured_cell(row: &Summary) -> String {
    let failed = if row.failed > 0 { format!(" ({} failed)", row.failed) } else { String::new() };
    let value = match (row.overhead_pct, row.overhead_ci95_pct, row.mean_s) {
        (Some(pct), Some([lo, hi]), _) if pct >= 1000.0 => {
            let half = units::three((hi - lo) / 200.0);
            format!("× {} ± {half}", units::three(pct / 100.0 + 1.0))
        }
        (Some(pct), Some([lo, hi]), _) => {
            format!("{} ± {} %", signed(pct), units::three((hi - lo) / 2.0))
        }
        (Some(pct), None, _) if pct >= 1000.0 => format!("× {}", units::three(pct / 100.0 + 1.0)),
        (Some(pct), None, _) => format!("{} %", signed(pct)),
        (None, _, Some(seconds)) => units::seconds(seconds),
        (None, _, None) => "failed".to_owned(),
    };
    format!("{value}{failed}")
}

fn signed(value: f64) -> String {
    format!("{}{}", if value < 0.0 { "" } else { "+" }, units::three(value))
}
