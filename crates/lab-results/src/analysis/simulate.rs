//! Machines made up, to prove that intervals cover what they promise: the truth
//! is known, the noise has a shape, and the analysis sees samples only.

use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};

use super::cost::{Cell, CostModel};
use super::crossover;
use super::stats;
use super::stop::{Decision, MIN_BLOCKS, Until, Width};

/// Noise of a machine's times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Noise {
    /// Log-normal, 5 %.
    LogNormal,
    /// Logarithms by Student's t with 3 degrees of freedom, scale 3 %.
    HeavyTails,
    /// Log-normal, 3 %, and one sample in twenty three times slower.
    Contaminated,
    /// Log-normal, 3 %, on a machine 2 % slower with each block.
    Drift,
    /// Log-normal, 3 %, in blocks of which every second one, at random, is 1.5
    /// times slower.
    TwoSpeeds,
}

/// All shapes.
pub const NOISES: [Noise; 5] =
    [Noise::LogNormal, Noise::HeavyTails, Noise::Contaminated, Noise::Drift, Noise::TwoSpeeds];

impl Noise {
    /// In words, for the table.
    pub fn name(self) -> &'static str {
        match self {
            Self::LogNormal => "log-normal, 5 %",
            Self::HeavyTails => "heavy tails (Student t, 3 degrees, 3 %)",
            Self::Contaminated => "contaminated (one in twenty 3 × slower)",
            Self::Drift => "drift (2 % slower with each block)",
            Self::TwoSpeeds => "two speeds (half of the blocks 1.5 × slower)",
        }
    }
}

/// A machine with noise of one shape.
#[derive(Debug)]
pub struct Machine {
    noise: Noise,
    random: ChaCha8Rng,
    block: u32,
    /// Factor of all samples of the current block.
    pace: f64,
}

impl Machine {
    /// A machine; the same seed makes the same.
    pub fn new(noise: Noise, seed: u64) -> Self {
        Self { noise, random: ChaCha8Rng::seed_from_u64(seed), block: 0, pace: 1.0 }
    }

    /// Forgets the drift of earlier blocks.
    fn restart(&mut self) {
        self.block = 0;
    }

    fn begin_block(&mut self) {
        self.pace = match self.noise {
            Noise::Drift => 1.02f64.powi(self.block as i32),
            Noise::TwoSpeeds if self.random.random::<bool>() => 1.5,
            _ => 1.0,
        };
        self.block += 1;
    }

    /// Applies the machine's noise to a time in the current block.
    fn time(&mut self, truth_s: f64) -> f64 {
        let noise = match self.noise {
            Noise::LogNormal => 0.05 * self.normal(),
            Noise::HeavyTails => {
                let squares: f64 = (0..3).map(|_| self.normal().powi(2)).sum();
                0.03 * self.normal() / (squares / 3.0).sqrt()
            }
            Noise::Contaminated => {
                let slow = if self.random.random::<f64>() < 0.05 { 3f64.ln() } else { 0.0 };
                0.03 * self.normal() + slow
            }
            Noise::Drift | Noise::TwoSpeeds => 0.03 * self.normal(),
        };
        truth_s * self.pace * noise.exp()
    }

    /// Standard normal (Box and Muller 1958).
    fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.random.random::<f64>()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.random.random::<f64>()).cos()
    }

    /// Times of a stack that takes `ratio` times as long as its baseline.
    fn pair(&mut self, ratio: f64) -> (f64, f64) {
        self.begin_block();
        (self.time(ratio), self.time(1.0))
    }

    fn pairs(&mut self, blocks: usize, ratio: f64) -> Vec<(f64, f64)> {
        self.restart();
        (0..blocks).map(|_| self.pair(ratio)).collect()
    }
}

/// Coverage and width of intervals.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Coverage {
    /// Share of trials whose interval held the truth.
    pub covered: f64,
    /// Median half-width: per cent of a ratio or cost, or of a size.
    pub half_width_pct: f64,
    /// Mean number of blocks.
    pub blocks: f64,
}

/// The truth of all trials on ratios: 10 % of overhead.
const RATIO: f64 = 1.1;

/// The interval in use: t on paired log-ratios.
pub fn paired_t(noise: Noise, blocks: usize, trials: u32, seed: u64) -> Coverage {
    let mut machine = Machine::new(noise, seed);
    trial(trials, || {
        let interval =
            stats::paired_overhead(&machine.pairs(blocks, RATIO)).and_then(|o| o.ci95_pct);
        Some((interval?.map(|pct| 1.0 + pct / 100.0), blocks))
    })
}

