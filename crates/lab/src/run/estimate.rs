//! Estimates the time that a run takes: from the plan at first, corrected by measurements.

use std::time::{Duration, Instant};

use super::blocks::{Blocks, LARGEST_ACCOUNTED, check_repetitions, check_workload};
use super::cell::Cell;
use crate::link::LinkSpec;
use crate::plan::Plan;
use crate::units;
use crate::workload::Workload;

// Assumptions about a machine that was never measured. Of the 53 kept parts of the
// studies (docs/studies/samples.tar.xz), half took between 1.0 and 1.7 times as long as this
// says; the parts with slow ciphers, and one with loss over 200 ms, three times and more.
// The first blocks replace all of it.

/// Rate of TCP without a link limit, bits per second.
const UNSHAPED_BPS: f64 = 1.5e9;
/// Starting a client, connecting and logging in, without the network's round trips.
const SESSION_S: f64 = 0.08;
/// Round trips of a session: connecting, TLS, login, commands, slow start.
const ROUND_TRIPS: f64 = 16.0;
/// Time that sshd waits for a resolver that never answers.
const RESOLVER_S: f64 = 10.0;
/// Building the testbed and taking it down, and for each stack its server and the check
/// for clear text.
const TESTBED_S: f64 = 4.0;
const STACK_S: f64 = 1.0;
/// Testing a link's rate, delay and loss, both ways.
const SELF_TEST_S: f64 = 8.0;
/// Making a file and comparing it afterwards, in bytes per second.
const VERIFIED_PER_S: f64 = 400e6;
/// Transfers of a cell whose packets are counted.
const COUNTED_TRANSFERS: f64 = 4.0;
/// The largest window of TCP here.
const WINDOW_BITS: f64 = 64.0 * 1024.0 * 1024.0 * 8.0;

/// Estimates the remaining time of a run.
#[derive(Debug, Clone)]
pub(super) struct Estimate {
    set_up_s: f64,
    /// The main link and the validation links, in their order.
    links: Vec<LinkEstimate>,
    counting_s: f64,
}

#[derive(Debug, Clone, Default)]
struct LinkEstimate {
    /// Testing and warming up.
    ready_s: f64,
    blocks_s: f64,
    /// The start of its first block, and the estimated time of the blocks since then.
    measured: Option<(Instant, f64)>,
}

/// Returns how long a run of this plan will probably take: a guess, from the sizes, the
/// repetitions and the rates of its links.
pub fn expected_time(plan: &Plan) -> Duration {
    Estimate::new(plan).left()
}

/// Returns how many samples a run takes at most: where blocks are repeated that other
/// programs disturbed, a fifth more.
pub(super) fn samples(plan: &Plan) -> u64 {
    let cells = |link, workloads: &[Workload]| Blocks::of(plan, link, workloads).cells.len() as u64;
    let with_repeats = |blocks: u32| u64::from(blocks) + u64::from(blocks) / 5;
    let most = plan.until.map_or(plan.repetitions, |until| until.most_blocks);
    let check = check_workload(plan);
    let on_checks = plan
        .validation_links
        .iter()
        .map(|link| cells(link, &check) * with_repeats(check_repetitions(plan, link)));
    cells(&plan.link, &plan.workloads) * with_repeats(most) + on_checks.sum::<u64>()
}

/// Writes a time as a person would estimate it: `40 s`, `7 min`, `2 h 20 min`.
pub fn rounded(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    if seconds < 55.0 {
        return format!("{:.0} s", (seconds / 5.0).ceil().max(1.0) * 5.0);
    }
    let minutes = (seconds / 60.0).round() as u64;
    match (minutes / 60, minutes % 60) {
        (0, minutes) => format!("{minutes} min"),
        (hours, minutes) if hours < 10 => format!("{hours} h {:02} min", minutes / 10 * 10),
        (hours, _) => format!("{hours} h"),
    }
}

