//! Secured stacks beside each other, where a plan has several: what somebody who must
//! encrypt can choose among.

use super::Sentence;
use super::claim::{Claim, Compared};
use crate::analysis::measured::{Estimate, Measured};
use crate::analysis::stats::MIN_RUNS;
use crate::schema::{Results, Sample};

/// More do not fit into a sentence.
const MAX_STACKS: usize = 5;

/// A sentence on the smallest download of the main link, and one on the largest.
pub(super) fn candidates(results: &Results) -> Vec<Sentence> {
    let stacks: Vec<&str> = results
        .plan
        .stacks
        .iter()
        .filter(|stack| stack.baseline.is_some() && is_secured(results, &stack.name))
        .map(|stack| stack.name.as_str())
        .collect();
    if !(2..=MAX_STACKS).contains(&stacks.len()) {
        return Vec::new();
    }
    let sizes = || {
        let rows = results.summary.iter().filter(|row| {
            row.link == results.link.name
                && row.workload == "download"
                && stacks.contains(&row.stack.as_str())
        });
        rows.map(|row| row.size_bytes)
    };
    let mut ends: Vec<u64> = sizes().min().into_iter().chain(sizes().max()).collect();
    ends.dedup();
    ends.into_iter().filter_map(|size| compared(results, &stacks, size)).collect()
}

/// Whether nothing of a stack's files could be read on the wire, and was meant not to be.
fn is_secured(results: &Results, stack: &str) -> bool {
    results.clear_text.iter().any(|row| row.stack == stack && row.secured && !row.marker_seen)
}

fn compared(results: &Results, stacks: &[&str], size_bytes: u64) -> Option<Sentence> {
    let run = Measured { results };
    let clock = |sample: &Sample| sample.session_seconds;
    let mut sessions: Vec<(String, Estimate)> = stacks
        .iter()
        .filter_map(|stack| {
            Some(((*stack).to_owned(), run.mean(stack, "download", size_bytes, clock)?))
        })
        .collect();
    sessions.sort_by(|a, b| a.1.value.total_cmp(&b.1.value));
    let (fastest, others) = sessions.split_first()?;
    let slower = others.iter().map(|(stack, _)| {
        let ratio = run.ratio([stack, &fastest.0], "download", size_bytes, clock)?;
        Some(ratio.map(|ratio| 100.0 * (ratio - 1.0)))
    });
    let slower_pct = slower.collect::<Option<Vec<Estimate>>>()?;
    // a comparison has the blocks of both stacks
    let n = slower_pct.iter().filter_map(|slower| slower.n).min()?;
    if n < MIN_RUNS {
        return None;
    }
    let compared = Compared {
        workload: "download".to_owned(),
        size_bytes,
        slower_pct,
        sessions: sessions.into_iter().map(|(stack, found)| (stack, found.value)).collect(),
        n,
    };
    Some(Sentence::of(vec![Claim::Compared(compared)]))
}
