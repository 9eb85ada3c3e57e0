//! A run: build the testbed, start the servers, measure shuffled paired blocks,
//! count packets, take everything down, analyse.

mod environment;
mod sample;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use rand::SeedableRng;
use rand::rngs::ChaCha8Rng;
use rand::seq::SliceRandom;

use crate::analysis::stop::{self, Decision, Until, Width};
use crate::analysis::{self, stats};
use crate::command::Executor;
use crate::error::{Error, Result};
use crate::link::{LinkSpec, Queue, Way};
use crate::measure::wire;
use crate::parts::{self, Parts, Program};
use crate::plan::{Offload, Plan};
use crate::results::{
    LinkReport, PlanRecord, Results, SCHEMA, StackRecord, Timeline, Wire, WorkloadRecord,
};
use crate::testbed::{Settings, Testbed};
use crate::units;
use crate::workload::{Kind, Workload};

use sample::{Bench, Cell, Measured};

/// How to run, beside what.
#[derive(Debug, Clone)]
pub struct Options {
    /// Folder in which the run's scratch folder is made, if the user chose one:
    /// the test files then go there. Else they go to a tmpfs where they fit.
    pub scratch: Option<PathBuf>,
    /// This program's executable.
    pub headroom: PathBuf,
    /// What the built-in client calls itself.
    pub client_version: String,
    /// Set by a signal handler to end the run early.
    pub interrupted: Arc<AtomicBool>,
}

/// Who is told how far a run is.
pub trait Progress {
    /// A stage begins.
    fn stage(&self, text: &str);
    /// The work ahead, in milliseconds of expected time, was found to be more
    /// by this much.
    fn expect(&self, ms: u64);
    /// So much of it is done.
    fn advance(&self, ms: u64, what: &str);
}

/// Runs a plan.
///
/// # Errors
/// What could not be done; everything was removed again.
pub fn run(plan: &Plan, options: &Options, progress: &dyn Progress) -> Result<Results> {
    require(plan)?;
    let parts = Parts::from_environment();
    let started = environment::now();
    let clock = Instant::now();
    let mut run = Run::up(plan, options, Arc::new(Executor::real(parts)), progress)?;
    let up = clock.elapsed();
    let measured = match run.measure() {
        Ok(measured) => measured,
        // Ctrl-C also reaches the commands that a run waits for.
        Err(_) if options.interrupted.load(Ordering::Relaxed) => return Err(Error::Interrupted),
        // Whatever went wrong, a server that died explains it best.
        Err(error) => return Err(run.bench.blame_a_server(error)),
    };
    let mut environment = environment::record(plan, &run, started);
    let (links, warnings) = (std::mem::take(&mut run.links), std::mem::take(&mut run.warnings));
    let clock = Instant::now();
    drop(run);
    let (up, down) = (up.as_secs_f64(), clock.elapsed().as_secs_f64());
    let testbed = format!("up in {up:.2} s, servers included; down in {down:.2} s");
    environment.settings.insert("testbed".to_owned(), testbed);
    Ok(analyse(plan, environment, links, measured, warnings))
}

/// What a run would do to the system, one shell line each.
///
/// # Errors
/// The plan cannot be run at all.
pub fn dry_run(plan: &Plan, options: &Options) -> Result<Vec<String>> {
    struct Silent;
    impl Progress for Silent {
        fn stage(&self, _: &str) {}
        fn expect(&self, _: u64) {}
        fn advance(&self, _: u64, _: &str) {}
    }
    let executor = Arc::new(Executor::dry(Parts::from_environment()));
    let mut run = Run::up(plan, options, Arc::clone(&executor), &Silent)?;
    run.rehearse()?;
    Ok(executor.noted())
}

/// The longest idle stretch in `trials` transfers of a plan's first cell, in
/// seconds; none where no packet was seen.
pub(crate) fn longest_gap(
    plan: &Plan,
    options: &Options,
    trials: u32,
    progress: &dyn Progress,
) -> Result<Option<f64>> {
    require(plan)?;
    let parts = Parts::from_environment();
    let mut run = Run::up(plan, options, Arc::new(Executor::real(parts)), progress)?;
    run.bench.testbed.set_link(&plan.link, plan.offload)?;
    progress.stage("looking for sleeping clients");
    let cells = run.blocks(&plan.link, &plan.workloads).cells;
    let mut longest: Option<f64> = None;
    for block in 0..trials {
        let row = run.bench.measure(&cells[0], block)?;
        if let Some(error) = row.sample.error {
            return Err(Error::Failed(error));
        }
        let gap = row.last.map(|record| record.longest_gap_s);
        longest = longest.into_iter().chain(gap).reduce(f64::max);
    }
    Ok(longest)
}

