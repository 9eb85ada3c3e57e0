//! Figures of a run with their intervals: what reports of several runs are made of.

use headroom_units::{rounded, three};
use serde::{Deserialize, Serialize};

use super::stats::{self, Domain};
use super::summary::{Clock, counted, pairs};
use crate::schema::{Results, Sample};

/// A value with its 95 % interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// The value.
    pub value: f64,
    /// None of a single value, and of one that is exact.
    pub ci95: Option<[f64; 2]>,
    /// Number of averaged runs; none: it is no mean.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub n: Option<usize>,
}

impl Estimate {
    /// Wraps a value without interval: counted, printed by a paper, or given by a model.
    pub fn exact(value: f64) -> Self {
        Self { value, ci95: None, n: None }
    }

    /// Averages values of a domain; none of nothing.
    pub fn of(values: &[f64], domain: Domain) -> Option<Self> {
        let mean = domain.mean(values)?;
        let exact = values.iter().all(|value| value == &values[0]);
        // what was the same in every run is told as it was, without the noise of a logarithm
        let value = if exact { values[0] } else { mean.mean };
        Some(Self { value, ci95: mean.ci95.filter(|_| !exact), n: Some(mean.n) })
    }

    /// Averages times, rates and the like: the geometric mean and an interval above zero.
    pub fn of_positive(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        Self::of(&values.into_iter().collect::<Vec<_>>(), Domain::Positive)
    }

    /// Value and interval through a growing function.
    #[must_use]
    pub fn map(self, function: impl Fn(f64) -> f64) -> Self {
        let (value, ci95) = (function(self.value), self.ci95.map(|ends| ends.map(&function)));
        Self { value, ci95, ..self }
    }

    /// Its interval, where it is worth showing: the 95 % interval of two runs is 12.7
    /// standard errors to each side, and can reach over ten orders of magnitude.
    pub fn shown_interval(&self) -> Option<[f64; 2]> {
        self.ci95.filter(|_| self.n != Some(2))
    }

    /// Whether its interval is left out because it is of two runs.
    pub fn is_of_two(&self) -> bool {
        self.ci95.is_some() && self.shown_interval().is_none()
    }

    /// The ends of its interval; of what has none the value itself.
    pub fn ends(&self) -> [f64; 2] {
        self.ci95.unwrap_or([self.value; 2])
    }

    /// The same with the ends of its interval exchanged, after a function that falls.
    #[must_use]
    pub fn turned(self) -> Self {
        Self { ci95: self.ci95.map(|[lo, hi]| [hi, lo]), ..self }
    }

    /// `12.3 [11, 14]`, in the words of `format`.
    pub fn shown(&self, format: impl Fn(f64) -> String) -> String {
        let value = format(self.value);
        match self.shown_interval() {
            Some([lo, hi]) => format!("{value} [{}, {}]", format(lo), format(hi)),
            None => value,
        }
    }
}

impl Estimate {
    /// `12.3 [11, 14] ms`: in its unit, or, of seconds, in the one that people would use.
    pub fn told(self, unit: &str) -> String {
        let (times, unit) = match (unit, self.value.abs()) {
            ("s", v) if v < 1e-3 => (1e6, "µs"),
            ("s", v) if v < 1.0 => (1e3, "ms"),
            _ => (1.0, unit),
        };
        let text = self.map(|value| times * value).rounded();
        if unit.is_empty() { text } else { format!("{text} {unit}") }
    }

    /// `12.3 [11.0, 13.6]`: three significant digits of the largest number, and no more
    /// decimals than two significant digits of the interval's half have. Of an interval
    /// that reaches from one order of magnitude to another, two significant digits of each.
    pub fn rounded(&self) -> String {
        let Some([lo, hi]) = self.shown_interval() else { return three(self.value) };
        let decimals_of = |digits: i32, value: f64| digits - 1 - value.log10().floor() as i32;
        let half = (hi - lo) / 2.0;
        let largest = self.value.abs().max(lo.abs()).max(hi.abs());
        if !(half > 0.0 && half.is_finite() && largest.is_finite()) {
            return self.shown(three);
        }
        let is_wide = lo * hi > 0.0 && (hi / lo).max(lo / hi) > 10.0;
        if is_wide {
            return self
                .shown(|value| rounded(value, decimals_of(2, value.abs()).clamp(0, 6) as usize));
        }
        let decimals = decimals_of(2, half).min(decimals_of(3, largest)).clamp(0, 6) as usize;
        self.shown(|value| rounded(value, decimals))
    }
}

/// A run, asked for figures.
#[derive(Debug, Clone, Copy)]
pub struct Measured<'a> {
    /// The measured value.
    pub results: &'a Results,
}

