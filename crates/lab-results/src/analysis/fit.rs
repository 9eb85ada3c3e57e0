//! The studies' line over the logarithm of the size. (The model that says why is
//! in `cost`.)

/// A straight line y = intercept + slope·x.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Line {
    /// Value at x = 0.
    pub intercept: f64,
    /// Change of y for each unit of x.
    pub slope: f64,
}

/// Overhead against the natural logarithm of the size, unweighted: the model of
/// the FTPS study, whose printed `log₁₀` is a natural logarithm. `points` are
/// (size, per cent).
pub fn log_line(points: &[(f64, f64)]) -> Option<Line> {
    weighted(points.iter().map(|&(size, pct)| (size.ln(), pct, 1.0)))
}

/// The same line with errors proportional to the time, as they are: weights
/// 1/ratio². `points` are (size, time over the baseline's); the line is of the
/// overhead in per cent. `None` without two different sizes.
pub fn proportional_log_line(points: &[(f64, f64)]) -> Option<Line> {
    let usable = points.iter().filter(|(size, ratio)| *size > 0.0 && *ratio > 0.0);
    weighted(usable.map(|&(size, ratio)| (size.ln(), 100.0 * (ratio - 1.0), ratio.powi(-2))))
}

/// Weighted least squares over (x, y, weight).
fn weighted(points: impl Iterator<Item = (f64, f64, f64)> + Clone) -> Option<Line> {
    let weight: f64 = points.clone().map(|(_, _, w)| w).sum();
    let mean = |value: fn(f64, f64) -> f64| {
        points.clone().map(|(x, y, w)| w * value(x, y)).sum::<f64>() / weight
    };
    let (mean_x, mean_y) = (mean(|x, _| x), mean(|_, y| y));
    let (mut spread, mut together) = (0.0, 0.0);
    for (x, y, w) in points {
        spread += w * (x - mean_x).powi(2);
        together += w * (x - mean_x) * (y - mean_y);
    }
    if spread.is_nan() || spread <= 0.0 {
        return None;
    }
    let slope = together / spread;
    Some(Line { intercept: mean_y - slope * mean_x, slope })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exact_line_is_found_whatever_the_weights() {
        let ratio = |size: f64| 1.0 + (3.0 - 0.1 * size.ln()) / 100.0;
        let points = [1e3, 1e6, 256e6].map(|size| (size, ratio(size)));
        let line = proportional_log_line(&points).expect("three sizes");
        assert!((line.intercept - 3.0).abs() < 1e-9 && (line.slope + 0.1).abs() < 1e-9);
        let line = log_line(&points.map(|(size, r)| (size, 100.0 * (r - 1.0))));
        assert!(line.is_some_and(|line| (line.slope + 0.1).abs() < 1e-9));
    }

    #[test]
    fn one_size_is_no_line() {
        assert_eq!(log_line(&[(1e3, 1.0), (1e3, 2.0)]), None);
        assert_eq!(log_line(&[]), None);
    }
}
