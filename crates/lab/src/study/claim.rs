//! Claims: comparisons of cells, with a text for each outcome.

use headroom_lab_results::analysis::measured::Estimate;
use headroom_lab_results::analysis::stats::MIN_RUNS;
use serde::{Deserialize, Serialize};

use super::section_results::{ColumnResults, Lack, Origin, SectionResults, Value};

/// A claim as a study writes it.
#[derive(Debug, Clone)]
pub struct Claim {
    /// Short name: texts hold it as `{?name}`.
    pub(super) id: String,
    pub(super) compare: Vec<Comparison>,
    /// The text if every comparison holds.
    pub(super) holds: String,
    /// The text if one of them is contradicted.
    pub(super) fails: String,
    /// The text if none is contradicted and one is undecided.
    pub(super) unknown: String,
}

/// Two sides, each a cell (`section/column/row`, `*` for every column or row) or a number.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Comparison {
    left: String,
    sign: Sign,
    right: String,
}

/// Relation of the two sides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Sign {
    /// Above: the intervals do not overlap.
    Above,
    /// Below.
    Below,
    /// No significant difference: the intervals overlap.
    Alike,
}

/// Outcome of a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// Every comparison holds.
    Holds,
    /// One is contradicted.
    Fails,
    /// One is undecided; [`Why`] has the reason.
    Unknown,
    /// None of its cells has been measured.
    Unmeasured,
}

/// A claim of a study, and how it came out.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ClaimResults {
    /// Short name.
    pub id: String,
    /// The comparisons.
    pub compare: Vec<Comparison>,
    /// The outcome.
    pub outcome: Outcome,
    /// Numbers of pairs of cells that hold, are contradicted, and are undecided.
    pub counts: [usize; 3],
    /// Why those are undecided, each reason once.
    pub whys: Vec<Why>,
    /// The ratios, taken block by block, of pairs that were measured in the same blocks.
    pub paired: Vec<Paired>,
}

/// Why a pair is undecided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Why {
    /// A side, or the ratio, rests on too few runs.
    FewRuns,
    /// A side is a time that the link did not shape.
    NotShaped,
    /// A side has no interval.
    NoInterval,
    /// The intervals of the two overlap.
    Overlap,
    /// The interval of the ratio in the same blocks includes 1.
    RatioOfOne,
    /// Both are relative to one baseline, and no ratio of the two was taken.
    SharedBaseline,
}

/// One cell's quantity over another's, in the same blocks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Paired {
    /// `section/column/row`.
    pub left: String,
    /// The same.
    pub right: String,
    /// Left over right, of the measure itself and not of its overheads.
    pub ratio: Estimate,
}

/// Takes the ratio of two cells of one part, workload and size: the measure's name, what
/// is divided, and by what.
pub(super) type Ratios<'a> = &'a dyn Fn(&str, &Origin, &Origin) -> Option<Estimate>;

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

    /// Whether a side is a number.
    pub(super) fn has_number(&self) -> bool {
        self.references().count() < 2
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
    pub(super) fn judge(&self, sections: &[SectionResults], ratios: Ratios<'_>) -> ClaimResults {
        judge(&self.id, &self.compare, sections, &|left, right| {
            ratios(&left.column.measure, left.value.origin.as_ref()?, right.value.origin.as_ref()?)
        })
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
        judge(&self.id, &self.compare, sections, &|left, right| {
            let of_both =
                |paired: &&Paired| (&paired.left, &paired.right) == (&left.name, &right.name);
            self.paired.iter().find(of_both).map(|paired| paired.ratio)
        })
    }

    /// Whether it compares these two cells, in either order.
    pub(super) fn is_of(&self, sections: &[SectionResults], cells: [&str; 2]) -> bool {
        let all = self.compare.iter().flat_map(|comparison| pairs(comparison, sections));
        all.filter_map(|(left, right)| Some((left.name, right.cell()?.name.clone())))
            .any(|(left, right)| [&left, &right] == cells || [&right, &left] == cells)
    }

    /// Why pairs of it are undecided, in words.
    pub(super) fn why(&self) -> String {
        let told: Vec<&str> = self.whys.iter().map(|why| why.told()).collect();
        told.join(" and ")
    }

    /// Formats the difference of the two sides of its only comparison, in per cent of the right
    /// one, in the same blocks; none: it has no ratio, or several.
    pub(super) fn paired_told(&self) -> Option<String> {
        let [Paired { ratio, .. }] = self.paired.as_slice() else { return None };
        let told = ratio.map(|ratio| 100.0 * (ratio - 1.0)).told("%");
        let few = ratio.n.filter(|n| *n < MIN_RUNS);
        Some(few.map_or(told.clone(), |n| format!("{told} (n = {n})")))
    }
}