/// For comparison: the percentile bootstrap of the mean log-ratio.
pub fn bootstrap(noise: Noise, blocks: usize, trials: u32, seed: u64) -> Coverage {
    const RESAMPLES: usize = 1000;
    let mut machine = Machine::new(noise, seed);
    trial(trials, || {
        let logs: Vec<f64> =
            machine.pairs(blocks, RATIO).iter().map(|(time, base)| (time / base).ln()).collect();
        let mut means: Vec<f64> = (0..RESAMPLES)
            .map(|_| {
                let drawn = (0..blocks).map(|_| logs[machine.random.random_range(0..blocks)]);
                drawn.sum::<f64>() / blocks as f64
            })
            .collect();
        means.sort_by(f64::total_cmp);
        Some(([means[RESAMPLES / 40].exp(), means[RESAMPLES - 1 - RESAMPLES / 40].exp()], blocks))
    })
}

/// The interval in use with the stop rule in force, from `least` blocks on; the
/// lab refuses to start it before [`MIN_BLOCKS`].
pub fn stopped(noise: Noise, until: Until, least: u32, trials: u32, seed: u64) -> Coverage {
    let mut machine = Machine::new(noise, seed);
    trial(trials, || {
        machine.restart();
        let (mut pairs, mut blocks) = (Vec::new(), 0);
        loop {
            pairs.push(machine.pair(RATIO));
            blocks += 1;
            if blocks < least {
                continue;
            }
            let logs: Vec<f64> =
                pairs.iter().map(|(t, base): &(f64, f64)| (t / base).ln()).collect();
            let [lo, hi] = stats::mean(&logs)?.ci95?;
            let half_width_pct = Some(100.0 * ((hi - lo) / 2.0).exp_m1());
            let width = Width { stack: String::new(), half_width_pct };
            if until.decide(blocks, &[width]) != Decision::Continue {
                return Some(([lo.exp(), hi.exp()], pairs.len()));
            }
        }
    })
}

/// The stop rule as the lab uses it.
pub fn stop_rule(noise: Noise, until: Until, trials: u32, seed: u64) -> Coverage {
    stopped(noise, until, MIN_BLOCKS, trials, seed)
}

fn trial(trials: u32, mut interval: impl FnMut() -> Option<([f64; 2], usize)>) -> Coverage {
    gather(trials, RATIO, || interval().map(|(ci, blocks)| (Some(ci), blocks)))
}

fn gather(
    trials: u32,
    truth: f64,
    mut one: impl FnMut() -> Option<(Option<[f64; 2]>, usize)>,
) -> Coverage {
    let (mut covered, mut blocks, mut widths) = (0u32, 0usize, Vec::new());
    for _ in 0..trials {
        let Some((Some([lo, hi]), used)) = one() else { continue };
        covered += u32::from(lo <= truth && truth <= hi);
        blocks += used;
        widths.push(100.0 * (hi - lo) / 2.0 / truth);
    }
    Coverage {
        covered: f64::from(covered) / f64::from(trials),
        half_width_pct: stats::median(&widths).unwrap_or(f64::NAN),
        blocks: blocks as f64 / f64::from(trials),
    }
}

/// Coverage of the cost model's two coefficients and of a crossover.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ModelCoverage {
    /// `fixed_s`.
    pub fixed: Coverage,
    /// `seconds_per_gb`.
    pub slope: Coverage,
    /// The size at which two stacks cross; an open end covers all beyond it.
    pub crossover: Coverage,
}

/// The sizes of the trials on models, bytes.
const SIZES: [f64; 4] = [1e3, 1e5, 1e6, 1e7];
/// Two stacks that cross at one million bytes: fixed seconds, seconds for each byte.
const STACKS: [(f64, f64); 2] = [(0.010, 2.0e-8), (0.020, 1.0e-8)];
const CROSSING: f64 = 1e6;

/// Intervals of models and crossings.
pub fn models(noise: Noise, blocks: usize, trials: u32, seed: u64) -> ModelCoverage {
    let mut machine = Machine::new(noise, seed);
    // A machine's mean pace is its cost: logarithms are centred on that.
    let pace = mean_log_pace(noise, blocks).exp();
    let runs: Vec<[Vec<Cell>; 2]> = (0..trials).map(|_| machine.run(blocks)).collect();
    let coefficient = |truth: f64, interval: fn(&CostModel) -> Option<[f64; 2]>| {
        let mut runs = runs.iter();
        gather(trials, truth * pace, || {
            let model = CostModel::fit(&runs.next()?[0])?;
            Some((interval(&model), blocks))
        })
    };
    let mut crossing = runs.iter();
    ModelCoverage {
        fixed: coefficient(STACKS[0].0, CostModel::fixed_ci95_s),
        slope: coefficient(STACKS[0].1, CostModel::seconds_per_byte_ci95),
        crossover: gather(trials, CROSSING, || {
            let [one, other] = crossing.next()?;
            let ends = crossover::crossing(one, other)?.ci95;
            let ci = [ends[0].unwrap_or(0.0), ends[1].unwrap_or(f64::INFINITY)];
            Some((Some(ci), blocks))
        }),
    }
}

