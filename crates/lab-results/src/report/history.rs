//! The history of a plan on the terminal.

use std::cmp::Reverse;

use headroom_units as units;

use super::columns::{aligned, wrapped};
use super::compare::signed;
use super::table::Table;
use crate::analysis::history::{CellHistory, ChangePoint, FEWEST_RUNS, History};

/// Runs that a row shows.
const SHOWN: usize = 24;
const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Tells what changed and when, and shows each cell over time.
pub fn text(history: &History, width: usize) -> String {
    let mut text = wrapped(&headline(history), width);
    for left_out in &history.left_out {
        text += &wrapped(&format!("Left out: {left_out}."), width);
    }
    if history.cells.is_empty() {
        return text;
    }
    let mut changes: Vec<(&CellHistory, &ChangePoint)> = history
        .cells
        .iter()
        .flat_map(|cell| cell.changes.iter().map(move |change| (cell, change)))
        .collect();
    // the newest first, and what changed together together; of cells that the run before lacks
    // the differences are to an earlier one
    let since = |change: &ChangePoint| (Reverse(change.run), change.differences.clone());
    changes
        .sort_by(|a, b| since(a.1).cmp(&since(b.1)).then(b.1.pct.abs().total_cmp(&a.1.pct.abs())));
    for since in changes.chunk_by(|a, b| since(a.1) == since(b.1)) {
        let run = &history.runs[since[0].1.run];
        text.push('\n');
        text += &wrapped(&format!("Since {} ({}):", run.started, run.name), width);
        for (cell, change) in since {
            text +=
                &format!("  {}", wrapped(&format!("{}: {}", cell.name(), told(change)), width - 2));
        }
        for difference in &since[0].1.differences {
            text += &format!("  {}", wrapped(difference, width - 2));
        }
    }
    text += &format!("\n{}\n", aligned(&table(history)));
    text += &wrapped(
        "Time: of the newest run, the geometric mean of the sessions. Spread: the standard deviation of runs between which nothing \
         changed. Visible: the smallest change half-way through these runs that would be found four times in five. \
         Changes are found with 5 % of false ones over all cells of the plan, on all pairs of hosts.",
        width,
    );
    if !changes.is_empty() {
        text += "In the differences A is the run before, B the first after the change.\n";
    }
    text
}

fn headline(history: &History) -> String {
    let on = history.pair.as_ref().map_or_else(String::new, |pair| format!(" on {pair}"));
    let plan = format!("{}{on}", history.plan);
    let runs = history.runs.len();
    let (Some(first), Some(last)) = (history.runs.first(), history.runs.last()) else {
        return format!("{plan}: no run counts.");
    };
    let day = |time: &str| time.split('T').next().unwrap_or_default().to_owned();
    let head = format!(
        "{plan}: {runs} run{}, {} to {}",
        if runs == 1 { "" } else { "s" },
        day(&first.started),
        day(&last.started)
    );
    let searched = |cell: &&CellHistory| cell.seconds.iter().flatten().count() >= FEWEST_RUNS;
    let searched: Vec<&CellHistory> = history.cells.iter().filter(searched).collect();
    let changed = searched.iter().filter(|cell| !cell.changes.is_empty()).count();
    match searched.len() {
        0 => format!("{head}. Changes are looked for in cells of {FEWEST_RUNS} runs and more."),
        all if changed == 0 => format!("{head}. No change was found in {all} cells."),
        all => format!("{head}. The time of {changed} of {all} cells changed."),
    }
}

/// `+20 % [+18, +22], p = 0.004`.
fn told(change: &ChangePoint) -> String {
    let p = if change.p < 0.001 { "p < 0.001".to_owned() } else { format!("p = {:.3}", change.p) };
    format!("{}, {p}", signed(change.pct, change.ci95_pct))
}

