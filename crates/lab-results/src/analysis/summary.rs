//! One row for each link × stack × workload × size.

use std::collections::BTreeMap;

use super::limits::{self, Evidence};
use super::slow_start::Segment;
use super::{rfc6349, sessions, stats};
use crate::schema::{LinkReport, Sample, StackRecord, Summary, Tcp, WorkloadKind};

/// Identity of a cell: link, workload, size, stack.
type Key<'a> = (&'a str, &'a str, u64, &'a str);

/// Inputs of the summary, other than samples.
#[derive(Debug, Clone, Copy)]
pub struct Context<'a> {
    /// The plan's stacks with their baselines.
    pub stacks: &'a [StackRecord],
    /// All links that were used.
    pub links: &'a [LinkReport],
    /// Bytes that a stack may have in flight beside TCP's own window.
    pub windows: &'a BTreeMap<String, u64>,
    /// A full packet.
    pub segment: Segment,
}

/// Summarises samples cell by cell, in the order of the first sample of each.
pub fn summarise(samples: &[Sample], context: Context<'_>) -> Vec<Summary> {
    let mut order: Vec<Key<'_>> = Vec::new();
    let mut cells: BTreeMap<Key<'_>, Vec<&Sample>> = BTreeMap::new();
    for sample in samples {
        let cell = cells.entry(key(sample)).or_default();
        if cell.is_empty() {
            order.push(key(sample));
        }
        cell.push(sample);
    }
    order.sort_by_key(|&(link, workload, size, stack)| {
        let place = |name: &str| context.stacks.iter().position(|s| s.name == name);
        let link = context.links.iter().position(|l| l.name == link);
        (link, workload, size, place(stack))
    });
    order.iter().map(|key| one(key, &cells, context)).collect()
}

/// The samples of a cell that count: good ones of undisturbed blocks. Where these
/// are the smaller part, load was the rule and not the accident: all good ones.
pub fn counted<'a>(cell: &[&'a Sample]) -> Vec<&'a Sample> {
    let good = cell.iter().copied().filter(|sample| sample.ok && sample.seconds.is_some());
    let (undisturbed, disturbed): (Vec<&Sample>, Vec<&Sample>) =
        good.partition(|sample| sample.disturbed.is_none());
    if undisturbed.len() < disturbed.len() {
        [undisturbed, disturbed].concat()
    } else {
        undisturbed
    }
}

