//! The table of the answer, and the whole answer as Markdown.

use std::collections::BTreeSet;

use crate::results::{Portable, Results, Summary};
use crate::units;

/// A header and rows of as many cells.
#[derive(Debug)]
pub(super) struct Table {
    pub(super) header: Vec<String>,
    pub(super) rows: Vec<Vec<String>>,
}

/// Sentences and table, for a README or an issue.
pub fn summary(results: &Results) -> String {
    let mut text = format!("## {}\n\n", results.plan.question);
    for sentence in &results.answer {
        text += &format!("- {sentence}\n");
    }
    let table = cells(results);
    let line = |row: &[String]| format!("| {} |\n", row.join(" | "));
    text += "\n";
    text += &line(&table.header);
    text += &format!("|{}\n", "---|".repeat(table.header.len()));
    for row in &table.rows {
        text += &line(row);
    }
    let environment = &results.environment;
    text += &format!(
        "\nMeasured {} on {} ({} cores, Linux {}), link {} ({}, {}), {} blocks, headroom {}. Overhead: time from \
         the first data command to the completion reply on the wire against the baseline, 95 % t interval on \
         paired log-ratios.\n",
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
    text
}

/// The table: portable costs, then overhead for each workload and size of the
/// main link, then what limits the largest.
pub(super) fn cells(results: &Results) -> Table {
    let rows = || results.summary.iter().filter(|row| row.link == results.link.name);
    let columns: BTreeSet<(usize, u64)> =
        rows().map(|row| (workload_place(results, &row.workload), row.size_bytes)).collect();
    let mut header: Vec<String> =
        ["stack", "round trips", "+bytes/MB", "CPU-s/GB"].map(String::from).to_vec();
    header.extend(columns.iter().map(|&(workload, size)| {
        let kind = &results.plan.workloads[workload].kind;
        let arrow = match kind.as_str() {
            "download" => "↓",
            "upload" => "↑",
            other => other,
        };
        if size == 0 { arrow.to_owned() } else { format!("{arrow} {}", units::size(size)) }
    }));
    header.push("limited by".to_owned());

    let rows = results
        .portable
        .iter()
        .map(|stack| {
            let of_stack = || rows().filter(|row| row.stack == stack.stack);
            let mut cells = portable_cells(stack);
            cells.extend(columns.iter().map(|&(workload, size)| {
                let row = of_stack().find(|r| {
                    workload_place(results, &r.workload) == workload && r.size_bytes == size
                });
                row.map_or_else(|| "–".to_owned(), measured_cell)
            }));
            let largest =
                of_stack().max_by_key(|row| row.size_bytes).and_then(|row| row.limited_by.clone());
            cells.push(largest.unwrap_or_else(|| "–".to_owned()));
            cells
        })
        .collect();
    Table { header, rows }
}

fn portable_cells(stack: &Portable) -> Vec<String> {
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "–".to_owned());
    vec![
        stack.stack.clone(),
        or_dash(stack.round_trips.map(|trips| trips.to_string())),
        or_dash(stack.extra_bytes_per_mb.map(|bytes| format!("{bytes:.0}"))),
        or_dash(stack.cpu_seconds_per_gb.map(|seconds| format!("{seconds:.2}"))),
    ]
}

/// The overhead with its interval; for a baseline its time.
fn measured_cell(row: &Summary) -> String {
    let failed = if row.failed > 0 { format!(" ({} failed)", row.failed) } else { String::new() };
    let value = match (row.overhead_pct, row.overhead_ci95_pct, row.mean_s) {
        (Some(pct), Some([lo, hi]), _) => format!("{pct:+.0} % [{lo:+.0}, {hi:+.0}]"),
        (Some(pct), None, _) => format!("{pct:+.0} %"),
        (None, _, Some(seconds)) => units::seconds(seconds),
        (None, _, None) => "failed".to_owned(),
    };
    format!("{value}{failed}")
}

/// Place of a workload in the plan; several of one kind share the first.
fn workload_place(results: &Results, kind: &str) -> usize {
    results.plan.workloads.iter().position(|workload| workload.kind == kind).unwrap_or(0)
}
