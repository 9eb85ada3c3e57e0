//! Runs of one plan over time: in which cells the time changed, since which run, and what else
//! changed then.
//!
//! A run is one value of a cell, the geometric mean of its times: what differs between runs
//! (neighbours on the machine, its temperature) is no part of the spread within one. Of a cell's
//! runs those are looked for, one after the other, whose mean differs from that of all others so
//! that this explains most of the spread (circular binary segmentation: Olshen, Venkatraman, Lucito
//! and Wigler 2004), so that what became slower and was repaired is found, too. How often chance
//! alone explains as much of normal values is simulated. With many cells something would change by
//! chance, so each counts as changed only below 5 % over the number of cells (Bonferroni), those
//! of the same plan between other pairs of hosts included. The parts are searched again.

use std::collections::{BTreeMap, BTreeSet};

use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};
use serde::Serialize;

use super::compare::{Key, cells, differences, name, time};
use super::disturbance::Disturbance;
use super::stats::{self, Part};
use crate::schema::Results;

/// Chance of a change that is none, over all cells of a history.
const ALPHA: f64 = 0.05;
/// The fewest runs of a cell that are searched.
pub const FEWEST_RUNS: usize = 4;
/// Sequences without a change, for each number of runs.
const SIMULATED: usize = 19_999;
/// The newest runs of a plan that are searched: the time grows with the square of their number.
const MAX_RUNS: usize = 200;

/// The runs of one plan between one pair of hosts, the oldest first.
#[derive(Debug, Clone, Serialize)]
pub struct History {
    /// Name of the plan.
    pub plan: String,
    /// The pair of hosts; null: one machine without a name.
    pub pair: Option<String>,
    /// The runs that count.
    pub runs: Vec<RunOfHistory>,
    /// Runs that do not, each with the reason.
    pub left_out: Vec<String>,
    /// What was measured in more than one of them.
    pub cells: Vec<CellHistory>,
}

/// One run.
#[derive(Debug, Clone, Serialize)]
pub struct RunOfHistory {
    /// Its folder or file, as it was named.
    pub name: String,
    /// RFC 3339.
    pub started: String,
}

/// One cell over time.
#[derive(Debug, Clone, Serialize)]
#[allow(missing_docs, reason = "the fields of `schema::Summary`")]
pub struct CellHistory {
    pub link: String,
    pub stack: String,
    pub workload: String,
    pub size_bytes: u64,
    /// Geometric mean of the times of each run, of sessions where it has them; null: none.
    pub seconds: Vec<Option<f64>>,
    /// Standard deviation of runs between which nothing changed, per cent; none of fewer
    /// than two.
    pub spread_pct: Option<f64>,
    /// The smallest change half-way through these runs that would be found four times in five.
    pub visible_pct: Option<f64>,
    /// Where it changed, the oldest change first.
    pub changes: Vec<ChangePoint>,
}

/// A change of a cell's time.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ChangePoint {
    /// Index in [`History::runs`] of the first run after it.
    pub run: usize,
    /// Time after it over that before, less one, per cent; up to the next change each way.
    pub pct: f64,
    /// 95 % interval (Welch's); none where a side is a single run.
    pub ci95_pct: Option<[f64; 2]>,
    /// How often chance finds such a change in any of the cells, at most.
    pub p: f64,
    /// What plan, machine and programs have in common no longer, in sentences; A is the run
    /// before.
    pub differences: Vec<String>,
}

impl CellHistory {
    /// Stack, workload, size and link.
    pub fn name(&self) -> String {
        name(&(self.link.clone(), self.stack.clone(), self.workload.clone(), self.size_bytes))
    }
}

/// Sorts runs by plan, pair of hosts and time, and searches the cells of each for changes. Each run
/// has the name that it is told by.
pub fn histories(mut runs: Vec<(String, Results)>) -> Vec<History> {
    // parts of different studies may have the same name
    let plan = |run: &(String, Results)| (run.1.plan.name.clone(), run.1.plan.question.clone());
    let pair = |run: &(String, Results)| run.1.plan.pair_name();
    let started = |run: &(String, Results)| run.1.environment.started.clone();
    runs.sort_by_cached_key(|run| (plan(run), pair(run), started(run), run.0.clone()));
    let of_plan = |runs: &[(String, Results)]| {
        let pairs: Vec<Repeated<'_>> =
            runs.chunk_by(|a, b| pair(a) == pair(b)).map(Repeated::of).collect();
        let cells = pairs.iter().map(|pair| pair.keys.len()).sum();
        let mut search = Search { cells, chance: Chance::default() };
        pairs.into_iter().map(|pair| pair.searched(&mut search)).collect::<Vec<_>>()
    };
    runs.chunk_by(|a, b| plan(a) == plan(b)).flat_map(of_plan).collect()
}

