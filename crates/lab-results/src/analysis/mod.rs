//! From samples to an answer. Pure functions; no clock, no file.

pub mod accounting;
pub mod advise;
pub mod answer;
pub mod compare;
pub mod cost;
pub mod crossover;
pub mod disturbance;
pub mod fit;
pub mod history;
pub mod limits;
pub mod measured;
pub mod models;
pub mod outliers;
pub mod portable;
pub mod predict;
pub mod rfc6349;
pub mod sentence;
pub mod sessions;
pub mod simulate;
pub mod since;
pub mod slow_start;
pub mod stats;
pub mod stop;
pub mod summary;
mod warnings;

use std::collections::BTreeMap;

use crate::schema::{LinkReport, Results};
use slow_start::Segment;

/// Fills in all that follows from the samples, warnings and the answer included. `windows`
/// are the bytes that a stack may have in flight beside TCP's own window.
pub fn derive(results: &mut Results, windows: &BTreeMap<String, u64>) {
    outliers::flag(&mut results.samples);
    let links: Vec<LinkReport> =
        std::iter::once(&results.link).chain(&results.validation_links).cloned().collect();
    let (stacks, samples) = (&results.plan.stacks, &results.samples);
    let segment = Segment::of(&results.plan);
    let context = summary::Context { stacks, links: &links, windows, segment };
    results.summary = summary::summarise(samples, context);
    let context = portable::Context { stacks, link: &results.link, segment, windows };
    results.portable = portable::portable(samples, context);
    let fitted = models::fit(samples, stacks, &links, segment);
    results.models = models::rows(&fitted, stacks);
    results.crossovers = crossover::crossovers(&fitted);
    results.predictions = predict::predictions(
        &results.portable,
        &results.summary,
        &results.link,
        &results.validation_links,
        segment,
        &results.plan.congestion_control,
    );
    results.accounting = accounting::accounting(samples);
    let (answer, notes) = answer::answer(results);
    results.answer = answer;
    results.warnings = warnings::warnings(results);
    results.warnings.extend(notes);
}
