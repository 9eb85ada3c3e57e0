//! Means, intervals and overheads. Times, rates and ratios are averaged on their
//! logarithms, overheads inside paired blocks; intervals are Student's
//! (docs/methodology.md, "Means and intervals").

use statrs::distribution::{ContinuousCDF, StudentsT};

/// The fewest runs from which two figures are compared: the t interval of two runs
/// is 12.7 standard errors to each side, of five 2.8.
pub const MIN_RUNS: usize = 5;

/// A mean with its spread.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Mean {
    /// Number of values.
    pub n: usize,
    /// Mean, of the kind that the function names which made it.
    pub mean: f64,
    /// Sample standard deviation of the values themselves, about their arithmetic mean
    /// whatever kind `mean` is; none for a single value.
    pub stddev: Option<f64>,
    /// 95 % t interval of the mean; none for a single value.
    pub ci95: Option<[f64; 2]>,
}

/// The values that a quantity can have, which decide how its mean and interval are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Domain {
    /// Above 0: times, rates, delays. The geometric mean, and an interval on logarithms.
    Positive,
    /// From 0 on, where 0 is common: losses, drops. The arithmetic mean, its interval
    /// ended at 0.
    Count,
    /// Jain's index, at most 1. Mean and interval on the logarithm of 1/index - 1,
    /// the squared coefficient of variation of the shares.
    Fairness,
    /// Anything: differences. The arithmetic mean.
    Signed,
}

impl Domain {
    /// Averages values of this domain; `None` of nothing.
    pub fn mean(self, values: &[f64]) -> Option<Mean> {
        match self {
            Self::Positive => positive_mean(values),
            Self::Count => Some(bounded(mean(values)?, 0.0, f64::INFINITY)),
            Self::Fairness => mean_fairness(values),
            Self::Signed => mean(values),
        }
    }
}

/// Averages times, rates and other quantities above 0: the geometric mean and its 95 % t
/// interval on logarithms. Where a value is 0, as CPU time counted in ticks can be, the
/// arithmetic mean, its interval ended at 0. `None` of nothing.
pub fn positive_mean(values: &[f64]) -> Option<Mean> {
    let plain = bounded(mean(values)?, 0.0, f64::INFINITY);
    if all_equal(values) || values.iter().any(|value| *value <= 0.0) {
        return Some(plain);
    }
    let logs = mean(&values.iter().map(|value| value.ln()).collect::<Vec<_>>())?;
    Some(Mean { mean: logs.mean.exp(), ci95: logs.ci95.map(|ci| ci.map(f64::exp)), ..plain })
}

/// Averages Jain's indices; where one is exactly 1, arithmetically.
fn mean_fairness(values: &[f64]) -> Option<Mean> {
    let plain = bounded(mean(values)?, 0.0, 1.0);
    if all_equal(values) || values.iter().any(|index| *index >= 1.0 || *index <= 0.0) {
        return Some(plain);
    }
    let variations =
        positive_mean(&values.iter().map(|index| 1.0 / index - 1.0).collect::<Vec<_>>())?;
    let index = |variation: f64| 1.0 / (1.0 + variation);
    let ci95 = variations.ci95.map(|[lo, hi]| [index(hi), index(lo)]);
    Some(Mean { mean: index(variations.mean), ci95, ..plain })
}

/// Ends an interval where the quantity ends: it covers what it did before.
fn bounded(mean: Mean, least: f64, most: f64) -> Mean {
    Mean { ci95: mean.ci95.map(|ci| ci.map(|end| end.clamp(least, most))), ..mean }
}

/// Arithmetic mean, standard deviation and 95 % t interval; `None` of nothing.
pub fn mean(values: &[f64]) -> Option<Mean> {
    let n = values.len();
    if n == 0 {
        return None;
    }
    // what is always the same, as a count of packets, is not rounded
    let mean = if all_equal(values) { values[0] } else { values.iter().sum::<f64>() / n as f64 };
    if n == 1 {
        return Some(Mean { n, mean, stddev: None, ci95: None });
    }
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    let stddev = (squares / (n - 1) as f64).sqrt();
    let half = t_975((n - 1) as f64) * stddev / (n as f64).sqrt();
    Some(Mean { n, mean, stddev: Some(stddev), ci95: Some([mean - half, mean + half]) })
}

fn all_equal(values: &[f64]) -> bool {
    values.windows(2).all(|pair| pair[0] == pair[1])
}

/// Overhead in per cent, with its 95 % interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Overhead {
    /// Number of pairs.
    pub n: usize,
    /// exp(mean log-ratio) − 1, × 100.
    pub pct: f64,
    /// 95 % t interval on the log-ratios, carried over; none for a single block.
    pub ci95_pct: Option<[f64; 2]>,
}