/// Runs of one plan between one pair of hosts.
struct Repeated<'a> {
    /// Those that count, the oldest first.
    runs: Vec<&'a (String, Results)>,
    /// The newest of all.
    newest: &'a Results,
    left_out: Vec<String>,
    /// The times of each.
    times: Vec<BTreeMap<Key, f64>>,
    /// What more than one has measured.
    keys: Vec<Key>,
}

impl<'a> Repeated<'a> {
    fn of(all: &'a [(String, Results)]) -> Self {
        let all = &all[all.len().saturating_sub(MAX_RUNS)..];
        let (mut runs, mut left_out) = (Vec::new(), Vec::new());
        for run in all {
            match disturbance(run) {
                Some(sentence) => left_out.push(sentence),
                None => runs.push(run),
            }
        }
        let times: Vec<BTreeMap<Key, f64>> = runs.iter().map(|run| log_times(&run.1)).collect();
        let is_repeated = |key: &&Key| times.iter().filter(|of| of.contains_key(*key)).count() > 1;
        let keys: BTreeSet<&Key> = times.iter().flat_map(BTreeMap::keys).collect();
        let keys = keys.into_iter().filter(is_repeated).cloned().collect();
        let newest = &all[all.len() - 1].1;
        Self { runs, newest, left_out, times, keys }
    }

    fn searched(self, search: &mut Search) -> History {
        let Self { runs, newest, left_out, times, keys } = self;
        let cells = keys.iter().map(|key| {
            let series: Vec<(usize, f64)> =
                (0..).zip(&times).filter_map(|(run, of)| Some((run, *of.get(key)?))).collect();
            search.cell(key, &series, &runs)
        });
        let cells = cells.collect();
        let runs = runs.iter().map(|(name, results)| RunOfHistory {
            name: name.clone(),
            started: results.environment.started.clone(),
        });
        let (plan, pair) = (newest.plan.name.clone(), newest.plan.pair_name());
        History { plan, pair, runs: runs.collect(), left_out, cells }
    }
}

/// Says that background load disturbed a run so much that it does not count; none: it counts.
pub(super) fn disturbance((name, results): &(String, Results)) -> Option<String> {
    let disturbance = Disturbance::of(&results.samples);
    let Disturbance { blocks, disturbed, .. } = &disturbance;
    let sentence = format!("{name}: background load disturbed {disturbed} of {blocks} blocks");
    disturbance.is_severe().then_some(sentence)
}

/// The mean of the logarithms of a run's times, cell by cell.
pub(super) fn log_times(results: &Results) -> BTreeMap<Key, f64> {
    let mean = |(key, cell): (Key, Vec<&crate::schema::Sample>)| {
        let logs: Vec<f64> =
            cell.iter().filter_map(|s| time(s)).filter(|s| *s > 0.0).map(f64::ln).collect();
        Some((key, stats::mean(&logs)?.mean))
    };
    cells(results).into_iter().filter_map(mean).collect()
}

/// Searches the cells of one history.
struct Search {
    cells: usize,
    chance: Chance,
}

impl Search {
    fn cell(
        &mut self,
        key: &Key,
        series: &[(usize, f64)],
        runs: &[&(String, Results)],
    ) -> CellHistory {
        let logs: Vec<f64> = series.iter().map(|(_, log)| *log).collect();
        let mut found = Vec::new();
        self.changes(&logs, 0, &mut found);
        found.sort_unstable_by_key(|(at, _)| *at);
        let ends = |nth: usize| {
            let at = |nth: usize| found.get(nth).map_or(logs.len(), |(at, _)| *at);
            let before = if nth == 0 { 0 } else { at(nth - 1) };
            (&logs[before..at(nth)], &logs[at(nth)..at(nth + 1)])
        };
        let changes = found.iter().enumerate().map(|(nth, &(at, p))| {
            let (before, after) = ends(nth);
            let (run, earlier) = (series[at].0, series[at - 1].0);
            let log = mean(after) - mean(before);
            let half = stats::half_width(&[Part::of_mean(before), Part::of_mean(after)]);
            ChangePoint {
                run,
                pct: pct(log),
                ci95_pct: half.map(|half| [pct(log - half), pct(log + half)]),
                p,
                differences: differences(&runs[earlier].1, &runs[run].1),
            }
        });
        let changes: Vec<ChangePoint> = changes.collect();
        let deviation = deviation(&logs, &found);
        let (link, stack, workload, size_bytes) = key.clone();
        let mut seconds = vec![None; runs.len()];
        series.iter().for_each(|(run, log)| seconds[*run] = Some(log.exp()));
        CellHistory {
            link,
            stack,
            workload,
            size_bytes,
            seconds,
            spread_pct: deviation.map(pct),
            visible_pct: deviation.and_then(|s| Some(pct(s * self.visible(logs.len())?))),
            changes,
        }
    }

