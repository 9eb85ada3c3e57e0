//! The warnings of a run.

use std::collections::BTreeSet;

use super::disturbance::Disturbance;
use crate::schema::{HostRecord, PROCESSORS, Results, Sessions, Summary};

/// Warns of what limits the results.
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
            "This run was interrupted and continued {} time(s), last at {} with {} block(s) done. The lab \
             tested each link again and shows the last test.",
            results.resumed.len(),
            last.at,
            last.blocks_before
        ));
        if !changed.is_empty() {
            let changed = changed.into_iter().collect::<Vec<_>>().join("; ");
            warnings.push(format!(
                "Machine or programs changed before the run was continued, so its blocks mix both: {changed}."
            ));
        }
    }
    for link in std::iter::once(&results.link).chain(&results.validation_links) {
        if let Some(test) = link.self_test.as_ref().filter(|test| !test.passed) {
            warnings.push(format!(
                "The link `{}` failed its self-test, and was used as --allow-failed-link-test says: {}.",
                link.name,
                test.complaints().join("; ")
            ));
        }
    }
    if results.link.follows_trace() {
        warnings.push(format!(
            "The link `{}` follows a trace, which has no single rate: there are no cost models and no predictions, no \
             cell is \"limited by\" the link, and each transfer meets another part of the trace.",
            results.link.name
        ));
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
    warnings.extend(results.summary.iter().filter_map(|cell| failed_sessions(results, cell)));
    warnings.extend(Disturbance::of(&results.samples).note());
    let steal = results.samples.iter().filter_map(|s| s.steal_pct).fold(0.0, f64::max);
    if steal > 5.0 {
        warnings.push(format!("CPU steal reached {steal:.0} % during a sample."));
    }
    let limited_by = |what: &str| {
        results.summary.iter().filter(|row| row.limited_by.as_deref() == Some(what)).count()
    };
    let crowded = limited_by("background load");
    if crowded > 0 {
        warnings.push(format!(
            "{crowded} of {} cells were limited by background load: other programs used more CPU than was idle.",
            results.summary.len()
        ));
    }
    let limited = limited_by("CPU");
    if limited > 0 {
        let whose = match results.environment.hosts.as_slice() {
            [] => {
                let share = match results.environment.settings.get(PROCESSORS) {
                    Some(apart) => format!("are on one machine ({apart})"),
                    None => format!("share these {} cores", results.environment.cores),
                };
                format!(
                    "client, server and router {share}, so their times show the limit of this machine, not \
                     of the network"
                )
            }
            hosts => {
                let of = |host: &HostRecord| format!("{} with {} cores", host.role, host.cores);
                let hosts: Vec<String> = hosts.iter().map(of).collect();
                format!("one of the hosts ({}) had no idle CPU", hosts.join(", "))
            }
        };
        warnings.push(format!(
            "{limited} of {} cells were limited by the CPU: {whose}.",
            results.summary.len()
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

/// Says how many sessions of a closed loop failed; none where all succeeded.
fn failed_sessions(results: &Results, cell: &Summary) -> Option<String> {
    let sessions = cell.sessions.filter(|sessions| sessions.failed > 0)?;
    let why = |sessions: &Sessions| sessions.first_failure.clone();
    let of_cell = results.samples.iter().filter(|sample| {
        (&sample.link, &sample.stack, &sample.workload, sample.size_bytes)
            == (&cell.link, &cell.stack, &cell.workload, cell.size_bytes)
    });
    let first = of_cell.filter_map(|sample| sample.sessions.as_ref()).find_map(why);
    Some(format!(
        "{} of {} sessions of {} `{} {}` failed, and its times are those of the others; the first: {}.",
        sessions.failed,
        sessions.failed + sessions.count,
        cell.stack,
        cell.workload,
        headroom_units::chosen_size(cell.size_bytes),
        first.as_deref().unwrap_or("no reason given").trim_end_matches('.')
    ))
}
