//! Makes the sentence on each stack's costs over its baseline, from bold to cautious.

use super::Sentence;
use super::added::{self, AddedRoundTrips, Pair, span};
use super::claim::{Claim, Costs, Fills, Fixed};
use crate::analysis::stats::MIN_RUNS;
use crate::schema::{Portable, Results};

/// The versions of each stack's sentence, for stacks whose packets were counted; none of a main
/// link that follows a trace, where what a session takes depends on when it begins.
pub(super) fn candidates(results: &Results) -> Vec<Vec<Sentence>> {
    if results.link.follows_trace() {
        return Vec::new();
    }
    results.portable.iter().filter_map(|stack| versions(results, stack)).collect()
}

fn versions(results: &Results, stack: &Portable) -> Option<Vec<Sentence>> {
    let pair = Pair { stack: stack.stack.clone(), base: stack.baseline.clone()? };
    let round_trips = AddedRoundTrips::of(results, &pair)?;
    let bytes = span(&added::bytes(results, &pair)).unwrap_or([0.0; 2]);
    let n = added::runs(results, &pair);
    let fixed = if n < MIN_RUNS { Fixed::TooFew } else { Fixed::of(results, &pair) };
    let fills = |bps: f64| Fills { bps, checked: Fills::is_checked(results, &pair, bps) };
    let fills = stack.fill_bps.map(fills).filter(|_| matches!(fixed, Fixed::Longer(_)));
    let costs = Costs {
        retries: added::retries(results, &pair),
        pair,
        round_trips,
        fixed,
        bytes,
        fills,
        n: Some(n),
    };
    let without_rate = Costs { fills: None, ..costs.clone() };
    let mut versions = vec![costs, without_rate];
    versions.dedup();
    Some(versions.into_iter().map(|costs| Sentence::of(vec![Claim::Costs(costs)])).collect())
}
