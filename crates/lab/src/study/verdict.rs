//! What the paper printed beside what was measured, in a sentence.

use super::results::{ColumnResults, RowResults, Value};
use crate::analysis::measured::Estimate;
use crate::analysis::stats::median;
use crate::units::three;

/// The sentence of a section; none where nothing is both printed and measured.
pub(super) fn sentence(columns: &[ColumnResults], rows: &[RowResults]) -> Option<String> {
    let of = |signed: bool| -> Vec<Both<'_>> {
        let with = columns.iter().enumerate().filter(|(_, column)| column.signed == signed);
        with.flat_map(|(index, column)| {
            rows.iter().filter_map(move |row| Both::of(row, column, row.values[index]))
        })
        .collect()
    };
    let sentences: Vec<String> =
        [quantities(&of(false)), overheads(&of(true))].into_iter().flatten().collect();
    (!sentences.is_empty()).then(|| sentences.join(" "))
}

/// A figure that the paper has and we have.
struct Both<'a> {
    row: &'a RowResults,
    column: &'a ColumnResults,
    printed: f64,
    ours: Estimate,
}

impl<'a> Both<'a> {
    fn of(row: &'a RowResults, column: &'a ColumnResults, value: Value) -> Option<Self> {
        Some(Self { row, column, printed: value.published?, ours: value.measured? })
    }

    /// `1 KiB, FTPS download: 9 %, the paper 23 %`
    fn told(&self) -> String {
        let unit = &self.column.unit;
        let printed = Estimate::exact(self.printed);
        format!(
            "{}, {}: {}, the paper {}",
            self.row.label,
            self.column.title,
            self.ours.told(unit),
            printed.told(unit)
        )
    }
}

fn quantities(all: &[Both<'_>]) -> Option<String> {
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
            format!("Ours is {} of the printed figure: {}.", times(middle), farthest.told())
        }
        (1, Some(others)) => format!("{others}; the last is {} of the printed one.", times(middle)),
        (n, others) => {
            let which = match others {
                None => format!("Of {n} figures ours are"),
                Some(others) => format!("{others}; of the other {n} ours are"),
            };
            format!(
                "{which} {} to {} of the printed ones, in the middle {}.",
                times(lo),
                times(hi),
                times(middle)
            )
        }
    };
    let spread = hi / lo > 1.05 && ratios.len() > 2;
    let mut sentence = sentence + &order(all).unwrap_or_default();
    if spread {
        sentence += &format!(" Farthest from that: {}.", farthest.told());
    }
    Some(sentence)
}

/// `Of 8 figures 2 have the other sign`: those that no ratio is of.
fn left_out(all: &[Both<'_>]) -> Option<String> {
    let product = |both: &&Both<'_>| both.ours.value * both.printed;
    let opposite = all.iter().filter(|both| product(both) < 0.0).count();
    let nothing = all.iter().filter(|both| product(both) == 0.0).count();
    let told: Vec<String> = [(opposite, "have the other sign"), (nothing, "are 0 on one side")]
        .into_iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, what)| format!("{count} {what}"))
        .collect();
    (!told.is_empty()).then(|| format!("Of {} figures {}", all.len(), told.join(", ")))
}

fn times(ratio: f64) -> String {
    format!("{} ×", three(ratio))
}

