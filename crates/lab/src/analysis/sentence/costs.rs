//! What each stack costs over its baseline, in versions from bold to cautious.

use super::Sentence;
use super::added::{self, Added, Pair, span};
use super::claim::{Claim, Costs};
use crate::analysis::stats::LEAST_RUNS;
use crate::results::{Portable, Results};

/// The versions of each stack's sentence, for stacks whose packets were counted.
pub(super) fn candidates(results: &Results) -> Vec<Vec<Sentence>> {
    results.portable.iter().filter_map(|stack| versions(results, stack)).collect()
}

fn versions(results: &Results, stack: &Portable) -> Option<Vec<Sentence>> {
    let pair = Pair { stack: stack.stack.clone(), base: stack.baseline.clone()? };
    let round_trips = span(&added::round_trips(results, &pair))?;
    let bytes = span(&added::bytes(results, &pair)).unwrap_or([0.0; 2]);
    let small = || Added::cells(results, &pair).filter(|cell| cell.link.name == results.link.name);
    let n = small().map(|cell| cell.row.n).min().unwrap_or(0);
    let fixed_s = span(&added::fixed_s(results, &pair)).filter(|_| n >= LEAST_RUNS);
    let costs = Costs {
        retries: retries(results, &pair),
        pair,
        round_trips,
        fixed_s,
        bytes,
        fills_bps: stack.fill_bps.filter(|_| fixed_s.is_some()),
        n,
    };
    let without_rate = Costs { fills_bps: None, ..costs.clone() };
    let counted = Costs { fixed_s: None, n: n.min(LEAST_RUNS - 1), ..without_rate.clone() };
    let mut versions = vec![costs, without_rate];
    // what was counted stands when nothing that was timed does
    if n < LEAST_RUNS {
        versions.push(counted);
    }
    versions.dedup();
    Some(versions.into_iter().map(|costs| Sentence::of(vec![Claim::Costs(costs)])).collect())
}

/// HelloRetryRequests and refused commands more than the baseline's, in the smallest
/// download that was counted.
fn retries(results: &Results, pair: &Pair) -> [u32; 2] {
    let smallest = |stack: &str| {
        let of_stack = results.samples.iter().filter(|sample| {
            sample.stack == stack && sample.workload == "download" && sample.wire.is_some()
        });
        let wire = of_stack.min_by_key(|sample| sample.size_bytes).and_then(|sample| sample.wire);
        wire.map_or([0; 2], |wire| [wire.hello_retries, wire.refused_commands])
    };
    let (stack, base) = (smallest(&pair.stack), smallest(&pair.base));
    std::array::from_fn(|index| stack[index].saturating_sub(base[index]))
}