impl Why {
    fn told(self) -> &'static str {
        match self {
            Self::FewRuns => "the runs are too few",
            Self::NotShaped => "the link did not shape the times",
            Self::NoInterval => "a figure has no interval",
            Self::Overlap => "the intervals overlap",
            Self::RatioOfOne => "the differences by block are not significant",
            Self::SharedBaseline => "both are relative to one baseline, not to each other",
        }
    }
}

impl From<Lack> for Why {
    fn from(lack: Lack) -> Self {
        match lack {
            Lack::Runs => Self::FewRuns,
            Lack::Shaping => Self::NotShaped,
            Lack::Interval => Self::NoInterval,
        }
    }
}

fn judge(
    id: &str,
    compare: &[Comparison],
    sections: &[SectionResults],
    ratio: &dyn Fn(&Cell<'_>, &Cell<'_>) -> Option<Estimate>,
) -> ClaimResults {
    let (mut counts, mut whys, mut all_paired) = ([0; 3], Vec::new(), Vec::new());
    for comparison in compare {
        for (left, right) in pairs(comparison, sections) {
            let paired = right
                .cell()
                .filter(|right| left.is_beside(right))
                .and_then(|right| Some((right.name.clone(), ratio(&left, right)?)));
            match verdict(&left, comparison.sign, &right, paired.as_ref().map(|(_, ratio)| *ratio))
            {
                Ok(true) => counts[0] += 1,
                Ok(false) => counts[1] += 1,
                Err(why) => {
                    counts[2] += 1;
                    whys.push(why);
                }
            }
            let told = paired.map(|(right, ratio)| Paired { left: left.name, right, ratio });
            all_paired.extend(told);
        }
    }
    whys.sort_unstable();
    whys.dedup();
    let outcome = match counts {
        [0, 0, 0] => Outcome::Unmeasured,
        [_, fails, _] if fails > 0 => Outcome::Fails,
        [_, _, unknown] if unknown > 0 => Outcome::Unknown,
        _ => Outcome::Holds,
    };
    let (id, compare) = (id.to_owned(), compare.to_vec());
    ClaimResults { id, compare, outcome, counts, whys, paired: all_paired }
}

/// A measured cell.
struct Cell<'a> {
    /// `section/column/row`.
    name: String,
    /// The column's and the row's.
    names: [String; 2],
    column: &'a ColumnResults,
    value: &'a Value,
    estimate: Estimate,
}

/// The right side of a comparison.
enum Side<'a> {
    Number(f64),
    Cell(Cell<'a>),
}

impl<'a> Side<'a> {
    fn cell(&self) -> Option<&Cell<'a>> {
        match self {
            Self::Number(_) => None,
            Self::Cell(cell) => Some(cell),
        }
    }
}

impl Cell<'_> {
    /// Whether the other is of the same blocks and in the same form, so that a ratio of
    /// the two can be taken block by block.
    fn is_beside(&self, other: &Self) -> bool {
        let (Some(one), Some(that)) = (&self.value.origin, &other.value.origin) else {
            return false;
        };
        (&self.column.measure, self.column.form) == (&other.column.measure, other.column.form)
            && (&one.part, &one.workload, one.size_bytes, &one.against)
                == (&that.part, &that.workload, that.size_bytes, &that.against)
    }
}

/// The measured pairs that a comparison is about; a `*` stands for the same column or row
/// on both sides.
fn pairs<'a>(comparison: &Comparison, sections: &'a [SectionResults]) -> Vec<(Cell<'a>, Side<'a>)> {
    let mut all = Vec::new();
    for left in cells(sections, &comparison.left) {
        let right = match comparison.right.parse() {
            Ok(number) => Some(Side::Number(number)),
            Err(_) => with_names(&comparison.left, &comparison.right, &left.names)
                .and_then(|name| cells(sections, &name).into_iter().next())
                .map(Side::Cell),
        };
        // a `*` is its neighbour, too, which says nothing
        let is_itself = |side: &Side<'_>| side.cell().is_some_and(|cell| cell.name == left.name);
        all.extend(right.filter(|right| !is_itself(right)).map(|right| (left, right)));
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

/// The measured cells of a reference.
fn cells<'a>(sections: &'a [SectionResults], reference: &str) -> Vec<Cell<'a>> {
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
            let value = &line.values[index];
            all.extend(value.measured.map(|estimate| Cell {
                name: format!("{}/{}/{}", section.id, known.id, line.name),
                names: [known.id.clone(), line.name.clone()],
                column: known,
                value,
                estimate,
            }));
        }
    }
    all
}

