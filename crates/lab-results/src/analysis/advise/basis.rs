//! What advice rests on: the measured sessions of one run, link by link.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::super::slow_start::Segment;
use super::super::stats;
use super::super::summary::counted;
use crate::schema::{Environment, LinkReport, Results, Sample, WorkloadKind};

/// Measured downloads of a run, and what a prediction needs to know beside them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Basis {
    /// Name of the plan.
    pub plan: String,
    /// When the run began, RFC 3339.
    pub started: String,
    /// Processor, cores and kernel.
    pub machine: String,
    /// Version of Headroom.
    pub headroom: String,
    /// Names and versions of the servers and clients.
    pub programs: Vec<String>,
    /// Congestion control of TCP.
    pub congestion_control: String,
    /// Bytes of payload of a full packet.
    pub payload_bytes: f64,
    /// Bytes that it takes on a link, framing counted.
    pub line_bytes: f64,
    /// The main link first.
    pub links: Vec<BasisLink>,
    /// Stacks whose downloads were measured.
    pub stacks: Vec<BasisStack>,
    /// One a link, stack, number of files and size.
    pub cells: Vec<Cell>,
}

/// A link of the run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BasisLink {
    /// The specification.
    pub name: String,
    /// Bits per second, framing counted; none: unshaped.
    pub rate_bps: Option<f64>,
    /// Round-trip time without load.
    pub rtt_s: f64,
    /// Share of packets lost at random, each way.
    pub loss: f64,
    /// Packets that the bottleneck queues.
    pub queue_packets: Option<u32>,
}

/// How a stack's sender answers packets that are lost at random.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LossAnswer {
    /// It sends less, as CUBIC of the host's TCP does.
    Cubic,
    /// It keeps its rate, and sends again what was lost.
    KeepsRate,
    /// Not modelled.
    Unknown,
}

/// Properties of a stack that the run found on its main link.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BasisStack {
    /// Its name.
    pub name: String,
    /// Counted before and after the file.
    pub round_trips: Option<u32>,
    /// Bytes on a link for each byte of file.
    pub line_bytes_per_byte: f64,
    /// What the application may have in flight.
    pub window_bytes: Option<f64>,
    /// This machine's work on a byte; none: unknown.
    pub seconds_per_byte: Option<f64>,
    /// The fastest that this machine was seen to pass its files, bits per second on a link.
    pub fastest_bps: f64,
    /// Whether each file of a folder has a connection of its own.
    pub connects_for_each_file: bool,
    /// Connections of a session with one file.
    pub connections: u32,
    /// How it answers loss, which no run measures.
    pub loss_answer: LossAnswer,
}

/// Sessions of one stack with one task on one link.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// Index into [`Basis::links`].
    pub link: usize,
    /// Index into [`Basis::stacks`].
    pub stack: usize,
    /// Files of a session.
    pub files: u32,
    /// Bytes of each.
    pub bytes: u64,
    /// Transfers that each sample averages.
    pub transfers: u32,
    /// One a sample.
    pub session_s: Vec<f64>,
}

impl Cell {
    /// Median of its sessions, seconds: a lost SYN, or a burst of background load, does not
    /// decide it.
    pub fn median_s(&self) -> f64 {
        stats::median(&self.session_s).unwrap_or(f64::NAN)
    }
}

impl Basis {
    /// The basis that comes with this program: a run of `plans/back-test.toml`.
    pub fn shipped() -> Self {
        Self::parse(include_str!("basis.json"))
            .unwrap_or_else(|error| unreachable!("the shipped basis is checked by a test: {error}"))
    }

    /// Reads what `lab advise --basis` printed.
    ///
    /// # Errors
    /// A sentence: it is something else, or contradicts itself.
    pub fn parse(text: &str) -> Result<Self, String> {
        let basis: Self = serde_json::from_str(text).map_err(|error| error.to_string())?;
        basis.checked()
    }