/// Rebuilds what is derived from the samples: outliers, summary, portable costs,
/// models, predictions, answer.
pub fn reanalyse(results: &mut Results) {
    let windows = windows(results.plan.stacks.iter().map(|stack| stack.name.as_str()));
    analysis::derive(results, &windows);
}

/// Whether this machine can run a plan at all.
///
/// # Errors
/// [`Error::Missing`]: the privilege or the programs that it lacks.
pub fn require(plan: &Plan) -> Result<()> {
    if !nix::unistd::geteuid().is_root() {
        return Err(Error::Missing(
            "the lab makes network namespaces, which needs root: run it with sudo, \
             or see what it would do with --dry-run"
                .into(),
        ));
    }
    let services = plan.stacks.iter().flat_map(|planned| planned.stack.service.programs());
    let programs: Vec<Program> = parts::TESTBED.iter().chain(services).copied().collect();
    Parts::from_environment().require(&programs)
}

/// The blocks of a plan's workloads on one link.
struct Blocks {
    cells: Vec<Cell>,
    /// Workload by workload and size by size: indices into `cells`.
    groups: Vec<Vec<usize>>,
}

/// A run in progress.
struct Run<'a> {
    plan: &'a Plan,
    bench: Bench<'a>,
    progress: &'a dyn Progress,
    links: Vec<LinkReport>,
    warnings: Vec<String>,
    random: ChaCha8Rng,
    next_block: u32,
    client_version: String,
}

impl<'a> Run<'a> {
    fn up(
        plan: &'a Plan,
        options: &Options,
        executor: Arc<Executor>,
        progress: &'a dyn Progress,
    ) -> Result<Self> {
        progress.stage("building the testbed");
        let settings = Settings {
            scratch_parent: options.scratch.clone().unwrap_or_else(std::env::temp_dir),
            scratch_chosen: options.scratch.is_some(),
            headroom: options.headroom.clone(),
            scratch_bytes: scratch_bytes(plan),
            interrupted: Arc::clone(&options.interrupted),
        };
        let testbed = Testbed::up(plan, &settings, executor)?;
        let mut bench = Bench::new(plan, testbed, Arc::clone(&options.interrupted))?;
        progress.stage("starting the servers");
        bench.start_servers()?;
        Ok(Self {
            plan,
            bench,
            progress,
            links: Vec::new(),
            warnings: Vec::new(),
            random: ChaCha8Rng::seed_from_u64(plan.seed),
            next_block: 0,
            client_version: options.client_version.clone(),
        })
    }

    fn measure(&mut self) -> Result<Vec<Measured>> {
        let plan = self.plan;
        let mut measured =
            self.on_link(&plan.link, &plan.workloads, plan.repetitions, plan.until)?;
        if !plan.check_links.is_empty() {
            let check = self.check_workload();
            for link in &plan.check_links {
                // where packets are lost at random no few blocks tell
                let lossy = link.down.loss.average_pct() > 0.0;
                let least = if lossy { plan.repetitions } else { CHECK_REPETITIONS };
                match self.on_link(link, &check, plan.repetitions.min(least), None) {
                    Ok(more) => measured.extend(more),
                    // The answer stands without a point to check it against.
                    Err(Error::Link(why)) => {
                        self.warnings.push(format!("A check link was left out: {why}."));
                    }
                    Err(error) => return Err(error),
                }
            }
        }
        self.account(&mut measured)?;
        Ok(measured)
    }

    /// Notes every command of a run, each kind of transfer once.
    fn rehearse(&mut self) -> Result<()> {
        let plan = self.plan;
        let check = self.check_workload();
        let checks = plan.check_links.iter().map(|link| (link, &check[..]));
        for (link, workloads) in std::iter::once((&plan.link, &plan.workloads[..])).chain(checks) {
            self.bench.testbed.set_link(link, plan.offload)?;
            self.bench.testbed.forget_metrics()?;
            for cell in self.blocks(link, workloads).cells {
                self.bench.rehearse(&cell)?;
            }
        }
        Ok(())
    }

