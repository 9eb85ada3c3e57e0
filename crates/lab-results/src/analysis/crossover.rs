//! The size at which two stacks' cost models cross: below it one is the faster,
//! above it the other.
//!
//! The interval is Fieller's: all sizes at which the paired difference of the two
//! models is not significant. It may be open at an end of what was measured.

use super::cost::{Cell, CostModel};
use super::models::Fitted;
use crate::schema::Crossover;

/// A crossing this factor beyond what was measured is still told of.
const NEAR: f64 = 2.0;

/// Crossings of all pairs of one link, workload and clock, where at least one
/// side of the crossing is beyond doubt.
pub fn crossovers(fitted: &[Fitted]) -> Vec<Crossover> {
    let mut all = Vec::new();
    for (index, one) in fitted.iter().enumerate() {
        for other in &fitted[index + 1..] {
            let comparable =
                (&one.link, one.workload, one.clock) == (&other.link, other.workload, other.clock);
            let Some(crossing) = comparable.then(|| crossing(&one.cells, &other.cells)).flatten()
            else {
                continue;
            };
            let (below, above) =
                if crossing.first_is_faster_below { (one, other) } else { (other, one) };
            all.push(Crossover {
                link: one.link.clone(),
                workload: one.workload.to_owned(),
                clock: one.clock.to_owned(),
                below: below.stack.clone(),
                above: above.stack.clone(),
                n: crossing.n,
                size_bytes: crossing.bytes,
                ci95_bytes: crossing.ci95,
                significant: crossing.ci95.iter().all(Option::is_some),
            });
        }
    }
    all
}

/// Where two models cross.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Crossing {
    /// Blocks of the size that has the fewest.
    pub n: usize,
    /// The size.
    pub bytes: f64,
    /// An end beyond what was measured is none.
    pub ci95: [Option<f64>; 2],
    /// Of the two that were compared.
    pub first_is_faster_below: bool,
}

/// The crossing of two stacks measured in the same blocks.
pub fn crossing(one: &[Cell], other: &[Cell]) -> Option<Crossing> {
    let (one, other) = (shared(one, other), shared(other, one));
    let (first, second) = (CostModel::fit(&one)?, CostModel::fit(&other)?);
    let ends = || one.iter().map(|cell| cell.bytes);
    let (least, most) = (ends().fold(f64::INFINITY, f64::min), ends().fold(0.0, f64::max));
    let slope = first.seconds_per_byte - second.seconds_per_byte;
    let bytes = (second.fixed_s - first.fixed_s) / slope;
    if !(least / NEAR..=most * NEAR).contains(&bytes) {
        return None;
    }
    let significant = |at: f64| {
        let (difference, half) = first.difference(&second, at);
        half.is_some_and(|half| difference.abs() > half)
    };
    let end = |outer: f64, outside: bool| {
        (!outside && significant(outer)).then(|| border(outer, bytes, significant))
    };
    let ci95 = [end(least, bytes <= least), end(most, bytes >= most)];
    ci95.iter().any(Option::is_some).then_some(Crossing {
        n: one.iter().map(|cell| cell.blocks.len()).min().unwrap_or(0),
        bytes,
        ci95,
        first_is_faster_below: slope > 0.0,
    })
}

/// The sizes and blocks of `one` that `other` has too.
fn shared(one: &[Cell], other: &[Cell]) -> Vec<Cell> {
    one.iter()
        .filter_map(|cell| {
            let same = other.iter().find(|same| same.bytes == cell.bytes)?;
            let mut cell = cell.clone();
            cell.blocks.retain(|(block, _)| same.blocks.iter().any(|(b, _)| b == block));
            (!cell.blocks.is_empty()).then_some(cell)
        })
        .collect()
}

/// The border between where something holds and where it does not, by halving
/// the ratio of the two sizes.
fn border(mut holds: f64, mut fails: f64, test: impl Fn(f64) -> bool) -> f64 {
    const HALVINGS: u32 = 30;
    for _ in 0..HALVINGS {
        let middle = (holds * fails).sqrt();
        if test(middle) {
            holds = middle;
        } else {
            fails = middle;
        }
    }
    fails
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::models;
    use crate::analysis::models::tests::{SEGMENT, downloads, stacks, unshaped};

    fn found(ftps: impl Fn(f64) -> f64) -> Vec<Crossover> {
        let mut samples = downloads("ftp", |size| 0.001 + 3e-9 * size);
        // noise of its own, or the pairs would agree to the last digit
        let mut others = downloads("ftps", ftps);
        for (index, sample) in others.iter_mut().enumerate() {
            let factor = 0.99 + 0.01 * (index % 3) as f64;
            sample.seconds = sample.seconds.map(|s| s * factor);
        }
        samples.extend(others);
        let fitted = models::fit(&samples, &stacks(), &[unshaped()], SEGMENT);
        let all = crossovers(&fitted);
        all.into_iter().filter(|crossing| crossing.clock == "transfer").collect()
    }

    #[test]
    fn two_lines_cross_where_they_cross() {
        // 0.001 + 3e-9 s = 0.003 + 1e-9 s at a million bytes
        let found = found(|size| 0.003 + 1e-9 * size);
        assert_eq!(found.len(), 1);
        let crossing = &found[0];
        assert_eq!((crossing.below.as_str(), crossing.above.as_str()), ("ftp", "ftps"));
        assert!(crossing.significant);
        let [Some(lo), Some(hi)] = crossing.ci95_bytes else { panic!("{crossing:?}") };
        assert!(lo < 1e6 && 1e6 < hi && hi / lo < 1.2, "{lo} {} {hi}", crossing.size_bytes);
    }

    #[test]
    fn a_crossing_at_the_end_of_the_sizes_is_open_there() {
        // at 33.5 MB, the largest size, they are equal
        let found = found(|size| 0.0679 + 1e-9 * size);
        assert_eq!(found.len(), 1);
        assert!(!found[0].significant);
        assert!(matches!(found[0].ci95_bytes, [Some(_), None]), "{found:?}");
    }

    #[test]
    fn lines_that_do_not_cross_have_no_crossing() {
        assert_eq!(found(|size| 0.002 + 4e-9 * size), []);
        assert_eq!(found(|size| 3.0 + 1e-9 * size), [], "far beyond what was measured");
    }
}
