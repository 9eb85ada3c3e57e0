//! When a group of cells has been measured often enough: `until = "ci<2%"`.

use std::fmt;
use std::str::FromStr;

use headroom_units as units;

use super::stats;
use super::summary::{self, pairs};
use crate::schema::{Sample, StackRecord};

/// The fewest blocks from which the rule may stop (docs/methodology.md): stopping as soon
/// as an interval looks narrow picks the blocks that happen to agree; from three
/// blocks a 95 % interval then covers 90 %, from ten 94 %.
pub const MIN_BLOCKS: u32 = 10;

/// The most blocks where a plan says nothing else.
pub const MAX_BLOCKS: u32 = 100;

/// A plan's `until`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Until {
    /// Half-width at which a ratio is known well enough, per cent of the ratio.
    pub half_width_pct: f64,
    /// Blocks after which it ends all the same.
    pub most_blocks: u32,
}

/// Decision after the blocks so far.
#[derive(Debug, Clone, PartialEq)]
pub enum Decision {
    /// Not known well enough yet.
    Continue,
    /// Known well enough.
    Enough,
    /// Not known well enough after the most blocks: the widest interval and
    /// whose it is.
    Exhausted(Width),
}

/// Precision of one ratio.
#[derive(Debug, Clone, PartialEq)]
pub struct Width {
    /// The stack.
    pub stack: String,
    /// Half-width of the 95 % interval, per cent of the ratio; none: unknown.
    pub half_width_pct: Option<f64>,
}

impl Until {
    /// Decides after `blocks` blocks of a group. A group in which nothing can be
    /// known, because everything fails, is not repeated for that.
    pub fn decide(&self, blocks: u32, widths: &[Width]) -> Decision {
        let wide = |width: &&Width| {
            width.half_width_pct.is_none_or(|half| half.is_nan() || half >= self.half_width_pct)
        };
        let unknown = |width: &Width| width.half_width_pct.unwrap_or(f64::INFINITY);
        if widths.iter().all(|width| width.half_width_pct.is_none()) {
            return Decision::Enough;
        }
        match widths.iter().filter(wide).max_by(|a, b| unknown(a).total_cmp(&unknown(b))) {
            None => Decision::Enough,
            Some(widest) if blocks >= self.most_blocks => Decision::Exhausted(widest.clone()),
            Some(_) => Decision::Continue,
        }
    }
}

/// How well the overheads of a group are known, on the transfer clock; where no
/// stack of the group has its baseline in it, how well their times are. `samples`
/// are those of one link, workload and size.
pub fn widths(samples: &[&Sample], stacks: &[StackRecord]) -> Vec<Width> {
    let of = |stack: &str| {
        let cell: Vec<&Sample> = samples.iter().copied().filter(|s| s.stack == stack).collect();
        (!cell.is_empty()).then(|| summary::counted(&cell))
    };
    let present = || stacks.iter().filter_map(|stack| Some((stack, of(&stack.name)?)));
    let width = |stack: &StackRecord, logs: &[f64]| {
        let half = stats::mean(logs).and_then(|m| m.ci95).map(|[lo, hi]| (hi - lo) / 2.0);
        let half_width_pct = half.map(|half| 100.0 * half.exp_m1());
        Width { stack: stack.name.clone(), half_width_pct }
    };
    let overheads: Vec<Width> = present()
        .filter_map(|(stack, cell)| {
            let base = of(stack.baseline.as_deref()?)?;
            Some(width(stack, &stats::log_ratios(&pairs(&cell, &base, |s| s.seconds))))
        })
        .collect();
    if !overheads.is_empty() {
        return overheads;
    }
    present()
        .map(|(stack, cell)| {
            let times = cell.iter().filter_map(|s| s.seconds.filter(|s| *s > 0.0));
            width(stack, &times.map(f64::ln).collect::<Vec<f64>>())
        })
        .collect()
}

