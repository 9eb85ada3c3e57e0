//! Tests predictions: each link is predicted, with its intervals, from the other links alone.

use serde::Serialize;

use super::super::stats;
use super::basis::Basis;
use super::calibration::{Calibration, leave_out};

/// One cell, predicted from other links.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    /// The link.
    pub link: String,
    /// Whether it loses packets.
    pub lossy: bool,
    /// The stack.
    pub stack: String,
    /// Files of a session.
    pub files: u32,
    /// Bytes of each.
    pub bytes: u64,
    /// Median of the sessions, seconds.
    pub measured_s: f64,
    /// Seconds.
    pub predicted_s: f64,
    /// (predicted − measured) / measured, × 100.
    pub error_pct: f64,
    /// 95 % prediction interval of a sample; none: too few links.
    pub interval_s: Option<[f64; 2]>,
    /// Measured samples.
    pub samples: usize,
    /// Samples inside the interval.
    pub inside: usize,
}

/// Predicts every link with a rate from the others.
pub fn rows(basis: &Basis) -> Vec<Row> {
    let mut rows = Vec::new();
    for lossy in [false, true] {
        for link in basis.shaped_links(lossy) {
            let others = basis.without_link(link);
            let calibration = Calibration::of(&others);
            for left in leave_out(basis, link) {
                let (stack, cell) = (left.cell.stack, &left.cell);
                let interval_s =
                    calibration.interval_s(&others, stack, &left.predicted, lossy, cell.transfers);
                let inside = |seconds: &&f64| {
                    interval_s.is_some_and(|[lo, hi]| (lo..=hi).contains(*seconds))
                };
                let (measured_s, predicted_s) =
                    (cell.median_s(), left.predicted.arithmetic.total_s);
                rows.push(Row {
                    link: basis.links[link].name.clone(),
                    lossy,
                    stack: basis.stacks[stack].name.clone(),
                    files: cell.files,
                    bytes: cell.bytes,
                    measured_s,
                    predicted_s,
                    error_pct: 100.0 * (predicted_s / measured_s - 1.0),
                    interval_s,
                    samples: cell.session_s.len(),
                    inside: cell.session_s.iter().filter(inside).count(),
                });
            }
        }
    }
    rows
}

/// Errors and coverage of some rows.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Score {
    /// Rows.
    pub cells: usize,
    /// Median of the absolute errors, per cent.
    pub median_pct: f64,
    /// The largest absolute error, per cent.
    pub largest_pct: f64,
    /// Measured samples that had an interval.
    pub samples: usize,
    /// Of these, the share inside, per cent; none without samples.
    pub coverage_pct: Option<f64>,
}

/// Sums up rows; none of none.
pub fn score<'a>(rows: impl Iterator<Item = &'a Row>) -> Option<Score> {
    let rows: Vec<&Row> = rows.collect();
    let errors: Vec<f64> = rows.iter().map(|row| row.error_pct.abs()).collect();
    let with = || rows.iter().filter(|row| row.interval_s.is_some());
    let samples: usize = with().map(|row| row.samples).sum();
    let inside: usize = with().map(|row| row.inside).sum();
    Some(Score {
        cells: rows.len(),
        median_pct: stats::median(&errors)?,
        largest_pct: errors.iter().copied().fold(0.0, f64::max),
        samples,
        coverage_pct: (samples > 0).then(|| 100.0 * inside as f64 / samples as f64),
    })
}

#[cfg(test)]
mod tests {
    use super::super::tests::basis;
    use super::*;

    #[test]
    fn what_the_model_made_is_predicted_within_its_noise() {
        let rows = rows(&basis());
        assert_eq!(rows.len(), 7 * 6, "seven links with a rate, six cells each");
        let clear = score(rows.iter().filter(|row| !row.lossy)).expect("rows");
        assert!(clear.median_pct < 1.0 && clear.largest_pct < 3.0, "{clear:?}");
        assert!(clear.coverage_pct.expect("samples") > 90.0, "{clear:?}");
        let lossy = score(rows.iter().filter(|row| row.lossy)).expect("rows");
        assert_eq!((lossy.samples, lossy.coverage_pct), (0, None), "two links make no interval");
        assert_eq!(score([].into_iter()), None);
    }
}
