//! Writes docs/benchmarks.md from what `scripts/bench-tunnel` has measured: the
//! folders of two runs, and what three programs printed.
//!
//!     cargo run --release -p headroom-lab --example benchmarks -- RESULTS [NOTES] > docs/benchmarks.md
//!
//! NOTES is a text that goes behind the figures: what limits them.

mod measured;

use std::collections::BTreeSet;
use std::error::Error;
use std::fmt::Write;
use std::path::Path;

use headroom_lab::units::{seconds, three};
use headroom_lab_results::analysis::measured::Estimate;
use headroom_lab_results::analysis::stats;
use headroom_lab_results::analysis::summary::Clock;
use measured::{Run, verdict, verdict_of};
use serde::Deserialize;

/// Frames of a link count these bytes more: preamble, check sequence, gap.
const FRAMING: u64 = 24;
const ETHERNET: u64 = 14;

fn main() -> Result<(), Box<dyn Error>> {
    let folder = std::env::args().nth(1).ok_or("give the folder that scripts/bench-tunnel made")?;
    let folder = Path::new(&folder);
    let read = |name: &str| -> Result<String, Box<dyn Error>> {
        let path = folder.join(name);
        std::fs::read_to_string(&path)
            .map_err(|error| format!("{}: {error}", path.display()).into())
    };
    let all = All {
        tunnel: Run::read(&folder.join("bench-tunnel"))?,
        turns: read("turns.jsonl")?.lines().map(serde_json::from_str).collect::<Result<_, _>>()?,
        link: Run::read(&folder.join("bench-qesp-link"))?,
        memory: serde_json::from_str(&read("memory.json")?)?,
        reload: serde_json::from_str(&read("reload.json")?)?,
    };
    print!("{}", all.document());
    if let Some(notes) = std::env::args().nth(2) {
        print!("\n{}", std::fs::read_to_string(notes)?);
    }
    Ok(())
}

struct All {
    tunnel: Run,
    link: Run,
    turns: Vec<Turns>,
    memory: Memory,
    reload: Reload,
}

/// What `bench-ipsec --json` prints.
#[derive(Deserialize)]
struct Memory {
    packets: Vec<InMemory>,
    decisions: Vec<Decision>,
}

#[derive(Deserialize)]
struct InMemory {
    protocol: String,
    bytes: u64,
    seal_ns: f64,
    seal_of_bare: f64,
    open_ns: f64,
    open_of_bare: f64,
}

#[derive(Deserialize)]
struct Decision {
    what: String,
    ns: f64,
}

/// A line that `scripts/bench-qesp` prints: one turn of each, one after the other.
#[derive(Deserialize)]
struct Turns {
    bytes: u64,
    esp: Turn,
    qesp: Turn,
}

/// What `headroom load packets` prints.
#[derive(Deserialize)]
struct Turn {
    packets: u64,
    seconds: f64,
}

impl Turn {
    fn rate(&self) -> f64 {
        self.packets as f64 / self.seconds
    }
}

/// What `scripts/bench-reload` prints.
#[derive(Deserialize)]
struct Reload {
    reloads: u64,
    packets: u64,
    lost: u64,
    seconds: f64,
}

/// The median with the interval that its order statistics give, whatever the
/// distribution: turns of a fraction of a second have outliers.
fn median(values: &mut [f64]) -> Option<Estimate> {
    values.sort_by(f64::total_cmp);
    let half_width = 0.98 * (values.len() as f64).sqrt(); // 1.96 of the binomial's deviation
    let middle = values.len() as f64 / 2.0;
    let lo = values.get((middle - half_width).floor().max(0.0) as usize);
    let hi = values.get((middle + half_width).ceil() as usize);
    let ci95 = lo.zip(hi).map(|(&lo, &hi)| [lo, hi]);
    Some(Estimate { value: stats::median(values)?, ci95, n: Some(values.len()) })
}

impl All {
    fn document(&self) -> String {
        let mut text = String::from(
            "# Benchmarks of the tunnel\n\nWritten by `make bench-tunnel`, which anyone with root can \
             run. Absolute figures depend on the machine; compare ratios. Ratios and differences are \
             taken within blocks in which all stacks ran one after the other in random order; brackets are 95 % intervals \
             (docs/methodology.md).\n\n",
        );
        self.machine(&mut text);
        self.bars(&mut text);
        self.streams(&mut text);
        self.packets(&mut text);
        self.latency(&mut text);
        self.qesp(&mut text);
        self.in_memory(&mut text);
        text
    }

