//! Writes the transfer's part of docs/benchmarks.md from what `scripts/bench-transfer`
//! has measured.
//!
//!     cargo run --release -p headroom-lab --example transfer_benchmarks -- RESULTS [NOTES]
//!
//! NOTES is a text that goes behind the figures: what limits them.

mod measured;

use std::error::Error;
use std::fmt::Write;
use std::path::Path;

use headroom_lab::units::{seconds, three};
use headroom_lab_results::analysis::measured::Estimate;
use headroom_lab_results::analysis::summary::Clock;
use headroom_lab_results::schema::Sample;
use measured::{Run, verdict, verdict_of};
use serde::Deserialize;

const GIB: u64 = 1 << 30;
const SMALL: u64 = 1 << 10;
const OURS: &str = "headroom";
const STREAMS: &str = "headroom(streams)";

/// Bytes of file in a full packet of a lane (docs/transfer.md) over IPv4, and what it
/// takes on the link with Ethernet's framing.
const LANE_PAYLOAD: f64 = (1500 - 20 - 8 - 16 - 16 - 13) as f64;
const LANE_FRAME: f64 = (1500 + 38) as f64;

/// The links: name of the plan, words, bits a second, share of frames lost, and what the
/// goodput must be at least, of the link.
const LINKS: [(&str, &str, f64, f64, f64); 3] = [
    ("bench-transfer-100mbit", "100 Mbit/s, 50 ms, 1 % lost", 100e6, 0.01, 0.9),
    ("bench-transfer-1gbit", "1 Gbit/s, 50 ms, 1 % lost", 1e9, 0.01, 0.9),
    ("bench-transfer-200ms", "100 Mbit/s, 200 ms, 5 % lost", 100e6, 0.05, 0.8),
];

/// How many times as fast as others: at least, and as the aim. UFTP only sends.
const BARS: [(&str, &str, &str, f64, f64); 8] = [
    ("plain HTTP", "http", "download", 1.2, 1.35),
    ("plain FTP", "ftp", "download", 1.0, 1.1),
    ("HTTPS", "https", "download", 1.4, 1.6),
    ("FTPS", "ftps", "download", 1.5, 2.0),
    ("scp", "scp", "download", 2.0, 2.4),
    ("qcp", "qcp", "download", 1.8, 2.3),
    ("UFTP in clear", "uftp(clear)", "upload", 7.0, 8.5),
    ("UFTP, AES-128-GCM", "uftp", "upload", 7.0, 8.5),
];

fn main() -> Result<(), Box<dyn Error>> {
    let folder = std::env::args().nth(1).ok_or("give the folder of scripts/bench-transfer")?;
    let folder = Path::new(&folder);
    let clients = folder.join("idle-clients.json");
    let all = All {
        run: Run::read(&folder.join("bench-transfer"))?,
        links: LINKS.map(|(plan, ..)| Run::read(&folder.join(plan)).ok()),
        clients: match clients.exists() {
            true => Some(serde_json::from_str(&std::fs::read_to_string(&clients)?)?),
            false => None,
        },
    };
    print!("{}", all.document());
    if let Some(notes) = std::env::args().nth(2) {
        print!("\n{}", std::fs::read_to_string(notes)?);
    }
    Ok(())
}

struct All {
    run: Run,
    links: [Option<Run>; 3],
    clients: Option<Clients>,
}

/// What a server with idle clients takes.
#[derive(Deserialize)]
struct Clients {
    clients: u64,
    server_bytes: u64,
}

/// From the first packet to the end, which is when the client has the file and knows it.
const SESSION: Clock = |sample| sample.session_seconds;

fn cpu(sample: &Sample) -> Option<f64> {
    Some(sample.cpu_seconds?.both_sides())
}

impl All {
    fn document(&self) -> String {
        let mut text = String::from(
            "# Benchmarks of the transfer\n\nWritten by `make bench-transfer ONLY=others`, which anyone with root can \
             run. Both ends share the cores, and all stacks use the same file system. Times are \
             sessions: first packet on the wire to the client's completion, connecting and login included. Ratios are taken within blocks in which all stacks ran one after the other in random \
             order; brackets are 95 % intervals (docs/methodology.md).\n\n",
        );
        self.machine(&mut text);
        self.bars(&mut text);
        self.large(&mut text, "download");
        self.large(&mut text, "upload");
        self.small(&mut text);
        self.goodput(&mut text);
        self.settings(&mut text);
        text
    }