/// Overhead of paired times: `pairs` holds, block by block, the stack's time
/// and its baseline's, both above 0. `None` of nothing.
pub fn paired_overhead(pairs: &[(f64, f64)]) -> Option<Overhead> {
    let to_pct = |log: f64| 100.0 * log.exp_m1();
    mean(&log_ratios(pairs)).map(|m| Overhead {
        n: m.n,
        pct: to_pct(m.mean),
        ci95_pct: m.ci95.map(|ci| ci.map(to_pct)),
    })
}

/// Returns the logarithms of the ratios of paired times; a pair with a time of 0 has none.
pub fn log_ratios(pairs: &[(f64, f64)]) -> Vec<f64> {
    let positive = pairs.iter().filter(|(time, base)| *time > 0.0 && *base > 0.0);
    positive.map(|(time, base)| (time / base).ln()).collect()
}

/// Returns the smallest difference, per cent, that would have been significant with a probability
/// of 80 %, from the 95 % interval of a ratio less one, per cent: half of the interval, of
/// logarithms, is 1.96 standard errors for many runs, and 0.84 more are needed. None where the
/// interval has no end. The report's page computes it alike (`visible` in page/js/costs.js).
pub fn visible_pct(ci95_pct: [f64; 2]) -> Option<f64> {
    let [lo, hi] = ci95_pct.map(|pct| (pct / 100.0).ln_1p());
    let pct = 100.0 * ((hi - lo) / 2.0 * (1.0 + 0.84 / 1.96)).exp_m1();
    pct.is_finite().then_some(pct)
}

/// A part of a sum: the variance of its mean, and how well that is known.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Part {
    variance: f64,
    degrees: f64,
}

impl Part {
    /// The mean of these values.
    pub fn of_mean(values: &[f64]) -> Self {
        let n = values.len() as f64;
        let stddev = mean(values).and_then(|m| m.stddev).unwrap_or(f64::INFINITY);
        Self { variance: stddev * stddev / n.max(1.0), degrees: n - 1.0 }
    }
}

/// Half of the 95 % interval of a sum of independent parts, with Welch's and
/// Satterthwaite's degrees of freedom; none where a part has a single value.
pub fn half_width(parts: &[Part]) -> Option<f64> {
    let (variance, degrees) = sum_of(parts)?;
    Some(if variance > 0.0 { t_975(degrees) * variance.sqrt() } else { 0.0 })
}

/// The variance of a sum of independent parts, and its degrees of freedom.
fn sum_of(parts: &[Part]) -> Option<(f64, f64)> {
    let variance: f64 = parts.iter().map(|part| part.variance).sum();
    (!parts.is_empty() && variance.is_finite()).then(|| {
        let degrees = parts.iter().map(|p| p.variance.powi(2) / p.degrees).sum::<f64>();
        (variance, variance.powi(2) / degrees)
    })
}

/// How often chance alone puts the means of two samples so far apart (Welch's t test, both
/// sides); none where a sample is a single value.
pub fn welch_p(one: &[f64], other: &[f64]) -> Option<f64> {
    let parts = [Part::of_mean(one), Part::of_mean(other)];
    let (variance, degrees) = sum_of(&parts)?;
    let distance = (mean(one)?.mean - mean(other)?.mean).abs();
    if variance <= 0.0 {
        return Some(if distance > 0.0 { 0.0 } else { 1.0 });
    }
    let t = StudentsT::new(0.0, 1.0, degrees).ok()?;
    Some(2.0 * t.sf(distance / variance.sqrt()))
}

/// Corrects the probabilities of several comparisons, so that one of them falls below 5 % by
/// chance in 5 % of such groups at most (Holm 1979).
pub fn holm(probabilities: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..probabilities.len()).collect();
    order.sort_by(|&a, &b| probabilities[a].total_cmp(&probabilities[b]));
    let mut corrected = vec![1.0; probabilities.len()];
    let mut least: f64 = 0.0;
    for (rank, &index) in order.iter().enumerate() {
        let others = (probabilities.len() - rank) as f64;
        least = least.max((others * probabilities[index]).min(1.0));
        corrected[index] = least;
    }
    corrected
}

/// Overhead of one time over another in per cent, (t − t₀)/t₀ × 100: the
/// studies' own formula, kept to reproduce them.
pub fn overhead_pct(time: f64, baseline: f64) -> f64 {
    (time - baseline) / baseline * 100.0
}