fn table(history: &History) -> Table {
    let header = ["cell", "runs", "time", "spread", "visible", "oldest to newest"];
    let rows = history.cells.iter().map(|cell| {
        let known: Vec<f64> = cell.seconds.iter().flatten().copied().collect();
        let pct = |value: Option<f64>| {
            value.map_or_else(|| "–".to_owned(), |pct| format!("{} %", units::three(pct)))
        };
        vec![
            cell.name(),
            known.len().to_string(),
            known.last().map_or_else(|| "–".to_owned(), |seconds| units::seconds(*seconds)),
            pct(cell.spread_pct),
            pct(cell.visible_pct),
            bars(&cell.seconds),
        ]
    });
    Table { header: header.map(str::to_owned).to_vec(), rows: rows.collect() }
}

/// A bar for each of the newest runs, from the fastest to the slowest; a dot has no time.
fn bars(seconds: &[Option<f64>]) -> String {
    let shown = &seconds[seconds.len().saturating_sub(SHOWN)..];
    let known = || shown.iter().flatten();
    let least = known().copied().fold(f64::INFINITY, f64::min);
    let most = known().copied().fold(0.0, f64::max);
    let bar = |seconds: f64| {
        let height = if most > least { (seconds - least) / (most - least) } else { 0.0 };
        BARS[(height * 7.0).round() as usize]
    };
    shown.iter().map(|seconds| seconds.map_or('·', bar)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::history::RunOfHistory;

    #[test]
    fn tells_what_changed_together_and_what_else_changed_then() {
        let run = |day: u32| RunOfHistory {
            name: format!("results/{day}"),
            started: format!("2026-11-{day:02}T00:00:00Z"),
        };
        let cell = |stack: &str, changes: Vec<ChangePoint>| CellHistory {
            link: "100mbit".to_owned(),
            stack: stack.to_owned(),
            workload: "download".to_owned(),
            size_bytes: 1024,
            seconds: vec![Some(1.0), Some(1.01), None, Some(1.2), Some(1.21)],
            spread_pct: Some(0.7),
            visible_pct: Some(4.0),
            changes,
        };
        let change = |pct: f64, ci95_pct| ChangePoint {
            run: 3,
            pct,
            ci95_pct,
            p: 0.0004,
            differences: vec!["kernel differs: 6.1 in A, 6.2 in B.".to_owned()],
        };
        let history = History {
            plan: "demo".to_owned(),
            pair: None,
            runs: (1..=5).map(run).collect(),
            left_out: vec!["results/6: background load disturbed 3 of 4 blocks".to_owned()],
            cells: vec![
                cell("http", vec![change(20.0, Some([18.0, 22.0]))]),
                cell("ftp", vec![change(-4.0, None)]),
                cell("sftp", Vec::new()),
            ],
        };
        let text = text(&history, 80);
        for line in [
            "demo: 5 runs, 2026-11-01 to 2026-11-05. The time of 2 of 3 cells changed.\n",
            "Left out: results/6: background load disturbed 3 of 4 blocks.\n",
            "Since 2026-11-04T00:00:00Z (results/4):\n  http download 1 KiB on 100mbit: +20 % [+18, +22], p < 0.001\n  ftp download 1 KiB on 100mbit: -4 %, p < 0.001\n  kernel differs: 6.1 in A, 6.2 in B.\n",
            "▁▁·██",
        ] {
            assert!(text.contains(line), "`{line}` is not in {text}");
        }
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        let mut later = history.clone();
        // the first cell is not in the run before
        later.cells[0].changes[0].differences =
            vec!["kernel differs: 6.0 in A, 6.2 in B.".to_owned()];
        let text = super::text(&later, 80);
        for line in [
            "(results/4):\n  http download 1 KiB on 100mbit: +20 % [+18, +22], p < 0.001\n  kernel differs: 6.0 in A",
            "(results/4):\n  ftp download 1 KiB on 100mbit: -4 %, p < 0.001\n  kernel differs: 6.1 in A",
        ] {
            assert!(text.contains(line), "`{line}` is not in {text}");
        }
        let elsewhere = History { pair: Some("berlin-paris".to_owned()), ..history };
        assert!(super::text(&elsewhere, 80).starts_with("demo on berlin-paris: 5 runs"));
    }
}