impl<'a> Measured<'a> {
    /// The samples of a cell on the main link that count; `size`: none where the
    /// workload has one.
    pub fn cell(
        &self,
        stack: &str,
        workload: &str,
        size: impl Into<Option<u64>>,
    ) -> Vec<&'a Sample> {
        let size = size.into();
        let link = &self.results.link.name;
        let of_cell = |sample: &&Sample| {
            sample.link == *link
                && sample.stack == stack
                && sample.workload == workload
                && size.is_none_or(|size| sample.size_bytes == size)
        };
        counted(&self.results.samples.iter().filter(of_cell).collect::<Vec<_>>())
    }

    /// Averages a time, a rate or the like over a cell.
    pub fn mean(
        &self,
        stack: &str,
        workload: &str,
        size: impl Into<Option<u64>>,
        value: Clock,
    ) -> Option<Estimate> {
        self.mean_in(Domain::Positive, stack, workload, size, value)
    }

    /// Averages a value of any domain over a cell.
    pub fn mean_in(
        &self,
        domain: Domain,
        stack: &str,
        workload: &str,
        size: impl Into<Option<u64>>,
        value: Clock,
    ) -> Option<Estimate> {
        let cell = self.cell(stack, workload, size);
        Estimate::of(&cell.into_iter().filter_map(value).collect::<Vec<_>>(), domain)
    }

    /// A stack's value over another's, in the same blocks.
    pub fn ratio(
        &self,
        of: [&str; 2],
        workload: &str,
        size: impl Into<Option<u64>>,
        value: Clock,
    ) -> Option<Estimate> {
        let size = size.into();
        let [stack, base] = of.map(|stack| self.cell(stack, workload, size));
        let more = stats::paired_overhead(&pairs(&stack, &base, value))?;
        let pct = Estimate { value: more.pct, ci95: more.ci95_pct, n: Some(more.n) };
        Some(pct.map(|pct| 1.0 + pct / 100.0))
    }

    /// Returns how many times faster a stack is than another, in the same blocks.
    pub fn times_faster(
        &self,
        of: [&str; 2],
        workload: &str,
        size: u64,
        clock: Clock,
    ) -> Option<Estimate> {
        let [stack, base] = of;
        self.ratio([base, stack], workload, size, clock)
    }

    /// Returns how much more a stack has of a value than another one, in the same blocks.
    pub fn added(
        &self,
        of: [&str; 2],
        workload: &str,
        size: impl Into<Option<u64>>,
        value: Clock,
    ) -> Option<Estimate> {
        let size = size.into();
        let [stack, base] = of.map(|stack| self.cell(stack, workload, size));
        let pairs = pairs(&stack, &base, value);
        let added: Vec<f64> = pairs.iter().map(|(time, base)| time - base).collect();
        Estimate::of(&added, Domain::Signed)
    }

    /// The sizes of a kind of work.
    pub fn sizes(&self, workload: &str) -> Vec<u64> {
        let workloads = self.results.plan.workloads.iter();
        workloads.filter(|w| w.kind == workload).flat_map(|w| w.sizes_bytes.clone()).collect()
    }

    /// The stacks of an application.
    pub fn stacks(&self, application: &str) -> Vec<&'a str> {
        let names = self.results.plan.stacks.iter().map(|stack| stack.name.as_str());
        names.filter(|name| name.split('/').next() == Some(application)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_told_in_the_unit_that_people_would_use() {
        for (value, ci95, unit, told) in [
            (0.00128, Some([0.00115, 0.0014]), "s", "1.28 [1.15, 1.40] ms"),
            (2e-5, None, "s", "20 µs"),
            (96.2, None, "s", "96.2 s"),
            (-0.5, None, "%", "-0.5 %"),
            (0.02, None, "", "0.02"),
        ] {
            assert_eq!(Estimate { value, ci95, n: None }.told(unit), told);
        }
    }

    #[test]
    fn a_count_that_was_the_same_in_every_run_is_told_as_it_was() {
        for domain in [Domain::Positive, Domain::Count] {
            let told = Estimate::of(&[821_911.0; 7], domain).expect("an estimate");
            assert_eq!((told.value.to_bits(), told.ci95), (821_911.0_f64.to_bits(), None));
        }
    }

    #[test]
    fn a_figure_has_no_more_decimals_than_its_interval_allows() {
        for (value, ci95, shown) in [
            (0.0348, [-2.81, 2.97], "0.0 [-2.8, 3.0]"),
            (-0.0236, [-3.31, 3.38], "0.0 [-3.3, 3.4]"),
            (296.4, [160.2, 503.3], "296 [160, 503]"),
            (4.38, [0.588, 8.32], "4.4 [0.59, 8.3]"),
            (0.43, [0.021, 90.2], "0.43 [0.021, 90]"),
            (0.21, [0.016, 2.71], "0.21 [0.016, 2.7]"),
            (0.474, [0.467, 0.481], "0.474 [0.467, 0.481]"),
            (819.2, [819.19, 819.21], "819 [819, 819]"),
            (-1e-8, [-2e-7, -1e-9], "0.000000 [0.000000, 0.000000]"),
            (2320.4, [1971.3, 2670.1], "2320 [1971, 2670]"),
            (1.0, [1.0, 1.0], "1 [1, 1]"),
        ] {
            assert_eq!(Estimate { value, ci95: Some(ci95), n: None }.rounded(), shown);
        }
    }

    #[test]
    fn an_interval_of_two_runs_is_not_printed() {
        let of = |n| Estimate { value: 5.1, ci95: Some([0.000_068, 385_490.0]), n: Some(n) };
        assert_eq!((of(2).rounded().as_str(), of(2).is_of_two()), ("5.1", true));
        assert_eq!((of(2).told("ms").as_str(), of(3).is_of_two()), ("5.1 ms", false));
        assert_eq!(of(3).rounded(), "5.1 [0.000068, 385490]");
    }
}