    /// Returns it if it makes sense: whatever reads it then needs no check.
    fn checked(self) -> Result<Self, String> {
        let sane = |what: &str, is: bool| is.then_some(()).ok_or(format!("bad {what}"));
        let packets = [self.payload_bytes, self.line_bytes];
        sane("length of packets", all_between(1.0, 1e6, packets))?;
        for BasisLink { name, rate_bps, rtt_s, loss, .. } in &self.links {
            sane(&format!("rate of link {name}"), rate_bps.is_none_or(is_rate))?;
            sane(&format!("round-trip time of link {name}"), (0.0..=100.0).contains(rtt_s))?;
            sane(&format!("loss of link {name}"), (0.0..=0.5).contains(loss))?;
        }
        for stack in &self.stacks {
            let costs = [stack.window_bytes, stack.seconds_per_byte].into_iter().flatten();
            let is = all_between(f64::MIN_POSITIVE, 1e15, costs)
                && (0.01..=1e6).contains(&stack.line_bytes_per_byte)
                && (0.0..=1e15).contains(&stack.fastest_bps)
                && stack.connections <= 10_000;
            sane(&format!("costs of stack {}", stack.name), is)?;
        }
        for cell in &self.cells {
            let is = cell.link < self.links.len()
                && cell.stack < self.stacks.len()
                && (1..=1_000_000).contains(&cell.files)
                && !cell.session_s.is_empty()
                && all_between(1e-9, 1e9, cell.session_s.iter().copied());
            sane(&format!("session of link {} and stack {}", cell.link, cell.stack), is)?;
        }
        Ok(self)
    }

    /// Takes what it needs from a run's results; `loss_answer` says by the name of a stack how it
    /// answers loss.
    ///
    /// # Errors
    /// A sentence: why no advice can rest on that run.
    pub fn of(results: &Results, loss_answer: impl Fn(&str) -> LossAnswer) -> Result<Self, String> {
        let mut links = std::iter::once(&results.link).chain(&results.validation_links);
        if let Some(link) = links.find(|link| link.follows_trace()) {
            return Err(format!(
                "advice rests on links with one rate, and {} follows a trace; `headroom lab run plans/back-test.toml` \
                 measures such links",
                link.name
            ));
        }
        let segment = Segment::of(&results.plan);
        let environment = &results.environment;
        let near_s = {
            let rtt = results.link.rtt_us.map(|us| us / 1e6);
            (rtt.unwrap_or(0.0) - 2.0 * results.link.delay_ms / 1e3).max(0.0)
        };
        let of_link = |link: &LinkReport| BasisLink {
            name: link.name.clone(),
            rate_bps: link.rate_bps.map(|bps| bps as f64),
            rtt_s: near_s + 2.0 * link.delay_ms / 1e3,
            loss: link.loss_pct / 100.0,
            queue_packets: link.queue_packets,
        };
        let links: Vec<BasisLink> =
            std::iter::once(&results.link).chain(&results.validation_links).map(of_link).collect();
        let downloads: Vec<&Sample> = results.samples.iter().filter(|s| is_download(s)).collect();
        let stacks: Vec<BasisStack> = results
            .plan
            .stacks
            .iter()
            .filter_map(|s| stack(results, &downloads, &s.name, loss_answer(&s.name)))
            .collect();
        if stacks.is_empty() {
            return Err(
                "advice rests on downloads, and this run counted the packets of none at two sizes; \
                 `headroom lab run plans/back-test.toml` measures them"
                    .to_owned(),
            );
        }
        // the model has one loss for both ways, each packet independent of the others
        let reports = std::iter::once(&results.link).chain(&results.validation_links);
        let is_modelled: Vec<bool> = reports.map(LinkReport::loses_as_modelled).collect();
        let mut cells: BTreeMap<(usize, usize, u32, u64), Vec<&Sample>> = BTreeMap::new();
        for sample in downloads {
            let link = links.iter().position(|link| link.name == sample.link);
            let link = link.filter(|&index| is_modelled[index]);
            let stack = stacks.iter().position(|stack| stack.name == sample.stack);
            if let (Some(link), Some(stack)) = (link, stack) {
                let key = (link, stack, sample.files.max(1), sample.size_bytes);
                cells.entry(key).or_default().push(sample);
            }
        }
        let cells = cells.into_iter().filter_map(|((link, stack, files, bytes), samples)| {
            let samples = counted(&samples);
            let session_s: Vec<f64> =
                samples.iter().filter_map(|s| s.session_seconds.filter(|s| *s > 0.0)).collect();
            let transfers = samples.iter().map(|s| s.transfers.max(1)).min()?;
            let cell = Cell { link, stack, files, bytes, transfers, session_s };
            (!cell.session_s.is_empty()).then_some(cell)
        });
        let basis = Self {
            plan: results.plan.name.clone(),
            started: environment.started.clone(),
            machine: machine(environment),
            headroom: environment.headroom.clone(),
            programs: environment.programs_under_test(),
            congestion_control: results.plan.all_congestion_controls(),
            payload_bytes: segment.payload_bytes,
            line_bytes: segment.line_bytes,
            cells: cells.collect(),
            links,
            stacks,
        };
        basis.checked()
    }