impl Estimate {
    pub(super) fn new(plan: &Plan) -> Self {
        let main = LinkEstimate::new(plan, &plan.link, &plan.workloads, plan.repetitions);
        let check = check_workload(plan);
        let on_checks = plan.validation_links.iter().map(|link| {
            let repetitions = check_repetitions(plan, link);
            LinkEstimate::new(plan, link, &check, repetitions)
        });
        let links = std::iter::once(main).chain(on_checks).collect();
        let counted = Blocks::of(plan, &plan.link, &plan.workloads).cells;
        let counted = counted.iter().filter(|cell| {
            let can_be = !cell.workload.kind.is_timed() && cell.bytes() <= LARGEST_ACCOUNTED;
            plan.count_packets && plan.hosts.is_none() && can_be
        });
        let fast = LinkSpec::default();
        let counting_s =
            counted.map(|cell| COUNTED_TRANSFERS * transfer_s(plan, cell, &fast)).sum();
        let set_up_s = TESTBED_S + STACK_S * plan.stacks.len() as f64;
        Self { set_up_s, links, counting_s }
    }

    /// The testbed is up.
    pub(super) fn is_up(&mut self) {
        self.set_up_s = 0.0;
    }

    /// A link is tested and warmed up, and its blocks are now expected to take so long.
    pub(super) fn is_ready(&mut self, link: usize, blocks_s: f64) {
        let guessed = std::mem::take(&mut self.links[link].ready_s) + self.links[link].blocks_s;
        let was_guess = self.links[link].measured.is_none();
        self.links[link].blocks_s = blocks_s;
        self.links[link].measured = Some((Instant::now(), 0.0));
        // what was guessed too high here was probably guessed too high for the rest
        if was_guess && guessed > 0.0 && blocks_s > 0.0 {
            let factor = (blocks_s / guessed).clamp(0.2, 5.0);
            for later in &mut self.links[link + 1..] {
                later.blocks_s *= factor;
            }
            self.counting_s *= factor;
        }
    }

    /// More blocks are needed on a link, or fewer.
    pub(super) fn expects(&mut self, link: usize, blocks_s: f64) {
        self.links[link].blocks_s = blocks_s;
    }

    /// A cell that should have taken so long was measured on a link.
    pub(super) fn measured(&mut self, link: usize, expected_s: f64) {
        let link = &mut self.links[link];
        link.blocks_s = (link.blocks_s - expected_s).max(0.0);
        if let Some((_, expected)) = &mut link.measured {
            *expected += expected_s;
        }
    }

    /// Everything on a link is measured, or it was given up.
    pub(super) fn is_done(&mut self, link: usize) {
        self.links[link] = LinkEstimate::default();
    }

    /// The packets of one of so many cells were counted.
    pub(super) fn counted(&mut self, left: usize) {
        self.counting_s *= left as f64 / (left + 1) as f64;
    }

    /// Returns the remaining time.
    pub(super) fn left(&self) -> Duration {
        let links: f64 = self.links.iter().map(LinkEstimate::left_s).sum();
        Duration::try_from_secs_f64(self.set_up_s + links + self.counting_s)
            .unwrap_or(Duration::MAX)
    }
}

impl LinkEstimate {
    fn new(plan: &Plan, link: &LinkSpec, workloads: &[Workload], repetitions: u32) -> Self {
        let mut cells = Blocks::of(plan, link, workloads).cells;
        let mut warm_s = 0.0;
        for cell in &mut cells {
            let (brief, _) = cell.brief();
            warm_s += f64::from(plan.warmup) * transfer_s(plan, &brief, link);
            cell.set_time(transfer_s(plan, cell, link));
        }
        let verified_s = |cell: &Cell| {
            if cell.workload.kind.is_timed() { 0.0 } else { bytes(cell) / VERIFIED_PER_S }
        };
        let block_s: f64 = cells
            .iter()
            .map(|cell| cell.expected_s() + f64::from(cell.batch()) * verified_s(cell))
            .sum();
        let tested_s = if link.is_unshaped() { 0.0 } else { SELF_TEST_S };
        Self {
            ready_s: tested_s + warm_s,
            blocks_s: block_s * f64::from(repetitions),
            measured: None,
        }
    }