impl FromStr for Until {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let limit = text.trim().strip_prefix("ci").map(str::trim_start);
        let limit = limit
            .and_then(|rest| rest.strip_prefix('<'))
            .ok_or_else(|| format!("`{text}` is not a rule to stop by, such as ci<2%"))?;
        let half_width_pct = units::parse_percent(limit)?;
        if !(0.1..=50.0).contains(&half_width_pct) {
            return Err("the interval to stop at is from 0.1% to 50%".into());
        }
        Ok(Self { half_width_pct, most_blocks: MAX_BLOCKS })
    }
}

impl fmt::Display for Until {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ci<{}%", self.half_width_pct)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::summary::tests::sample;

    fn width(stack: &str, half_width_pct: Option<f64>) -> Width {
        Width { stack: stack.into(), half_width_pct }
    }

    #[test]
    fn it_goes_on_until_the_widest_is_narrow_or_the_blocks_are_used_up() {
        let until = Until { most_blocks: 20, ..Until::from_str("ci < 2%").expect("a rule") };
        let narrow = [width("ftps", Some(1.9)), width("sftp", Some(0.2))];
        let mixed = [width("ftps", Some(1.9)), width("sftp", Some(2.0))];
        assert_eq!(until.decide(10, &narrow), Decision::Enough);
        assert_eq!(until.decide(19, &mixed), Decision::Continue);
        assert_eq!(until.decide(20, &mixed), Decision::Exhausted(mixed[1].clone()));
        let failing = [width("ftps", None), width("sftp", Some(9.0))];
        assert_eq!(until.decide(20, &failing), Decision::Exhausted(failing[0].clone()));
        assert_eq!(until.decide(10, &[width("ftps", None)]), Decision::Enough);
        assert_eq!(until.decide(10, &[width("ftps", Some(f64::NAN))]), Decision::Continue);
    }

    #[test]
    fn widths_are_those_of_the_paired_ratios() {
        let record = |name: &str, baseline: Option<&str>| StackRecord {
            name: name.into(),
            baseline: baseline.map(str::to_owned),
        };
        let stacks = [record("ftp", None), record("ftps", Some("ftp"))];
        let mut samples = Vec::new();
        for block in 0..5 {
            let speed = f64::from(block + 1); // the machine changes, the ratio hardly
            let ratio = if block % 2 == 0 { 1.2 } else { 1.21 };
            samples.push(sample("ftp", block, speed));
            samples.push(sample("ftps", block, ratio * speed));
        }
        let all: Vec<&Sample> = samples.iter().collect();
        let found = widths(&all, &stacks);
        assert_eq!(found.len(), 1);
        let half = found[0].half_width_pct.expect("five pairs");
        assert!((half - 0.57).abs() < 0.01, "{half}");
        // baselines alone: their times
        let alone: Vec<&Sample> = all.iter().copied().filter(|s| s.stack == "ftp").collect();
        let found = widths(&alone, &stacks);
        assert!(found.len() == 1 && found[0].half_width_pct.expect("five times") > 50.0);
    }

    #[test]
    fn a_time_of_zero_does_not_make_a_width_unknown() {
        let record = |name: &str, baseline: Option<&str>| StackRecord {
            name: name.into(),
            baseline: baseline.map(str::to_owned),
        };
        let stacks = [record("ftp", None), record("ftps", Some("ftp"))];
        let samples: Vec<Sample> = (0..5)
            .flat_map(|block| {
                let seconds = if block == 3 { 0.0 } else { 1.0 + 0.1 * f64::from(block) };
                [sample("ftp", block, 1.0), sample("ftps", block, seconds)]
            })
            .collect();
        let of = |stacks: &[StackRecord], wanted: &str| {
            let all: Vec<&Sample> =
                samples.iter().filter(|s| wanted == "both" || s.stack == wanted).collect();
            widths(&all, stacks)[0].half_width_pct
        };
        let paired = of(&stacks, "both").expect("four pairs");
        let alone = of(&[record("ftps", None)], "ftps").expect("four times");
        assert!(
            (20.0..50.0).contains(&paired) && (20.0..50.0).contains(&alone),
            "{paired} {alone}"
        );
    }

    #[test]
    fn nonsense_is_refused() {
        for text in ["", "2%", "ci<", "ci>2%", "ci<2", "ci<0%", "ci<99%"] {
            assert!(Until::from_str(text).is_err(), "{text}");
        }
    }
}
