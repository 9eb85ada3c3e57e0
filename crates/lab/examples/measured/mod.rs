//! Figures of runs of the lab, with their intervals, for the examples that write
//! docs/benchmarks.md.

#![allow(dead_code, reason = "each example uses a part")]

use std::error::Error;
use std::path::Path;

use headroom_lab::analysis::stats;
use headroom_lab::analysis::summary::{Clock, counted, pairs};
use headroom_lab::results::{Results, Sample};

/// A value with its 95 % interval.
#[derive(Clone, Copy)]
pub(crate) struct Estimate {
    pub(crate) value: f64,
    pub(crate) interval: Option<[f64; 2]>,
}

impl Estimate {
    pub(crate) fn shown(&self, format: impl Fn(f64) -> String) -> String {
        let value = format(self.value);
        match self.interval {
            Some([lo, hi]) => format!("{value} [{}, {}]", format(lo), format(hi)),
            None => value,
        }
    }
}

/// A run of the lab.
pub(crate) struct Run {
    pub(crate) results: Results,
}

impl Run {
    /// The run whose results are in this folder.
    pub(crate) fn read(folder: &Path) -> Result<Self, Box<dyn Error>> {
        let path = folder.join("results.json");
        let text = std::fs::read_to_string(&path)
            .map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(Self { results: serde_json::from_str(&text)? })
    }

    pub(crate) fn cell(&self, stack: &str, workload: &str, size: u64) -> Vec<&Sample> {
        let of_cell = |sample: &&Sample| {
            sample.stack == stack && sample.workload == workload && sample.size_bytes == size
        };
        counted(&self.results.samples.iter().filter(of_cell).collect::<Vec<_>>())
    }

    /// How many times faster a stack is than another, in the same blocks.
    pub(crate) fn times_faster(
        &self,
        of: [&str; 2],
        workload: &str,
        size: u64,
        clock: Clock,
    ) -> Option<Estimate> {
        let [stack, base] = of.map(|stack| self.cell(stack, workload, size));
        let faster = stats::paired_overhead(&pairs(&base, &stack, clock))?;
        let ratio = |pct: f64| 1.0 + pct / 100.0;
        Some(Estimate {
            value: ratio(faster.pct),
            interval: faster.ci95_pct.map(|ends| ends.map(ratio)),
        })
    }

    pub(crate) fn mean(
        &self,
        stack: &str,
        workload: &str,
        size: u64,
        value: Clock,
    ) -> Option<Estimate> {
        let cell = self.cell(stack, workload, size);
        estimate(&cell.into_iter().filter_map(value).collect::<Vec<_>>())
    }

    /// What a stack takes longer than another, in the same blocks.
    pub(crate) fn added(
        &self,
        of: [&str; 2],
        workload: &str,
        size: u64,
        value: Clock,
    ) -> Option<Estimate> {
        let [stack, base] = of.map(|stack| self.cell(stack, workload, size));
        let pairs = pairs(&stack, &base, value);
        estimate(&pairs.iter().map(|(time, base)| time - base).collect::<Vec<_>>())
    }

    pub(crate) fn sizes(&self, workload: &str) -> Vec<u64> {
        let workloads = self.results.plan.workloads.iter();
        workloads.filter(|w| w.kind == workload).flat_map(|w| w.sizes_bytes.clone()).collect()
    }

    pub(crate) fn stacks(&self, application: &str) -> Vec<&str> {
        let names = self.results.plan.stacks.iter().map(|stack| stack.name.as_str());
        names.filter(|name| name.split('/').next() == Some(application)).collect()
    }
}

/// The geometric mean of rates, whose interval lies above zero.
pub(crate) fn rate(values: impl Iterator<Item = f64>) -> Option<Estimate> {
    let logs = estimate(&values.map(f64::ln).collect::<Vec<_>>())?;
    let interval = logs.interval.map(|ends| ends.map(f64::exp));
    Some(Estimate { value: logs.value.exp(), interval })
}

/// The mean.
pub(crate) fn estimate(values: &[f64]) -> Option<Estimate> {
    let mean = stats::mean(values)?;
    Some(Estimate { value: mean.mean, interval: mean.ci95 })
}

/// In words, where more is better.
pub(crate) fn verdict(found: Option<f64>, least: f64, aim: f64) -> &'static str {
    match found {
        None => "not measured",
        Some(found) if found >= aim => "aim reached",
        Some(found) if found >= least => "reached",
        Some(_) => "**missed**",
    }
}