    /// A full packet.
    pub fn segment(&self) -> Segment {
        Segment { payload_bytes: self.payload_bytes, line_bytes: self.line_bytes }
    }

    /// The same without the cells of a link.
    #[must_use]
    pub fn without_link(&self, link: usize) -> Self {
        let cells = self.cells.iter().filter(|cell| cell.link != link).cloned().collect();
        Self { cells, ..self.clone() }
    }

    /// The links that have cells, with a rate, with or without loss.
    pub fn shaped_links(&self, lossy: bool) -> Vec<usize> {
        (0..self.links.len())
            .filter(|&index| {
                let link = &self.links[index];
                link.rate_bps.is_some()
                    && (link.loss > 0.0) == lossy
                    && self.cells.iter().any(|cell| cell.link == index)
            })
            .collect()
    }

    /// The cells of a stack.
    pub fn cells_of(&self, stack: usize) -> impl Iterator<Item = &Cell> {
        self.cells.iter().filter(move |cell| cell.stack == stack)
    }
}

fn all_between(least: f64, most: f64, values: impl IntoIterator<Item = f64>) -> bool {
    values.into_iter().all(|value| (least..=most).contains(&value))
}

/// From 1 bit/s to more than any link has.
fn is_rate(bps: f64) -> bool {
    (1.0..=1e13).contains(&bps)
}

/// `CPU, 2 cores, Linux 6.18`: of the kernel the version that matters.
fn machine(environment: &Environment) -> String {
    let kernel: Vec<&str> = environment.kernel.split('.').take(2).collect();
    let Environment { cpu, cores, .. } = environment;
    format!("{}, {cores} cores, Linux {}", cpu.trim(), kernel.join("."))
}

/// Whether it is of one client that downloads files of random bytes, alone.
fn is_download(sample: &Sample) -> bool {
    let kind = WorkloadKind::of(&sample.workload);
    let plain = kind.is_some_and(|kind| kind.name() == sample.workload);
    plain && matches!(kind, Some(WorkloadKind::Download | WorkloadKind::Many))
}

fn stack(
    results: &Results,
    downloads: &[&Sample],
    name: &str,
    loss_answer: LossAnswer,
) -> Option<BasisStack> {
    let portable = results.portable.iter().find(|row| row.stack == name)?;
    let line_bytes_per_byte =
        portable.line_bytes_per_byte.or_else(|| seen_on_link(results, downloads, name))?;
    let on_main = |s: &&&Sample| s.stack == name && s.link == results.link.name;
    let goodput = |s: &&Sample| {
        let bytes = s.size_bytes as f64 * f64::from(s.files.max(1));
        s.seconds.filter(|s| *s > 0.0).map(|s| 8.0 * bytes / s)
    };
    let fastest = downloads.iter().filter(on_main).filter_map(goodput).fold(0.0, f64::max);
    let seen = portable.fill_bps.unwrap_or(0.0).max(fastest * line_bytes_per_byte);
    // on the main link it was measured, however much of it the stack filled
    let fastest_bps = results.link.rate_bps.map_or(seen, |bps| seen.max(bps as f64));
    let counted = |files: fn(u32) -> bool| {
        let of_kind = |s: &&&Sample| files(s.files.max(1));
        let one = downloads.iter().filter(on_main).filter(of_kind).find(|s| s.wire.is_some());
        one.and_then(|s| Some((s.wire?.connections, s.files.max(1))))
    };
    let connections = counted(|files| files == 1).map_or(1, |(connections, _)| connections);
    let for_each = counted(|files| files > 1).is_some_and(|(all, files)| all >= files);
    Some(BasisStack {
        name: name.to_owned(),
        round_trips: portable
            .round_trips
            .map(|trips| trips + portable.round_trips_after.unwrap_or(0)),
        line_bytes_per_byte,
        window_bytes: portable.window_bytes.map(|bytes| bytes as f64),
        seconds_per_byte: portable.seconds_per_gb.map(|s| s / 1e9).filter(|s| *s > 0.0),
        fastest_bps,
        connects_for_each_file: for_each,
        connections,
        loss_answer,
    })
}