fn one(key: &Key<'_>, cells: &BTreeMap<Key<'_>, Vec<&Sample>>, context: Context<'_>) -> Summary {
    let &(link, workload, size_bytes, stack) = key;
    let cell = &cells[key];
    let samples = counted(cell);
    let baseline = context.stacks.iter().find(|s| s.name == stack).and_then(|s| s.baseline.clone());
    let base = baseline
        .as_deref()
        .and_then(|base| cells.get(&(link, workload, size_bytes, base)))
        .map(|cell| counted(cell))
        .unwrap_or_default();
    let overhead = |clock: Clock| stats::paired_overhead(&pairs(&samples, &base, clock));
    let (transfer, session) = (overhead(|s| s.seconds), overhead(|s| s.session_seconds));
    let times = |clock: Clock| samples.iter().filter_map(|s| clock(s)).collect::<Vec<f64>>();
    let average = |value: Clock| stats::positive_mean(&times(value));
    let (time, session_time) = (average(|s| s.seconds), average(|s| s.session_seconds));
    let share = |value: Clock| stats::mean(&times(value)).map(|m| m.mean);
    let goodput_bps = time.filter(|t| t.mean > 0.0 && size_bytes > 0).and_then(|t| {
        let bytes = samples.first().map(|s| file_bytes(s, size_bytes))?;
        Some(bytes as f64 * 8.0 / t.mean)
    });
    // of a stream the time is a delay
    let arrived: Vec<f64> =
        samples.iter().filter_map(|s| s.realtime.as_ref()).map(|stream| stream.mean_bps).collect();
    let goodput_bps = stats::positive_mean(&arrived).map_or(goodput_bps, |rate| Some(rate.mean));
    // the time of a closed loop is that of one session, and its clients have many at once
    let sessions = sessions::summarise(&samples);
    let goodput_bps =
        sessions.map_or(goodput_bps, |all| Some(all.per_s_mean * size_bytes as f64 * 8.0));
    // most of what passes the link for a small file is no part of it
    let on_line = average(|s| Some(s.sessions.as_ref()?.per_s * s.usage?.to_client_bytes * 8.0));
    let report = context.links.iter().find(|report| report.name == link);
    let timed = WorkloadKind::of(workload).is_some_and(WorkloadKind::is_timed);
    let rate_bps = report.and_then(|report| report.rate_bps_of(workload));
    // connecting and logging in count against it, and headers are no part of the file
    let link_rate_pct = session_time.zip(rate_bps).and_then(|(session, rate_bps)| {
        let bits = samples.first().map(|s| file_bytes(s, size_bytes) as f64 * 8.0)?;
        let one_session = matches!(
            WorkloadKind::of(workload),
            Some(WorkloadKind::Download | WorkloadKind::Upload | WorkloadKind::Many)
        );
        (one_session && session.mean > 0.0).then(|| 100.0 * bits / session.mean / rate_bps as f64)
    });
    let evidence = Evidence {
        rate_bps,
        line_bps: rate_bps.zip(goodput_bps).map(|(_, goodput)| {
            let payload = goodput * context.segment.line_bytes / context.segment.payload_bytes;
            on_line.map_or(payload, |line| line.mean)
        }),
        goodput_bps,
        idle_pct: share(|s| s.cpu_idle_pct),
        background_pct: share(|s| s.background_pct),
        cpu_share: share(|s| Some(s.cpu_seconds?.both_sides() / s.process_seconds?)),
        window_bytes: context
            .windows
            .get(stack)
            .map(|bytes| bytes * sessions.map_or(1, |all| u64::from(all.clients))),
        rtt_s: report.and_then(|report| report.rtt_us).map(|us| us / 1e6),
    };
    Summary {
        link: link.to_owned(),
        stack: stack.to_owned(),
        workload: workload.to_owned(),
        size_bytes,
        n: samples.len(),
        failed: cell.iter().filter(|sample| !sample.ok).count(),
        mean_s: time.map(|t| t.mean),
        stddev_s: time.and_then(|t| t.stddev),
        ci95_s: time.and_then(|t| t.ci95),
        overhead_n: transfer.map_or(0, |o| o.n),
        overhead_pct: transfer.map(|o| o.pct),
        overhead_ci95_pct: transfer.and_then(|o| o.ci95_pct),
        session_mean_s: session_time.map(|t| t.mean),
        session_ci95_s: session_time.and_then(|t| t.ci95),
        session_overhead_pct: session.map(|o| o.pct),
        session_overhead_ci95_pct: session.and_then(|o| o.ci95_pct),
        goodput_bps,
        link_rate_pct,
        cpu_seconds: average(|s| Some(s.cpu_seconds?.both_sides())).map(|m| m.mean),
        limited_by: time.map(|_| limits::limited_by(&evidence).to_owned()),
        not_shaped: samples.iter().any(|sample| sample.not_shaped),
        outliers: samples.iter().filter(|sample| sample.outlier).count(),
        rfc6349: time.filter(|_| size_bytes > 0 && !timed).map(|t| {
            let bytes = samples.first().map_or(0, |s| file_bytes(s, size_bytes)) as f64;
            let tcp: Vec<Tcp> = samples.iter().filter_map(|s| s.tcp).collect();
            rfc6349::of_cell(t.mean, bytes, rate_bps, context.segment, &tcp)
        }),
        sessions,
        baseline,
    }
}

/// One of a sample's clocks.
pub type Clock = fn(&Sample) -> Option<f64>;

fn key(sample: &Sample) -> Key<'_> {
    (&sample.link, &sample.workload, sample.size_bytes, &sample.stack)
}

/// Times of a stack and its baseline, block by block.
pub fn pairs(samples: &[&Sample], base: &[&Sample], clock: Clock) -> Vec<(f64, f64)> {
    samples
        .iter()
        .filter_map(|sample| {
            let other = base.iter().find(|other| other.block == sample.block)?;
            Some((clock(sample)?, clock(other)?))
        })
        .collect()
}