/// For comparison: the fixed cost with a percentile bootstrap over blocks.
pub fn bootstrapped_fixed(noise: Noise, blocks: usize, trials: u32, seed: u64) -> Coverage {
    const RESAMPLES: usize = 400;
    let mut machine = Machine::new(noise, seed);
    let pace = mean_log_pace(noise, blocks).exp();
    gather(trials, STACKS[0].0 * pace, || {
        let [cells, _] = machine.run(blocks);
        let mut fixed: Vec<f64> = (0..RESAMPLES)
            .filter_map(|_| {
                let resampled: Vec<Cell> = cells
                    .iter()
                    .map(|cell| {
                        let drawn = (0..blocks)
                            .map(|_| cell.blocks[machine.random.random_range(0..blocks)]);
                        Cell { blocks: drawn.collect(), ..cell.clone() }
                    })
                    .collect();
                CostModel::fit(&resampled).map(|model| model.fixed_s)
            })
            .collect();
        fixed.sort_by(f64::total_cmp);
        let end = fixed.len() / 40;
        Some((Some([*fixed.get(end)?, *fixed.get(fixed.len().checked_sub(1 + end)?)?]), blocks))
    })
}

impl Machine {
    /// Both stacks at all sizes.
    fn run(&mut self, blocks: usize) -> [Vec<Cell>; 2] {
        let mut stacks = [Vec::new(), Vec::new()];
        for bytes in SIZES {
            self.restart();
            let mut times = [Vec::new(), Vec::new()];
            for block in 0..blocks {
                self.begin_block();
                for (times, (fixed, slope)) in times.iter_mut().zip(STACKS) {
                    times.push((block as u32, self.time(fixed + slope * bytes)));
                }
            }
            for (cells, blocks) in stacks.iter_mut().zip(times) {
                cells.push(Cell { bytes, blocks, known_s: 0.0 });
            }
        }
        stacks
    }
}

/// Mean logarithm of what blocks and slow samples do.
fn mean_log_pace(noise: Noise, blocks: usize) -> f64 {
    match noise {
        Noise::Drift => 1.02f64.ln() * (blocks as f64 - 1.0) / 2.0,
        Noise::TwoSpeeds => 1.5f64.ln() / 2.0,
        Noise::Contaminated => 0.05 * 3f64.ln(),
        Noise::LogNormal | Noise::HeavyTails => 0.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Trials of each test; ± 1.4 points are its 99.7 % bounds at 95 %.
    const TRIALS: u32 = 2000;

    #[test]
    fn the_interval_covers_what_it_promises_under_every_noise() {
        for noise in NOISES {
            for blocks in [5, 10] {
                let found = paired_t(noise, blocks, TRIALS, 1);
                assert!(found.covered > 0.936, "{noise:?}, {blocks} blocks: {found:?}");
            }
        }
        let normal = paired_t(Noise::LogNormal, 5, TRIALS, 1);
        assert!(normal.covered < 0.964, "no wider than it must be: {normal:?}");
    }

    #[test]
    fn a_percentile_bootstrap_of_five_blocks_does_not() {
        let found = bootstrap(Noise::LogNormal, 5, 400, 2);
        assert!((0.76..0.88).contains(&found.covered), "82 % expected; {found:?}");
    }

    #[test]
    fn the_stop_rule_costs_coverage_that_ten_blocks_win_back() {
        let until = Until { half_width_pct: 2.0, most_blocks: 100 };
        let early = stopped(Noise::LogNormal, until, 3, TRIALS, 3);
        let late = stop_rule(Noise::LogNormal, until, TRIALS, 3);
        assert!(early.covered < 0.925, "{early:?}");
        assert!((0.925..0.965).contains(&late.covered), "{late:?}");
        assert!(late.half_width_pct < 2.0 && late.blocks > 10.0);
    }

    #[test]
    fn models_and_crossings_cover_what_they_promise() {
        for noise in [Noise::LogNormal, Noise::HeavyTails, Noise::TwoSpeeds] {
            let found = models(noise, 5, TRIALS, 4);
            for coverage in [found.fixed, found.slope, found.crossover] {
                assert!(coverage.covered > 0.93, "{noise:?}: {found:?}");
            }
        }
    }
}
