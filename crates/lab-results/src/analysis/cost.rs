//! The cost model t = a + b·size, with intervals.
//!
//! Each size's time is the geometric mean of its blocks; weights are 1/t². Both
//! coefficients are weighted sums of these means, so the spread of the blocks
//! gives their variance, and Welch and Satterthwaite its degrees of freedom. No
//! resampling: at five blocks a percentile bootstrap covers too little
//! (docs/methodology.md, "Coverage").

use super::stats::{self, Part};

/// Times of one size.
#[derive(Debug, Clone, PartialEq)]
pub struct Cell {
    /// Bytes.
    pub bytes: f64,
    /// Number of the block and seconds, above 0.
    pub blocks: Vec<(u32, f64)>,
    /// Seconds of each that are known beforehand and not the model's to explain.
    pub known_s: f64,
}

/// A fitted model.
#[derive(Debug, Clone, PartialEq)]
pub struct CostModel {
    /// Seconds at size 0.
    pub fixed_s: f64,
    /// Seconds for each byte.
    pub seconds_per_byte: f64,
    cells: Vec<Fitted>,
}

/// One size's share in the coefficients.
#[derive(Debug, Clone, PartialEq)]
struct Fitted {
    bytes: f64,
    mean_s: f64,
    /// Logarithm of each block's time less their mean.
    deviations: Vec<(u32, f64)>,
    /// Change of `fixed_s` per additional second here.
    of_fixed: f64,
    /// And `seconds_per_byte`.
    of_slope: f64,
}

impl CostModel {
    /// Fits the model; `None` without two sizes.
    pub fn fit(cells: &[Cell]) -> Option<Self> {
        let means: Vec<(&Cell, f64)> = cells
            .iter()
            .filter_map(|cell| {
                let logs: Vec<f64> = cell.blocks.iter().map(|(_, seconds)| seconds.ln()).collect();
                let mean = stats::mean(&logs)?.mean.exp();
                (mean.is_finite() && mean > 0.0).then_some((cell, mean))
            })
            .collect();
        // not by `spread`: of a single size, rounding can leave a little
        let differs = |pair: &[(&Cell, f64)]| pair[0].0.bytes.total_cmp(&pair[1].0.bytes).is_ne();
        if !means.windows(2).any(differs) {
            return None;
        }
        let weight = |cell: &Cell, mean: f64| cell.blocks.len() as f64 / (mean * mean);
        let total: f64 = means.iter().map(|&(cell, mean)| weight(cell, mean)).sum();
        let centre =
            means.iter().map(|&(cell, mean)| weight(cell, mean) * cell.bytes).sum::<f64>() / total;
        let spread: f64 = means
            .iter()
            .map(|&(cell, mean)| weight(cell, mean) * (cell.bytes - centre).powi(2))
            .sum();
        if spread.is_nan() || spread <= 0.0 {
            return None;
        }
        let cells: Vec<(Fitted, f64)> = means
            .iter()
            .map(|&(cell, mean_s)| {
                let of_slope = weight(cell, mean_s) * (cell.bytes - centre) / spread;
                let of_fixed = weight(cell, mean_s) / total - centre * of_slope;
                let log = mean_s.ln();
                let deviations =
                    cell.blocks.iter().map(|&(block, seconds)| (block, seconds.ln() - log));
                let fitted = Fitted {
                    bytes: cell.bytes,
                    mean_s,
                    deviations: deviations.collect(),
                    of_fixed,
                    of_slope,
                };
                (fitted, mean_s - cell.known_s)
            })
            .collect();
        Some(Self {
            fixed_s: cells.iter().map(|(cell, time)| cell.of_fixed * time).sum(),
            seconds_per_byte: cells.iter().map(|(cell, time)| cell.of_slope * time).sum(),
            cells: cells.into_iter().map(|(cell, _)| cell).collect(),
        })
    }