/// Bytes on a link for each byte of file as the link's counters saw them: stands in where no
/// packets were counted. Only shaped links count, where no segment is larger than a packet.
fn seen_on_link(results: &Results, downloads: &[&Sample], name: &str) -> Option<f64> {
    /// Preamble, start of frame, checksum, gap between frames (IEEE 802.3).
    const FRAMING: f64 = 24.0;
    let payload = Segment::of(&results.plan).payload_bytes;
    let clear = |link: &str| {
        let links = std::iter::once(&results.link).chain(&results.validation_links);
        links.filter(|l| l.name == link).any(|l| l.rate_bps.is_some() && !l.is_lossy())
    };
    let seen = |s: &&&Sample| Some((s.size_bytes as f64, s.usage?.to_client_bytes));
    let of_stack = |s: &&&Sample| s.stack == name && s.files <= 1 && clear(&s.link);
    let all: Vec<(f64, f64)> = downloads.iter().filter(of_stack).filter_map(|s| seen(&s)).collect();
    let ends = |size: f64| {
        let of_size = all.iter().filter(|(bytes, _)| *bytes == size).map(|(_, seen)| *seen);
        stats::median(&of_size.collect::<Vec<_>>())
    };
    let sizes = || all.iter().map(|(bytes, _)| *bytes);
    let (small, large) = (sizes().reduce(f64::min)?, sizes().reduce(f64::max)?);
    let per_byte = (ends(large)? - ends(small)?) / (large - small);
    (large > small).then_some(per_byte + FRAMING / payload)
}

#[cfg(test)]
mod tests {
    use super::super::tests::basis;
    use super::*;

    /// The kept run on four links without loss, as if it had moved a larger file as well.
    fn of_two_sizes() -> Results {
        let kept = concat!(env!("CARGO_MANIFEST_DIR"), "/../lab/tests/data/round-trips.json");
        let mut results = crate::report::read_file(kept.as_ref()).expect("the kept results");
        let mut larger = results.samples.clone();
        for sample in &mut larger {
            sample.size_bytes = 1 << 20;
            if let Some(wire) = &mut sample.wire {
                wire.file_direction_bytes += 1 << 20;
            }
        }
        results.samples.extend(larger);
        crate::analysis::derive(&mut results, &BTreeMap::new());
        results
    }

    fn of_tcp(results: &Results) -> Basis {
        Basis::of(results, |_| LossAnswer::Cubic).expect("downloads of two sizes")
    }

    #[test]
    fn the_shipped_basis_and_what_is_printed_can_be_read() {
        assert_eq!(Basis::shipped().shaped_links(false).len(), 7);
        let text = serde_json::to_string(&basis()).expect("JSON");
        assert_eq!(Basis::parse(&text), Ok(basis()));
    }

    #[test]
    fn a_link_that_loses_packets_one_way_is_none_without_loss() {
        let mut results = of_two_sizes();
        assert_eq!(of_tcp(&results).shaped_links(false), [0, 1, 2, 3]);
        let link = &mut results.validation_links[2];
        link.directions.as_mut().expect("both").up.loss_pct = 2.0;
        let basis = of_tcp(&results);
        assert_eq!(basis.shaped_links(false), [0, 1, 2]);
        assert!(basis.shaped_links(true).is_empty(), "nor is it one that loses both ways");
    }

    #[test]
    fn a_link_that_loses_packets_in_bursts_does_not_count() {
        let mut results = of_two_sizes();
        let mut lossy = |burst: Option<f64>| {
            let link = &mut results.validation_links[2];
            link.loss_pct = 1.0;
            let both = link.directions.as_mut().expect("both");
            for direction in [&mut both.down, &mut both.up] {
                (direction.loss_pct, direction.loss_burst) = (1.0, burst);
            }
            of_tcp(&results).shaped_links(true)
        };
        assert_eq!(lossy(Some(1.0 / 0.99)), [3], "each packet independently");
        assert!(lossy(Some(3.0)).is_empty(), "three at once");
    }

    #[test]
    fn a_basis_that_contradicts_itself_is_refused() {
        let refused = |change: fn(&mut Basis)| {
            let mut basis = basis();
            change(&mut basis);
            basis.checked().expect_err("it makes no sense")
        };
        assert_eq!(refused(|b| b.payload_bytes = 0.0), "bad length of packets");
        assert!(refused(|b| b.links[1].rate_bps = Some(0.0)).starts_with("bad rate of link"));
        assert!(refused(|b| b.links[1].rtt_s = f64::NAN).contains("round-trip time"));
        assert!(refused(|b| b.links[1].loss = 1.0).contains("loss"));
        assert_eq!(refused(|b| b.stacks[0].line_bytes_per_byte = -1.0), "bad costs of stack quick");
        for change in [
            (|b: &mut Basis| b.cells[0].link = 99) as fn(&mut Basis),
            |b| b.cells[0].stack = 99,
            |b| b.cells[0].files = 0,
            |b| b.cells[0].session_s.clear(),
            |b| b.cells[0].session_s[0] = -1.0,
        ] {
            assert!(refused(change).starts_with("bad session"), "a cell");
        }
    }
}
