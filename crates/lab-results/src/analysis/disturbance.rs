//! Counts blocks of a run that background load disturbed.

use std::collections::BTreeMap;

use super::stats;
use crate::schema::Sample;

/// Blocks of a run that background load disturbed: programs that are none of the run's
/// took more than 5 % of the machine during a sample.
#[derive(Debug, Clone, PartialEq)]
pub struct Disturbance {
    /// All blocks.
    pub blocks: usize,
    /// Of these, disturbed.
    pub disturbed: usize,
    /// Background load of the disturbed blocks, per cent of the machine: the median of
    /// each block's largest.
    pub median_pct: Option<f64>,
    /// The programs that took the most, with their mean shares of the machine in the disturbed
    /// blocks, per cent.
    pub by: Vec<(String, f64)>,
}

impl Disturbance {
    /// Counts the blocks of these samples.
    pub fn of(samples: &[Sample]) -> Self {
        let mut blocks: BTreeMap<u32, (bool, f64)> = BTreeMap::new();
        for sample in samples {
            let (disturbed, most) = blocks.entry(sample.block).or_insert((false, 0.0));
            *disturbed |= sample.disturbed.is_some();
            *most = most.max(sample.background_pct.unwrap_or(0.0));
        }
        let loads: Vec<f64> =
            blocks.values().filter(|(disturbed, _)| *disturbed).map(|(_, most)| *most).collect();
        let (disturbed, median_pct) = (loads.len(), stats::median(&loads));
        Self { blocks: blocks.len(), disturbed, median_pct, by: culprits(samples, disturbed) }
    }

    /// Whether most blocks were disturbed: their figures are of the background load as
    /// well, and there are too few others to tell it apart.
    pub fn is_severe(&self) -> bool {
        2 * self.disturbed > self.blocks
    }

    /// The first sentence of a run that should not be quoted.
    pub fn headline(&self) -> Option<String> {
        self.is_severe().then(|| format!("{}: do not quote this run.", self.told()))
    }

    /// The note of a run that some disturbed blocks do not spoil.
    pub fn note(&self) -> Option<String> {
        (self.disturbed > 0).then(|| {
            let counts = if self.is_severe() {
                "it counts them, because the others are fewer"
            } else {
                "in cells with more undisturbed runs it counts only those"
            };
            format!("{}. The lab repeated them where time allowed; {counts}.", self.told())
        })
    }

    fn told(&self) -> String {
        let load =
            self.median_pct.map_or(String::new(), |pct| format!(", {pct:.0} % in the median"));
        let by: Vec<String> =
            self.by.iter().map(|(name, pct)| format!("{name} {pct:.0} %")).collect();
        let by =
            if by.is_empty() { String::new() } else { format!(" (most by {})", by.join(", ")) };
        format!(
            "{} of {} blocks were disturbed by background load{load}{by}",
            self.disturbed, self.blocks
        )
    }
}

/// Programs that are named.
const NAMED: usize = 2;

fn culprits(samples: &[Sample], disturbed: usize) -> Vec<(String, f64)> {
    let mut blocks: BTreeMap<u32, &BTreeMap<String, f64>> = BTreeMap::new();
    for sample in samples {
        blocks.entry(sample.block).or_insert(&sample.disturbed_by);
    }
    let mut sums: BTreeMap<&str, f64> = BTreeMap::new();
    for (name, pct) in blocks.into_values().flatten() {
        *sums.entry(name).or_default() += pct;
    }
    let mut means: Vec<(String, f64)> = sums
        .into_iter()
        .map(|(name, sum)| (name.to_owned(), sum / disturbed.max(1) as f64))
        .collect();
    means.sort_by(|a, b| b.1.total_cmp(&a.1));
    means.truncate(NAMED);
    means
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::summary::tests::sample;

    fn samples(loads: &[f64]) -> Vec<Sample> {
        let one = |(block, &load): (u32, &f64)| {
            let mut one = sample("ftp", block, 1.0);
            one.background_pct = Some(load);
            one.disturbed = (load > 5.0).then(|| format!("background load {load} %"));
            one
        };
        (0..).zip(loads).map(one).collect()
    }

    #[test]
    fn says_first_that_most_blocks_were_disturbed() {
        let found = Disturbance::of(&samples(&[75.0, 60.0, 80.0]));
        assert_eq!(
            found.headline().as_deref(),
            Some(
                "3 of 3 blocks were disturbed by background load, 75 % in the median: do not quote \
                 this run."
            )
        );
        let one = Disturbance::of(&samples(&[75.0, 1.0, 2.0]));
        assert_eq!((one.is_severe(), one.headline()), (false, None));
        let note = one.note().expect("a note");
        assert!(note.starts_with("1 of 3 blocks were disturbed"), "{note}");
        assert_eq!(Disturbance::of(&samples(&[1.0, 2.0])).note(), None);
        assert_eq!(Disturbance::of(&[]).headline(), None);

        let mut named = samples(&[75.0, 60.0, 1.0]);
        named[0].disturbed_by =
            [("rustc", 70.0), ("cargo", 4.0)].map(|(n, p)| (n.to_owned(), p)).into();
        named[1].disturbed_by =
            [("rustc", 50.0), ("mdworker", 9.0)].map(|(n, p)| (n.to_owned(), p)).into();
        let headline = Disturbance::of(&named).headline().expect("most blocks");
        assert!(
            headline.contains("68 % in the median (most by rustc 60 %, mdworker 4 %)"),
            "{headline}"
        );
    }
}
