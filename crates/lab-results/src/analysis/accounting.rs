//! Sums checks of counted packets over all cells.

use std::collections::BTreeMap;

use crate::schema::{Accounting, Sample, Wire};

/// None where nothing was counted. A capture that lost a frame, or went on disagreeing
/// with the interface, has ended its run: what is here passed.
pub fn accounting(samples: &[Sample]) -> Option<Accounting> {
    let cells: BTreeMap<(&str, &str, &str, u64), Wire> = samples
        .iter()
        .filter_map(|sample| {
            let cell = (&*sample.link, &*sample.stack, &*sample.workload, sample.size_bytes);
            Some((cell, sample.wire?))
        })
        .collect();
    let captures = cells.values().map(|wire| wire.captures).sum();
    let recounted = cells.values().map(|wire| wire.recounted).sum();
    let all = Accounting { captures, capture_drops: 0, counters_agree: true, recounted };
    (captures > 0).then_some(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::summary::tests::sample;

    #[test]
    fn each_cell_counts_once() {
        let mut samples = [sample("ftp", 1, 1.0), sample("ftp", 2, 1.0), sample("ftps", 1, 1.0)];
        assert_eq!(accounting(&samples), None);
        for sample in &mut samples {
            sample.wire = Some(Wire { captures: 7, recounted: 1, ..Wire::default() });
        }
        let all = accounting(&samples).map(|all| (all.captures, all.recounted));
        assert_eq!(all, Some((14, 2)));
    }
}