    fn machine(&self, text: &mut String) {
        let environment = &self.run.results.environment;
        let plan = &self.run.results.plan;
        let files = environment.settings.get("files").map_or("–", String::as_str);
        let _ = write!(
            text,
            "| | |\n|---|---|\n| date | {} |\n| machine | {}, {} cores, shared by both ends and the link |\n\
             | kernel | {} |\n| system | {} |\n| headroom | {} |\n| link | veth, MTU {}, {}, offload {}, {} |\n| files | {files} |\n",
            environment.started,
            environment.cpu,
            environment.cores,
            environment.kernel,
            environment.distribution,
            environment.headroom,
            plan.mtu,
            plan.family,
            plan.offload,
            plan.congestion_control,
        );
        const OF_INTEREST: [&str; 6] =
            ["nginx", "pure-ftpd", "ssh", "qcp", "uftp", "headroom fetch"];
        for program in &environment.programs {
            if OF_INTEREST.contains(&program.name.as_str()) && !program.version.is_empty() {
                let _ = writeln!(text, "| {} | {} |", program.name, program.version);
            }
        }
        let runs = std::iter::once(&self.run).chain(self.links.iter().flatten());
        let samples: Vec<_> = runs.flat_map(|run| &run.results.samples).collect();
        let _ = write!(
            text,
            "| command | `make bench-transfer ONLY=others` |\n| blocks | {} of each; {} samples in all, {} failed, {} in blocks with background load |\n\n",
            plan.repetitions,
            samples.len(),
            samples.iter().filter(|sample| !sample.ok).count(),
            samples.iter().filter(|sample| sample.disturbed.is_some()).count(),
        );
    }

    fn bars(&self, text: &mut String) {
        let blocks = self.run.blocks();
        let _ = write!(
            text,
            "## Goals\n\n1 GiB from file to file, ours encrypted and verified as always, against (n = {blocks} blocks, \
             {} for goodput; the server's memory once):\n\n| | at least | aim | measured | |\n|---|--:|--:|--:|---|\n",
            self.link_blocks()
        );
        let mut row = |what: &str, least: &str, aim: &str, found: Option<String>, verdict: &str| {
            let found = found.unwrap_or_else(|| "–".to_owned());
            let _ = writeln!(text, "| {what} | {least} | {aim} | {found} | {verdict} |");
        };
        let times = |found: Estimate| found.shown(|v| format!("{v:.2}")) + " ×";
        for (what, stack, workload, least, aim) in BARS {
            let found = self.run.figures().times_faster([OURS, stack], workload, GIB, SESSION);
            let verdict = verdict_of(blocks, found.map(|found| found.value), least, aim);
            let [least, aim] = [least, aim].map(|bar| format!("{bar} ×"));
            row(what, &least, &aim, found.map(times), &verdict);
        }
        let lanes = self.run.figures().times_faster([OURS, STREAMS], "download", GIB, cpu);
        let of_lanes = verdict_of(blocks, lanes.map(|found| found.value), 1.5, 1.5);
        let what = "bytes per CPU second, both ends, against our own QUIC streams";
        row(what, "1.5 ×", "", lanes.map(times), &of_lanes);
        // less is better from here on
        let mut at_most = |what: &str, least: f64, aim: f64, found: Option<Estimate>| {
            let verdict = verdict_of(blocks, found.map(|found| -found.value), -least, -aim);
            let [least, aim] = [least, aim].map(|bar| format!("≤ {bar} ×"));
            row(what, &least, &aim, found.map(times), &verdict);
        };
        let share = |stacks: [&str; 2], size, clock| {
            let [ours, other] = stacks;
            self.run.figures().times_faster([other, ours], "download", size, clock)
        };
        let spent = share([OURS, "scp"], GIB, cpu);
        at_most("CPU seconds per GB, both ends, against scp", 0.5, 0.3, spent);
        for (other, least, aim) in [("scp", 0.5, 0.2), ("https", 1.0, 0.7)] {
            let what = format!("1 KiB file, time to done against {other}");
            at_most(&what, least, aim, share([OURS, other], SMALL, SESSION));
        }
        for ((_, what, link_bps, loss, least), run) in LINKS.into_iter().zip(&self.links) {
            let found = run.as_ref().and_then(|run| after_start(run, OURS));
            let aim = goodput_aim(link_bps, loss, least);
            let shown = found.map(|found| found.shown(|bps| percent(bps / link_bps)));
            row(
                &format!("goodput at {what}, after the start, of the link"),
                &percent(least),
                &percent(aim / link_bps),
                shown,
                &verdict_of(
                    run.as_ref().map_or(0, Run::blocks),
                    found.map(|found| found.value),
                    least * link_bps,
                    aim,
                ),
            );
        }
        let what = match &self.clients {
            Some(clients) => format!("server memory for {} idle clients", clients.clients),
            None => "server memory for 1000 idle clients".to_owned(),
        };
        let found = self.clients.as_ref().map(|clients| clients.server_bytes as f64 / 1e6);
        let shown = found.map(|megabytes| format!("{megabytes:.0} MB"));
        row(&what, "100 MB", "30 MB", shown, &verdict(found.map(|found| -found), -100.0, -30.0));
        *text += "\n";
    }