    /// Downloads, to compare predictions with.
    fn check_workload(&self) -> Vec<Workload> {
        let stacks: Vec<String> = self
            .plan
            .stacks
            .iter()
            .filter(|planned| planned.stack.service.accepts(Kind::Download))
            .map(|planned| planned.stack.name.clone())
            .collect();
        let sizes = self.plan.check_sizes.clone();
        vec![Workload { kind: Kind::Download, sizes, stacks, files: 1, clients: 1, commands: None }]
    }

    fn blocks(&self, link: &LinkSpec, workloads: &[Workload]) -> Blocks {
        let mut blocks = Blocks { cells: Vec::new(), groups: Vec::new() };
        for workload in workloads {
            for &size in &workload.sizes {
                let first = blocks.cells.len();
                blocks.cells.extend(
                    workload.stacks.iter().map(|stack| Cell::new(link, stack, workload, size)),
                );
                blocks.groups.push((first..blocks.cells.len()).collect());
            }
        }
        blocks
    }

    /// Measures workloads on a link: warm-up, then shuffled blocks.
    fn on_link(
        &mut self,
        spec: &LinkSpec,
        workloads: &[Workload],
        repetitions: u32,
        until: Option<Until>,
    ) -> Result<Vec<Measured>> {
        self.progress.stage(&format!("testing the link ({spec})"));
        let mut report = self.bench.testbed.set_link(spec, self.plan.offload)?;
        let mut blocks = self.blocks(spec, workloads);
        self.progress.stage(&format!("warming up ({spec})"));
        for cell in &mut blocks.cells {
            self.bench.warm_up(cell, self.plan.warmup)?;
        }
        let expected: f64 = blocks.cells.iter().map(Cell::expected_s).sum();
        self.progress.expect((expected * 1e3) as u64 * u64::from(repetitions));

        let mut measured = Vec::new();
        let mut repeats_left = blocks.groups.len() as u32 * repetitions / 5;
        let mut rounds = 0;
        while !blocks.groups.is_empty() {
            blocks.groups.shuffle(&mut self.random);
            for mut group in blocks.groups.clone() {
                let mut why: Option<String> = None;
                loop {
                    let foreign =
                        self.block(&blocks.cells, &mut group, why.as_deref(), &mut measured)?;
                    let Some(pct) = foreign.filter(|pct| *pct > MAX_FOREIGN_PCT) else { break };
                    let text = format!("foreign load {pct:.1} %");
                    let marked = self.next_block - 1;
                    for row in
                        measured.iter_mut().filter(|row: &&mut Measured| row.sample.block == marked)
                    {
                        row.sample.marked = Some(text.clone());
                    }
                    if repeats_left == 0 {
                        break;
                    }
                    repeats_left -= 1;
                    why = Some(text);
                }
            }
            rounds += 1;
            if rounds >= repetitions {
                self.retire(&mut blocks, rounds, until, &measured);
            }
        }
        let rtts: Vec<f64> = measured.iter().flat_map(|row| row.rtts_s.iter().copied()).collect();
        report.rtt_us = stats::median(&rtts).map(|s| s * 1e6);
        self.links.push(report);
        Ok(measured)
    }

    /// Ends the groups that were measured often enough after so many rounds.
    fn retire(
        &mut self,
        blocks: &mut Blocks,
        rounds: u32,
        until: Option<Until>,
        measured: &[Measured],
    ) {
        let Some(until) = until else { return blocks.groups.clear() };
        let (stacks, cells) = (stack_records(self.plan), &blocks.cells);
        let warnings = &mut self.warnings;
        blocks.groups.retain(|group| {
            let cell = &cells[group[0]];
            let of_group =
                |row: &&Measured| row.kind == cell.workload.kind && row.sample.size_bytes == cell.size;
            let samples: Vec<_> =
                measured.iter().filter(of_group).map(|row| &row.sample).collect();
            let decision = until.decide(rounds, &stop::widths(&samples, &stacks));
            if let Decision::Exhausted(Width { stack, half_width_pct }) = &decision {
                let width = half_width_pct
                    .map_or("unknown".to_owned(), |pct| format!("± {} %", units::three(pct)));
                let named = group.iter().map(|&i| &cells[i]).find(|cell| cell.stack == *stack);
                let named = named.map_or(stack.clone(), ToString::to_string);
                warnings.push(format!(
                    "After {rounds} blocks the interval of {named} is {width}, and the plan asked for {until}."
                ));
            }
            decision == Decision::Continue
        });
        let ahead = blocks.groups.iter().flatten().map(|&i| blocks.cells[i].expected_s());
        self.progress.expect((ahead.sum::<f64>() * 1e3) as u64);
    }

