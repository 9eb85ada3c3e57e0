//! Sentences that the page's figures choose: a claim has comparisons of cells and a text
//! for each way they can come out.

use serde::{Deserialize, Serialize};

use super::results::{ColumnResults, SectionResults, Value};
use crate::analysis::measured::Estimate;

/// A claim as a study writes it.
#[derive(Debug, Clone)]
pub struct Claim {
    /// Short name: texts hold it as `{?name}`.
    pub(super) id: String,
    pub(super) compare: Vec<Comparison>,
    /// Said where every comparison holds.
    pub(super) holds: String,
    /// Said where one of them is contradicted.
    pub(super) fails: String,
    /// Said where none is contradicted and one cannot be told.
    pub(super) unknown: String,
}

/// Two sides, each a cell (`section/column/row`, `*` for every column or row) or a number.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Comparison {
    left: String,
    sign: Sign,
    right: String,
}

/// How a comparison wants its sides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Sign {
    /// Above: the intervals do not overlap.
    Above,
    /// Below.
    Below,
    /// Not to be told apart: the intervals overlap.
    Alike,
}

/// How a claim came out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// Every comparison holds.
    Holds,
    /// One is contradicted.
    Fails,
    /// One cannot be told: intervals overlap, runs are too few, or the link did not shape.
    Unknown,
    /// None of its cells has been measured.
    Unmeasured,
}

/// A claim of a study, and how it came out.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ClaimResults {
    /// Short name.
    pub id: String,
    /// What was compared.
    pub compare: Vec<Comparison>,
    /// How it came out.
    pub outcome: Outcome,
    /// How many pairs of cells hold, are contradicted, and cannot be told.
    pub counts: [usize; 3],
}

impl Comparison {
    /// Reads `LEFT > RIGHT`, `<` or `~`.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let signs = [(" > ", Sign::Above), (" < ", Sign::Below), (" ~ ", Sign::Alike)];
        let found = signs.into_iter().find_map(|(sign, meaning)| {
            let (left, right) = text.split_once(sign)?;
            Some(Self { left: left.trim().into(), sign: meaning, right: right.trim().into() })
        });
        found.ok_or_else(|| format!("`{text}` is no comparison: write `LEFT > RIGHT`, `<` or `~`"))
    }

    /// The sides that are cells, for the check that they are there.
    pub(super) fn references(&self) -> impl Iterator<Item = &str> {
        [self.left.as_str(), self.right.as_str()]
            .into_iter()
            .filter(|side| side.parse::<f64>().is_err())
    }
}

impl Claim {
    /// Compares what the sections have.
    pub(super) fn judge(&self, sections: &[SectionResults]) -> ClaimResults {
        judge(&self.id, &self.compare, sections)
    }

    /// The text for an outcome; empty where nothing was measured.
    pub(super) fn text(&self, outcome: Outcome) -> &str {
        match outcome {
            Outcome::Holds => &self.holds,
            Outcome::Fails => &self.fails,
            Outcome::Unknown => &self.unknown,
            Outcome::Unmeasured => "",
        }
    }
}

impl ClaimResults {
    /// Compares again; the results of a page that agrees with itself are the same.
    pub(super) fn again(&self, sections: &[SectionResults]) -> Self {
        judge(&self.id, &self.compare, sections)
    }
}

fn judge(id: &str, compare: &[Comparison], sections: &[SectionResults]) -> ClaimResults {
    let mut counts = [0; 3];
    for comparison in compare {
        for (left, right) in pairs(comparison, sections) {
            match verdict(&left, comparison.sign, &right) {
                Some(true) => counts[0] += 1,
                Some(false) => counts[1] += 1,
                None => counts[2] += 1,
            }
        }
    }
    let outcome = match counts {
        [0, 0, 0] => Outcome::Unmeasured,
        [_, fails, _] if fails > 0 => Outcome::Fails,
        [_, _, unknown] if unknown > 0 => Outcome::Unknown,
        _ => Outcome::Holds,
    };
    ClaimResults { id: id.to_owned(), compare: compare.to_vec(), outcome, counts }
}

/// A side of a comparison: an estimate, if it can support one.
struct Side {
    estimate: Estimate,
    is_evidence: bool,
}

