//! Samples far from the others of their cell: flagged, never dropped.
//!
//! A sample is an outlier where the logarithm of its time lies further from the
//! cell's median than 3.5 robust standard deviations: 1.4826 × the median
//! absolute deviation, which is the standard deviation of normal noise (Iglewicz
//! and Hoaglin 1993). Where a link makes all times alike that deviation is next
//! to nothing; differences below 1.75 % are never called outliers.

use std::collections::BTreeMap;

use super::stats;
use crate::schema::Sample;

/// Below five samples nobody can say which is the odd one.
const MIN_SAMPLES: usize = 5;
const LIMIT: f64 = 3.5;
const SIGMA_PER_MAD: f64 = 1.4826;
/// Least standard deviation of a logarithm.
const FLOOR: f64 = 0.005;

/// Sets `outlier` of every sample, by its time on the transfer clock.
pub fn flag(samples: &mut [Sample]) {
    let mut cells: BTreeMap<(String, String, String, u64), Vec<usize>> = BTreeMap::new();
    for (index, sample) in samples.iter_mut().enumerate() {
        sample.outlier = false;
        if sample.ok && sample.seconds.is_some_and(|seconds| seconds > 0.0) {
            let key = (
                sample.link.clone(),
                sample.stack.clone(),
                sample.workload.clone(),
                sample.size_bytes,
            );
            cells.entry(key).or_default().push(index);
        }
    }
    for cell in cells.into_values().filter(|cell| cell.len() >= MIN_SAMPLES) {
        let logs: Vec<f64> =
            cell.iter().map(|&i| samples[i].seconds.unwrap_or(f64::NAN).ln()).collect();
        let Some(median) = stats::median(&logs) else { continue };
        let distances: Vec<f64> = logs.iter().map(|log| (log - median).abs()).collect();
        let sigma = stats::median(&distances).map_or(FLOOR, |mad| (SIGMA_PER_MAD * mad).max(FLOOR));
        for (index, distance) in cell.into_iter().zip(distances) {
            samples[index].outlier = distance > LIMIT * sigma;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::summary::tests::sample;

    fn flagged(times: &[f64]) -> Vec<bool> {
        let mut samples: Vec<Sample> =
            (0..).zip(times).map(|(block, &time)| sample("ftp", block, time)).collect();
        flag(&mut samples);
        samples.iter().map(|sample| sample.outlier).collect()
    }

    #[test]
    fn the_odd_one_is_flagged_and_only_that() {
        assert_eq!(
            flagged(&[1.0, 1.02, 0.98, 1.01, 3.0, 0.99]),
            [false, false, false, false, true, false]
        );
        assert_eq!(flagged(&[1.0, 1.02, 0.98, 3.0]), [false; 4], "four are too few to tell");
        assert_eq!(flagged(&[1.0, 2.0, 3.0, 4.0, 5.0]), [false; 5], "wide is not odd");
    }

    #[test]
    fn times_all_alike_have_a_floor() {
        let alike = [1.0, 1.0, 1.0, 1.0, 1.0, 1.01];
        assert_eq!(flagged(&alike), [false; 6]);
        let mut odd = alike;
        odd[5] = 1.02;
        assert_eq!(flagged(&odd), [false, false, false, false, false, true]);
    }
}
