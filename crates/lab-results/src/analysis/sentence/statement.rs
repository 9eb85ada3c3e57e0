//! A sentence that claims something of a run.

use super::Claim;
use crate::schema::Results;

/// A sentence and what it says of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct Sentence {
    /// The words.
    pub text: String,
    /// The claims.
    pub claims: Vec<Claim>,
}

impl Sentence {
    /// Makes a sentence of claims that are put into words one after the other.
    pub(super) fn of(claims: Vec<Claim>) -> Self {
        let words: Vec<String> = claims.iter().map(Claim::words).collect();
        Self { text: format!("{}.", words.join(", ")), claims }
    }

    /// Lists contradictions by the run's cells, a phrase each.
    pub fn contradictions(&self, results: &Results) -> Vec<String> {
        self.claims.iter().flat_map(|claim| claim.contradictions(results)).collect()
    }
}
