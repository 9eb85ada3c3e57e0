//! Runs side by side: which cells became slower or faster than in the first.
//!
//! Blocks of two runs have nothing in common, so nothing is paired: the ratio of
//! geometric means has Welch's interval on the logarithms of the times. An
//! overhead is compared with its counterpart the same way, each side with the
//! log-ratios of its own pairs.

use std::collections::BTreeMap;

use serde::Serialize;

use super::disturbance::Disturbance;
use super::stats::{self, Part};
use super::summary::{counted, pairs};
use crate::schema::{Results, Sample};

/// Comparison of two runs.
#[derive(Debug, Clone, Serialize)]
pub struct Comparison {
    /// Cells that both measured, the largest change first.
    pub cells: Vec<CellChange>,
    /// Why the figures of either run are doubtful, in sentences.
    pub doubts: [Option<String>; 2],
    /// Differences of plan and environment, in sentences.
    pub differences: Vec<String>,
    /// Cells of the first run that the second lacks.
    pub only_in_a: Vec<String>,
    /// And the other way round.
    pub only_in_b: Vec<String>,
    /// Cells that the second run should have measured and did not, in sentences.
    pub broken: Vec<String>,
}

/// One cell in two runs; changes are of the second against the first.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[allow(missing_docs, reason = "the fields of `results::Summary`")]
pub struct CellChange {
    pub link: String,
    pub stack: String,
    pub workload: String,
    pub size_bytes: u64,
    /// Time of the session, per cent; of what has no session, of one unit.
    pub change: Change,
    /// Time over the baseline's, per cent of that ratio.
    pub overhead_change: Option<Change>,
}

/// A ratio less one.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Change {
    /// Per cent.
    pub pct: f64,
    /// 95 % interval; none where a side has a single sample.
    pub ci95_pct: Option<[f64; 2]>,
    /// Runs of each side.
    pub n: [usize; 2],
    /// How often chance alone makes such a difference in any of the cells that were compared, at
    /// most (Welch's t test, Holm's correction); none where a side has a single sample.
    pub p: Option<f64>,
}

impl Change {
    /// Whether it is no chance, however many cells were compared.
    pub fn is_certain(&self) -> bool {
        self.p.is_some_and(|p| p < 0.05)
    }

    /// Whether both sides have runs enough to be compared.
    pub fn is_comparable(&self) -> bool {
        self.n.iter().all(|n| *n >= stats::MIN_RUNS)
    }
}

impl CellChange {
    /// Whether the cell is slower by more than `limit_pct` beyond doubt: the whole
    /// interval lies above it.
    pub fn is_slower_than(&self, limit_pct: f64) -> bool {
        self.change.ci95_pct.is_some_and(|[lo, _]| lo > limit_pct)
    }

    /// Stack, workload, size and link.
    pub fn name(&self) -> String {
        name(&(self.link.clone(), self.stack.clone(), self.workload.clone(), self.size_bytes))
    }
}

/// Link, stack, workload, size.
pub(super) type Key = (String, String, String, u64);

/// The samples of each cell.
type Cells<'a> = BTreeMap<Key, Vec<&'a Sample>>;

pub(super) fn name((link, stack, workload, size): &Key) -> String {
    match size {
        0 => format!("{stack} {workload} on {link}"),
        _ => format!("{stack} {workload} {} on {link}", headroom_units::chosen_size(*size)),
    }
}

/// Compares runs with the first.
pub fn compare(first: &Results, others: &[Results]) -> Vec<Comparison> {
    let mut all: Vec<Comparison> = others.iter().map(|other| of_two(first, other)).collect();
    correct(all.iter_mut().flat_map(|one| &mut one.cells).map(|cell| &mut cell.change));
    let cells = all.iter_mut().flat_map(|one| &mut one.cells);
    correct(cells.filter_map(|cell| cell.overhead_change.as_mut()));
    all
}

fn of_two(a: &Results, b: &Results) -> Comparison {
    let (cells_a, cells_b) = (cells(a), cells(b));
    let lacks = |these: &Cells<'_>, those: &Cells<'_>| {
        these.keys().filter(|key| !those.contains_key(*key)).map(name).collect()
    };
    let mut cells: Vec<CellChange> = cells_a
        .iter()
        .filter_map(|(key, one)| {
            let other = cells_b.get(key)?;
            let logs = |cell: &[&Sample]| -> Vec<f64> {
                cell.iter().filter_map(|s| time(s)).filter(|s| *s > 0.0).map(f64::ln).collect()
            };
            let (link, stack, workload, size_bytes) = key.clone();
            let overhead_change = overheads(a, &cells_a, key)
                .zip(overheads(b, &cells_b, key))
                .and_then(|(one, other)| change(&one, &other));
            let change = change(&logs(one), &logs(other))?;
            Some(CellChange { link, stack, workload, size_bytes, change, overhead_change })
        })
        .collect();
    let broken = broken([a, b], [&cells_a, &cells_b]);
    cells.sort_by(|x, y| y.change.pct.abs().total_cmp(&x.change.pct.abs()));
    Comparison {
        only_in_a: lacks(&cells_a, &cells_b),
        only_in_b: lacks(&cells_b, &cells_a),
        doubts: [a, b].map(|run| Disturbance::of(&run.samples).headline()),
        differences: differences(a, b),
        broken,
        cells,
    }
}