    fn machine(&self, text: &mut String) {
        let environment = &self.tunnel.results.environment;
        let plan = &self.tunnel.results.plan;
        let _ = write!(
            text,
            "| | |\n|---|---|\n| date | {} |\n| machine | {}, {} cores, shared by both ends and the link |\n\
             | kernel | {} |\n| system | {} |\n| headroom | {} |\n| link | veth, MTU {}, {}, offload {}, {} |\n",
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
        for program in &environment.programs {
            if ["wireguard-go", "swanctl", "iperf3", "nft"].contains(&program.name.as_str()) {
                let _ = writeln!(text, "| {} | {} |", program.name, program.version);
            }
        }
        let runs = [&self.tunnel, &self.link];
        let samples = || runs.iter().flat_map(|run| &run.results.samples);
        let _ = write!(
            text,
            "| blocks | {} of each in the table of streams; {} samples in all, {} failed, {} in blocks with background load |\n\n",
            self.tunnel.results.plan.repetitions,
            samples().count(),
            samples().filter(|sample| !sample.ok).count(),
            samples().filter(|sample| sample.disturbed.is_some()).count(),
        );
    }

    fn bars(&self, text: &mut String) {
        let blocks = self.tunnel.blocks();
        let _ = write!(
            text,
            "## Goals\n\nOne TCP stream, AES-128-GCM (WireGuard: ChaCha20-Poly1305), both ends on \
             the same cores. n = {blocks} blocks; {} on a full link, {} pairs of turns when CPU-bound.\n\n\
             | | at least | aim | measured | |\n|---|--:|--:|--:|---|\n",
            self.link.blocks(),
            self.turns.len()
        );
        let mut row = |what: &str, least: f64, aim: f64, found: Option<Estimate>| {
            let times = |value: f64| format!("{value:.2} ×");
            let shown =
                found.map_or("–".to_owned(), |found| found.shown(|v| format!("{v:.2}")) + " ×");
            let verdict = verdict_of(blocks, found.map(|found| found.value), least, aim);
            let _ = writeln!(
                text,
                "| {what} | {} | {} | {shown} | {verdict} |",
                times(least),
                times(aim)
            );
        };
        let stream = self.tunnel.figures().sizes("stream").first().copied().unwrap_or(0);
        for (what, stack, base, least, aim) in [
            ("ESP in UDP vs wireguard-go", "iperf3/esp(udp)", "iperf3/wireguard", 1.5, 2.2),
            (
                "ESP in UDP vs strongSwan kernel-libipsec",
                "iperf3/esp(udp)",
                "iperf3/strongswan",
                6.0,
                10.0,
            ),
            ("raw ESP vs kernel-libipsec", "iperf3/esp", "iperf3/strongswan", 2.0, 4.0),
        ] {
            row(
                what,
                least,
                aim,
                self.tunnel.figures().times_faster([stack, base], "stream", stream, |s| s.seconds),
            );
        }
        let sizes = self.sizes_in_turns();
        let all = ("all sizes".to_owned(), self.in_turns(|_| true));
        let each = sizes
            .iter()
            .map(|&size| (format!("{size} bytes"), self.in_turns(|bytes| bytes == size)));
        for (sizes, found) in std::iter::once(all).chain(each) {
            let what = format!("Q-ESP vs ESP, packets/s when CPU-bound, {sizes}");
            let shown =
                found.map_or("–".to_owned(), |found| found.shown(|v| format!("{v:.4}")) + " ×");
            let verdict = verdict(found.map(|found| found.value), 0.99, 1.0);
            let _ = writeln!(text, "| {what} | 0.99 × | 1.00 × | {shown} | {verdict} |");
        }
        for size in self.link.figures().sizes("packets") {
            let found =
                self.link
                    .figures()
                    .times_faster(["udp/qesp", "udp/esp"], "packets", size, |s| s.seconds);
            let off = found.map(|found| 100.0 * (found.value / byte_ratio(size) - 1.0));
            let shown = off.map_or("–".to_owned(), |off| format!("{off:+.2} %"));
            let good = match off {
                Some(off) if off.abs() <= 0.5 => "reached",
                Some(_) => "**missed**",
                None => "not measured",
            };
            let _ = writeln!(
                text,
                "| Q-ESP vs ESP on a full link, off the byte ratio, {size} bytes | within 0.5 % | | {shown} | {good} |"
            );
        }
        if let Some(esp) =
            self.memory.packets.iter().find(|p| p.protocol == "ESP" && p.bytes == 1400)
        {
            for (what, share) in [("seal", esp.seal_of_bare), ("open", esp.open_of_bare)] {
                let verdict = verdict(Some(share), 0.75, 0.9);
                let _ = writeln!(
                    text,
                    "| {what} in memory, 1400 bytes, one core, vs the bare AEAD | 75 % | 90 % | {:.1} % | {verdict} |",
                    share * 100.0
                );
            }
        }
        let Reload { reloads, packets, lost, seconds } = self.reload;
        let verdict = if lost == 0 { "aim reached" } else { "**missed**" };
        let _ = writeln!(
            text,
            "| packets lost on reload of SAs under load | 0 | 0 | {lost} of {packets} in {reloads} reloads, {seconds:.1} s | {verdict} |\n"
        );
    }

    fn streams(&self, text: &mut String) {
        let size = self.tunnel.figures().sizes("stream").first().copied().unwrap_or(0);
        let _ = write!(
            text,
            "## One TCP stream\n\nReceived bytes, counted inside the tunnel (client's interface) and by iperf3; CPU time of both ends per GiB. n = {} blocks.\n\n\
             | stack | Gbit/s, wire | Gbit/s, iperf3 | of no tunnel | CPU-s/GiB |\n|---|--:|--:|--:|--:|\n",
            self.tunnel.blocks()
        );
        for stack in self.tunnel.figures().stacks("iperf3") {
            let gbit = |time: f64| size as f64 * 8.0 / 1e9 / time;
            let carried = |value: Clock| {
                let cell = self.tunnel.figures().cell(stack, "stream", size);
                let found = Estimate::of_positive(cell.into_iter().filter_map(value).map(gbit));
                found.map_or("–".to_owned(), |found| found.shown(three))
            };
            let share =
                self.tunnel
                    .figures()
                    .times_faster([stack, "iperf3"], "stream", size, |s| s.seconds);
            let share = share.filter(|_| stack != "iperf3");
            let cpu = self.tunnel.figures().mean(stack, "stream", size, |sample| {
                let load = sample.load?;
                let bytes = load.bytes? as f64;
                Some(sample.cpu_seconds?.both_sides() * (1u64 << 30) as f64 / bytes)
            });
            let _ = writeln!(
                text,
                "| {} | {} | {} | {} | {} |",
                title(stack),
                carried(|sample| sample.seconds),
                carried(|sample| sample.client_seconds),
                share.map_or("1".to_owned(), |found| found.shown(three)),
                cpu.map_or("–".to_owned(), |found| three(found.value)),
            );
        }
        *text += "\n";
    }

    fn packets(&self, text: &mut String) {
        let sizes = self.tunnel.figures().sizes("packets");
        let _ = write!(text, "## Packets per second\n\nn = {} blocks. ", self.tunnel.blocks());
        *text += "Thousands of UDP datagrams per second, by payload size. A window of datagrams is in flight, sent and received in trains if the kernel supports it, so that the tunnel does most of the work. Datagrams of 4096 bytes are fragmented.\n\n| stack |";
        for size in &sizes {
            let _ = write!(text, " {size} bytes |");
        }
        *text += "\n|---|";
        *text += &"--:|".repeat(sizes.len());
        *text += "\n";
        for stack in self.tunnel.figures().stacks("udp") {
            let _ = write!(text, "| {} |", title(stack));
            for &size in &sizes {
                let cell = self.tunnel.figures().cell(stack, "packets", size);
                let found =
                    Estimate::of_positive(cell.into_iter().filter_map(|s| Some(1e-3 / s.seconds?)));
                let _ =
                    write!(text, " {} |", found.map_or("–".to_owned(), |found| found.shown(three)));
            }
            *text += "\n";
        }
        *text += "\n";
    }

    fn latency(&self, text: &mut String) {
        let _ = write!(text, "## Latency\n\nn = {} blocks. ", self.tunnel.blocks());
        *text += "Round trip of one UDP datagram at a time. A tunnel adds four passes through a gateway to each.\n\n\
                  | stack | bytes | median | added | 99th percentile | added |\n|---|--:|--:|--:|--:|--:|\n";
        for size in self.tunnel.figures().sizes("echo") {
            for stack in self.tunnel.figures().stacks("udp") {
                let p99: Clock = |sample| sample.load?.p99_s;
                let middle: Clock = |sample| sample.seconds;
                let shown = |value: Clock| {
                    let mean = self.tunnel.figures().mean(stack, "echo", size, value);
                    let added = self.tunnel.figures().added([stack, "udp"], "echo", size, value);
                    let added = added.filter(|_| stack != "udp");
                    let mean = mean.map_or("–".to_owned(), |found| seconds(found.value));
                    format!(
                        "{mean} | {}",
                        added.map_or("–".to_owned(), |found| found.shown(seconds))
                    )
                };
                let _ = writeln!(
                    text,
                    "| {} | {size} | {} | {} |",
                    title(stack),
                    shown(middle),
                    shown(p99)
                );
            }
        }
        *text += "\n";
    }

    fn qesp(&self, text: &mut String) {
        let (link, turns) = (&self.link.results.plan.link, self.turns.len());
        let _ = write!(
            text,
            "## Q-ESP beside ESP\n\nPackets/s of Q-ESP over those of ESP, tunnel mode over IPv4, AES-128-GCM. CPU-bound: the \
             median over {turns} pairs of turns of 0.2 s, of all sizes together (`scripts/bench-qesp`). Where the link ({link}) is full the ratio should be that of the frames' bytes, framing counted; n = {} blocks.\n\n\
             | bytes | CPU-bound | full link | bytes of a frame, ESP and Q-ESP | byte ratio | off |\n|--:|--:|--:|--:|--:|--:|\n",
            self.link.blocks()
        );
        for size in self.sizes_in_turns() {
            let cpu = self.in_turns(|bytes| bytes == size);
            let full =
                self.link
                    .figures()
                    .times_faster(["udp/qesp", "udp/esp"], "packets", size, |s| s.seconds);
            let four = |found: Option<Estimate>| {
                found.map_or("–".to_owned(), |found| found.shown(|v| format!("{v:.4}")))
            };
            let frames = match full {
                Some(found) => format!(
                    "{}, {} | {:.4} | {:+.2} %",
                    frame(size, 0),
                    frame(size, 8),
                    byte_ratio(size),
                    100.0 * (found.value / byte_ratio(size) - 1.0)
                ),
                None => "– | – | –".to_owned(),
            };
            let _ = writeln!(text, "| {size} | {} | {} | {frames} |", four(cpu), four(full));
        }
        *text += "\n";
    }

    fn sizes_in_turns(&self) -> BTreeSet<u64> {
        self.turns.iter().map(|turns| turns.bytes).collect()
    }

    /// Q-ESP's packets/s over ESP's, with datagrams of these sizes.
    fn in_turns(&self, of: impl Fn(u64) -> bool) -> Option<Estimate> {
        let turns = self.turns.iter().filter(|turns| of(turns.bytes));
        median(&mut turns.map(|turns| turns.qesp.rate() / turns.esp.rate()).collect::<Vec<_>>())
    }

    fn in_memory(&self, text: &mut String) {
        *text += "## In memory\n\nOne core, no I/O (`bench-ipsec` of the crate `ipsec`; medians of its rounds): sealing and opening an inner packet; share of the speed of the bare AEAD on the same number of bytes.\n\n\
                  | protocol | bytes | seal, ns | of bare | open, ns | of bare |\n|---|--:|--:|--:|--:|--:|\n";
        for row in &self.memory.packets {
            let _ = writeln!(
                text,
                "| {} | {} | {:.0} | {:.1} % | {:.0} | {:.1} % |",
                row.protocol,
                row.bytes,
                row.seal_ns,
                row.seal_of_bare * 100.0,
                row.open_ns,
                row.open_of_bare * 100.0
            );
        }
        *text += "\n| decision among 1000 associations and 1000 policies | ns |\n|---|--:|\n";
        for row in &self.memory.decisions {
            let _ = writeln!(text, "| {} | {:.0} |", row.what, row.ns);
        }
    }
}

/// Bytes of the frame of a datagram with `size` bytes of payload in tunnel mode over
/// IPv4 with AES-GCM, `more` of them beside ESP's header: IP, UDP and payload, padded
/// with the trailer to four bytes (RFC 4303 §2.4), IV and ICV.
fn frame(size: u64, more: u64) -> u64 {
    let inner = 20 + 8 + size;
    ETHERNET + 20 + 8 + more + 8 + (inner + 2).next_multiple_of(4) + 16
}

/// How many times as many frames of Q-ESP as of ESP a full link carries.
fn byte_ratio(size: u64) -> f64 {
    (frame(size, 0) + FRAMING) as f64 / (frame(size, 8) + FRAMING) as f64
}

/// A stack without its application.
fn title(stack: &str) -> &str {
    stack.split_once('/').map_or("no tunnel", |(_, layers)| layers)
}