    /// Seconds at a size, without what is known beforehand.
    pub fn seconds(&self, bytes: f64) -> f64 {
        self.fixed_s + self.seconds_per_byte * bytes
    }

    /// 95 % interval of `fixed_s`, ended at 0; none where a size has a single block.
    pub fn fixed_ci95_s(&self) -> Option<[f64; 2]> {
        self.ci95(self.fixed_s, |cell| cell.of_fixed)
    }

    /// 95 % interval of `seconds_per_byte`, ended at 0; none where a size has a single
    /// block.
    pub fn seconds_per_byte_ci95(&self) -> Option<[f64; 2]> {
        self.ci95(self.seconds_per_byte, |cell| cell.of_slope)
    }

    /// A coefficient is a difference of means, so its interval is not made on logarithms;
    /// no cost is below 0, so it ends there and covers what it did before.
    fn ci95(&self, coefficient: f64, share: fn(&Fitted) -> f64) -> Option<[f64; 2]> {
        let half = stats::half_width(&self.parts(share))?;
        Some([coefficient - half, coefficient + half].map(|end| end.max(0.0)))
    }

    fn parts(&self, share: fn(&Fitted) -> f64) -> Vec<Part> {
        let part = |cell: &Fitted| {
            let effect = share(cell) * cell.mean_s;
            let effects: Vec<f64> = cell.deviations.iter().map(|(_, dev)| effect * dev).collect();
            Part::of_mean(&effects)
        };
        self.cells.iter().map(part).collect()
    }

    /// How much longer than `other` this takes at a size, in seconds, and half of
    /// its 95 % interval. Both were measured in the same blocks at the same sizes:
    /// what a block did to both is not counted.
    pub fn difference(&self, other: &Self, bytes: f64) -> (f64, Option<f64>) {
        let difference = self.seconds(bytes) - other.seconds(bytes);
        let parts: Option<Vec<Part>> = self
            .cells
            .iter()
            .map(|cell| {
                let same = other.cells.iter().find(|same| same.bytes == cell.bytes)?;
                let effect = |cell: &Fitted| (cell.of_fixed + cell.of_slope * bytes) * cell.mean_s;
                let (mine, theirs) = (effect(cell), effect(same));
                let effects: Vec<f64> = cell
                    .deviations
                    .iter()
                    .filter_map(|&(block, dev)| {
                        let (_, other) = same.deviations.iter().find(|(b, _)| *b == block)?;
                        Some(mine * dev - theirs * other)
                    })
                    .collect();
                Some(Part::of_mean(&effects))
            })
            .collect();
        (difference, parts.and_then(|parts| stats::half_width(&parts)))
    }
}

/// What is left of a cost and its 95 % interval when they are held against what can be: a cost
/// is not below 0, and a fixed one not above the shortest measured time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Possible {
    /// All of it.
    All,
    /// This part of the interval.
    Between([f64; 2]),
    /// Nothing.
    Nothing,
}