/// Whether ours order rows and columns of one unit as the paper does, as far as our
/// intervals tell them apart.
fn order(all: &[Both<'_>]) -> Option<String> {
    let (mut alike, mut against, mut unsure) = (0, 0, 0);
    for (index, a) in all.iter().enumerate() {
        for b in &all[index + 1..] {
            let neighbours = a.column.id == b.column.id || a.row.label == b.row.label;
            if !neighbours || a.column.unit != b.column.unit || a.printed == b.printed {
                continue;
            }
            let ours = a.ours.value < b.ours.value;
            match (apart(a.ours, b.ours), ours == (a.printed < b.printed)) {
                (false, _) => unsure += 1,
                (true, true) => alike += 1,
                (true, false) => against += 1,
            }
        }
    }
    let pairs = alike + against + unsure;
    if pairs < 3 {
        return None;
    }
    if alike == pairs {
        return Some(" They are ordered alike.".to_owned());
    }
    let mut text = format!(" Of {pairs} pairs in a row or column {alike} are ordered alike");
    if against > 0 {
        text += &format!(", {against} the other way");
    }
    if unsure > 0 {
        text += &format!(", {unsure} cannot be told apart here");
    }
    Some(text + ".")
}

/// Whether two figures differ by more than their intervals.
fn apart(a: Estimate, b: Estimate) -> bool {
    let [a, b] = [a, b].map(|one| one.ci95.unwrap_or([one.value; 2]));
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
            let mut text = format!("Of {n} overheads {same} have the sign that the paper gives");
            if against > 0 {
                text += &format!(", {against} the other");
            }
            if unsure > 0 {
                text += &format!(", {unsure} cannot be told from 0");
            }
            let smaller = all.iter().filter(|both| off(both) < 0.0).count();
            text += &format!("; {smaller} are smaller here. ");
            text
        }
    };
    text += if all.len() == 1 { "" } else { "Farthest apart: " };
    Some(text + &farthest.told() + ".")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn column(signed: bool) -> ColumnResults {
        let unit = if signed { "%" } else { "s" }.to_owned();
        ColumnResults { id: "a".into(), title: "A".into(), unit, signed, published: true }
    }

    fn rows(values: &[(f64, f64, f64)]) -> Vec<RowResults> {
        let row = |(index, &(printed, value, half)): (usize, &(f64, f64, f64))| RowResults {
            label: format!("r{index}"),
            x: None,
            values: vec![Value {
                published: Some(printed),
                measured: Some(Estimate {
                    value,
                    ci95: Some([value - half, value + half]),
                    n: None,
                }),
            }],
        };
        values.iter().enumerate().map(row).collect()
    }

    #[test]
    fn quantities_are_compared_by_ratio_and_order() {
        let said =
            sentence(&[column(false)], &rows(&[(1.0, 0.5, 0.1), (2.0, 1.0, 0.1), (3.0, 0.6, 0.1)]));
        assert_eq!(
            said.as_deref(),
            Some(
                "Of 3 figures ours are 0.2 × to 0.5 × of the printed ones, in the middle 0.5 ×. Of 3 pairs in a row \
                 or column 1 are ordered alike, 1 the other way, 1 cannot be told apart here. Farthest from that: r2, \
                 A: 600 [500, 700] ms, the paper 3 s."
            )
        );
    }

    #[test]
    fn what_no_ratio_is_of_is_counted() {
        let said = |printed: &[(f64, f64, f64)]| sentence(&[column(false)], &rows(printed));
        assert_eq!(
            said(&[(1.0, -2.0, 0.1), (2.0, 4.0, 0.1), (3.0, 0.0, 0.1)]).as_deref(),
            Some(
                "Of 3 figures 1 have the other sign, 1 are 0 on one side; the last is 2 × of the printed one. Of 3 \
                 pairs in a row or column 2 are ordered alike, 1 the other way."
            )
        );
        assert_eq!(
            said(&[(2.0, 1.0, 0.1)]).as_deref(),
            Some("Ours is 0.5 × of the printed figure: r0, A: 1.00 [0.90, 1.10] s, the paper 2 s.")
        );
    }

    #[test]
    fn overheads_are_compared_by_sign_and_difference() {
        let said = sentence(
            &[column(true)],
            &rows(&[(10.0, 5.0, 1.0), (4.0, -2.0, 1.0), (3.0, 1.0, 2.0)]),
        );
        assert_eq!(
            said.as_deref(),
            Some(
                "Of 3 overheads 1 have the sign that the paper gives, 1 the other, 1 cannot be told from 0; 3 are \
                 smaller here. Farthest apart: r1, A: -2.0 [-3.0, -1.0] %, the paper 4 %."
            )
        );
    }

    #[test]
    fn nothing_in_common_is_no_sentence() {
        let mut rows = rows(&[(1.0, 1.0, 0.0)]);
        rows[0].values[0].published = None;
        assert_eq!(sentence(&[column(false)], &rows), None);
    }
}
