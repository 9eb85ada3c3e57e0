//! The tables of the answer, and the whole answer as Markdown.

use std::collections::BTreeSet;

use headroom_units as units;

use super::table::Table;
use crate::analysis::measured::Estimate;
use crate::schema::{Kind, Results, Summary, WorkloadRecord};

/// Sentences and tables, for a README or an issue.
pub fn summary(results: &Results) -> String {
    let mut text = format!("## {}\n\n", results.plan.question);
    if let Some(sentence) = results.incomplete() {
        text += &format!("**{sentence}**\n\n");
    }
    for sentence in &results.answer {
        text += &format!("- {sentence}\n");
    }
    for table in tables(results).iter().chain(&further_tables(results)) {
        text += "\n";
        text += &table.markdown();
    }
    let environment = &results.environment;
    text += &format!(
        "\nMeasured {} on {} ({} cores, Linux {}), link {} ({}, {}), {} blocks, headroom {}. {LEGEND} Fixed cost and \
         cost per GB: of the whole session, login included.\n",
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

/// What the tables of workloads need beside them.
pub(super) const LEGEND: &str = "Times: sessions, connecting included (of streams and datagrams, one unit); geometric \
                                 mean of n runs. Overhead: more than the baseline, paired in blocks, with its 95 % \
                                 interval; fewer than five runs support no comparison. \u{25c7}: too short for the \
                                 link's shaper to act on. Limited by: at the largest size.";

/// One table for each workload of the main link, in which a column has one unit.
pub(super) fn tables(results: &Results) -> Vec<Table> {
    let names: Vec<String> = results.plan.workloads.iter().map(WorkloadRecord::name).collect();
    let first_of_name = |index: usize| !names[..index].contains(&names[index]);
    (0..names.len())
        .filter(|&i| first_of_name(i))
        .map(|i| table(results, &names[i]))
        .filter(|table| !table.rows.is_empty())
        .collect()
}

/// What a stack costs anywhere; then models, bytes and predictions.
pub(super) fn further_tables(results: &Results) -> Vec<Table> {
    std::iter::once(portable(results)).chain(super::models::tables(results)).collect()
}

fn table(results: &Results, name: &str) -> Table {
    let rows = || {
        results.summary.iter().filter(|row| row.link == results.link.name && row.workload == name)
    };
    let sizes: BTreeSet<u64> = rows().map(|row| row.size_bytes).collect();
    let columns: Vec<Column> = sizes
        .iter()
        .map(|&size| Column::of(rows().filter(|row| row.size_bytes == size).collect()))
        .collect();
    let mut header = vec![name.to_owned(), "n".to_owned()];
    for column in &columns {
        header.push(column.title());
        header.push("overhead, %".to_owned());
    }
    header.push("limited by".to_owned());
    let stacks = results.plan.stacks.iter().map(|stack| stack.name.as_str());
    let rows = stacks.filter(|stack| rows().any(|row| row.stack == *stack)).map(|stack| {
        let of_stack = || rows().filter(|row| row.stack == stack);
        let counts = || of_stack().map(|row| row.n);
        let n = match (counts().min().unwrap_or(0), counts().max().unwrap_or(0)) {
            (least, most) if least == most => least.to_string(),
            (least, most) => format!("{least} to {most}"),
        };
        let mut cells = vec![stack.to_owned(), n];
        cells.extend(columns.iter().flat_map(|column| column.cells(stack)));
        let largest = of_stack().max_by_key(|row| row.size_bytes);
        cells.push(largest.and_then(|row| row.limited_by.clone()).unwrap_or_else(dash));
        cells
    });
    let rows = rows.collect();
    Table { header, rows }
}

/// The cells of one workload and size: a time and an overhead for each stack.
struct Column<'a> {
    rows: Vec<&'a Summary>,
    /// Seconds of the unit that all times are in, and its name.
    unit: (f64, &'static str),
}

impl<'a> Column<'a> {
    fn of(rows: Vec<&'a Summary>) -> Self {
        let longest = rows.iter().filter_map(|row| time(row)).fold(0.0, f64::max);
        let unit = match longest {
            s if s >= 10.0 => (1.0, "s"),
            s if s >= 1e-3 => (1e-3, "ms"),
            _ => (1e-6, "µs"),
        };
        Self { rows, unit }
    }

    fn title(&self) -> String {
        let size = self.rows.first().map_or(0, |row| row.size_bytes);
        let unit = self.unit.1;
        if size == 0 { unit.to_owned() } else { format!("{}, {unit}", units::size(size)) }
    }

    fn cells(&self, stack: &str) -> [String; 2] {
        let Some(row) = self.rows.iter().find(|row| row.stack == stack) else {
            return [dash(), dash()];
        };
        let mut text = match time(row) {
            Some(seconds) => units::three(seconds / self.unit.0),
            None => "failed".to_owned(),
        };
        if row.not_shaped {
            text += " \u{25c7}";
        }
        if row.failed > 0 {
            text += &format!(" ({} failed)", row.failed);
        }
        [text, overhead(row)]
    }
}

/// Of a file the session, of what goes on for a time the time of a unit.
fn time(row: &Summary) -> Option<f64> {
    if is_timed(row) { row.mean_s } else { row.session_mean_s.or(row.mean_s) }
}

fn overhead(row: &Summary) -> String {
    let (pct, ci95) = if is_timed(row) || row.session_overhead_pct.is_none() {
        (row.overhead_pct, row.overhead_ci95_pct)
    } else {
        (row.session_overhead_pct, row.session_overhead_ci95_pct)
    };
    let Some(value) = pct else { return dash() };
    let sign = if value < 0.0 { "" } else { "+" };
    format!("{sign}{}", Estimate { value, ci95, n: Some(row.overhead_n) }.rounded())
}

fn is_timed(row: &Summary) -> bool {
    Kind::of(&row.workload).is_some_and(Kind::is_timed)
}

fn portable(results: &Results) -> Table {
    let rows = results.portable.iter().map(|stack| {
        let figures = [
            stack.round_trips.map(|trips| trips.to_string()),
            stack.extra_bytes_per_mb.map(|bytes| format!("{bytes:.0}")),
            stack.cpu_seconds_per_gb.map(units::three),
            stack.work_s.map(|seconds| units::three(seconds * 1e3)),
            stack.fill_bps.map(|bps| units::three(bps / 1e6)),
        ];
        let figures = figures.map(|figure| figure.unwrap_or_else(dash));
        std::iter::once(stack.stack.clone()).chain(figures).collect()
    });
    let header = [
        "costs of a download",
        "round trips",
        "+bytes/MB",
        "CPU-s/GB",
        "fixed, ms",
        "fills links up to, Mbit/s",
    ];
    Table { header: header.map(str::to_owned).to_vec(), rows: rows.collect() }
}

fn dash() -> String {
    "–".to_owned()
}
