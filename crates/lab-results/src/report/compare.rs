//! The comparison of runs on the terminal. The first run is A, the others B, C and so on.

use std::collections::BTreeMap;

use headroom_units as units;

use super::columns::{aligned, wrapped};
use super::table::Table;
use crate::analysis::compare::{CellChange, Change, Comparison};
use crate::analysis::stats;

/// Lists differences of the environments, then a table: of two runs with the largest change
/// first, of more with a column each.
pub fn text(comparisons: &[Comparison], limit_pct: Option<f64>, width: usize) -> String {
    let mut text = differences(comparisons, width);
    if comparisons.iter().all(|comparison| comparison.cells.is_empty()) {
        return text + "The runs have no cell in common.\n";
    }
    if !text.is_empty() {
        text.push('\n');
    }
    let table = match comparisons {
        [one] => of_two(one, limit_pct),
        more => of_many(more, limit_pct),
    };
    text += &aligned(&table);
    text.push('\n');
    let overhead = match comparisons {
        [_] => " Overhead: the same of the times over their baselines'.",
        _ => "",
    };
    text + &wrapped(
        &format!(
            "Time: ratio of the geometric means of the session times, less one, with Welch's 95 % interval on their \
             logarithms; blocks of two runs are not paired.{overhead} A question mark: chance alone makes such a \
             difference somewhere among so many cells in more than 5 % of comparisons (Holm's method). Would show: the \
             smallest difference whose interval would have excluded 0 with a probability of 80 %. Fewer than five runs on \
             a side support no comparison."
        ),
        width,
    )
}

/// How the environments of later runs differ from that of A, each difference once, and which cells
/// only one run has.
fn differences(comparisons: &[Comparison], width: usize) -> String {
    let first = comparisons.first().and_then(|one| one.doubts[0].as_ref());
    let later = comparisons.iter().map(|one| one.doubts[1].as_ref());
    let of_runs = ('A'..).zip(std::iter::once(first).chain(later));
    let doubts: String = of_runs
        .filter_map(|(run, doubt)| Some(wrapped(&format!("{run}: {}", doubt?), width)))
        .collect();
    let mut sentences: Vec<(String, Vec<String>)> = Vec::new();
    let mut add = |sentence: String, run: char| match sentences
        .iter_mut()
        .find(|(same, _)| *same == sentence)
    {
        Some((_, runs)) => runs.push(run.to_string()),
        None => sentences.push((sentence, vec![run.to_string()])),
    };
    for (comparison, run) in comparisons.iter().zip('B'..) {
        for sentence in &comparison.differences {
            add(sentence.trim_end_matches(" in B.").to_owned() + " in", run);
        }
        if !comparison.only_in_a.is_empty() {
            add(format!("In A alone: {}; not in", comparison.only_in_a.join(", ")), run);
        }
        if !comparison.only_in_b.is_empty() {
            add(format!("Not in A: {}; in", comparison.only_in_b.join(", ")), run);
        }
    }
    let told = |(sentence, runs): &(String, Vec<String>)| {
        wrapped(&format!("{sentence} {}.", runs.join(" and ")), width)
    };
    doubts + &sentences.iter().map(told).collect::<String>()
}

fn of_two(comparison: &Comparison, limit_pct: Option<f64>) -> Table {
    let header = ["cell", "n, A and B", "time, B against A", "overhead, B against A", ""];
    let rows = comparison.cells.iter().map(|cell| row(cell, limit_pct)).collect();
    Table { header: header.map(str::to_owned).to_vec(), rows }
}

fn of_many(comparisons: &[Comparison], limit_pct: Option<f64>) -> Table {
    let runs = || comparisons.iter().zip('B'..);
    let mut cells: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (nth, comparison) in comparisons.iter().enumerate() {
        for cell in &comparison.cells {
            let row = cells
                .entry(cell.name())
                .or_insert_with(|| vec!["–".to_owned(); comparisons.len()]);
            row[nth] = format!("{} {}", change(&cell.change), verdict(cell, limit_pct))
                .trim_end()
                .to_owned();
        }
    }
    let header =
        std::iter::once("cell".to_owned()).chain(runs().map(|(_, run)| format!("{run} against A")));
    let rows = cells.into_iter().map(|(name, row)| std::iter::once(name).chain(row).collect());
    Table { header: header.collect(), rows: rows.collect() }
}

fn row(cell: &CellChange, limit_pct: Option<f64>) -> Vec<String> {
    let overhead = cell.overhead_change.as_ref().map_or_else(|| "–".to_owned(), change);
    let [a, b] = cell.change.n;
    let verdict = verdict(cell, limit_pct);
    vec![cell.name(), format!("{a}, {b}"), change(&cell.change), overhead, verdict]
}

/// Says whether a cell changed, or, where its interval includes 0, which change would have shown.
fn verdict(cell: &CellChange, limit_pct: Option<f64>) -> String {
    let word = match cell.change.ci95_pct {
        _ if limit_pct.is_some_and(|limit| cell.is_slower_than(limit)) => "TOO SLOW",
        _ if !cell.change.is_comparable() => "too few runs",
        Some([lo, _]) if lo > 0.0 && cell.change.is_certain() => "slower",
        Some([_, hi]) if hi < 0.0 && cell.change.is_certain() => "faster",
        Some([lo, _]) if lo > 0.0 => "slower?",
        Some([_, hi]) if hi < 0.0 => "faster?",
        Some(ends) => {
            let would_show = |pct| format!("would show: {} %", units::three(pct));
            return stats::visible_pct(ends).map_or_else(String::new, would_show);
        }
        None => "",
    };
    word.to_owned()
}

fn change(change: &Change) -> String {
    signed(change.pct, change.ci95_pct)
}

/// `+20 % [+18, +22]`.
pub(super) fn signed(pct: f64, ci95_pct: Option<[f64; 2]>) -> String {
    let signed = |pct: f64| units::with_sign(units::three(pct));
    match ci95_pct {
        Some([lo, hi]) => format!("{} % [{}, {}]", signed(pct), signed(lo), signed(hi)),
        None => format!("{} %", signed(pct)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_without_a_significant_change_says_which_one_would_have_shown() {
        let cell = |ci95_pct, n| CellChange {
            link: "unshaped".to_owned(),
            stack: "ftp".to_owned(),
            workload: "download".to_owned(),
            size_bytes: 1024,
            change: Change { pct: 1.0, ci95_pct, n, p: Some(0.5) },
            overhead_change: None,
        };
        for (ci95_pct, n, expected) in [
            (Some([-3.0, 5.2]), [5, 5], "would show: 5.97 %"),
            (Some([-100.0, f64::INFINITY]), [5, 5], ""),
            (Some([-3.0, 5.2]), [5, 4], "too few runs"),
            (Some([0.5, 1.5]), [5, 5], "slower?"),
        ] {
            assert_eq!(verdict(&cell(ci95_pct, n), None), expected, "{ci95_pct:?} {n:?}");
        }
        let comparison = Comparison {
            cells: vec![cell(Some([-3.0, 5.2]), [5, 5])],
            doubts: [None, None],
            differences: Vec::new(),
            only_in_a: Vec::new(),
            only_in_b: Vec::new(),
            broken: Vec::new(),
        };
        let of_two = text(std::slice::from_ref(&comparison), None, 100);
        assert!(of_two.lines().any(|line| line.ends_with(" would show: 5.97 %")), "{of_two}");
        let of_three = text(&[comparison.clone(), comparison], None, 100);
        assert!(of_three.contains("+1 % [-3, +5.2] would show: 5.97 %"), "{of_three}");
    }
}