    fn large(&self, text: &mut String, workload: &str) {
        let stacks = self.stacks(workload, GIB);
        if stacks.is_empty() {
            return;
        }
        let _ = write!(
            text,
            "## 1 GiB, {workload}\n\nn = {} blocks.\n\n| stack | seconds | Gbit/s | CPU s/GB, client | server | client's memory, MB | verified by |\n\
             |---|--:|--:|--:|--:|--:|---|\n",
            self.run.blocks()
        );
        for stack in stacks {
            let mean = |clock: Clock| self.run.figures().mean(stack, workload, GIB, clock);
            let gigabytes = GIB as f64 / 1e9;
            let cell = self.run.figures().cell(stack, workload, GIB);
            let speed = Estimate::of_positive(
                cell.iter().filter_map(|s| Some(8.0 * gigabytes / SESSION(s)?)),
            );
            let per_gb = |clock: Clock| {
                mean(clock).map_or("–".to_owned(), |found| three(found.value / gigabytes))
            };
            let _ = writeln!(
                text,
                "| {stack} | {} | {} | {} | {} | {} | {} |",
                mean(SESSION).map_or("–".to_owned(), |found| found.shown(three)),
                speed.map_or("–".to_owned(), |found| found.shown(three)),
                per_gb(|sample| Some(sample.cpu_seconds?.client)),
                per_gb(|sample| Some(sample.cpu_seconds?.server)),
                mean(|sample| Some(sample.peak_memory_bytes? as f64 / 1e6))
                    .map_or("–".to_owned(), |found| format!("{:.0}", found.value)),
                self.fact(stack, "verification").unwrap_or("–"),
            );
        }
        *text += "\n";
    }

    fn small(&self, text: &mut String) {
        let _ = write!(
            text,
            "## 1 KiB, download\n\nTime of the session, and of the client's process. n = {} blocks.\n\n\
             | stack | session | process |\n|---|--:|--:|\n",
            self.run.blocks()
        );
        for stack in self.stacks("download", SMALL) {
            let shown = |clock: Clock| {
                let found = self.run.figures().mean(stack, "download", SMALL, clock);
                found.map_or("–".to_owned(), |found| found.shown(seconds))
            };
            let _ = writeln!(
                text,
                "| {stack} | {} | {} |",
                shown(SESSION),
                shown(|sample| sample.process_seconds)
            );
        }
        *text += "\n";
    }

    fn goodput(&self, text: &mut String) {
        let _ = write!(
            text,
            "## Long and lossy links\n\nGoodput. n = {} blocks. The link is the lab's emulator, which shares the cores; frames are lost in both directions. After the start: difference of two sizes over the difference of their times. Possible: link rate times the payload share of a full packet, less the losses.\n\n| link | Mbit/s, with the start | after it | of the link | possible |\n\
             |---|--:|--:|--:|--:|\n",
            self.link_blocks()
        );
        for ((_, what, link_bps, loss, _), run) in LINKS.into_iter().zip(&self.links) {
            let Some(run) = run else { continue };
            let Some(&large) = run.figures().sizes("download").iter().max() else { continue };
            let cell = run.figures().cell(OURS, "download", large);
            let whole = Estimate::of_positive(
                cell.iter().filter_map(|s| Some(large as f64 * 8.0 / SESSION(s)?)),
            );
            let after = after_start(run, OURS);
            let mbit = |found: Option<Estimate>| {
                found.map_or("–".to_owned(), |found| found.shown(|bps| three(bps / 1e6)))
            };
            let _ = writeln!(
                text,
                "| {what} | {} | {} | {} | {} |",
                mbit(whole),
                mbit(after),
                after.map_or("–".to_owned(), |found| percent(found.value / link_bps)),
                three(possible(link_bps, loss) / 1e6),
            );
        }
        *text += "\n";
    }

