//! The answer on the terminal: one screen, or all tables and notes.

use super::columns::{aligned, wrapped};
use super::markdown::{COSTS, LEGEND, further_tables, legend_of_rate, tables};
use crate::schema::Results;

/// Amount of detail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Detail {
    /// The answer and one table, on one screen.
    Main,
    /// Every table, and what each link's test found.
    Full,
}

impl Detail {
    /// The detail that `--full` asks for, or not.
    pub fn of(full: bool) -> Self {
        if full { Self::Full } else { Self::Main }
    }
}

/// Prints the answer, `width` columns wide where that is possible. `command` prints it in full.
pub fn answer(results: &Results, command: &str, width: usize, detail: Detail) -> String {
    match detail {
        Detail::Main => super::brief::answer(results, command, width),
        Detail::Full => full(results, width),
    }
}

fn full(results: &Results, width: usize) -> String {
    let interrupted = results.incomplete();
    let mut text = String::new();
    for sentence in interrupted.iter().chain([&results.plan.question]) {
        text += &wrapped(sentence, width);
        text.push('\n');
    }
    for sentence in &results.answer {
        text += &wrapped(sentence, width);
    }
    for table in tables(results).iter().chain(&further_tables(results)) {
        text.push('\n');
        text += &aligned(table);
    }
    text.push('\n');
    text += &wrapped(LEGEND, width);
    text += &wrapped(FULL_LEGEND, width);
    let legends = legend_of_rate(results).into_iter().chain(super::sessions::legend(results));
    for sentence in legends {
        text += &wrapped(sentence, width);
    }
    text += &wrapped(COSTS, width);
    for link in super::links::sentences(results) {
        text += &wrapped(&link, width);
    }
    for warning in results.warnings.iter().filter(|warning| Some(*warning) != interrupted.as_ref())
    {
        text += &wrapped(&format!("Note: {warning}"), width);
    }
    text
}

const FULL_LEGEND: &str = "Round trips: before the first payload byte. +bytes/MB: protocol overhead per MB of payload. \
                           AICc prefers: this model of the overhead, or a line over log(size). Payload efficiency: \
                           payload bytes per byte on the wire, in their direction. Headers/packet: bytes of a full \
                           packet that are not payload. Content: whether a marker in a file was readable on the wire.";
