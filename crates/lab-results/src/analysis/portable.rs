//! Portable costs: the part of the answer that a user carries to another link.

use std::collections::BTreeMap;

use super::cost::CostModel;
use super::models;
use super::slow_start::Segment;
use super::summary::counted;
use crate::schema::{LinkReport, Portable, Sample, StackRecord};

/// Inputs of portable costs, other than samples.
#[derive(Debug, Clone, Copy)]
pub struct Context<'a> {
    /// The plan's stacks with their baselines.
    pub stacks: &'a [StackRecord],
    /// The main link.
    pub link: &'a LinkReport,
    /// A full packet.
    pub segment: Segment,
    /// Bytes that a stack may have in flight beside TCP's own window.
    pub windows: &'a BTreeMap<String, u64>,
}

/// Portable costs of each stack, from its downloads on the main link.
pub fn portable(samples: &[Sample], context: Context<'_>) -> Vec<Portable> {
    context
        .stacks
        .iter()
        .map(|stack| {
            let mut sizes: BTreeMap<u64, Vec<&Sample>> = BTreeMap::new();
            let of_stack = |s: &&Sample| s.link == context.link.name && s.stack == stack.name;
            for sample in samples.iter().filter(of_stack).filter(|s| s.workload == "download") {
                sizes.entry(sample.size_bytes).or_default().push(sample);
            }
            // size by size, as in the summary
            let downloads: Vec<&Sample> = sizes.values().flat_map(|cell| counted(cell)).collect();
            one(stack, &downloads, context)
        })
        .collect()
}

/// The largest file must take this share of the fixed cost beyond it, or what a
/// gigabyte costs is lost in the noise of logins.
const TELLING_SHARE: f64 = 0.5;

fn one(stack: &StackRecord, downloads: &[&Sample], context: Context<'_>) -> Portable {
    let link = context.link;
    let unshaped = link.rate_bps.is_none() && link.delay_ms == 0.0 && link.loss_pct == 0.0;
    let path = models::path(link, "download", context.segment);
    let cells = models::cells(downloads, |s| s.session_seconds, path.as_ref());
    // what a session takes by a trace depends on when it begins
    let time = CostModel::fit(&cells).filter(|_| !link.follows_trace());
    let cpu = |s: &Sample| s.cpu_seconds.map(|cpu| cpu.both_sides());
    let cpu = CostModel::fit(&models::cells(downloads, cpu, None));
    let largest = downloads.iter().map(|s| s.size_bytes).max().unwrap_or(0) as f64;
    let tells = |model: &CostModel| {
        model.seconds_per_byte * largest > TELLING_SHARE * model.fixed_s.max(0.0)
    };
    let per_gb = |model: &CostModel| model.seconds_per_byte * 1e9;
    let seconds_per_gb = time.as_ref().filter(|model| unshaped && tells(model)).map(per_gb);
    let extra = extra_bytes_per_mb(downloads);
    let line = extra.map(|extra| line_bytes_per_byte(extra, context.segment));
    let smallest = downloads.iter().min_by_key(|s| s.size_bytes).and_then(|smallest| smallest.wire);
    let round_trips = smallest.and_then(|wire| wire.round_trips);
    let round_trips_after = smallest.and_then(|wire| wire.round_trips_after);
    let fixed_s = time.as_ref().map(|model| model.fixed_s.max(0.0));
    let rtt_s = link.rtt_us.map(|us| us / 1e6);
    Portable {
        stack: stack.name.clone(),
        baseline: stack.baseline.clone(),
        round_trips,
        round_trips_after,
        extra_bytes_per_mb: extra,
        line_bytes_per_byte: line,
        cpu_seconds_per_gb: cpu.as_ref().filter(|model| tells(model)).map(per_gb),
        fixed_s,
        work_s: fixed_s.zip(round_trips).zip(rtt_s).map(|((fixed, trips), rtt)| {
            (fixed - f64::from(trips + round_trips_after.unwrap_or(0)) * rtt).max(0.0)
        }),
        seconds_per_gb,
        fill_bps: seconds_per_gb.map(|s| 8e9 / s * line.unwrap_or(1.0)),
        window_bytes: context.windows.get(&stack.name).copied(),
    }
}