/// What the second run attempted or was to attempt and has no figures of.
fn broken([a, b]: [&Results; 2], [good_a, good_b]: [&Cells<'_>; 2]) -> Vec<String> {
    let failures = |results: &Results| -> BTreeMap<Key, (usize, usize)> {
        let mut cells = BTreeMap::new();
        for s in &results.samples {
            let key = (s.link.clone(), s.stack.clone(), s.workload.clone(), s.size_bytes);
            let (failed, all): &mut (usize, usize) = cells.entry(key).or_default();
            *failed += usize::from(!s.ok);
            *all += 1;
        }
        cells
    };
    let (of_a, of_b) = (failures(a), failures(b));
    let mut sentences: Vec<String> = Vec::new();
    if let Some(sentence) = b.incomplete() {
        sentences.push(format!("the second run: {sentence}"));
    }
    for (key, (failed, all)) in &of_b {
        let is_lost = good_a.contains_key(key) && !good_b.contains_key(key);
        if is_lost || *failed > of_a.get(key).map_or(0, |(failed, _)| *failed) {
            sentences.push(format!("{}: {failed} of {all} failed in the second run", name(key)));
        }
    }
    let missing = of_a.keys().filter(|key| !of_b.contains_key(*key));
    sentences.extend(missing.map(|key| format!("{} is not in the second run", name(key))));
    sentences
}

/// The samples that count, cell by cell; a cell in which everything failed is
/// none.
pub(super) fn cells(results: &Results) -> Cells<'_> {
    let mut cells: Cells<'_> = BTreeMap::new();
    for s in &results.samples {
        let key = (s.link.clone(), s.stack.clone(), s.workload.clone(), s.size_bytes);
        cells.entry(key).or_default().push(s);
    }
    let cells = cells.into_iter().map(|(key, cell)| (key, counted(&cell)));
    cells.filter(|(_, cell)| !cell.is_empty()).collect()
}

/// The time of a sample: of its session, connecting and logging in included; of what has none, the
/// time that its workload measures.
pub(super) fn time(sample: &Sample) -> Option<f64> {
    sample.session_seconds.or(sample.seconds)
}

/// The log-ratios of a cell over its baseline; none without one.
fn overheads(results: &Results, cells: &Cells<'_>, key: &Key) -> Option<Vec<f64>> {
    let planned = results.plan.stacks.iter().find(|s| s.name == key.1)?;
    let base = (key.0.clone(), planned.baseline.clone()?, key.2.clone(), key.3);
    Some(stats::log_ratios(&pairs(&cells[key], cells.get(&base)?, time)))
}

/// The change from one list of logarithms of times to another; its probability is not corrected.
pub(super) fn change(one: &[f64], other: &[f64]) -> Option<Change> {
    let log = stats::mean(other)?.mean - stats::mean(one)?.mean;
    let pct = |log: f64| 100.0 * log.exp_m1();
    let half = stats::half_width(&[Part::of_mean(one), Part::of_mean(other)]);
    let ci95_pct = half.map(|half| [pct(log - half), pct(log + half)]);
    let p = stats::welch_p(one, other);
    Some(Change { pct: pct(log), ci95_pct, n: [one.len(), other.len()], p })
}

/// Corrects the probabilities for their number.
pub(super) fn correct<'a>(changes: impl Iterator<Item = &'a mut Change>) {
    let mut all: Vec<&mut f64> = changes.filter_map(|change| change.p.as_mut()).collect();
    let corrected = stats::holm(&all.iter().map(|p| **p).collect::<Vec<_>>());
    all.iter_mut().zip(corrected).for_each(|(p, corrected)| **p = corrected);
}

