//! Finds sentences that a figure of the page contradicts.
//!
//! A sentence is written by hand around figures, or chosen by a claim. A sentence written by
//! hand cannot know the figures, so it must not compare, and it must quote every figure of
//! the page on its subject.

use super::measure::Form;
use super::results::{ColumnResults, Origin, SectionResults, StudyResults, Value};
use super::sentence::Sentence;

/// Words of comparisons. A sentence with one of them is a claim's.
const COMPARING: [&str; 20] = [
    " raise",
    " depends on",
    " higher",
    " lower",
    " twice",
    " half",
    " larger than",
    " smaller than",
    " faster",
    " slower",
    " cheaper",
    " as in the paper",
    " more than",
    " less than",
    " as much as",
    " the same as",
    " keep up",
    " costs nothing",
    " will not notice",
    " cannot be told",
];

/// Finds the sentences that a figure contradicts, each with that figure.
pub fn contradictions(study: &StudyResults) -> Vec<String> {
    let mut found = Vec::new();
    for claim in &study.claims {
        let again = claim.again(&study.sections);
        if (again.outcome, again.counts) != (claim.outcome, claim.counts) {
            found.push(format!(
                "the claim {} is {:?} by the page's figures",
                claim.id, again.outcome
            ));
        }
    }
    for sentence in &study.sentences {
        let quoted: Vec<Quoted<'_>> =
            sentence.quotes.iter().filter_map(|name| Quoted::find(study, name)).collect();
        let whys = [
            compares_by_hand(sentence),
            hides_runs_or_marks(sentence, &quoted),
            sets_overlapping_beside(study, sentence, &quoted),
            leaves_out_a_profile(study, &quoted),
            leaves_out_a_variant(&quoted),
            leaves_out_user_space(study, sentence, &quoted),
        ];
        let told = |why: String| format!("{}: \"{}\": {why}", sentence.place, sentence.text);
        found.extend(whys.into_iter().flatten().map(told));
    }
    found
}

/// A cell that a sentence quotes.
#[derive(Clone, Copy)]
struct Quoted<'a> {
    section: &'a SectionResults,
    column: &'a ColumnResults,
    row: &'a str,
    value: &'a Value,
}

impl<'a> Quoted<'a> {
    fn find(study: &'a StudyResults, reference: &str) -> Option<Self> {
        all(study).find(|cell| cell.name() == reference)
    }

    /// `section/column/row`.
    fn name(&self) -> String {
        format!("{}/{}/{}", self.section.id, self.column.id, self.row)
    }

    fn told(&self) -> String {
        self.value.told(self.column).unwrap_or_default()
    }

    fn is(&self, other: &Self) -> bool {
        (&self.section.id, &self.column.id, self.row)
            == (&other.section.id, &other.column.id, other.row)
    }

    /// Below, about or above what means no difference; none of absolute figures.
    fn side(&self) -> Option<std::cmp::Ordering> {
        let neutral = match self.column.form {
            Form::Value => return None,
            Form::PctOf => 100.0,
            Form::Added | Form::OverheadPct | Form::LossPct => 0.0,
        };
        let [lo, hi] = self.value.measured?.ends();
        Some(if hi < neutral {
            std::cmp::Ordering::Less
        } else if lo > neutral {
            std::cmp::Ordering::Greater
        } else {
            std::cmp::Ordering::Equal
        })
    }
}

fn all(study: &StudyResults) -> impl Iterator<Item = Quoted<'_>> {
    study.sections.iter().flat_map(|section| {
        section.rows.iter().flat_map(move |row| {
            let cells = section.columns.iter().zip(&row.values);
            cells.map(move |(column, value)| Quoted { section, column, row: &row.name, value })
        })
    })
}

/// A comparison that is not a claim's.
fn compares_by_hand(sentence: &Sentence) -> Option<String> {
    let word = COMPARING.iter().find(|word| sentence.written.contains(**word))?;
    Some(format!("`{}` compares, and no claim chose it", word.trim()))
}