    /// Finds changes of values, the first of which has the index `from`.
    fn changes(&mut self, values: &[f64], from: usize, found: &mut Vec<(usize, f64)>) {
        let Some(Segment { start, end, explained }) = best_segment(values) else { return };
        let p = (self.chance.p(values.len(), explained) * self.cells as f64).min(1.0);
        if p >= ALPHA {
            return;
        }
        let inner = |at: &usize| (1..values.len()).contains(at);
        found.extend([start, end].into_iter().filter(inner).map(|at| (from + at, p)));
        self.changes(&values[..start], from, found);
        self.changes(&values[start..end], from + start, found);
        self.changes(&values[end..], from + end, found);
    }

    /// The change half-way through so many values, in standard deviations, that is found with a
    /// probability of 80 %; none: too few values to find any.
    fn visible(&mut self, n: usize) -> Option<f64> {
        let explained = self.chance.critical(n, ALPHA / self.cells.max(1) as f64)?;
        let half = (n / 2) as f64;
        let (n, degrees) = (n as f64, n as f64 - 2.0);
        // the explained share as a t, and 0.84: the normal quantile of 80 %
        let critical = (degrees * explained / (1.0 - explained)).sqrt();
        Some((critical + 0.84) * (1.0 / half + 1.0 / (n - half)).sqrt())
    }
}

/// Values one after the other that differ from all others, and the share of the spread that this
/// explains.
struct Segment {
    start: usize,
    end: usize,
    explained: f64,
}

/// Finds the segment that explains most; none of too few values, or of values that are all the
/// same.
fn best_segment(values: &[f64]) -> Option<Segment> {
    if values.len() < FEWEST_RUNS {
        return None;
    }
    let n = values.len() as f64;
    let all = mean(values);
    let spread: f64 = values.iter().map(|value| (value - all).powi(2)).sum();
    if spread <= f64::EPSILON * n * all.abs().max(1.0) {
        return None;
    }
    let mut best = Segment { start: 0, end: 0, explained: 0.0 };
    for start in 0..values.len() {
        let mut sum = 0.0;
        for (value, end) in values[start..].iter().zip(start + 1..) {
            sum += value - all;
            let inside = (end - start) as f64;
            // the sums inside and outside are opposite; of the whole there is no outside
            let explained = sum * sum / spread * (1.0 / inside + 1.0 / (n - inside));
            if inside < n && explained > best.explained {
                best = Segment { start, end, explained };
            }
        }
    }
    Some(best)
}

