//! Sentences that are held against the figures under them.
//!
//! A sentence is a value: what it claims ([`Claim`]), and its words, made of the claims
//! last. Before it is printed, the program looks for a cell of the same run that
//! contradicts a claim; [`read`] makes claims of printed words again, so that a finished
//! report can be held against its own tables.

mod added;
mod claim;
mod costs;
mod main_link;
pub mod read;
mod secured;
mod statement;

use crate::schema::Results;

pub(super) use main_link::sentences as of_main_link;

pub use added::{AddedRoundTrips, Pair};
pub use claim::{Claim, Compared, Costs, Fills, Fixed};
pub use statement::Sentence;

/// Sentences that no cell contradicts, and a note for each that one does.
#[derive(Debug, Default)]
pub struct Checked {
    /// In the order in which they were offered.
    pub sentences: Vec<String>,
    /// What was omitted, and why.
    pub notes: Vec<String>,
}

/// Says what each stack costs over its baseline, and how secured stacks compare.
pub fn of_costs(results: &Results) -> Checked {
    let mut checked = Checked::default();
    for versions in costs::candidates(results) {
        checked.add_first_true(results, versions);
    }
    for sentence in secured::candidates(results) {
        checked.add_first_true(results, vec![sentence]);
    }
    checked
}

impl Checked {
    /// Adds the first of several versions of a sentence, from bold to cautious, that
    /// nothing contradicts; a note says what spoke against the bolder ones.
    fn add_first_true(&mut self, results: &Results, versions: Vec<Sentence>) {
        for version in versions {
            match version.contradictions(results).as_slice() {
                [] => return self.sentences.push(version.text),
                [first, others @ ..] => {
                    let others = match others.len() {
                        0 => String::new(),
                        n => format!(", and {n} other cells"),
                    };
                    let text = version.text.trim_end_matches('.');
                    self.notes.push(format!(
                        "Omitted, because measurements of this run contradict it: \"{text}\" ({first}{others})."
                    ));
                }
            }
        }
    }
}