/// A figure of few runs, or of a link that did not shape it, quoted without its mark.
fn hides_runs_or_marks(sentence: &Sentence, quoted: &[Quoted<'_>]) -> Option<String> {
    let hidden = quoted.iter().find(|cell| !sentence.text.contains(&cell.told()))?;
    Some(format!("it quotes {} without its mark", hidden.told()))
}

/// Two figures of one kind beside each other whose intervals overlap, without a claim that
/// says so.
fn sets_overlapping_beside(
    study: &StudyResults,
    sentence: &Sentence,
    quoted: &[Quoted<'_>],
) -> Option<String> {
    let claims = study.claims.iter().filter(|claim| sentence.claims.contains(&claim.id));
    let is_claimed = |a: &Quoted<'_>, b: &Quoted<'_>| {
        claims.clone().any(|claim| claim.is_of(&study.sections, [&a.name(), &b.name()]))
    };
    let work = |cell: &Quoted<'_>| {
        let origin = cell.value.origin.as_ref()?;
        Some((origin.workload.clone(), origin.size_bytes))
    };
    let are_alike = |a: &Quoted<'_>, b: &Quoted<'_>| {
        let same_line = a.row == b.row || a.column.id == b.column.id;
        a.section.id == b.section.id
            && same_line
            && a.column.unit == b.column.unit
            && work(a) == work(b)
    };
    for (index, a) in quoted.iter().enumerate() {
        for b in &quoted[index + 1..] {
            let ([a_lo, a_hi], [b_lo, b_hi]) = (a.value.measured?.ends(), b.value.measured?.ends());
            if are_alike(a, b) && a_lo <= b_hi && b_lo <= a_hi && !is_claimed(a, b) {
                return Some(format!("{} and {} do not differ significantly", a.told(), b.told()));
            }
        }
    }
    None
}

/// A figure of a link without a limit in a sentence that leaves out another offload profile
/// in which the same was measured.
fn leaves_out_a_profile(study: &StudyResults, quoted: &[Quoted<'_>]) -> Option<String> {
    let profile = |origin: &Origin| {
        let part = study.parts.iter().find(|part| part.name == origin.part)?;
        (part.link == "unshaped").then_some(part.offload.as_str())
    };
    let is_of_hosts = |cell: &&Quoted<'_>| RATES.contains(&cell.column.measure.as_str());
    for cell in quoted.iter().filter(is_of_hosts) {
        let Some(origin) = &cell.value.origin else { continue };
        let Some(own) = profile(origin) else { continue };
        let same_work = |other: &Origin| {
            (&other.stack, &other.workload, other.size_bytes)
                == (&origin.stack, &origin.workload, origin.size_bytes)
        };
        let has_other_offload = |other: &Quoted<'_>| {
            RATES.contains(&other.column.measure.as_str())
                && other.value.origin.as_ref().is_some_and(|origin| {
                    same_work(origin) && profile(origin).is_some_and(|profile| profile != own)
                })
        };
        let Some(other) = all(study).find(|other| has_other_offload(other)) else { continue };
        if !quoted.iter().any(has_other_offload) {
            let told = other.told();
            return Some(format!(
                "{} was measured with offload {own}; {} has {told}",
                cell.told(),
                other.section.title
            ));
        }
    }
    None
}

/// Measures of speed, which an offload changes.
const RATES: [&str; 4] = ["mbit-per-s", "kbyte-per-s", "session", "transfer"];

/// One of several variants of the same comparison, where another says otherwise.
fn leaves_out_a_variant(quoted: &[Quoted<'_>]) -> Option<String> {
    for cell in quoted {
        let (Some(side), Some(origin)) = (cell.side(), &cell.value.origin) else { continue };
        for (column, value) in cell.section.columns.iter().zip(row_of(cell)) {
            let other = Quoted { section: cell.section, column, row: cell.row, value };
            let Some(that) = &value.origin else { continue };
            let is_variant = (&that.part, &that.workload, that.size_bytes)
                == (&origin.part, &origin.workload, origin.size_bytes)
                && (&column.measure, column.form) == (&cell.column.measure, cell.column.form)
                && that.stack != origin.stack
                && without_options(&that.stack) == without_options(&origin.stack);
            let says_otherwise = other.side().is_some_and(|other| other != side);
            if is_variant && says_otherwise && !quoted.iter().any(|quoted| quoted.is(&other)) {
                return Some(format!(
                    "{} has {}, {} {}",
                    cell.column.title,
                    cell.told(),
                    column.title,
                    other.told()
                ));
            }
        }
    }
    None
}

/// A stack's name without what stands in parentheses.
fn without_options(stack: &str) -> String {
    let (mut depth, mut name) = (0_usize, String::new());
    for c in stack.chars() {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ if depth == 0 => name.push(c),
            _ => {}
        }
    }
    name
}

fn row_of<'a>(cell: &Quoted<'a>) -> &'a [Value] {
    let row = cell.section.rows.iter().find(|row| row.name == cell.row);
    row.map_or(&[], |row| row.values.as_slice())
}

/// A figure of a layer in user space in a text that does not say so.
fn leaves_out_user_space(
    study: &StudyResults,
    sentence: &Sentence,
    quoted: &[Quoted<'_>],
) -> Option<String> {
    let says = |other: &&Sentence| {
        other.place == sentence.place
            && ["user space", "user-space"].iter().any(|words| other.text.contains(words))
    };
    if study.sentences.iter().any(|other| says(&other)) {
        return None;
    }
    let is_in_user_space = |cell: &&Quoted<'_>| {
        cell.column.measure != "packets"
            && cell.value.origin.as_ref().is_some_and(|origin| {
                let part = study.parts.iter().find(|part| part.name == origin.part);
                part.is_some_and(|part| part.user_space.contains(&origin.stack))
            })
    };
    let cell = quoted.iter().find(is_in_user_space)?;
    Some(format!("{} is of a layer in user space", cell.told()))
}
