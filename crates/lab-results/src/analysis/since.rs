//! Runs before a moment and since then: which plans, between which hosts, became slower or faster.
//!
//! A run is one value of a cell, as in [`super::history`], so what differs from run to run is part
//! of every interval. The runs of both sides are compared by Welch's t test on the logarithms of
//! their times, and the probabilities of all cells, plans and pairs together are corrected by
//! Holm's method. Unlike a history it needs a moment that was not chosen by looking at the times.

use std::collections::BTreeMap;

use serde::Serialize;

use super::compare::{Change, Key, change, correct, name};
use super::history::{disturbance, log_times};
use crate::schema::Results;

/// What changed since a moment.
#[derive(Debug, Clone, Serialize)]
pub struct Since {
    /// RFC 3339.
    pub since: String,
    /// Runs that count, before and since.
    pub runs: [usize; 2],
    /// Runs that do not, each with the reason.
    pub left_out: Vec<String>,
    /// What was measured before and since, what became slower first.
    pub cells: Vec<CellSince>,
}

/// One cell before and since.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[allow(missing_docs, reason = "the fields of `schema::Summary`")]
pub struct CellSince {
    pub plan: String,
    /// The pair of hosts; null: one machine without a name.
    pub pair: Option<String>,
    pub link: String,
    pub stack: String,
    pub workload: String,
    pub size_bytes: u64,
    /// Geometric means of the times of the runs, before and since.
    pub seconds: [f64; 2],
    /// Of the time since over that before; `n` counts runs.
    pub change: Change,
}

impl CellSince {
    /// Stack, workload, size and link.
    pub fn name(&self) -> String {
        name(&(self.link.clone(), self.stack.clone(), self.workload.clone(), self.size_bytes))
    }

    /// Returns what is significant, corrected for the number of cells.
    pub fn verdict(&self) -> Verdict {
        let is_certain = self.change.is_comparable() && self.change.is_certain();
        match self.change.ci95_pct.filter(|_| is_certain) {
            Some([lo, _]) if lo > 0.0 => Verdict::Slower,
            Some([_, hi]) if hi < 0.0 => Verdict::Faster,
            _ => Verdict::Unclear,
        }
    }
}

/// What became of a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// It became faster.
    Faster,
    /// It did not change, or chance may have changed it.
    Unclear,
    /// It became slower.
    Slower,
}

/// Plan, its question, pair of hosts and cell.
type CellOfPair = (String, String, Option<String>, Key);

/// Compares the runs since a moment, in RFC 3339 and UTC as runs have it, with those before. Each
/// run has the name that it is told by.
pub fn since(runs: &[(String, Results)], moment: &str) -> Since {
    let mut left_out = Vec::new();
    let mut counted = [0, 0];
    let mut times: BTreeMap<CellOfPair, [Vec<f64>; 2]> = BTreeMap::new();
    for run in runs {
        if let Some(sentence) = disturbance(run) {
            left_out.push(sentence);
            continue;
        }
        let (_, results) = run;
        let plan = &results.plan;
        let side = usize::from(results.environment.started.as_str() >= moment);
        counted[side] += 1;
        for (key, log) in log_times(results) {
            let cell = (plan.name.clone(), plan.question.clone(), plan.pair_name(), key);
            times.entry(cell).or_default()[side].push(log);
        }
    }
    let cell = |(cell, [before, after]): (CellOfPair, [Vec<f64>; 2])| {
        let (plan, _question, pair, (link, stack, workload, size_bytes)) = cell;
        let change = change(&before, &after)?;
        let mean = |logs: &[f64]| (logs.iter().sum::<f64>() / logs.len() as f64).exp();
        let seconds = [mean(&before), mean(&after)];
        Some(CellSince { plan, pair, link, stack, workload, size_bytes, seconds, change })
    };
    let mut cells: Vec<CellSince> = times.into_iter().filter_map(cell).collect();
    correct(cells.iter_mut().map(|cell| &mut cell.change));
    cells.sort_by(|a, b| b.verdict().cmp(&a.verdict()).then(b.change.pct.total_cmp(&a.change.pct)));
    Since { since: moment.to_owned(), runs: counted, left_out, cells }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A run on a day, of a pair, with times that are so much longer.
    fn run(kept: &Results, day: u32, pair: &str, factor: f64) -> (String, Results) {
        let mut results = kept.clone();
        results.plan.pair = Some(pair.to_owned());
        results.environment.started = format!("2026-11-{day:02}T10:00:00Z");
        for sample in &mut results.samples {
            // what others did on the machine that measured this is none of this test
            (sample.disturbed, sample.ok) = (None, true);
            // runs differ by less than a per cent
            let noise = 1.0 + 0.002 * f64::from((day * 7) % 5);
            sample.seconds = Some(factor * noise);
            sample.session_seconds = Some(factor * noise);
        }
        (format!("{pair}/{day}"), results)
    }

    #[test]
    fn the_pair_that_got_slower_is_told_from_those_that_did_not() {
        let kept = concat!(env!("CARGO_MANIFEST_DIR"), "/../lab/tests/data/round-trips.json");
        let mut kept = crate::report::read_file(kept.as_ref()).expect("the kept results");
        // one cell
        let first = kept.samples[0].clone();
        kept.samples.retain(|sample| {
            (&sample.link, &sample.stack, sample.size_bytes)
                == (&first.link, &first.stack, first.size_bytes)
        });
        let mut runs = Vec::new();
        for day in 1..=12 {
            runs.push(run(&kept, day, "slower", if day < 7 { 1.0 } else { 1.1 }));
            runs.push(run(&kept, day, "same", 2.0));
        }
        // three runs on a side support no comparison, however far they are
        for day in 4..=9 {
            runs.push(run(&kept, day, "young", if day < 7 { 1.0 } else { 3.0 }));
        }
        let found = since(&runs, "2026-11-07T00:00:00Z");
        assert_eq!((found.runs, found.cells.len()), ([15, 15], 3));
        let [slower, others @ ..] = &found.cells[..] else { panic!("{found:?}") };
        assert_eq!((slower.pair.as_deref(), slower.verdict()), (Some("slower"), Verdict::Slower));
        assert!((slower.change.pct - 10.0).abs() < 1.0, "{slower:?}");
        assert_eq!(slower.change.n, [6, 6]);
        assert!(others.iter().all(|cell| cell.verdict() == Verdict::Unclear), "{others:?}");
        let back = since(&runs[..2], "2026-11-07T00:00:00Z");
        assert!(back.cells.is_empty(), "nothing was measured since");
    }

    #[test]
    fn a_history_has_the_runs_of_one_pair() {
        let kept = concat!(env!("CARGO_MANIFEST_DIR"), "/../lab/tests/data/round-trips.json");
        let kept = crate::report::read_file(kept.as_ref()).expect("the kept results");
        let runs = [(1, "b"), (2, "a"), (3, "b")];
        let runs = runs.map(|(day, pair)| run(&kept, day, pair, 1.0));
        let histories = crate::analysis::history::histories(runs.to_vec());
        let found: Vec<_> =
            histories.iter().map(|one| (one.pair.as_deref(), one.runs.len())).collect();
        assert_eq!(found, [(Some("a"), 1), (Some("b"), 2)]);
    }
}