    fn settings(&self, text: &mut String) {
        *text += "## Settings\n\n| stack | |\n|---|---|\n";
        for stack in &self.run.results.plan.stacks {
            let facts = self.run.results.environment.stacks.get(&stack.name);
            let facts: Vec<String> = facts
                .into_iter()
                .flatten()
                .filter(|(name, _)| *name != "verification")
                .map(|(name, value)| format!("{name}: {value}"))
                .collect();
            let _ = writeln!(text, "| {} | {} |", stack.name, facts.join("; "));
        }
        let measured = |name: &str| self.run.results.plan.stacks.iter().any(|s| s.name == name);
        for (what, stack, ..) in BARS.into_iter().filter(|(_, stack, ..)| !measured(stack)) {
            let _ =
                write!(text, "\n{what} was not measured: the program of `{stack}` is missing.\n");
        }
    }

    /// The fewest blocks of a link.
    fn link_blocks(&self) -> u32 {
        self.links.iter().flatten().map(Run::blocks).min().unwrap_or(0)
    }

    fn fact(&self, stack: &str, name: &str) -> Option<&str> {
        self.run.results.environment.stacks.get(stack)?.get(name).map(String::as_str)
    }

    /// The stacks that moved files of that size.
    fn stacks(&self, workload: &str, size: u64) -> Vec<&str> {
        let workloads = self.run.results.plan.workloads.iter();
        let of_size = workloads.filter(|w| w.kind == workload && w.sizes_bytes.contains(&size));
        of_size.flat_map(|w| &w.stacks).map(String::as_str).collect()
    }
}

/// Bytes of file that a link can carry on lanes, as bits a second.
fn possible(link_bps: f64, loss: f64) -> f64 {
    link_bps * LANE_PAYLOAD / LANE_FRAME * (1.0 - loss)
}

/// The goodput to aim for: 95 % of what is possible, and no less than the least, a share of the
/// link, which payload and losses can put above that.
fn goodput_aim(link_bps: f64, loss: f64, least: f64) -> f64 {
    (0.95 * possible(link_bps, loss)).max(least * link_bps)
}

/// Bits of file a second between the ends of the smallest and the largest transfer.
fn after_start(run: &Run, stack: &str) -> Option<Estimate> {
    let sizes = run.figures().sizes("download");
    let (small, large) = (*sizes.iter().min()?, *sizes.iter().max()?);
    let times = |size: u64| {
        let cell = run.figures().cell(stack, "download", size);
        Estimate::of_positive(cell.into_iter().filter_map(SESSION))
    };
    let (short, long) = (times(small)?, times(large)?);
    let bits = (large - small) as f64 * 8.0;
    let difference = long.value - short.value;
    // two means that know nothing of each other
    let half = |found: Estimate| found.ci95.map(|[lo, hi]| (hi - lo) / 2.0);
    let half = half(short).zip(half(long)).map(|(a, b)| a.hypot(b));
    let ci95 = half
        .filter(|half| *half < difference)
        .map(|half| [difference + half, difference - half].map(|time| bits / time));
    (difference > 0.0).then(|| Estimate { value: bits / difference, ci95, n: short.n })
}

fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_aim_is_below_what_is_asked_at_least() {
        for (plan, _, link_bps, loss, least) in LINKS {
            let aim = goodput_aim(link_bps, loss, least);
            assert!(aim >= least * link_bps, "{plan}: {}", percent(aim / link_bps));
        }
        assert_eq!(percent(goodput_aim(100e6, 0.0, 0.5) / 100e6), "88.1 %");
    }
}
