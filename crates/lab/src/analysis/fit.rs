//! Two lines: the cost model t = a + b·size, and the studies' line over the
//! logarithm of the size.

/// A straight line y = intercept + slope·x.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Line {
    /// Value at x = 0.
    pub intercept: f64,
    /// Change of y for each unit of x.
    pub slope: f64,
}

/// Time against size, t = a + b·size, with weights 1/t² (METHOD 16): errors are
/// proportional, so a kilobyte counts as much as a gigabyte. `points` are
/// (octets, seconds); `None` without two different sizes.
pub fn cost_model(points: &[(f64, f64)]) -> Option<Line> {
    weighted(points.iter().filter(|(_, t)| *t > 0.0).map(|&(x, t)| (x, t, 1.0 / (t * t))))
}

/// Overhead against the natural logarithm of the size, unweighted: the model of
/// the FTPS study, whose printed `log₁₀` is a natural logarithm. `points` are
/// (size, per cent).
pub fn log_line(points: &[(f64, f64)]) -> Option<Line> {
    weighted(points.iter().map(|&(size, pct)| (size.ln(), pct, 1.0)))
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
        let points: Vec<(f64, f64)> =
            [1e3, 1e6, 256e6].iter().map(|&size| (size, 0.010 + size * 2e-9)).collect();
        let line = cost_model(&points).expect("three sizes");
        assert!((line.intercept - 0.010).abs() < 1e-9 && (line.slope - 2e-9).abs() < 1e-15);
    }

    #[test]
    fn one_size_is_no_line() {
        assert_eq!(cost_model(&[(1e3, 1.0), (1e3, 2.0)]), None);
        assert_eq!(cost_model(&[]), None);
    }
}