/// The middle value, or the mean of the two in the middle; `None` of nothing.
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let n = sorted.len();
    match n {
        0 => None,
        n if n % 2 == 1 => Some(sorted[n / 2]),
        n => Some(f64::midpoint(sorted[n / 2 - 1], sorted[n / 2])),
    }
}

/// The smallest value that so many per cent of all values do not exceed (nearest rank); `None`
/// of nothing.
pub fn percentile(values: &[f64], percent: usize) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let rank = (sorted.len() * percent).div_ceil(100);
    sorted.get(rank.saturating_sub(1)).copied()
}

/// 97.5 % quantile of Student's t.
pub(crate) fn t_975(degrees: f64) -> f64 {
    StudentsT::new(0.0, 1.0, degrees).map_or(f64::INFINITY, |t| t.inverse_cdf(0.975))
}

/// Jain's index of fairness (Jain, Chiu, Hawe 1984): 1 where all are alike, 1/n where
/// one of n has everything; none of fewer than two, or of nothing.
pub fn jain(shares: &[f64]) -> Option<f64> {
    let (sum, squares) = shares
        .iter()
        .fold((0.0, 0.0), |(sum, squares), share| (sum + share, squares + share * share));
    (shares.len() > 1 && squares > 0.0).then(|| sum * sum / (shares.len() as f64 * squares))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::rngs::ChaCha8Rng;
    use rand::{RngExt, SeedableRng};

    #[test]
    fn intervals_of_positive_quantities_are_positive_and_hold_their_mean() {
        // figures whose linear t interval reaches below 0
        for values in [&[7.0, 40.0, 94.0][..], &[10.0, 59.0], &[0.0, 0.01, 0.3], &[1e-3, 2.0]] {
            let linear = mean(values).and_then(|m| m.ci95).expect("an interval");
            assert!(linear[0] < 0.0, "{values:?}: {linear:?}");
            for domain in [Domain::Positive, Domain::Count] {
                let found = domain.mean(values).expect("values");
                let [lo, hi] = found.ci95.expect("an interval");
                assert!(lo >= 0.0 && lo <= found.mean && found.mean <= hi, "{domain:?} {found:?}");
            }
        }
        let found = positive_mean(&[1.0, 4.0]).expect("two values");
        assert!((found.mean - 2.0).abs() < 1e-12, "geometric: {found:?}");
        let [lo, hi] = found.ci95.expect("an interval");
        assert!((lo * hi - 4.0).abs() < 1e-9, "as far below as above, as a factor");
    }

    #[test]
    fn values_that_are_all_the_same_are_their_mean() {
        for (value, n) in [(821_911.0, 5), (3.0, 3), (0.1, 3), (0.7, 10)] {
            let values = vec![value; n];
            let domains = [Domain::Positive, Domain::Count, Domain::Signed, Domain::Fairness];
            for domain in domains {
                if domain == Domain::Fairness && value > 1.0 {
                    continue;
                }
                let found = domain.mean(&values).expect("values");
                let told = (found.mean, found.stddev, found.ci95);
                assert_eq!(told, (value, Some(0.0), Some([value; 2])), "{domain:?}");
            }
        }
    }

    #[test]
    fn intervals_of_fairness_stay_within_its_bounds() {
        for values in [&[0.66, 0.84, 0.99][..], &[0.9, 0.9999], &[1.0, 0.8, 0.9], &[1.0, 1.0]] {
            let found = Domain::Fairness.mean(values).expect("values");
            let [lo, hi] = found.ci95.expect("an interval");
            assert!(0.0 <= lo && lo <= found.mean && found.mean <= hi && hi <= 1.0, "{found:?}");
        }
    }

    #[test]
    fn the_log_interval_of_a_time_covers_what_it_promises() {
        // the truth is the median, 1; 2000 trials tell to 1.4 points (99.7 %)
        let mut random = ChaCha8Rng::seed_from_u64(22);
        for (n, sigma) in [(2, 0.5), (3, 0.5), (5, 0.05), (5, 0.5)] {
            let held = (0..2000)
                .filter(|_| {
                    let time = |random: &mut ChaCha8Rng| {
                        let normal = (0..12).map(|_| random.random::<f64>()).sum::<f64>() - 6.0;
                        f64::exp(sigma * normal)
                    };
                    let times: Vec<f64> = (0..n).map(|_| time(&mut random)).collect();
                    let [lo, hi] = positive_mean(&times).and_then(|m| m.ci95).expect("times");
                    lo <= 1.0 && 1.0 <= hi
                })
                .count();
            assert!((1870..=1930).contains(&held), "{n} runs, sigma {sigma}: {held} of 2000");
        }
    }

    #[test]
    fn fairness_is_one_where_all_are_alike_and_an_nth_where_one_has_all() {
        assert_eq!(jain(&[3.0, 3.0, 3.0]), Some(1.0));
        assert_eq!(jain(&[5.0, 0.0, 0.0, 0.0]), Some(0.25));
        assert_eq!(jain(&[1.0, 3.0]), Some(0.8));
        assert_eq!((jain(&[1.0]), jain(&[0.0, 0.0])), (None, None));
    }

    #[test]
    fn quantiles_as_in_the_tables() {
        for (degrees, expected) in
            [(1.0, 12.706), (4.0, 2.776), (5.5, 2.502), (9.0, 2.262), (99.0, 1.984)]
        {
            assert!((t_975(degrees) - expected).abs() < 1e-3, "{degrees}");
        }
    }

    #[test]
    fn mean_and_interval_by_hand() {
        let m = mean(&[1.0, 2.0, 3.0, 4.0]).expect("four values");
        assert!((m.mean - 2.5).abs() < 1e-12);
        assert!((m.stddev.expect("spread") - 1.290_994).abs() < 1e-6);
        let [lo, hi] = m.ci95.expect("interval");
        assert!((lo - 0.4457).abs() < 1e-3 && (hi - 4.5543).abs() < 1e-3);
        assert!(mean(&[]).is_none() && mean(&[1.0]).is_some_and(|m| m.ci95.is_none()));
    }

    #[test]
    fn welch_by_hand() {
        // variances of the means 1/2 and 1/8, one degree of freedom each
        let parts = [Part::of_mean(&[0.0, 2.0]), Part::of_mean(&[0.0, 1.0])];
        let degrees = 1.25f64.powi(2) / (1.0 + 0.25f64.powi(2));
        let expected = t_975(degrees) * 1.25f64.sqrt();
        assert!((half_width(&parts).expect("two parts") - expected).abs() < 1e-12);
        assert_eq!(half_width(&[parts[0], Part::of_mean(&[1.0])]), None);
        assert_eq!(half_width(&[Part::of_mean(&[1.0, 1.0])]), Some(0.0));
        assert_eq!(half_width(&[]), None);
    }

    #[test]
    fn probabilities_of_a_difference() {
        // t = 1/√(1 + 1) with two degrees of freedom
        let p = welch_p(&[0.0, 2.0], &[1.0, 3.0]).expect("two values each");
        assert!((p - 0.5528).abs() < 1e-4, "{p}");
        assert_eq!(welch_p(&[1.0, 1.0], &[2.0, 2.0]), Some(0.0));
        assert_eq!(welch_p(&[1.0, 1.0], &[1.0, 1.0]), Some(1.0));
        assert_eq!(welch_p(&[1.0], &[1.0, 2.0]), None);
        assert_eq!(holm(&[0.03, 0.01, 0.5]), [0.06, 0.03, 0.5]);
        assert_eq!(holm(&[0.02, 0.02, 0.9]), [0.06, 0.06, 0.9], "no order between them");
        assert_eq!(holm(&[]), [0.0; 0]);
    }

    #[test]
    fn pairing_removes_what_the_blocks_share() {
        // every block twice as slow as the one before: the ratio stays
        let pairs: Vec<(f64, f64)> = (0..5).map(|i| (1.1 * 2f64.powi(i), 2f64.powi(i))).collect();
        let overhead = paired_overhead(&pairs).expect("five pairs");
        assert!((overhead.pct - 10.0).abs() < 1e-9);
        let [lo, hi] = overhead.ci95_pct.expect("interval");
        assert!((lo - 10.0).abs() < 1e-6 && (hi - 10.0).abs() < 1e-6);
    }

    #[test]
    fn a_stack_against_itself_misses_zero_one_time_in_twenty() {
        // 4000 A/A comparisons of five blocks with log-normal noise; the 99 %
        // binomial bound around 5 % is 4.1 to 5.9 %. The seed is fixed.
        let mut random = ChaCha8Rng::seed_from_u64(14);
        let mut noise = || {
            let uniform: f64 = (0..12).map(|_| random.random::<f64>()).sum::<f64>() - 6.0;
            f64::exp(0.1 * uniform)
        };
        let misses = (0..4000)
            .filter(|_| {
                let pairs: Vec<(f64, f64)> = (0..5).map(|_| (noise(), noise())).collect();
                let [lo, hi] = paired_overhead(&pairs).and_then(|o| o.ci95_pct).expect("interval");
                lo > 0.0 || hi < 0.0
            })
            .count();
        assert!((164..=236).contains(&misses), "{misses} of 4000");
    }
}
