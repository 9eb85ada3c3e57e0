//! Compares measured figures with the paper's, in a sentence.

use headroom_lab_results::analysis::measured::Estimate;
use headroom_lab_results::analysis::stats::median;

use super::section::PublishedSource;
use super::section_results::{ColumnResults, Lack, RowResults, SectionResults, Value};
use crate::units::three;

/// The sentence of a section; none where nothing is both printed and measured. Figures of
/// few runs, and of a link that did not shape them, are counted and not compared.
pub(super) fn sentence(section: &SectionResults) -> Option<String> {
    let printed = match section.source {
        PublishedSource::Paper => "the paper",
        PublishedSource::Formula => "the formula",
    };
    let all: Vec<Both<'_>> = section
        .columns
        .iter()
        .enumerate()
        .flat_map(|(index, column)| {
            let both = move |row| Both::of(row, column, index, printed);
            section.rows.iter().filter_map(both)
        })
        .collect();
    if all.is_empty() {
        return None;
    }
    let (usable, left): (Vec<_>, Vec<_>) = all.into_iter().partition(Both::supports_comparison);
    let (signed, absolute): (Vec<_>, Vec<_>) =
        usable.into_iter().partition(|both| both.column.signed);
    // a ratio of times and one of packets have no median in common
    let mut of_units: Vec<(&str, Vec<Both<'_>>)> = Vec::new();
    for both in absolute {
        let unit = both.column.unit.as_str();
        match of_units.iter_mut().find(|(known, _)| *known == unit) {
            Some((_, all)) => all.push(both),
            None => of_units.push((unit, vec![both])),
        }
    }
    let are_several = of_units.len() > 1;
    let of_units = of_units.iter().filter_map(|(unit, all)| {
        let what = match *unit {
            _ if !are_several => "values".to_owned(),
            "" => "numbers".to_owned(),
            unit => format!("values in {unit}"),
        };
        quantities(all, &what)
    });
    let sentences: Vec<String> =
        of_units.chain(overheads(&signed)).chain(not_compared(&left)).collect();
    Some(sentences.join(" "))
}

/// Why figures are not compared, and how many.
fn not_compared(left: &[Both<'_>]) -> Option<String> {
    let lacking = |lack| left.iter().filter(move |both| both.value.lack(both.column) == Some(lack));
    let few: Vec<usize> = lacking(Lack::Runs).filter_map(|both| both.value.measured?.n).collect();
    let mut whys = Vec::new();
    if let (Some(least), Some(most)) = (few.iter().min(), few.iter().max()) {
        let runs = if least == most { format!("{least}") } else { format!("{least} to {most}") };
        let rest = verb(few.len(), "rests", "rest");
        whys.push(format!("{} {rest} on {runs} runs, too few for a comparison", few.len()));
    }
    match lacking(Lack::Shaping).count() {
        0 => {}
        1 => whys.push("1 is a time too short for the link to shape".to_owned()),
        not_shaped => whys.push(format!("{not_shaped} are times too short for the link to shape")),
    }
    match lacking(Lack::Interval).count() {
        0 => {}
        n => whys.push(format!("{n} {} no interval", verb(n, "has", "have"))),
    }
    (!whys.is_empty()).then(|| format!("Not compared: {}.", whys.join("; ")))
}

fn verb(count: usize, one: &'static str, several: &'static str) -> &'static str {
    if count == 1 { one } else { several }
}

/// A figure that the paper has and we have.
struct Both<'a> {
    row: &'a RowResults,
    column: &'a ColumnResults,
    value: &'a Value,
    printed: f64,
    printed_by: &'static str,
    ours: Estimate,
}

impl<'a> Both<'a> {
    fn of(
        row: &'a RowResults,
        column: &'a ColumnResults,
        index: usize,
        printed_by: &'static str,
    ) -> Option<Self> {
        let value = &row.values[index];
        let (printed, ours) = (value.published?, value.measured?);
        Some(Self { row, column, value, printed, printed_by, ours })
    }

    fn supports_comparison(&self) -> bool {
        self.value.supports_comparison(self.column)
    }

    /// `1 KiB, FTPS download: 9 %, the paper 23 %`
    fn told(&self) -> String {
        let unit = &self.column.unit;
        let printed = Estimate::exact(self.printed);
        format!(
            "{}, {}: {}, {} {}",
            self.row.label,
            self.column.heading(),
            self.ours.told(unit),
            self.printed_by,
            printed.told(unit)
        )
    }
}