impl Possible {
    /// Holds a cost against 0 and `most`. An interval that ends at 0 was ended there.
    pub fn of(value: f64, ci95: Option<[f64; 2]>, most: f64) -> Self {
        let is_possible = (0.0..=most).contains(&value);
        match ci95 {
            None if is_possible => Self::All,
            Some([lo, _]) if is_possible && lo > 0.0 => Self::All,
            Some([lo, hi]) if hi > 0.0 && lo.max(0.0) <= most => {
                Self::Between([lo.max(0.0), hi.min(most)])
            }
            _ => Self::Nothing,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_cost_that_cannot_be_the_possible_part_of_its_interval_is_left() {
        let of = |value, lo, hi| Possible::of(value, Some([lo, hi]), 40.0);
        assert_eq!(of(30.0, 10.0, 50.0), Possible::All);
        // not told apart from 0, below 0, above the shortest time
        assert_eq!(of(14.0, 0.0, 32.0), Possible::Between([0.0, 32.0]));
        assert_eq!(of(-2.0, 0.0, 5.0), Possible::Between([0.0, 5.0]));
        assert_eq!(of(41.0, 11.0, 71.0), Possible::Between([11.0, 40.0]));
        // and where nothing of it can be
        assert_eq!(of(-9.0, 0.0, 0.0), Possible::Nothing);
        assert_eq!(of(60.0, 50.0, 70.0), Possible::Nothing);
        assert_eq!(Possible::of(-1.0, Some([-3.0, 1.0]), -2.0), Possible::Nothing);
        let single = |value| Possible::of(value, None, 40.0);
        assert_eq!(single(5.0), Possible::All);
        assert_eq!([single(-5.0), single(41.0)], [Possible::Nothing; 2]);
        assert_eq!(Possible::of(9e9, Some([8e9, 10e9]), f64::INFINITY), Possible::All);
    }

    fn cell(bytes: f64, seconds: &[f64]) -> Cell {
        Cell { bytes, blocks: (0..).zip(seconds.iter().copied()).collect(), known_s: 0.0 }
    }

    #[test]
    fn an_exact_cost_is_found_whatever_the_sizes() {
        let time = |bytes: f64| 0.010 + bytes * 2e-9;
        let cells: Vec<Cell> =
            [1e3, 1e6, 256e6].iter().map(|&bytes| cell(bytes, &[time(bytes); 5])).collect();
        let model = CostModel::fit(&cells).expect("three sizes");
        assert!((model.fixed_s - 0.010).abs() < 1e-12);
        assert!((model.seconds_per_byte - 2e-9).abs() < 1e-18);
        let [lo, hi] = model.fixed_ci95_s().expect("five blocks");
        assert!((hi - lo).abs() < 1e-12);
        assert!((model.seconds(1e9) - time(1e9)).abs() < 1e-9);
    }

    #[test]
    fn one_size_or_one_block_is_not_enough() {
        for nth in 1..1000 {
            let seconds = [0.7163 / f64::from(nth), 0.572, 0.5634];
            assert_eq!(CostModel::fit(&[cell(1e8, &seconds)]), None, "{seconds:?}");
        }
        assert_eq!(CostModel::fit(&[]), None);
        let single = CostModel::fit(&[cell(1e3, &[1.0]), cell(1e6, &[2.0])]).expect("two sizes");
        assert_eq!(single.fixed_ci95_s(), None);
    }

    #[test]
    fn with_two_sizes_the_interval_is_that_of_the_small_one() {
        let small = [1.0, 1.1, 0.9, 1.05, 0.95];
        let model = CostModel::fit(&[cell(0.0, &small), cell(1e9, &[10.0; 5])]).expect("two sizes");
        let logs: Vec<f64> = small.iter().map(|t: &f64| t.ln()).collect();
        let mean = stats::mean(&logs).expect("five values");
        let [lo, hi] = mean.ci95.expect("an interval");
        let expected = mean.mean.exp() * (hi - lo) / 2.0;
        let [lo, hi] = model.fixed_ci95_s().expect("five blocks");
        assert!(((hi - lo) / 2.0 - expected).abs() < 1e-9, "{lo} {hi} {expected}");
    }

    #[test]
    fn what_a_block_does_to_both_is_no_difference() {
        let speeds = [1.0, 2.0, 0.5, 1.5, 0.7];
        let stack = |factor: f64| {
            let at = |bytes: f64, time: f64| cell(bytes, &speeds.map(|s| s * time * factor));
            CostModel::fit(&[at(1e3, 0.01), at(1e6, 0.02)]).expect("two sizes")
        };
        let (difference, half) = stack(1.5).difference(&stack(1.0), 1e3);
        let half = half.expect("five blocks");
        // 50 % more of a time that varies: the difference varies with it, the ratio does not
        assert!(difference > 0.0 && half > 0.0);
        let (nothing, half) = stack(1.0).difference(&stack(1.0), 1e3);
        assert!(nothing == 0.0 && half.expect("five blocks") < 1e-12);
    }
}