/// The standard deviation of values about the means between changes; none where none is left.
fn deviation(values: &[f64], changes: &[(usize, f64)]) -> Option<f64> {
    let mut starts: Vec<usize> = changes.iter().map(|(at, _)| *at).collect();
    starts.insert(0, 0);
    starts.push(values.len());
    let squares = |ends: &[usize]| {
        let part = &values[ends[0]..ends[1]];
        part.iter().map(|value| (value - mean(part)).powi(2)).sum::<f64>()
    };
    let degrees = values.len().checked_sub(changes.len() + 1).filter(|degrees| *degrees > 0)?;
    Some((starts.windows(2).map(squares).sum::<f64>() / degrees as f64).sqrt())
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

fn pct(log: f64) -> f64 {
    100.0 * log.exp_m1()
}

/// What the best segment of normal values without a change explains, by simulation.
#[derive(Debug, Default)]
struct Chance(BTreeMap<usize, Vec<f64>>);

impl Chance {
    /// How often it is as much.
    fn p(&mut self, n: usize, explained: f64) -> f64 {
        let simulated = self.of(n);
        let less = simulated.partition_point(|one| *one < explained);
        (simulated.len() - less + 1) as f64 / (simulated.len() + 1) as f64
    }

    /// What is reached with this probability; none where the simulation is too short for it.
    fn critical(&mut self, n: usize, p: f64) -> Option<f64> {
        (n >= FEWEST_RUNS).then_some(())?;
        let simulated = self.of(n);
        let above = (p * (simulated.len() + 1) as f64).floor() as usize;
        simulated.len().checked_sub(above).and_then(|at| simulated.get(at)).copied()
    }

    /// In ascending order.
    fn of(&mut self, n: usize) -> &[f64] {
        self.0.entry(n).or_insert_with(|| {
            let mut random = ChaCha8Rng::seed_from_u64(n as u64);
            let mut values = vec![0.0; n];
            let mut all: Vec<f64> = (0..SIMULATED)
                .filter_map(|_| {
                    values.fill_with(|| normal(&mut random));
                    best_segment(&values).map(|best| best.explained)
                })
                .collect();
            all.sort_unstable_by(f64::total_cmp);
            all
        })
    }
}

/// A normal value, by the method of Box and Muller (1958).
fn normal(random: &mut ChaCha8Rng) -> f64 {
    let (one, other): (f64, f64) = (random.random(), random.random());
    (-2.0 * (1.0 - one).ln()).sqrt() * (std::f64::consts::TAU * other).cos()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn search(cells: usize) -> Search {
        Search { cells, chance: Chance::default() }
    }

    fn found(values: &[f64], cells: usize) -> Vec<usize> {
        let mut found = Vec::new();
        search(cells).changes(values, 0, &mut found);
        let mut at: Vec<usize> = found.iter().map(|(at, _)| *at).collect();
        at.sort_unstable();
        at
    }

    #[test]
    fn finds_changes_where_they_are_and_none_in_what_only_spreads() {
        let noise = [0.01, -0.02, 0.0, 0.02, -0.01, 0.01, -0.01, 0.02, 0.0, -0.02];
        let stepped = |steps: &[(usize, f64)]| -> Vec<f64> {
            let level =
                |at| steps.iter().filter(|(from, _)| at >= *from).map(|(_, by)| by).sum::<f64>();
            (0..).zip(noise).map(|(at, noise)| level(at) + noise).collect()
        };
        assert_eq!(found(&noise, 1), [0; 0]);
        assert_eq!(found(&stepped(&[(6, 0.2)]), 20), [6]);
        assert_eq!(found(&stepped(&[(4, 0.3), (8, -0.3)]), 1), [4, 8]);
        // one new run, far from nine that agree
        assert_eq!(found(&stepped(&[(9, 0.2)]), 20), [9]);
        assert_eq!(found(&[1.0; 8], 1), [0; 0], "nothing differs");
        assert_eq!(found(&[0.0, 0.0, 9.0], 1), [0; 0], "three runs");
    }

    #[test]
    fn without_a_change_one_is_found_in_five_of_a_hundred_histories() {
        let mut random = ChaCha8Rng::seed_from_u64(3);
        let mut search = search(3);
        let histories = 2000;
        let wrong = (0..histories)
            .filter(|_| {
                (0..3).any(|_| {
                    let values: Vec<f64> = (0..8).map(|_| normal(&mut random)).collect();
                    let mut found = Vec::new();
                    search.changes(&values, 0, &mut found);
                    !found.is_empty()
                })
            })
            .count();
        // 5 % less what Bonferroni gives away; 99 % binomial bounds
        assert!((70..=126).contains(&wrong), "{wrong} of {histories}");
    }

    #[test]
    fn what_is_said_to_be_visible_is_found_four_times_in_five() {
        let mut random = ChaCha8Rng::seed_from_u64(4);
        let mut search = search(5);
        let step = search.visible(12).expect("enough runs");
        let histories = 1000;
        let right = (0..histories)
            .filter(|_| {
                let level = |at: usize| if at < 6 { 0.0 } else { step };
                let values: Vec<f64> = (0..12).map(|at| level(at) + normal(&mut random)).collect();
                let mut found = Vec::new();
                search.changes(&values, 0, &mut found);
                !found.is_empty()
            })
            .count();
        assert!((750..=870).contains(&right), "{right} of {histories}");
        assert_eq!(search.visible(3), None);
    }
}
