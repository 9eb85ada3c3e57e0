//! What machine, which programs, what settings; and what to warn of.

use std::collections::{BTreeMap, BTreeSet};

use super::sample::Bench;
use crate::parts::{self, Program};
use crate::plan::Plan;
use crate::results::{Environment, ProgramRecord, Results};

/// Now, as RFC 3339 in UTC.
pub(super) fn now() -> String {
    jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

pub(super) fn record(
    plan: &Plan,
    bench: &Bench<'_>,
    client_version: &str,
    started: String,
) -> Environment {
    let testbed = &bench.testbed;
    let stacks = plan.stacks.iter().flat_map(|planned| planned.stack.programs());
    let mut programs: Vec<Program> = parts::TESTBED.iter().copied().chain(stacks).collect();
    programs.sort();
    programs.dedup();
    // a server's version is that on its own host
    let host_of = |program: Program| {
        [&testbed.server, &testbed.client]
            .into_iter()
            .find_map(|host| Some((host, host.locate(program).ok()?)))
    };
    let mut records: Vec<ProgramRecord> = programs
        .into_iter()
        .filter_map(|program| {
            let (host, located) = host_of(program)?;
            Some(ProgramRecord {
                name: program.name.to_owned(),
                version: host.version(program)?,
                path: located.path.display().to_string(),
                origin: located.origin.name().to_owned(),
            })
        })
        .collect();
    records.push(ProgramRecord {
        name: "headroom fetch".to_owned(),
        version: client_version.to_owned(),
        path: "this program".to_owned(),
        origin: "built-in".to_owned(),
    });
    let stacks = plan.stacks.iter().map(|planned| {
        let facts = planned.stack.service.facts();
        let facts = facts.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned()));
        let window = planned
            .stack
            .service
            .window()
            .map(|(_, words)| ("window".to_owned(), words.to_owned()));
        let layers = planned.stack.layers.iter().flat_map(|layer| {
            let named = move |(name, value): (&str, &str)| {
                (format!("{}: {name}", layer.name()), value.to_owned())
            };
            layer.facts().into_iter().map(named)
        });
        let mtu = bench.inner_mtus(&planned.stack.name);
        (planned.stack.name.clone(), facts.chain(window).chain(layers).chain(mtu).collect())
    });
    let settings = [
        ("run", testbed.id().to_owned()),
        ("files", format!("on {}", testbed.root_kind)),
        ("congestion control", format!("{} (by route, verified)", plan.congestion_control)),
        ("TCP buffers", "up to 16 MiB each way".to_owned()),
        ("TCP metrics", "not saved, flushed before each block".to_owned()),
        ("offload", plan.offload.name().to_owned()),
        ("MTU", plan.mtu.to_string()),
    ];
    Environment {
        started,
        finished: now(),
        headroom: env!("CARGO_PKG_VERSION").to_owned(),
        kernel: read("/proc/sys/kernel/osrelease"),
        distribution: field("/etc/os-release", "PRETTY_NAME=").trim_matches('"').to_owned(),
        cpu: field("/proc/cpuinfo", "model name").trim_start_matches([':', '\t', ' ']).to_owned(),
        cores: std::thread::available_parallelism().map_or(1, usize::from),
        memory_bytes: field("/proc/meminfo", "MemTotal:")
            .split_whitespace()
            .next()
            .and_then(|kib| kib.parse::<u64>().ok())
            .map_or(0, |kib| kib * 1024),
        programs: records,
        stacks: stacks.collect(),
        settings: settings
            .map(|(name, value)| (name.to_owned(), value))
            .into_iter()
            .collect::<BTreeMap<_, _>>(),
    }
}

/// What of machine and programs is not as it was, one `name: value instead of
/// value` each.
pub(super) fn changes(before: &Environment, now: &Environment) -> Vec<String> {
    let facts = |environment: &Environment| {
        let mut facts = BTreeMap::from([
            ("headroom".to_owned(), environment.headroom.clone()),
            ("kernel".to_owned(), environment.kernel.clone()),
            ("distribution".to_owned(), environment.distribution.clone()),
            ("cpu".to_owned(), environment.cpu.clone()),
            ("cores".to_owned(), environment.cores.to_string()),
        ]);
        let programs = environment.programs.iter();
        facts.extend(programs.map(|program| (program.name.clone(), program.version.clone())));
        facts
    };
    let (before, now) = (facts(before), facts(now));
    let names: BTreeSet<&String> = before.keys().chain(now.keys()).collect();
    let value = |of: &BTreeMap<String, String>, name: &String| {
        of.get(name).map_or_else(|| "none".to_owned(), |value| format!("`{value}`"))
    };
    names
        .into_iter()
        .filter(|name| before.get(*name) != now.get(*name))
        .map(|name| format!("{name}: {} instead of {}", value(&now, name), value(&before, name)))
        .collect()
}

/// What the reader should know before believing the results.
pub(super) fn warnings(results: &Results) -> Vec<String> {
    let mut warnings: Vec<String> = results.incomplete().into_iter().collect();
    if let Some(last) = results.resumed.last() {
        let changed: BTreeSet<&str> = results
            .resumed
            .iter()
            .flat_map(|resumed| &resumed.changed)
            .map(String::as_str)
            .collect();
        warnings.push(format!(
            "This run was interrupted and continued {} time(s), last at {} with {} block(s) done. Each link was tested \
             again; its last test is the one shown.",
            results.resumed.len(),
            last.at,
            last.blocks_before
        ));
        if !changed.is_empty() {
            let changed = changed.into_iter().collect::<Vec<_>>().join("; ");
            warnings.push(format!(
                "Machine or programs changed before the run was continued, so its blocks are of two kinds: {changed}."
            ));
        }
    }
    warnings.extend(results.remarks.iter().cloned());
    let failed = results.samples.iter().filter(|sample| !sample.ok).count();
    if failed > 0 {
        let first = results
            .samples
            .iter()
            .find_map(|sample| sample.error.as_deref())
            .unwrap_or("no reason given");
        warnings.push(format!(
            "{failed} of {} samples failed; the first: {first}.",
            results.samples.len()
        ));
    }
    let marked: BTreeSet<u32> =
        results.samples.iter().filter(|s| s.marked.is_some()).map(|s| s.block).collect();
    if !marked.is_empty() {
        warnings.push(format!(
            "{} block(s) had more than 5 % foreign load and were repeated where time allowed; both are kept, and the \
             unmarked ones count where they are the larger part.",
            marked.len()
        ));
    }
    let steal = results.samples.iter().filter_map(|s| s.steal_pct).fold(0.0, f64::max);
    if steal > 5.0 {
        warnings.push(format!(
            "The hypervisor took up to {steal:.0} % of this machine away during a sample."
        ));
    }
    let limited =
        results.summary.iter().filter(|row| row.limited_by.as_deref() == Some("CPU")).count();
    if limited > 0 {
        warnings.push(format!(
            "{limited} of {} cells were limited by the CPU: client, server and router share these {} cores, so their \
             times say what this machine can do, not what the network can.",
            results.summary.len(),
            results.environment.cores
        ));
    }
    if results.samples.iter().any(|sample| sample.not_shaped) {
        warnings.push(
            "Transfers shorter than 100 ms pass a token bucket partly unshaped; they are marked \"not shaped\"."
                .to_owned(),
        );
    }
    warnings
}

fn read(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default().trim().to_owned()
}

/// The rest of the first line that begins with `key`.
fn field(path: &str, key: &str) -> String {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines().find_map(|line| line.strip_prefix(key)).unwrap_or_default().trim().to_owned()
}