    /// One block: all stacks of one workload and size, adjacent in time, in
    /// random order. Returns the largest share of foreign load.
    fn block(
        &mut self,
        cells: &[Cell],
        group: &mut [usize],
        repeats: Option<&str>,
        measured: &mut Vec<Measured>,
    ) -> Result<Option<f64>> {
        group.shuffle(&mut self.random);
        self.bench.testbed.forget_metrics()?;
        let block = self.next_block;
        self.next_block += 1;
        let mut foreign: Option<f64> = None;
        for &index in group.iter() {
            let cell = &cells[index];
            let row = self.bench.measure(cell, block)?;
            foreign = foreign.into_iter().chain(row.sample.foreign_pct).reduce(f64::max);
            let again = repeats.map_or("", |_| " again");
            let done = if repeats.is_none() { (cell.expected_s() * 1e3) as u64 } else { 0 };
            self.progress.advance(done, &format!("{cell}{again}"));
            measured.push(row);
        }
        Ok(foreign)
    }

    /// 1 Gbit/s, and a queue that holds all that TCP's largest buffer lets it send;
    /// without a shaper, as fast as the machine.
    fn accounting_link(&self) -> LinkSpec {
        let executor = self.bench.testbed.executor();
        let shaped =
            crate::testbed::features(executor).iter().any(|&(name, has, _)| name == "htb" && has);
        LinkSpec::symmetric(Way {
            rate_bps: shaped.then_some(1_000_000_000),
            queue: Some(Queue::Packets(20_000)),
            ..Way::default()
        })
    }

    /// Counts packets and octets: one transfer of each cell of the main link, in
    /// runs of their own without offloads (METHOD 10), at a rate that no queue of
    /// the kernel overflows at: a packet sent again would be counted twice.
    fn account(&mut self, measured: &mut [Measured]) -> Result<()> {
        self.progress.stage("counting packets");
        self.bench.testbed.shape(&self.accounting_link(), Offload::PerPacket)?;
        let mut counted: BTreeMap<(String, &'static str, u64), Option<Wire>> = BTreeMap::new();
        let main = self.plan.link.to_string();
        for cell in self.blocks(&self.plan.link, &self.plan.workloads).cells {
            if cell.octets() > LARGEST_ACCOUNTED {
                self.warnings.push(format!(
                    "the packets of {cell} were not counted: it moves more than {}.",
                    units::size(LARGEST_ACCOUNTED)
                ));
                continue;
            }
            let failed = measured.iter().any(|row| {
                !row.sample.ok && row.sample.stack == cell.stack && row.kind == cell.workload.kind
            });
            if failed {
                continue; // it would fail here too, and end the run
            }
            let wire = self.bench.account(&cell)?;
            counted.insert((cell.stack.clone(), cell.workload.kind.name(), cell.size), wire);
        }
        for ((stack, kind, size), wire) in counted {
            let of_cell = |row: &&mut Measured| {
                let sample = &row.sample;
                sample.link == main
                    && sample.stack == stack
                    && row.kind.name() == kind
                    && sample.size_bytes == size
            };
            // Without delay on the link an answer that nobody waits for can come
            // between two questions and look like one: the fewest count.
            let fewest =
                measured.iter_mut().filter(of_cell).filter_map(|row| row.round_trips).min();
            for row in measured.iter_mut().filter(of_cell) {
                row.sample.wire = wire.map(|wire| Wire {
                    round_trips: wire
                        .round_trips
                        .map(|trips| fewest.map_or(trips, |least| trips.min(least))),
                    ..wire
                });
            }
        }
        Ok(())
    }
}

/// A link that is full leaves little to chance: three blocks tell enough.
const CHECK_REPETITIONS: u32 = 3;

/// METHOD 11: above this share of the machine a block is marked and repeated.
const MAX_FOREIGN_PCT: f64 = 5.0;

/// Larger transfers would take gigabytes of trace.
const LARGEST_ACCOUNTED: u64 = 1 << 30;

/// Octets that test files and their copies need: each size once, and the
/// largest transfer (or a batch of small ones) twice over.
fn scratch_bytes(plan: &Plan) -> u64 {
    const MARGIN: u64 = 64 << 20;
    let check = plan.check_sizes.iter().copied().filter(|_| !plan.check_links.is_empty());
    let octets = plan.workloads.iter().flat_map(|w| w.sizes.iter().map(|&s| w.octets(s)));
    let octets: Vec<u64> = octets.chain(check).collect();
    let files: u64 = octets.iter().sum();
    let largest = octets.iter().copied().max().unwrap_or(0);
    files + 2 * largest.max(sample::BATCH_BYTES) + MARGIN
}

fn windows<'a>(stacks: impl Iterator<Item = &'a str>) -> BTreeMap<String, u64> {
    stacks
        .filter_map(|name| {
            let stack = crate::stack::Stack::parse(name).ok()?;
            Some((name.to_owned(), stack.service.window()?.0))
        })
        .collect()
}

