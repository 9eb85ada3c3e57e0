//! What changed since a moment, on the terminal.

use headroom_units as units;

use super::columns::{aligned, wrapped};
use super::compare::signed;
use super::table::Table;
use crate::analysis::since::{CellSince, Since, Verdict};

/// Says how many cells became slower and faster, then lists all of them.
pub fn text(since: &Since, width: usize) -> String {
    let mut text = wrapped(&headline(since), width);
    for left_out in &since.left_out {
        text += &wrapped(&format!("Left out: {left_out}."), width);
    }
    if since.cells.is_empty() {
        return text;
    }
    text += &format!("\n{}\n", aligned(&table(&since.cells)));
    text + &wrapped(
        "Time: geometric mean of the runs since, of the sessions. Change: its ratio to that of the runs before, less \
         one, with Welch's 95 % interval; each run is one value. p: how often chance alone makes such a difference in \
         any of the cells (Holm's method). A question mark: it may be chance, among so many cells. Fewer than five \
         runs on a side support no comparison. Runs before and since should be of the same hours of the day.",
        width,
    )
}

fn headline(since: &Since) -> String {
    let [before, after] = since.runs;
    let moment = &since.since;
    if since.cells.is_empty() {
        return format!(
            "Nothing was measured both before {moment} ({before} runs) and since then ({after} runs)."
        );
    }
    let count =
        |verdict: Verdict| since.cells.iter().filter(|cell| cell.verdict() == verdict).count();
    let all = since.cells.len();
    let (slower, faster) = (count(Verdict::Slower), count(Verdict::Faster));
    format!(
        "Since {moment} (runs before: {before}, since: {after}): of {all} cells {slower} became slower and {faster} faster."
    )
}

fn table(cells: &[CellSince]) -> Table {
    let header = ["pair", "plan", "cell", "runs", "time", "change", "p", ""];
    let rows = cells.iter().map(|cell| {
        let [before, after] = cell.change.n;
        vec![
            cell.pair.clone().unwrap_or_else(|| "–".to_owned()),
            cell.plan.clone(),
            cell.name(),
            format!("{before}, {after}"),
            units::seconds(cell.seconds[1]),
            signed(cell.change.pct, cell.change.ci95_pct),
            cell.change.p.map_or_else(|| "–".to_owned(), probability),
            verdict(cell).to_owned(),
        ]
    });
    Table { header: header.map(str::to_owned).to_vec(), rows: rows.collect() }
}

fn probability(p: f64) -> String {
    if p < 0.001 { "< 0.001".to_owned() } else { format!("{p:.3}") }
}

fn verdict(cell: &CellSince) -> &'static str {
    match (cell.verdict(), cell.change.ci95_pct) {
        (Verdict::Slower, _) => "slower",
        (Verdict::Faster, _) => "faster",
        _ if !cell.change.is_comparable() => "too few runs",
        (_, Some([lo, _])) if lo > 0.0 => "slower?",
        (_, Some([_, hi])) if hi < 0.0 => "faster?",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::compare::Change;

    #[test]
    fn tells_pairs_apart_and_what_chance_may_have_done() {
        let cell = |pair: &str, pct: f64, half: f64, n, p| CellSince {
            plan: "demo".to_owned(),
            pair: Some(pair.to_owned()),
            link: "unshaped".to_owned(),
            stack: "sftp".to_owned(),
            workload: "download".to_owned(),
            size_bytes: 1024,
            seconds: [1.0, 1.0 + pct / 100.0],
            change: Change { pct, ci95_pct: Some([pct - half, pct + half]), n, p: Some(p) },
        };
        let since = Since {
            since: "2026-11-23T00:00:00Z".to_owned(),
            runs: [40, 12],
            left_out: vec!["runs/x: background load disturbed 3 of 4 blocks".to_owned()],
            cells: vec![
                cell("berlin-paris", 20.0, 2.0, [10, 5], 0.0001),
                cell("berlin-rome", 3.0, 2.0, [10, 5], 0.2),
                cell("here", 1.0, 2.0, [10, 5], 1.0),
                cell("new", 50.0, 2.0, [3, 4], 0.01),
                cell("rome-paris", -20.0, 2.0, [10, 5], 0.004),
            ],
        };
        let text = text(&since, 120);
        for words in [
            "Since 2026-11-23T00:00:00Z (runs before: 40, since: 12): of 5 cells 1 became slower and 1 faster.",
            "Left out: runs/x",
            "+20 % [+18, +22]  < 0.001  slower\n",
            "0.200  slower?\n",
            "0.010  too few runs\n",
            "-20 % [-22, -18]    0.004  faster\n",
        ] {
            assert!(text.contains(words), "`{words}` is not in {text}");
        }
        let none = Since { cells: Vec::new(), ..since };
        assert!(super::text(&none, 80).starts_with("Nothing was measured both before 2026-11-23"));
    }
}
