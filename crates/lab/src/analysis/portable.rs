//! Portable costs: the part of the answer that a user carries to another link.

use std::collections::BTreeMap;

use super::fit::{self, Line};
use super::summary::counted;
use crate::results::{Portable, Sample, StackRecord};

/// Portable costs of each stack, from its downloads on the link named `link`;
/// `unshaped` says whether that link lets a stack run as fast as it can.
pub fn portable(
    samples: &[Sample],
    stacks: &[StackRecord],
    link: &str,
    unshaped: bool,
) -> Vec<Portable> {
    stacks
        .iter()
        .map(|stack| {
            let mut sizes: BTreeMap<u64, Vec<&Sample>> = BTreeMap::new();
            let of_stack = |s: &&Sample| s.link == link && s.stack == stack.name;
            for sample in samples.iter().filter(of_stack).filter(|s| s.workload == "download") {
                sizes.entry(sample.size_bytes).or_default().push(sample);
            }
            // size by size, as in the summary
            let downloads: Vec<&Sample> = sizes.values().flat_map(|cell| counted(cell)).collect();
            one(stack, &downloads, unshaped)
        })
        .collect()
}

/// The largest file must take this share of the fixed cost beyond it, or what a
/// gigabyte costs is lost in the noise of logins.
const TELLING_SHARE: f64 = 0.5;

fn one(stack: &StackRecord, downloads: &[&Sample], unshaped: bool) -> Portable {
    let line = |value: fn(&Sample) -> Option<f64>| -> Option<Line> {
        let points: Vec<(f64, f64)> =
            downloads.iter().filter_map(|s| Some((s.size_bytes as f64, value(s)?))).collect();
        fit::cost_model(&points)
    };
    let time = line(|s| s.session_seconds);
    let cpu = line(|s| s.cpu_seconds.map(|cpu| cpu.client + cpu.server));
    let largest = downloads.iter().map(|s| s.size_bytes).max().unwrap_or(0) as f64;
    let tells = |line: &Line| line.slope * largest > TELLING_SHARE * line.intercept.max(0.0);
    let seconds_per_gb = time.filter(|line| unshaped && tells(line)).map(|line| line.slope * 1e9);
    let extra = extra_bytes_per_mb(downloads);
    Portable {
        stack: stack.name.clone(),
        baseline: stack.baseline.clone(),
        round_trips: downloads
            .iter()
            .min_by_key(|s| s.size_bytes)
            .and_then(|smallest| smallest.wire?.round_trips),
        extra_bytes_per_mb: extra,
        cpu_seconds_per_gb: cpu.filter(tells).map(|line| line.slope * 1e9),
        fixed_s: time.map(|line| line.intercept.max(0.0)),
        seconds_per_gb,
        work_s: None,
        window_bytes: None,
        fill_bps: seconds_per_gb.map(|s| 8e9 / s * (1.0 + extra.unwrap_or(0.0) / 1e6)),
    }
}

/// Octets on the wire beyond the file's, per million of the file's, in the
/// file's direction: a link is full duplex, and how often a receiver
/// acknowledges is chance. Between the smallest and the largest file, so that
/// set-up does not count.
fn extra_bytes_per_mb(downloads: &[&Sample]) -> Option<f64> {
    let counted = || downloads.iter().filter(|s| s.wire.is_some());
    let small = counted().min_by_key(|s| s.size_bytes)?;
    let large = counted().max_by_key(|s| s.size_bytes)?;
    let octets =
        large.size_bytes.checked_sub(small.size_bytes).filter(|&octets| octets > 0)? as f64;
    let wire = large.wire?.file_direction_bytes as f64 - small.wire?.file_direction_bytes as f64;
    Some((wire - octets) / octets * 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::summary::tests::sample;
    use crate::results::Wire;

    #[test]
    fn costs_are_slopes_and_set_up_is_not_among_them() {
        let size = 64 << 20;
        let mut samples = vec![sample("ftps", 0, 0.01), sample("ftps", 1, 0.21)];
        samples[1].size_bytes = size;
        let wire = |bytes, round_trips| {
            Some(Wire {
                bytes,
                file_direction_bytes: bytes,
                packets: 1,
                round_trips: Some(round_trips),
                connections: 2,
                handshakes: 2,
                hello_retries: 0,
            })
        };
        samples[0].wire = wire(11_000 + 1024, 9);
        samples[1].wire = wire(11_000 + size + (size - 1024) / 20, 10);
        let stacks = [StackRecord { name: "ftps".into(), baseline: Some("ftp".into()) }];
        let portable = portable(&samples, &stacks, "unshaped", true);
        assert_eq!(portable[0].round_trips, Some(9));
        assert!((portable[0].extra_bytes_per_mb.expect("two sizes") - 50_000.0).abs() < 1.0);
        // session times are 0.02 and 0.42 s
        let per_gb = portable[0].seconds_per_gb.expect("two sizes");
        assert!((per_gb - 0.4 / (size - 1024) as f64 * 1e9).abs() < 1e-6, "{per_gb}");
        assert!((portable[0].fill_bps.expect("fills") - 8e9 / per_gb * 1.05).abs() < 1e3);
    }

    #[test]
    fn a_shaped_link_says_nothing_of_the_machine() {
        let stacks = [StackRecord { name: "ftp".into(), baseline: None }];
        let portable = portable(&[sample("ftp", 0, 1.0)], &stacks, "unshaped", false);
        assert_eq!((portable[0].fill_bps, portable[0].seconds_per_gb), (None, None));
    }
}