fn analyse(
    plan: &Plan,
    environment: crate::results::Environment,
    mut links: Vec<LinkReport>,
    measured: Vec<Measured>,
    mut warnings: Vec<String>,
) -> Results {
    let link = links.remove(0);
    let timelines = timelines(plan, &link.name, &measured);
    let mut results = Results {
        schema: SCHEMA,
        answer: Vec::new(),
        plan: plan_record(plan),
        environment,
        link,
        check_links: links,
        samples: measured.into_iter().map(|row| row.sample).collect(),
        summary: Vec::new(),
        portable: Vec::new(),
        models: Vec::new(),
        crossovers: Vec::new(),
        predictions: Vec::new(),
        timelines,
        warnings: Vec::new(),
    };
    reanalyse(&mut results);
    warnings.extend(environment::warnings(&results));
    results.warnings = warnings;
    results
}

/// For each stack the download with the median session among those of 1 MiB,
/// or of the size nearest to it; failing downloads, of whatever there is.
fn timelines(plan: &Plan, link: &str, measured: &[Measured]) -> Vec<Timeline> {
    const TELLING: u64 = 1 << 20;
    let distance = |size: u64| size.max(1).ilog2().abs_diff(TELLING.ilog2());
    plan.stacks
        .iter()
        .filter_map(|planned| {
            let of_stack = || {
                measured.iter().filter(|row| {
                    row.sample.ok
                        && row.sample.link == link
                        && row.sample.stack == planned.stack.name
                })
            };
            let (kind, size) = of_stack()
                .map(|row| (row.kind, row.sample.size_bytes))
                .min_by_key(|&(kind, size)| (kind, distance(size)))?;
            let mut rows: Vec<(&Measured, &wire::Record)> = of_stack()
                .filter(|row| row.kind == kind && row.sample.size_bytes == size)
                .filter_map(|row| Some((row, row.last.as_ref()?)))
                .collect();
            rows.sort_by(|a, b| a.1.session_s.total_cmp(&b.1.session_s));
            let (row, record) = rows.get(rows.len() / 2)?;
            Some(Timeline {
                stack: row.sample.stack.clone(),
                workload: row.sample.workload.clone(),
                size_bytes: size,
                session_s: record.session_s,
                segments: record.segments.clone(),
            })
        })
        .collect()
}

fn plan_record(plan: &Plan) -> PlanRecord {
    PlanRecord {
        name: plan.name.clone(),
        question: plan.question.clone(),
        stacks: stack_records(plan),
        workloads: plan
            .workloads
            .iter()
            .map(|w| WorkloadRecord {
                kind: w.kind.name().to_owned(),
                sizes_bytes: w.sizes.clone(),
                stacks: w.stacks.clone(),
            })
            .collect(),
        repetitions: plan.repetitions,
        until_ci_pct: plan.until.map(|until| until.half_width_pct),
        max_repetitions: plan.until.map(|until| until.most_blocks),
        warmup: plan.warmup,
        family: plan.family.name().to_owned(),
        mtu: plan.mtu,
        offload: plan.offload.name().to_owned(),
        congestion_control: plan.congestion_control.clone(),
        link: plan.link.to_string(),
        check_links: plan.check_links.iter().map(ToString::to_string).collect(),
        check_sizes_bytes: plan.check_sizes.clone(),
        check_size_bytes: plan.check_sizes.iter().copied().max().unwrap_or(0),
        seed: plan.seed,
    }
}

fn stack_records(plan: &Plan) -> Vec<StackRecord> {
    plan.stacks
        .iter()
        .map(|p| StackRecord { name: p.stack.name.clone(), baseline: p.baseline.clone() })
        .collect()
}

/// Whether the user asked to stop.
pub(crate) fn check(interrupted: &AtomicBool) -> Result<()> {
    if interrupted.load(Ordering::Relaxed) { Err(Error::Interrupted) } else { Ok(()) }
}