    /// Scales the remaining time by the pace so far.
    fn left_s(&self) -> f64 {
        let pace = self.measured.filter(|(_, expected_s)| *expected_s > 1.0);
        let pace =
            pace.map_or(1.0, |(since, expected_s)| since.elapsed().as_secs_f64() / expected_s);
        self.ready_s + self.blocks_s * pace.clamp(0.1, 20.0)
    }
}

fn bytes(cell: &Cell) -> f64 {
    cell.bytes() as f64
}

/// A guess at the time of one transfer on a link, its client's start included.
fn transfer_s(plan: &Plan, cell: &Cell, link: &LinkSpec) -> f64 {
    let workload = &cell.workload;
    let rtt_s = link.longest_round_trip().as_secs_f64();
    let planned = plan.stack(&cell.stack);
    let application = planned.map(|planned| &planned.stack.application);
    let asks = plan.resolver.is_some()
        && application
            .is_some_and(|one| one.entry.programs.iter().any(|program| program.name == "sshd"));
    let session_s = SESSION_S + ROUND_TRIPS * rtt_s + if asks { RESOLVER_S } else { 0.0 };
    if workload.kind.is_timed() {
        return f64::from(workload.seconds) + session_s;
    }
    let mut bps = link.slowest_bps().map_or(UNSHAPED_BPS, |bps| (bps as f64).min(UNSHAPED_BPS));
    // what is not TCP has other limits, which nobody guesses
    let over_tcp = application.is_none_or(|application| !application.over_datagrams());
    if rtt_s > 0.0 && over_tcp {
        bps = bps.min(WINDOW_BITS / rtt_s);
        let loss = link.down.loss.average_pct().max(link.up.loss.average_pct()) / 100.0;
        let own = planned.and_then(|planned| planned.congestion_control.as_deref());
        // BBR does not take a loss for congestion
        let is_bbr = own.unwrap_or(&plan.congestion_control).starts_with("bbr");
        if loss > 0.0 && !is_bbr {
            // Mathis et al. 1997, for segments of 1448 bytes
            bps = bps.min(1.22 * 1448.0 * 8.0 / rtt_s / loss.sqrt());
        }
    }
    session_s + (workload.work().extra_s)(workload, rtt_s) + bytes(cell) * 8.0 / bps
}

/// The sentence about a plan's expected time, for people; `given` is the time that a run without
/// `until` may spend on more repetitions.
pub fn sentence(time: Duration, given: Option<Duration>, plan: &Plan) -> String {
    let count = |count: usize, what: &str| match count {
        1 => format!("1 {what}"),
        _ => format!("{count} {what}s"),
    };
    let until = match (plan.until, given) {
        (None, None) => String::new(),
        (None, Some(given)) => {
            let given = rounded(given.max(time));
            format!(", and up to {given} with the repetitions that follow while time is left")
        }
        (Some(until), _) => {
            let most = f64::from(until.most_blocks) / f64::from(plan.repetitions.max(1));
            let most = time.mul_f64(most.max(1.0));
            format!(", and up to {} until its intervals are narrow enough", rounded(most))
        }
    };
    format!(
        "this will take about {}{until} (estimated from {}, {} repetitions, {} and {})",
        rounded(time),
        count(plan.stacks.len(), "stack"),
        plan.repetitions,
        sizes(plan),
        count(1 + plan.validation_links.len(), "link"),
    )
}