/// The ratios of figures of one unit; `what`: what these are called.
fn quantities(all: &[Both<'_>], what: &str) -> Option<String> {
    let ratio = |both: &Both<'_>| both.ours.value / both.printed;
    let usable: Vec<&Both<'_>> =
        all.iter().filter(|both| ratio(both).is_finite() && ratio(both) > 0.0).collect();
    let mut ratios: Vec<f64> = usable.iter().map(|both| ratio(both)).collect();
    ratios.sort_by(f64::total_cmp);
    let (lo, hi, middle) = (*ratios.first()?, *ratios.last()?, median(&ratios)?);
    let farthest = usable
        .iter()
        .max_by(|a, b| (ratio(a) / middle).ln().abs().total_cmp(&(ratio(b) / middle).ln().abs()))?;
    let sentence = match (ratios.len(), left_out(all)) {
        (1, None) => {
            format!("Ours is {} the printed figure: {}.", times(middle), farthest.told())
        }
        (1, Some(others)) => format!("{others}; the other is {} the printed one.", times(middle)),
        (n, others) => {
            let which = match others {
                None => format!("{n} {what}"),
                Some(others) => format!("{others}; the other {n} {what}"),
            };
            let by = all.first().map_or("the paper", |both| both.printed_by);
            format!(
                "{which}, ratio to {by} {}–{} (median {}).",
                three(lo),
                three(hi),
                three(middle)
            )
        }
    };
    let spread = hi / lo > 1.05 && ratios.len() > 2;
    let mut sentence = sentence;
    if ordered_alike(all) {
        sentence += " The order is the same.";
    }
    if spread {
        sentence += &format!(" Largest deviation: {}.", farthest.told());
    }
    Some(sentence)
}

/// `Of 8 figures 2 have the opposite sign`: those that no ratio is of.
fn left_out(all: &[Both<'_>]) -> Option<String> {
    let product = |both: &&Both<'_>| both.ours.value * both.printed;
    let opposite = all.iter().filter(|both| product(both) < 0.0).count();
    let nothing = all.iter().filter(|both| product(both) == 0.0).count();
    let told: Vec<String> = [
        (opposite, verb(opposite, "has the opposite sign", "have the opposite sign")),
        (nothing, verb(nothing, "is 0 on one side", "are 0 on one side")),
    ]
    .into_iter()
    .filter(|(count, _)| *count > 0)
    .map(|(count, what)| format!("{count} {what}"))
    .collect();
    (!told.is_empty()).then(|| format!("Of {} figures {}", all.len(), told.join(", ")))
}

fn times(ratio: f64) -> String {
    format!("{} ×", three(ratio))
}

/// Whether ours order rows and columns of one unit as the paper does, every pair of them.
fn ordered_alike(all: &[Both<'_>]) -> bool {
    let mut pairs = 0;
    for (index, a) in all.iter().enumerate() {
        for b in &all[index + 1..] {
            let neighbours = a.column.id == b.column.id || a.row.name == b.row.name;
            if !neighbours || a.column.unit != b.column.unit || a.printed == b.printed {
                continue;
            }
            let alike = (a.ours.value < b.ours.value) == (a.printed < b.printed);
            if !alike || !apart(a.ours, b.ours) {
                return false;
            }
            pairs += 1;
        }
    }
    pairs >= 3
}

/// Whether two figures differ by more than their intervals.
fn apart(a: Estimate, b: Estimate) -> bool {
    let [a, b] = [a.ends(), b.ends()];
    a[1] < b[0] || b[1] < a[0]
}

fn overheads(all: &[Both<'_>]) -> Option<String> {
    let clear = |both: &Both<'_>| both.ours.ci95.is_none_or(|[lo, hi]| lo > 0.0 || hi < 0.0);
    let same = all
        .iter()
        .filter(|both| clear(both) && both.ours.value.signum() == both.printed.signum())
        .count();
    let against = all
        .iter()
        .filter(|both| clear(both) && both.ours.value.signum() != both.printed.signum())
        .count();
    let unsure = all.len() - same - against;
    let off = |both: &Both<'_>| both.ours.value - both.printed;
    let farthest = all.iter().max_by(|a, b| off(a).abs().total_cmp(&off(b).abs()))?;
    let mut text = match all.len() {
        1 => String::new(),
        n => {
            let mut text = format!("Of {n} overheads {same} have the paper's sign");
            if against > 0 {
                text += &format!(", {against} the opposite");
            }
            if unsure > 0 {
                text += &format!(", {unsure} with an interval that includes 0");
            }
            let smaller = all.iter().filter(|both| both.ours.ends()[1] < both.printed).count();
            let are = verb(smaller, "is", "are");
            text += &format!("; {smaller} {are} significantly smaller here. ");
            text
        }
    };
    text += if all.len() == 1 { "" } else { "Largest difference: " };
    Some(text + &farthest.told() + ".")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::study::section_results::testing;

    /// A section of one column, each row printed, measured, half of the interval and runs.
    fn section(signed: bool, values: &[(f64, f64, f64, usize)]) -> SectionResults {
        let names: Vec<String> = (0..values.len()).map(|index| format!("r{index}")).collect();
        let ours: Vec<_> = values.iter().map(|&(_, value, half, n)| [(value, half, n)]).collect();
        let rows: Vec<_> =
            names.iter().zip(&ours).map(|(name, ours)| (name.as_str(), &ours[..])).collect();
        let mut section = testing::section("s", &["a"], &rows);
        for (row, (printed, ..)) in section.rows.iter_mut().zip(values) {
            row.values[0].published = Some(*printed);
        }
        section.columns[0].signed = signed;
        section.columns[0].unit = if signed { "%" } else { "s" }.to_owned();
        section
    }

    #[test]
    fn quantities_are_compared_by_ratio() {
        let said = sentence(&section(
            false,
            &[(1.0, 0.5, 0.1, 5), (2.0, 1.0, 0.1, 5), (3.0, 0.6, 0.1, 5)],
        ));
        assert_eq!(
            said.as_deref(),
            Some(
                "3 values, ratio to the paper 0.2–0.5 (median 0.5). Largest deviation: r2, A: 600 [500, 700] ms, the \
                 paper 3 s."
            )
        );
    }

    #[test]
    fn times_and_numbers_of_packets_are_not_pooled() {
        let mut section = testing::section(
            "s",
            &["a", "b"],
            &[("x", &[(1.0, 0.1, 5), (40.0, 1.0, 5)]), ("y", &[(2.0, 0.1, 5), (80.0, 1.0, 5)])],
        );
        section.columns[1].unit = String::new();
        for (row, printed) in section.rows.iter_mut().zip([[2.0, 40.0], [4.0, 80.0]]) {
            for (value, printed) in row.values.iter_mut().zip(printed) {
                value.published = Some(printed);
            }
        }
        assert_eq!(
            sentence(&section).as_deref(),
            Some(
                "2 values in s, ratio to the paper 0.5–0.5 (median 0.5). 2 numbers, ratio to the paper 1–1 (median 1)."
            )
        );
    }

    #[test]
    fn what_no_ratio_is_of_is_counted() {
        let said = |printed: &[(f64, f64, f64, usize)]| sentence(&section(false, printed));
        assert_eq!(
            said(&[(1.0, -2.0, 0.1, 5), (2.0, 4.0, 0.1, 5), (3.0, 0.0, 0.1, 5)]).as_deref(),
            Some(
                "Of 3 figures 1 has the opposite sign, 1 is 0 on one side; the other is 2 × the printed one."
            )
        );
        assert_eq!(
            said(&[(2.0, 1.0, 0.1, 5)]).as_deref(),
            Some("Ours is 0.5 × the printed figure: r0, A: 1.00 [0.90, 1.10] s, the paper 2 s.")
        );
    }

    #[test]
    fn overheads_are_compared_by_sign_and_difference() {
        let said = sentence(&section(
            true,
            &[(10.0, 5.0, 1.0, 5), (4.0, -2.0, 1.0, 5), (3.0, 1.0, 2.0, 5)],
        ));
        assert_eq!(
            said.as_deref(),
            Some(
                "Of 3 overheads 1 have the paper's sign, 1 the opposite, 1 with an interval that \
                 includes 0; 2 are significantly smaller here. Largest difference: r1, A: -2.0 [-3.0, -1.0] %, the paper 4 %."
            )
        );
    }

    #[test]
    fn few_runs_and_unshaped_times_support_no_verdict() {
        let mut few = section(false, &[(1.0, 0.5, 0.1, 3), (2.0, 1.0, 0.1, 4), (3.0, 3.0, 0.1, 5)]);
        assert_eq!(
            sentence(&few).as_deref(),
            Some(
                "Ours is 1 × the printed figure: r2, A: 3.00 [2.90, 3.10] s, the paper 3 s. Not compared: 2 rest on 3 \
                 to 4 runs, too few for a comparison."
            )
        );
        few.rows[2].values[0].not_shaped = true;
        assert_eq!(
            sentence(&few).as_deref(),
            Some(
                "Not compared: 2 rest on 3 to 4 runs, too few for a comparison; 1 is a time too short for the link to \
                 shape."
            )
        );
    }

    #[test]
    fn nothing_in_common_is_no_sentence() {
        let mut section = section(false, &[(1.0, 1.0, 0.0, 5)]);
        section.rows[0].values[0].published = None;
        assert_eq!(sentence(&section), None);
    }
}
