//! The comparison of two runs on the terminal.

use headroom_units as units;

use super::columns::{aligned, wrapped};
use super::table::Table;
use crate::analysis::compare::{CellChange, Change, Comparison};

/// Lists differences of the environments, then a table with the largest change first.
pub fn text(comparison: &Comparison, limit_pct: Option<f64>, width: usize) -> String {
    let mut text = String::new();
    for sentence in &comparison.differences {
        text += &wrapped(sentence, width);
    }
    for (cells, run) in [(&comparison.only_in_a, "A"), (&comparison.only_in_b, "B")] {
        if !cells.is_empty() {
            text += &wrapped(&format!("Only in {run}: {}.", cells.join(", ")), width);
        }
    }
    if comparison.cells.is_empty() {
        return text + "The two runs have no cell in common.\n";
    }
    if !text.is_empty() {
        text.push('\n');
    }
    let header = ["cell", "n, A and B", "time, B against A", "overhead, B against A", ""];
    let rows = comparison.cells.iter().map(|cell| row(cell, limit_pct)).collect();
    text += &aligned(&Table { header: header.map(str::to_owned).to_vec(), rows });
    text.push('\n');
    text += &wrapped(
        "Time: ratio of the geometric means of the transfer times, less one, with Welch's 95 % interval on their \
         logarithms; blocks of two runs are not paired. Overhead: the same of the times over their baselines'. \
         Fewer than five runs on a side support no comparison.",
        width,
    );
    text
}

fn row(cell: &CellChange, limit_pct: Option<f64>) -> Vec<String> {
    let verdict = match cell.change.ci95_pct {
        _ if !cell.change.is_comparable() => "too few runs",
        Some(_) if limit_pct.is_some_and(|limit| cell.is_slower_than(limit)) => "TOO SLOW",
        Some([lo, _]) if lo > 0.0 => "slower",
        Some([_, hi]) if hi < 0.0 => "faster",
        Some(_) | None => "",
    };
    let overhead = cell.overhead_change.as_ref().map_or_else(|| "–".to_owned(), change);
    let [a, b] = cell.change.n;
    vec![cell.name(), format!("{a}, {b}"), change(&cell.change), overhead, verdict.to_owned()]
}

fn change(change: &Change) -> String {
    let signed = |pct: f64| format!("{}{}", if pct < 0.0 { "" } else { "+" }, units::three(pct));
    match change.ci95_pct {
        Some([lo, hi]) => format!("{} % [{}, {}]", signed(change.pct), signed(lo), signed(hi)),
        None => format!("{} %", signed(change.pct)),
    }
}