fn sizes(plan: &Plan) -> String {
    let all: Vec<u64> = plan.workloads.iter().flat_map(|w| w.sizes.iter().copied()).collect();
    let moved = || all.iter().copied().filter(|&size| size > 0);
    match (moved().min(), moved().max()) {
        (Some(least), Some(most)) if least < most => {
            format!("sizes from {} to {}", units::chosen_size(least), units::chosen_size(most))
        }
        (Some(size), _) => format!("a size of {}", units::chosen_size(size)),
        _ => "no files".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(repetitions: u32, link: &str, sizes: &str) -> Plan {
        let text = format!(
            "stacks = [\"http\", \"https\"]\nrepetitions = {repetitions}\nlink = \"{link}\"\n\
             [[workload]]\nkind = \"download\"\nsizes = [{sizes}]\n"
        );
        Plan::from_toml(&text, "x").expect("a plan")
    }

    fn seconds(repetitions: u32, link: &str, sizes: &str) -> f64 {
        expected_time(&plan(repetitions, link, sizes)).as_secs_f64()
    }

    #[test]
    fn slow_links_large_files_and_repetitions_take_their_time() {
        // 64 MiB over 10 Mbit/s are 54 s each, by two stacks, ten times
        let slow = seconds(10, "10mbit", "\"64MiB\"");
        assert!((1080.0..1400.0).contains(&slow), "{slow}");
        assert!((1.8..2.1).contains(&(seconds(20, "10mbit", "\"64MiB\"") / slow)));
        let fast = seconds(10, "unshaped", "\"1KiB\"");
        assert!((5.0..60.0).contains(&fast), "{fast}");
        assert!(seconds(10, "100mbit,delay=100ms", "\"1KiB\"") > fast + 10.0);
        assert!(
            seconds(10, "100mbit,delay=50ms,loss=1%", "\"64MiB\"")
                > 5.0 * seconds(10, "100mbit,delay=50ms", "\"64MiB\"")
        );
    }

    #[test]
    fn what_was_measured_replaces_what_was_guessed() {
        let mut estimate = Estimate::new(&plan(10, "10mbit", "\"64MiB\""));
        let left = |estimate: &Estimate| estimate.left().as_secs_f64();
        let guessed = left(&estimate);
        estimate.is_up();
        assert!(left(&estimate) < guessed);
        estimate.is_ready(0, 500.0);
        assert!((500.0..550.0).contains(&left(&estimate)), "{estimate:?}");
        estimate.measured(0, 0.9);
        assert!((499.0..550.0).contains(&left(&estimate)), "{estimate:?}");
        estimate.is_done(0);
        estimate.counted(1);
        estimate.counted(0);
        assert!(left(&estimate) < 0.001, "{estimate:?}");
    }

    #[test]
    fn a_time_is_as_exact_as_an_estimate() {
        let shown = [3.0, 41.0, 58.0, 400.0, 3000.0, 8400.0, 8_400_000.0]
            .map(|seconds| rounded(Duration::from_secs_f64(seconds)));
        assert_eq!(shown, ["5 s", "45 s", "1 min", "7 min", "50 min", "2 h 20 min", "2333 h"]);
    }

    #[test]
    fn the_sentence_names_what_it_is_estimated_from() {
        let plan = plan(5, "100mbit", "\"1KiB\", \"1MiB\"");
        let sentence = sentence(Duration::from_secs(120), None, &plan);
        assert_eq!(
            sentence,
            "this will take about 2 min (estimated from 2 stacks, 5 repetitions, sizes from 1 KiB to 1 MiB and 1 link)"
        );
        let decimal = self::plan(5, "100mbit", "\"1KiB\", \"100MB\"");
        let given = Some(Duration::from_secs(600));
        let said = super::sentence(Duration::from_secs(120), given, &decimal);
        assert!(said.contains("sizes from 1 KiB to 100 MB"), "{said}");
        let more =
            "about 2 min, and up to 10 min with the repetitions that follow while time is left (";
        assert!(said.contains(more), "{said}");
    }
}