/// Bytes that the link carries for each byte of file: captures do not show
/// the framing that links count.
fn line_bytes_per_byte(extra_bytes_per_mb: f64, segment: Segment) -> f64 {
    /// Preamble, start of frame, checksum, gap between frames (IEEE 802.3).
    const FRAMING: f64 = 24.0;
    1.0 + extra_bytes_per_mb / 1e6 + FRAMING / segment.payload_bytes
}

/// Bytes on the wire beyond the file's, per million of the file's, in the
/// file's direction: a link is full duplex, and how often a receiver
/// acknowledges is chance. Between the smallest and the largest file, so that
/// set-up does not count.
fn extra_bytes_per_mb(downloads: &[&Sample]) -> Option<f64> {
    let counted = || downloads.iter().filter(|s| s.wire.is_some());
    let small = counted().min_by_key(|s| s.size_bytes)?;
    let large = counted().max_by_key(|s| s.size_bytes)?;
    let bytes = large.size_bytes.checked_sub(small.size_bytes).filter(|&bytes| bytes > 0)? as f64;
    let wire = large.wire?.file_direction_bytes as f64 - small.wire?.file_direction_bytes as f64;
    Some((wire - bytes) / bytes * 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::models::tests::{SEGMENT, traced, unshaped};
    use crate::analysis::summary::tests::sample;
    use crate::schema::Wire;

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
                ..Wire::default()
            })
        };
        samples[0].wire = wire(11_000 + 1024, 9);
        samples[1].wire = wire(11_000 + size + (size - 1024) / 20, 10);
        let stacks = [StackRecord { name: "ftps".into(), baseline: Some("ftp".into()) }];
        let portable = found(&samples, &stacks, &unshaped());
        assert_eq!(portable.round_trips, Some(9));
        assert!((portable.extra_bytes_per_mb.expect("two sizes") - 50_000.0).abs() < 1.0);
        // session times are 0.02 and 0.42 s
        let per_gb = portable.seconds_per_gb.expect("two sizes");
        assert!((per_gb - 0.4 / (size - 1024) as f64 * 1e9).abs() < 1e-6, "{per_gb}");
        let line = portable.line_bytes_per_byte.expect("two sizes");
        assert!((line - (1.05 + 24.0 / 1428.0)).abs() < 1e-6);
        assert!((portable.fill_bps.expect("fills") - 8e9 / per_gb * line).abs() < 1e-3);
        // nine round trips of 50 µs are not work
        let (fixed, work) = portable.fixed_s.zip(portable.work_s).expect("two sizes");
        assert!((fixed - work - 450e-6).abs() < 1e-9);
    }

    fn found(samples: &[Sample], stacks: &[StackRecord], link: &LinkReport) -> Portable {
        let windows = BTreeMap::new();
        let context = Context { stacks, link, segment: SEGMENT, windows: &windows };
        portable(samples, context).remove(0)
    }

    #[test]
    fn a_link_by_a_trace_says_nothing_of_times() {
        let stacks = [StackRecord { name: "ftp".into(), baseline: None }];
        let mut large = sample("ftp", 1, 9.0);
        large.size_bytes = 64 << 20;
        let samples = [sample("ftp", 0, 1.0), large];
        let portable = found(&samples, &stacks, &traced());
        assert_eq!((portable.fixed_s, portable.work_s), (None, None));
        assert_eq!((portable.fill_bps, portable.seconds_per_gb), (None, None));
    }

    #[test]
    fn a_shaped_link_says_nothing_of_the_machine() {
        let stacks = [StackRecord { name: "ftp".into(), baseline: None }];
        let mut large = sample("ftp", 1, 9.0);
        large.size_bytes = 64 << 20;
        let samples = [sample("ftp", 0, 1.0), large];
        let mut link = unshaped();
        assert!(found(&samples, &stacks, &link).fill_bps.is_some());
        link.rate_bps = Some(100_000_000);
        let portable = found(&samples, &stacks, &link);
        assert_eq!((portable.fill_bps, portable.seconds_per_gb), (None, None));
        assert!(portable.fixed_s.is_some());
    }
}