/// The measured pairs that a comparison is about; a `*` stands for the same column or row
/// on both sides.
fn pairs(comparison: &Comparison, sections: &[SectionResults]) -> Vec<(Side, Side)> {
    let number = |text: &str| {
        let estimate = Estimate::exact(text.parse().ok()?);
        Some(Side { estimate, is_evidence: true })
    };
    let mut all = Vec::new();
    for (names, left) in cells(sections, &comparison.left) {
        let right = number(&comparison.right).or_else(|| {
            let name = with_names(&comparison.left, &comparison.right, &names)?;
            cells(sections, &name).into_iter().next().map(|(_, side)| side)
        });
        all.extend(right.map(|right| (left, right)));
    }
    all
}

/// The right side with the column and row that the left side's `*` stood for.
fn with_names(left: &str, right: &str, names: &[String; 2]) -> Option<String> {
    let (mut parts, lefts) = (split(right)?.map(str::to_owned), split(left)?);
    for (index, name) in names.iter().enumerate() {
        if parts[index + 1] == "*" && lefts[index + 1] == "*" {
            parts[index + 1].clone_from(name);
        }
    }
    Some(parts.join("/"))
}

fn split(reference: &str) -> Option<[&str; 3]> {
    let mut parts = reference.splitn(3, '/');
    Some([parts.next()?, parts.next()?, parts.next()?])
}

/// The measured cells of a reference, with their columns and rows.
fn cells(sections: &[SectionResults], reference: &str) -> Vec<([String; 2], Side)> {
    let Some([section, column, row]) = split(reference) else { return Vec::new() };
    let Some(section) = sections.iter().find(|known| known.id == section) else {
        return Vec::new();
    };
    let mut all = Vec::new();
    for (index, known) in section.columns.iter().enumerate() {
        if column != "*" && column != known.id {
            continue;
        }
        for line in section.rows.iter().filter(|line| row == "*" || row == line.name) {
            let names = [known.id.clone(), line.name.clone()];
            all.extend(side(known, &line.values[index]).map(|side| (names, side)));
        }
    }
    all
}

fn side(column: &ColumnResults, value: &Value) -> Option<Side> {
    let estimate = value.measured?;
    Some(Side { estimate, is_evidence: value.supports_comparison(column) })
}

/// Whether the sides are as the sign wants them; none where that cannot be told.
fn verdict(left: &Side, sign: Sign, right: &Side) -> Option<bool> {
    if !(left.is_evidence && right.is_evidence) {
        return None;
    }
    let [a, b] = [left.estimate.ends(), right.estimate.ends()];
    match (a[0] > b[1], a[1] < b[0], sign) {
        (true, _, Sign::Above) | (_, true, Sign::Below) | (false, false, Sign::Alike) => Some(true),
        (false, false, _) => None,
        _ => Some(false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::study::results::testing::section;

    fn outcome(compare: &[&str], sections: &[SectionResults]) -> Outcome {
        let compare: Vec<_> =
            compare.iter().map(|text| Comparison::parse(text).expect("a comparison")).collect();
        judge("c", &compare, sections).outcome
    }

    #[test]
    fn claims_hold_fail_or_cannot_be_told() {
        // columns a and b: 10 ± 1 and 20 ± 1, 10 ± 1 and 10.5 ± 1
        let sections = [
            section("t", &["a", "b"], &[("x", &[(10.0, 1.0, 5), (20.0, 1.0, 5)])]),
            section("u", &["a", "b"], &[("x", &[(10.0, 1.0, 5), (10.5, 1.0, 5)])]),
            section("few", &["a", "b"], &[("x", &[(10.0, 1.0, 4), (20.0, 1.0, 4)])]),
        ];
        for (compare, expected) in [
            (&["t/b/x > t/a/x"][..], Outcome::Holds),
            (&["t/b/x < t/a/x"], Outcome::Fails),
            (&["t/b/x ~ t/a/x"], Outcome::Fails),
            (&["u/b/x > u/a/x"], Outcome::Unknown),
            (&["u/b/x ~ u/a/x"], Outcome::Holds),
            (&["few/b/x > few/a/x"], Outcome::Unknown),
            (&["t/b/x > t/a/x", "u/b/x > u/a/x"], Outcome::Unknown),
            (&["t/a/x > t/b/x", "u/b/x > u/a/x"], Outcome::Fails),
            (&["t/*/x > 5"], Outcome::Holds),
            (&["t/*/x > 15"], Outcome::Fails),
            (&["t/b/* > t/a/*"], Outcome::Holds),
            (&["t/b/y > 1"], Outcome::Unmeasured),
        ] {
            assert_eq!(outcome(compare, &sections), expected, "{compare:?}");
        }
    }

    #[test]
    fn a_comparison_needs_a_sign() {
        assert!(Comparison::parse("t/a/x = 3").is_err_and(|why| why.contains("LEFT > RIGHT")));
    }
}