/// Decides a comparison, or says why it is undecided. Cells of the same blocks are compared
/// by their ratio: noise that they share is in both.
fn verdict(
    left: &Cell<'_>,
    sign: Sign,
    right: &Side<'_>,
    ratio: Option<Estimate>,
) -> Result<bool, Why> {
    for cell in [Some(left), right.cell()].into_iter().flatten() {
        if let Some(lack) = cell.value.lack(cell.column) {
            return Err(lack.into());
        }
    }
    if let Some(ratio) = ratio {
        if ratio.n.is_some_and(|n| n < MIN_RUNS) {
            return Err(Why::FewRuns);
        }
        // what has lost more is the smaller
        let is_loss = left.column.form == super::measure::Form::LossPct;
        let [lo, hi] = if is_loss { ratio.map(f64::recip).turned() } else { ratio }.ends();
        return ordered([lo, hi], sign, [1.0; 2]).ok_or(Why::RatioOfOne);
    }
    let ends = match right {
        Side::Number(number) => [*number; 2],
        Side::Cell(cell) if left.is_beside(cell) && left.column.form.is_relative() => {
            return Err(Why::SharedBaseline);
        }
        Side::Cell(cell) => cell.estimate.ends(),
    };
    ordered(left.estimate.ends(), sign, ends).ok_or(Why::Overlap)
}

/// Whether two intervals are as the sign wants them; none where they overlap and it wants
/// them apart.
fn ordered(a: [f64; 2], sign: Sign, b: [f64; 2]) -> Option<bool> {
    match (a[0] > b[1], a[1] < b[0], sign) {
        (true, _, Sign::Above) | (_, true, Sign::Below) | (false, false, Sign::Alike) => Some(true),
        (false, false, _) => None,
        _ => Some(false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::study::section_results::testing::section;

    fn outcome(compare: &[&str], sections: &[SectionResults]) -> Outcome {
        let compare: Vec<_> =
            compare.iter().map(|text| Comparison::parse(text).expect("a comparison")).collect();
        judge("c", &compare, sections, &|_, _| None).outcome
    }

    #[test]
    fn claims_hold_fail_or_are_undecided() {
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

    /// Two overheads over one baseline, `a` and `b`, whose intervals overlap.
    fn over_one_baseline() -> SectionResults {
        let mut section = section("t", &["a", "b"], &[("x", &[(10.0, 3.0, 10), (14.0, 3.0, 10)])]);
        for (index, stack) in ["ftps", "ftp/esp"].into_iter().enumerate() {
            section.columns[index].form = super::super::measure::Form::OverheadPct;
            section.rows[0].values[index].origin = Some(Origin {
                part: "lan".into(),
                stack: stack.into(),
                workload: "download".into(),
                size_bytes: Some(1024),
                against: Some("ftp".into()),
            });
        }
        section
    }

    #[test]
    fn two_overheads_over_one_baseline_are_told_apart_by_their_ratio() {
        let sections = [over_one_baseline()];
        let judged = |compare: &str, ratio: Option<[f64; 2]>| {
            let compare = [Comparison::parse(compare).expect("a comparison")];
            let told = judge("c", &compare, &sections, &|_, _| {
                let ends = ratio?;
                Some(Estimate { value: 1.04, ci95: Some(ends), n: Some(10) })
            });
            let again = told.again(&sections);
            assert_eq!((again.outcome, &again.whys), (told.outcome, &told.whys));
            (told.outcome, told.whys)
        };
        let apart = Some([1.02, 1.06]);
        assert_eq!(judged("t/b/x > t/a/x", apart), (Outcome::Holds, vec![]));
        assert_eq!(judged("t/b/x ~ t/a/x", apart), (Outcome::Fails, vec![]));
        assert_eq!(judged("t/b/x < t/a/x", apart), (Outcome::Fails, vec![]));
        let alike = Some([0.99, 1.06]);
        assert_eq!(judged("t/b/x > t/a/x", alike), (Outcome::Unknown, vec![Why::RatioOfOne]));
        assert_eq!(judged("t/b/x ~ t/a/x", alike), (Outcome::Holds, vec![]));
        // their overlap says nothing
        assert_eq!(judged("t/b/x ~ t/a/x", None), (Outcome::Unknown, vec![Why::SharedBaseline]));
    }

    #[test]
    fn why_a_pair_cannot_be_told_is_what_was_found() {
        let why = |half: f64, n: usize, not_shaped: bool| {
            let mut section =
                section("t", &["a", "b"], &[("x", &[(10.0, half, n), (20.0, half, n)])]);
            section.rows[0].values[0].not_shaped = not_shaped;
            let compare = [Comparison::parse("t/b/x > t/a/x").expect("a comparison")];
            judge("c", &compare, &[section], &|_, _| None).why()
        };
        assert_eq!(why(1.0, 3, false), "the runs are too few");
        assert_eq!(why(9.0, 10, false), "the intervals overlap");
        assert_eq!(why(1.0, 10, true), "the link did not shape the times");
    }

    #[test]
    fn a_comparison_needs_a_sign() {
        assert!(Comparison::parse("t/a/x = 3").is_err_and(|why| why.contains("LEFT > RIGHT")));
    }
}