/// Differences of plan, machine and programs, in sentences.
pub(super) fn differences(a: &Results, b: &Results) -> Vec<String> {
    let baselines = |r: &Results| {
        let stacks = r.plan.stacks.iter();
        stacks
            .map(|s| format!("{}/{}", s.name, s.baseline.as_deref().unwrap_or("-")))
            .collect::<Vec<_>>()
            .join(" ")
    };
    let facts = |r: &Results, other: &Results| {
        let (plan, machine) = (&r.plan, &r.environment);
        let mut facts = BTreeMap::from([
            ("plan".to_owned(), plan.name.clone()),
            ("stacks and baselines".to_owned(), baselines(r)),
            ("pair of hosts".to_owned(), plan.pair_name().unwrap_or_else(|| "one machine".into())),
            ("repetitions".to_owned(), plan.repetitions.to_string()),
            ("address family".to_owned(), plan.family.clone()),
            ("MTU".to_owned(), plan.mtu.to_string()),
            ("offload".to_owned(), plan.offload.clone()),
            ("congestion control".to_owned(), plan.all_congestion_controls()),
            ("link".to_owned(), plan.link.clone()),
            ("what makes the link".to_owned(), r.link.backend.clone()),
            ("CPU".to_owned(), machine.cpu.clone()),
            ("cores".to_owned(), machine.cores.to_string()),
            ("kernel".to_owned(), machine.kernel.clone()),
            ("distribution".to_owned(), machine.distribution.clone()),
            ("headroom".to_owned(), machine.headroom.clone()),
        ]);
        facts.extend(machine.builds(&other.environment));
        facts
    };
    let (of_a, of_b) = (facts(a, b), facts(b, a));
    let names: std::collections::BTreeSet<&String> = of_a.keys().chain(of_b.keys()).collect();
    let absent = "none".to_owned();
    names
        .into_iter()
        .filter_map(|name| {
            let (one, other) =
                (of_a.get(name).unwrap_or(&absent), of_b.get(name).unwrap_or(&absent));
            (one != other).then(|| format!("{name} differs: {one} in A, {other} in B."))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::ProgramRecord;

    fn times(factor: f64) -> Vec<f64> {
        [1.0, 1.02, 0.98, 1.01, 0.99].iter().map(|t: &f64| (t * factor).ln()).collect()
    }

    fn cell(change: Change) -> CellChange {
        let (link, stack) = ("unshaped".to_owned(), "ftp".to_owned());
        let workload = "download".to_owned();
        CellChange { link, stack, workload, size_bytes: 1024, change, overhead_change: None }
    }

    #[test]
    fn a_ratio_has_the_interval_of_welch() {
        let slower = change(&times(1.0), &times(1.1)).expect("five times each");
        assert!((slower.pct - 10.0).abs() < 1e-9);
        let [lo, hi] = slower.ci95_pct.expect("an interval");
        // standard error √(2 · 0.0158²/5) = 0.0100, t with 8 degrees 2.306
        assert!((lo - 7.5).abs() < 0.1 && (hi - 12.6).abs() < 0.1, "{lo} {hi}");
        let single = change(&[0.0], &times(1.1)).expect("a ratio");
        assert_eq!(single.ci95_pct, None);
        assert_eq!(change(&[], &times(1.0)), None);
    }

    #[test]
    fn a_cell_of_which_nothing_succeeded_is_broken_however_many_failed_before() {
        let kept = concat!(env!("CARGO_MANIFEST_DIR"), "/../lab/tests/data/round-trips.json");
        let kept = crate::report::read_file(kept.as_ref()).expect("the kept results");
        let first = Sample {
            seconds: Some(1.0),
            session_seconds: Some(1.0),
            disturbed: None,
            ..kept.samples[0].clone()
        };
        let run = |all: &[bool]| {
            let samples = all.iter().map(|&ok| Sample { ok, ..first.clone() });
            Results { samples: samples.collect(), complete: true, ..kept.clone() }
        };
        let before = run(&[true, true, true, false, false]);
        let broken = |after: &[bool]| compare(&before, &[run(after)]).remove(0).broken;
        let lost = broken(&[false, false]);
        assert_eq!(lost.len(), 1, "nothing is left of it: {lost:?}");
        assert!(lost[0].ends_with(": 2 of 2 failed in the second run"), "{lost:?}");
        assert_eq!(broken(&[true, true, false, false]), [""; 0], "as many failed before");
        assert_eq!(broken(&[true, true, false, false, false]).len(), 1, "more failed");
    }

    #[test]
    fn a_program_that_earlier_results_could_not_name_is_no_difference() {
        let kept = concat!(env!("CARGO_MANIFEST_DIR"), "/../lab/tests/data/round-trips.json");
        let before = crate::report::read_file(kept.as_ref()).expect("the kept results");
        let with = |digest: &str| {
            let mut results = before.clone();
            results.environment.programs.push(ProgramRecord {
                name: "scp".to_owned(),
                version: String::new(),
                blake3: Some(digest.to_owned()),
                path: "/usr/bin/scp".to_owned(),
                origin: "system".to_owned(),
            });
            results
        };
        let (one, other) = (with("0123456789abcdef"), with("fedcba9876543210"));
        assert_eq!(differences(&before, &one), [""; 0]);
        assert_eq!(differences(&one, &before), [""; 0]);
        let expected = "scp differs: BLAKE3 0123456789ab in A, BLAKE3 fedcba987654 in B.";
        assert_eq!(differences(&one, &other), [expected]);
    }

    #[test]
    fn slower_means_the_whole_interval() {
        let slower = cell(Change { pct: 10.0, ci95_pct: Some([7.5, 12.6]), n: [5, 5], p: None });
        assert!(slower.is_slower_than(5.0) && slower.is_slower_than(0.0));
        assert!(!slower.is_slower_than(8.0), "10 % may be 7.5 %");
        assert!(
            !cell(Change { pct: 90.0, ci95_pct: None, n: [1, 1], p: None }).is_slower_than(5.0)
        );
        assert!(
            !cell(Change { pct: -9.0, ci95_pct: Some([-12.0, -6.0]), n: [5, 5], p: None })
                .is_slower_than(5.0)
        );
        assert_eq!(slower.name(), "ftp download 1 KiB on unshaped");
    }
}
