//! Converts nanoseconds of captures to seconds of results.

/// Returns the longest time between two packets, seconds.
pub(crate) fn longest_gap(times_ns: impl Iterator<Item = u64>) -> f64 {
    let times: Vec<u64> = times_ns.collect();
    let gaps = times.windows(2).map(|pair| pair[1].saturating_sub(pair[0]));
    ns_to_s(gaps.max().unwrap_or(0))
}

/// Converts nanoseconds to seconds.
pub(crate) fn ns_to_s(ns: u64) -> f64 {
    ns as f64 / 1e9
}