/// Bytes of file that one transfer of this sample moved.
fn file_bytes(sample: &Sample, size: u64) -> u64 {
    size * u64::from(sample.files.max(1))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::analysis::models::tests::SEGMENT;
    use crate::analysis::sessions::ClientSessions;

    pub(crate) fn sample(stack: &str, block: u32, seconds: f64) -> Sample {
        Sample {
            link: "unshaped".into(),
            stack: stack.into(),
            workload: "download".into(),
            size_bytes: 1024,
            files: 1,
            block,
            ok: true,
            seconds: Some(seconds),
            session_seconds: Some(seconds * 2.0),
            client_seconds: None,
            process_seconds: None,
            transfers: 1,
            phases: None,
            first_handshake_seconds: None,
            data_handshake_seconds: None,
            key_updates: None,
            set_up_server_cpu_seconds: None,
            cpu_seconds: None,
            cpu_idle_pct: None,
            steal_pct: None,
            background_pct: None,
            wire: None,
            tcp: None,
            load: None,
            fairness: None,
            sessions: None,
            usage: None,
            realtime: None,
            drops: None,
            outlier: false,
            peak_memory_bytes: None,
            disturbed: None,
            disturbed_by: BTreeMap::new(),
            not_shaped: false,
            error: None,
        }
    }

    fn summarised(samples: &[Sample]) -> Vec<Summary> {
        let record = |name: &str, baseline: Option<&str>| StackRecord {
            name: name.into(),
            baseline: baseline.map(str::to_owned),
        };
        let stacks = [record("ftp", None), record("ftps", Some("ftp"))];
        summarise(
            samples,
            Context { stacks: &stacks, links: &[], windows: &BTreeMap::new(), segment: SEGMENT },
        )
    }

    #[test]
    fn overhead_is_taken_inside_blocks_and_a_failure_is_counted() {
        let mut samples = Vec::new();
        for block in 0..4 {
            let speed = f64::from(block + 1);
            samples.push(sample("ftps", block, 1.2 * speed));
            samples.push(sample("ftp", block, speed));
        }
        samples[2].ok = false; // ftps in block 1
        let rows = summarised(&samples);
        let ftps = rows.iter().find(|row| row.stack == "ftps").expect("a row");
        assert_eq!((ftps.n, ftps.failed), (3, 1));
        assert!((ftps.overhead_pct.expect("pairs") - 20.0).abs() < 1e-9);
        assert!(
            rows.iter()
                .find(|row| row.stack == "ftp")
                .is_some_and(|row| row.overhead_pct.is_none())
        );
    }

    #[test]
    fn a_disturbed_block_that_was_repeated_costs_no_run() {
        // seven blocks, two of them disturbed, of which one was repeated undisturbed
        let mut samples: Vec<Sample> = (0..8)
            .flat_map(|block| [sample("ftp", block, 1.0), sample("ftps", block, 1.2)])
            .collect();
        for one in samples.iter_mut().filter(|one| [2, 5].contains(&one.block)) {
            one.disturbed = Some("background load 30 %".into());
        }
        let rows = summarised(&samples);
        assert!(rows.iter().all(|row| row.n == 6), "{rows:?}");
        let ftps = rows.iter().find(|row| row.stack == "ftps").expect("a row");
        assert_eq!(ftps.overhead_n, 6, "pairs are of the same attempt");
    }

    #[test]
    fn the_share_of_a_links_rate_is_over_the_whole_session_and_of_files_alone() {
        let spec: headroom_link_spec::LinkSpec = "8mbit,up-rate=16mbit".parse().expect("a link");
        let link = LinkReport::new(&spec, "emulator", "on");
        let of = |workload: &str, files: u32| Sample {
            link: link.name.clone(),
            workload: workload.into(),
            size_bytes: 1_000_000,
            files,
            ..sample("ftp", 0, 0.5) // its session takes a second
        };
        let samples = [of("download", 1), of("upload", 1), of("many", 3), of("commands", 1)];
        let stacks = [StackRecord { name: "ftp".into(), baseline: None }];
        let links = std::slice::from_ref(&link);
        let context =
            Context { stacks: &stacks, links, windows: &BTreeMap::new(), segment: SEGMENT };
        let rows = summarise(&samples, context);
        for (workload, expected) in
            [("download", Some(100)), ("upload", Some(50)), ("many", Some(300)), ("commands", None)]
        {
            let row = rows.iter().find(|row| row.workload == workload).expect("a row");
            assert_eq!(row.link_rate_pct.map(|pct| pct.round() as i32), expected, "{workload}");
        }
        assert_eq!(summarised(&[sample("ftp", 0, 0.5)])[0].link_rate_pct, None, "no rate");
    }

    #[test]
    fn a_closed_loop_moves_a_file_in_each_session() {
        let client = ClientSessions { session_s: vec![0.01; 100], elapsed_s: 1.0, failed: 0 };
        let mut loops = sample("ftp", 0, 0.01);
        loops.workload = "sessions(clients=1)".into();
        loops.sessions = sessions::of_clients(&[client], None);
        let rows = summarised(&[loops]);
        let goodput_bps = rows[0].goodput_bps.expect("a rate");
        assert!((goodput_bps - 100.0 * 1024.0 * 8.0).abs() < 1e-6, "{goodput_bps}");
        assert!(rows[0].rfc6349.is_none() && rows[0].sessions.is_some(), "{rows:?}");
    }

    #[test]
    fn marked_blocks_do_not_count_while_others_are_left() {
        let mut samples = vec![sample("ftp", 0, 9.0), sample("ftp", 1, 1.0), sample("ftp", 2, 1.0)];
        samples[0].disturbed = Some("background load 30 %".into());
        assert_eq!(summarised(&samples)[0].mean_s, Some(1.0));
        for sample in &mut samples {
            sample.disturbed = Some("background load 30 %".into());
        }
        assert_eq!(summarised(&samples)[0].n, 3);
    }
}
