//! A run: build the testbed, start the servers, measure shuffled paired blocks,
//! count packets, take everything down, analyse.

mod accounting;
mod bench;
mod captures;
mod cell;
mod clear_text;
mod clear_text_verdict;
mod entry;
mod environment;
mod estimate;
mod journal;
mod payloads;
mod record;
mod resume;
mod sample;
mod set_up;
mod space;
mod transfer;
mod wrapped;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rand::SeedableRng;
use rand::rngs::ChaCha8Rng;
use rand::seq::SliceRandom;

use crate::link::{LinkDirection, LinkSpec, Queue};
use crate::plan::{Offload, Plan};
use crate::units;
use crate::workload::{Kind, Workload};

pub use estimate::{expected_time, rounded, sentence as sentence_on_time};
pub use journal::NAME as JOURNAL;
pub use resume::{Resumption, measured, resume, unfinished};

use bench::Bench;
use cell::Cell;
use entry::{Block, Counted, Entry, Header, LinkSet, Place, Row};
use estimate::Estimate;
use headroom_lab_host::command::Executor;
use headroom_lab_host::error::{Error, Result};
use headroom_lab_host::hosts::{Machines, RealHost};
use headroom_lab_host::programs::SearchPath;
use headroom_lab_host::resources::cgroup;
use headroom_lab_host::resources::cpu::MAX_FOREIGN_PCT;
use headroom_lab_host::testbed::{Settings, Testbed};
use headroom_lab_results::analysis;
use headroom_lab_results::analysis::stop::{self, Decision, Until, Width};
use headroom_lab_results::report;
use headroom_lab_results::schema::{PlanRecord, Results, Resumed, SCHEMA};
use journal::Journal;
use record::Record;

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
    /// Whether the packets of the accounting runs are kept, in `captures/`.
    pub keep_captures: bool,
    /// Set by a signal handler to end the run early.
    pub interrupted: Arc<AtomicBool>,
}

impl Options {
    fn settings(&self, plan: &Plan) -> Settings {
        Settings {
            scratch_parent: self.scratch.clone().unwrap_or_else(std::env::temp_dir),
            scratch_chosen: self.scratch.is_some(),
            headroom: self.headroom.clone(),
            scratch_bytes: scratch_bytes(plan),
            interrupted: Arc::clone(&self.interrupted),
        }
    }

    /// Refuses what has no meaning between two real machines.
    fn require_real_hosts(&self) -> Result<()> {
        let refused = if self.keep_captures {
            "--keep-captures keeps the packets of accounting runs, which there are none of between two real machines: \
             leave it out"
        } else if self.scratch.is_some() {
            "--scratch names a folder of this machine, and between two real machines nothing is kept here: set TMPDIR \
             for root's logins on the hosts"
        } else {
            return Ok(());
        };
        Err(Error::Plan(refused.to_owned()))
    }
}

/// Who is told how far a run is.
pub trait Progress {
    /// A stage begins.
    fn stage(&self, text: &str);
    /// What is left of the run will take about this long, as far as is known now.
    fn left(&self, time: Duration);
    /// Something was measured.
    fn done(&self, what: &str);
}

/// What a run has come to.
#[derive(Debug)]
pub struct Outcome {
    /// All that was measured; written to the output folder.
    pub results: Results,
    /// Why that is not all of the plan.
    pub cut: Option<Error>,
}

/// Runs a plan. Results and report are in `folder` afterwards, also where the
/// run was cut in the middle.
///
/// # Errors
/// What could not be done, before anything was measured; everything was removed
/// again.
pub fn run(
    plan: &Plan,
    options: &Options,
    folder: &Path,
    progress: &dyn Progress,
) -> Result<Outcome> {
    require(plan)?;
    space::require(plan, options, folder)?;
    let journal = Journal::create(folder)?;
    let begun =
        Begun { journal, header: None, record: Record::default(), folder, changed_too: false };
    begun.run(plan, options, progress)
}

/// A run whose journal is open.
struct Begun<'a> {
    journal: Journal,
    /// None where the run is new.
    header: Option<Header>,
    record: Record,
    folder: &'a Path,
    /// Whether machine and programs may be other ones than before.
    changed_too: bool,
}

impl Begun<'_> {
    /// Does what the journal does not have yet.
    fn run(self, plan: &Plan, options: &Options, progress: &dyn Progress) -> Result<Outcome> {
        let (started, clock) = (environment::now(), Instant::now());
        let is_new = self.header.is_none();
        let executor = Arc::new(Executor::real(SearchPath::from_environment()));
        let mut run = match Run::up(plan, options, executor, progress) {
            Ok(run) => run,
            Err(error) => {
                if is_new {
                    self.journal.remove()?;
                }
                return Err(error);
            }
        };
        let up = clock.elapsed();
        let version = &options.client_version;
        let environment = environment::record(plan, &run.bench, version, started);
        let (mut header, first) = match self.header {
            None => {
                let family = run.bench.testbed.family().name().to_owned();
                let plan = PlanRecord { family, ..plan.record() };
                let header = Header { schema: SCHEMA, plan, environment };
                (header.clone(), Entry::Run(Box::new(header)))
            }
            Some(header) => {
                let changed = environment::changes(&header.environment, &environment);
                if !self.changed_too {
                    resume::require_unchanged(self.folder, &changed)?;
                }
                let (at, blocks_before) = (environment.started, self.record.blocks());
                (header, Entry::Resumed(Resumed { at, blocks_before, changed }))
            }
        };
        (run.journal, run.record) = (Some(self.journal), self.record);
        run.captures = options.keep_captures.then(|| self.folder.join(captures::FOLDER));
        let measured = run.keep(first).and_then(|()| run.measure());
        let cut = measured.err().map(|error| match error {
            // Ctrl-C also reaches the commands that a run waits for.
            _ if options.interrupted.load(Ordering::Relaxed) => Error::Interrupted,
            // Whatever went wrong, a server that died explains it best.
            error => run.bench.blame_a_server(error),
        });
        let kept = run.keep(last_entry(cut.as_ref()));
        // a run that is cut may be so because nothing more can be written
        let cut = cut.or(kept.err());
        let (record, journal) = (std::mem::take(&mut run.record), run.journal.take());
        let clock = Instant::now();
        drop(run);
        let (up, down) = (up.as_secs_f64(), clock.elapsed().as_secs_f64());
        let testbed = format!("up in {up:.2} s, servers included; down in {down:.2} s");
        header.environment.settings.insert("testbed".to_owned(), testbed);

        let outcome = match (cut, record.blocks()) {
            (Some(error), 0) => {
                if let Some(journal) = journal.filter(|_| is_new) {
                    journal.remove()?;
                }
                return Err(error);
            }
            (cut, _) => Outcome { results: analysed(&record, &header)?, cut },
        };
        report::write(self.folder, &outcome.results)
            .map_err(|error| space::with_what_is_left(error.into(), self.folder))?;
        if let Some(journal) = journal.filter(|_| outcome.cut.is_none()) {
            journal.remove()?;
        }
        Ok(outcome)
    }
}

fn last_entry(cut: Option<&Error>) -> Entry {
    let at = environment::now();
    match cut {
        None => Entry::Done { at },
        Some(Error::Interrupted) => Entry::Ended { at, why: "it was interrupted".to_owned() },
        Some(error) => Entry::Ended { at, why: error.to_string() },
    }
}

fn analysed(record: &Record, header: &Header) -> Result<Results> {
    let mut results = record.results(header)?;
    reanalyse(&mut results);
    Ok(results)
}

/// What a run would do to the system, one shell line each.
///
/// # Errors
/// The plan cannot be run at all.
pub fn dry_run(plan: &Plan, options: &Options) -> Result<Vec<String>> {
    struct Silent;
    impl Progress for Silent {
        fn stage(&self, _: &str) {}
        fn left(&self, _: Duration) {}
        fn done(&self, _: &str) {}
    }
    let executor = Arc::new(Executor::dry(SearchPath::from_environment()));
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
    let search_path = SearchPath::from_environment();
    let mut run = Run::up(plan, options, Arc::new(Executor::real(search_path)), progress)?;
    run.bench.testbed.set_link(&plan.link, plan.offload)?;
    progress.stage("looking for sleeping clients");
    let cells = Blocks::of(plan, &plan.link, &plan.workloads).cells;
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
/// models, predictions, answer, warnings.
pub fn reanalyse(results: &mut Results) {
    let windows = windows(results.plan.stacks.iter().map(|stack| stack.name.as_str()));
    analysis::derive(results, &windows);
}

/// Looks at the machines of a plan: at this one, or at two real hosts over ssh.
///
/// # Errors
/// Which host could not be reached or used.
pub fn machines(plan: &Plan, options: &Options) -> Result<Machines> {
    if plan.hosts.is_none() {
        return Ok(Machines::Here(SearchPath::from_environment()));
    }
    let (mut hosts, mut why) = (Vec::new(), Vec::new());
    for (_, host) in look_at_hosts(plan, options) {
        match host {
            Ok(host) => hosts.push(host),
            Err(Error::Interrupted) => return Err(Error::Interrupted),
            Err(error) => why.push(error.to_string()),
        }
    }
    if why.is_empty() { Ok(Machines::Real(hosts)) } else { Err(Error::Missing(why.join("; "))) }
}

/// Looks at the real hosts of a plan, each by its role and name; none of one machine.
pub(crate) fn look_at_hosts(plan: &Plan, options: &Options) -> Vec<(String, Result<RealHost>)> {
    let Some(hosts) = &plan.hosts else { return Vec::new() };
    let executor = Arc::new(Executor::real(SearchPath::from_environment()));
    let names = [format!("client {}", hosts.client), format!("server {}", hosts.server)];
    let found = Testbed::survey(&plan.testbed(), hosts, &options.settings(plan), &executor);
    names.into_iter().zip(found).collect()
}

/// Builds the testbed of a plan, looks at its link, and says what was found.
///
/// # Errors
/// What is in the way.
pub(crate) fn try_link(plan: &Plan, options: &Options, progress: &dyn Progress) -> Result<String> {
    progress.stage("trying the link");
    let executor = Arc::new(Executor::real(SearchPath::from_environment()));
    let mut testbed = Testbed::up(&plan.testbed(), &options.settings(plan), executor)?;
    let report = testbed.set_link(&plan.link, plan.offload)?;
    let (client, server) = (testbed.client.address, testbed.server.address);
    let median = report.round_trips.map_or_else(String::new, |times| {
        format!(", round trip {:.2} ms (median)", times.median_us / 1e3)
    });
    Ok(format!("{client} to {server}{median}"))
}

/// Whether this machine can run a plan at all.
///
/// # Errors
/// [`Error::Missing`]: the privilege or the programs that it lacks.
pub fn require(plan: &Plan) -> Result<()> {
    if plan.hosts.is_some() {
        return Ok(()); // what two real hosts lack they say themselves
    }
    if !nix::unistd::geteuid().is_root() {
        return Err(Error::Missing(
            "the lab makes network namespaces, which needs root: run it with sudo, \
             or see what it would do with --dry-run"
                .into(),
        ));
    }
    SearchPath::from_environment().require(&plan.programs())?;
    let mut layers = plan.stacks.iter().flat_map(|planned| &planned.stack.layers);
    layers.try_for_each(|layer| layer.require())
}

/// The blocks of a plan's workloads on one link.
struct Blocks {
    cells: Vec<Cell>,
    /// Workload by workload and size by size: indices into `cells`.
    groups: Vec<Vec<usize>>,
}

impl Blocks {
    fn of(plan: &Plan, link: &LinkSpec, workloads: &[Workload]) -> Self {
        let mut blocks = Self { cells: Vec::new(), groups: Vec::new() };
        let real = plan.hosts.is_some();
        let cell = |stack: &String, workload: &Workload, size: u64| {
            let cell = Cell::new(link, stack, workload, size);
            if real { cell.on_real_link() } else { cell }
        };
        for workload in workloads {
            for &size in &workload.sizes {
                let first = blocks.cells.len();
                blocks
                    .cells
                    .extend(workload.stacks.iter().map(|stack| cell(stack, workload, size)));
                blocks.groups.push((first..blocks.cells.len()).collect());
            }
        }
        blocks
    }

    /// Expected time of one block of these cells.
    fn expected_s(&self, cells: &[usize]) -> f64 {
        cells.iter().map(|&index| self.cells[index].expected_s()).sum()
    }
}

/// A run in progress.
struct Run<'a> {
    plan: &'a Plan,
    bench: Bench<'a>,
    progress: &'a dyn Progress,
    /// Of what is left to do.
    estimate: Estimate,
    /// What was done, and where it is written; a rehearsal writes nothing.
    record: Record,
    journal: Option<Journal>,
    /// Where the packets of the accounting runs are kept, if they are.
    captures: Option<PathBuf>,
}

impl<'a> Run<'a> {
    fn up(
        plan: &'a Plan,
        options: &Options,
        executor: Arc<Executor>,
        progress: &'a dyn Progress,
    ) -> Result<Self> {
        if plan.hosts.is_some() {
            options.require_real_hosts()?;
        }
        let mut estimate = Estimate::new(plan);
        progress.left(estimate.left());
        progress.stage("building the testbed");
        let settings = options.settings(plan);
        let testbed = Testbed::up(&plan.testbed(), &settings, executor)?;
        let mut bench = Bench::new(plan, testbed, Arc::clone(&options.interrupted))?;
        progress.stage("starting the servers");
        bench.start_servers()?;
        estimate.is_up();
        progress.left(estimate.left());
        let record = Record::default();
        Ok(Self { plan, bench, progress, estimate, record, journal: None, captures: None })
    }

    /// Does all that the record does not have yet.
    fn measure(&mut self) -> Result<()> {
        let plan = self.plan;
        self.check_clear_text()?;
        self.on_link(0, &plan.link, &plan.workloads, plan.repetitions, plan.until)?;
        self.estimate.is_done(0);
        let check = check_workload(plan);
        for (index, link) in plan.check_links.iter().enumerate() {
            let repetitions = check_repetitions(plan, link);
            match self.on_link(index + 1, link, &check, repetitions, None) {
                Ok(()) => {}
                // The answer stands without a point to check it against.
                Err(Error::Link(why)) => self.keep(Entry::LeftOut { link: index + 1, why })?,
                Err(error) => return Err(error),
            }
            self.estimate.is_done(index + 1);
        }
        if plan.count_packets { self.account() } else { Ok(()) }
    }

    /// Looks for the content of files on the wire, once a run, before anything
    /// is measured: what does not encrypt is not worth measuring.
    fn check_clear_text(&mut self) -> Result<()> {
        if self.record.has_clear_text() || !self.bench.testbed.one_machine() {
            return Ok(());
        }
        self.progress.stage("looking for clear text on the wire");
        let link = self.accounting_link();
        self.bench.testbed.shape(&link, Offload::PerPacket)?;
        let plan = self.plan;
        let rows = plan.stacks.iter().map(|one| self.bench.check_clear_text(&one.stack, &link));
        let rows = rows.collect::<Result<_>>()?;
        self.keep(Entry::ClearText(rows))
    }

    /// Writes down what was done.
    fn keep(&mut self, entry: Entry) -> Result<()> {
        if let Some(journal) = &mut self.journal {
            journal.append(&entry)?;
        }
        self.record.apply(entry);
        Ok(())
    }

    /// Notes every command of a run, each kind of transfer once.
    fn rehearse(&mut self) -> Result<()> {
        let plan = self.plan;
        if self.bench.testbed.one_machine() {
            let link = self.accounting_link();
            self.bench.testbed.shape(&link, Offload::PerPacket)?;
            for planned in &plan.stacks {
                self.bench.rehearse_clear_text(&planned.stack, &link)?;
            }
        }
        let check = check_workload(plan);
        let checks = plan.check_links.iter().map(|link| (link, &check[..]));
        for (link, workloads) in std::iter::once((&plan.link, &plan.workloads[..])).chain(checks) {
            self.bench.testbed.set_link(link, plan.offload)?;
            self.bench.testbed.forget_metrics()?;
            for cell in Blocks::of(plan, link, workloads).cells {
                self.bench.rehearse(&cell)?;
            }
        }
        Ok(())
    }

    /// Measures workloads on a link: warm-up, then shuffled blocks. Blocks that
    /// the record has are not measured again, but count in every decision.
    fn on_link(
        &mut self,
        link: usize,
        spec: &LinkSpec,
        workloads: &[Workload],
        repetitions: u32,
        until: Option<Until>,
    ) -> Result<()> {
        let mut blocks = Blocks::of(self.plan, spec, workloads);
        let mut ready = false;
        let mut repeats_left = blocks.groups.len() as u32 * repetitions / 5;
        let mut active: Vec<usize> = (0..blocks.groups.len()).collect();
        let mut round = 0;
        while !active.is_empty() {
            let mut order = active.clone();
            order.shuffle(&mut self.random(&format!("order {link} {round}")));
            for group in order {
                for attempt in 0.. {
                    let place = Place { link, round, group, attempt };
                    if self.record.block(place).is_none() {
                        if !ready {
                            self.make_ready(link, spec, &mut blocks, repetitions)?;
                            ready = true;
                        }
                        let block = self.block(&blocks, place)?;
                        self.look_for_other_runs()?;
                        self.keep(Entry::Block(block))?;
                    }
                    let marked = self.record.block(place).is_some_and(Block::is_marked);
                    if !marked || repeats_left == 0 {
                        break;
                    }
                    repeats_left -= 1;
                }
            }
            round += 1;
            if round >= repetitions {
                active = self.still_wanted(link, &blocks, &active, round, until)?;
            }
        }
        if ready && let Some(report) = self.bench.testbed.emulator_report()? {
            self.keep(Entry::Emulated { link, report })?;
        }
        Ok(())
    }

    /// Sets and tests a link and runs each cell once before it counts.
    fn make_ready(
        &mut self,
        link: usize,
        spec: &LinkSpec,
        blocks: &mut Blocks,
        repetitions: u32,
    ) -> Result<()> {
        self.progress.stage(&format!("testing the link ({spec})"));
        let report = self.bench.testbed.set_link(spec, self.plan.offload)?;
        self.progress.stage(&format!("warming up ({spec})"));
        for cell in &mut blocks.cells {
            self.bench.warm_up(cell, self.plan.warmup)?;
        }
        let before = self.record.link(link).map(|set| set.batches.as_slice()).unwrap_or_default();
        for (cell, &batch) in blocks.cells.iter_mut().zip(before) {
            cell.set_batch(batch);
        }
        let batches = blocks.cells.iter().map(Cell::batch).collect();
        self.keep(Entry::Link(Box::new(LinkSet { link, report, batches })))?;
        let layered = self.plan.stacks.iter().any(|planned| !planned.stack.layers.is_empty());
        if link == 0 && layered && !self.record.has_layer_setups() {
            self.progress.stage("setting up the layers, apart from any transfer");
            let rows = self.bench.set_ups(spec)?;
            self.keep(Entry::LayerSetups(rows))?;
        }
        let ahead = blocks.groups.iter().enumerate().map(|(group, cells)| {
            let rounds = (repetitions as usize).saturating_sub(self.record.rounds(link, group));
            blocks.expected_s(cells) * rounds as f64
        });
        self.estimate.is_ready(link, ahead.sum());
        self.progress.left(self.estimate.left());
        Ok(())
    }

    /// Of the groups, those that were not measured often enough after so many
    /// rounds.
    fn still_wanted(
        &mut self,
        link: usize,
        blocks: &Blocks,
        active: &[usize],
        rounds: u32,
        until: Option<Until>,
    ) -> Result<Vec<usize>> {
        let Some(until) = until else { return Ok(Vec::new()) };
        let stacks = self.plan.record().stacks;
        let mut wanted = Vec::new();
        for &group in active {
            let cells = || blocks.groups[group].iter().map(|&index| &blocks.cells[index]);
            let widths = stop::widths(&self.record.samples(link, group), &stacks);
            match until.decide(rounds, &widths) {
                Decision::Continue => wanted.push(group),
                Decision::Enough => {}
                Decision::Exhausted(Width { stack, half_width_pct }) => {
                    let width = half_width_pct
                        .map_or("unknown".to_owned(), |pct| format!("± {} %", units::three(pct)));
                    let named = cells().find(|cell| cell.stack == stack);
                    let named = named.map_or(stack, ToString::to_string);
                    self.remark(format!(
                        "After {rounds} blocks the interval of {named} is {width}, and the plan asked for {until}."
                    ))?;
                }
            }
        }
        let ahead = wanted.iter().map(|&group| blocks.expected_s(&blocks.groups[group]));
        self.estimate.expects(link, ahead.sum());
        self.progress.left(self.estimate.left());
        Ok(wanted)
    }

    /// One block: all stacks of one workload and size, adjacent in time, in
    /// random order; marked if another program took a large share of the machine.
    fn block(&mut self, blocks: &Blocks, place: Place) -> Result<Block> {
        let Place { link, round, group, attempt } = place;
        let mut random = self.random(&format!("block {link} {round} {group} {attempt}"));
        let order = self.in_families(blocks, group, &mut random);
        self.bench.testbed.require_link()?;
        self.bench.testbed.forget_metrics()?;
        let number = self.record.blocks() as u32;
        let mut rows: Vec<Row> = Vec::new();
        let mut foreign: f64 = 0.0;
        for cell in order.into_iter().map(|index| &blocks.cells[index]) {
            let measured = self.bench.measure(cell, number)?;
            foreign = foreign.max(measured.sample.foreign_pct.unwrap_or(0.0));
            let again = if attempt > 0 { " again" } else { "" };
            if attempt == 0 {
                self.estimate.measured(link, cell.expected_s());
            }
            self.progress.left(self.estimate.left());
            self.progress.done(&format!("{cell}{again}"));
            rows.push(measured.into());
        }
        if foreign > MAX_FOREIGN_PCT {
            for row in &mut rows {
                row.sample.marked = Some(format!("foreign load {foreign:.1} %"));
            }
        }
        Ok(Block { place, at: environment::now(), rows })
    }

    /// The cells of a group in random order, but each beside those that it is compared
    /// with: where there are a hundred, the machine is another one after the last.
    fn in_families(&self, blocks: &Blocks, group: usize, random: &mut ChaCha8Rng) -> Vec<usize> {
        let mut families: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for &index in &blocks.groups[group] {
            let root = self.plan.root_of(&blocks.cells[index].stack);
            families.entry(root).or_default().push(index);
        }
        let mut families: Vec<Vec<usize>> = families.into_values().collect();
        families.shuffle(random);
        families.iter_mut().for_each(|family| family.shuffle(random));
        families.concat()
    }

    /// Chance for one purpose, from the plan's seed: the same whatever was done
    /// before, or in an earlier process.
    fn random(&self, purpose: &str) -> ChaCha8Rng {
        let words = format!("{} {purpose}", self.plan.seed);
        ChaCha8Rng::from_seed(*blake3::hash(words.as_bytes()).as_bytes())
    }

    /// 1 Gbit/s, and a queue that holds all that TCP's largest buffer lets it send;
    /// without a shaper, as fast as the machine.
    fn accounting_link(&self) -> LinkSpec {
        let shaped = self.bench.testbed.has_htb();
        LinkSpec::symmetric(LinkDirection {
            rate_bps: shaped.then_some(1_000_000_000),
            queue: Some(Queue::Packets(20_000)),
            ..LinkDirection::default()
        })
    }

    /// Counts packets and octets: one transfer of each cell of the main link, in
    /// runs of their own without offloads (METHOD 10), at a rate that no queue of
    /// the kernel overflows at: a packet sent again would be counted twice.
    fn account(&mut self) -> Result<()> {
        if !self.bench.testbed.one_machine() {
            return self.remark(ONLY_HERE.to_owned());
        }
        self.progress.stage("counting packets");
        let mut shaped = false;
        let cells = Blocks::of(self.plan, &self.plan.link, &self.plan.workloads).cells;
        let mut left = cells.len();
        for cell in cells {
            left -= 1;
            self.estimate.counted(left);
            self.progress.left(self.estimate.left());
            if cell.workload.kind.is_timed() {
                continue;
            }
            if cell.octets() > LARGEST_ACCOUNTED {
                self.remark(format!(
                    "the packets of {cell} were not counted: it moves more than {}.",
                    units::size(LARGEST_ACCOUNTED)
                ))?;
                continue;
            }
            // what has failed would fail here too, and end the run
            if self.record.has_failed(&cell) || self.record.has_counted(&cell) {
                continue;
            }
            if !shaped {
                self.bench.testbed.shape(&self.accounting_link(), Offload::PerPacket)?;
                shaped = true;
            }
            let (wire, capture) = self.bench.account(&cell, self.captures.as_deref())?.unzip();
            let capture = capture.flatten();
            let workload = cell.workload.name();
            self.keep(Entry::Counted(Box::new(Counted {
                stack: cell.stack,
                workload,
                size_bytes: cell.size,
                wire,
                capture,
            })))?;
        }
        Ok(())
    }

    /// Notes that another lab measured at the same time, on one machine.
    fn look_for_other_runs(&mut self) -> Result<()> {
        let testbed = &self.bench.testbed;
        if testbed.one_machine() && cgroup::another_run_is_alive(testbed.id()) {
            return self.remark(OTHER_RUN.to_owned());
        }
        Ok(())
    }

    /// Notes what the reader should know, once.
    fn remark(&mut self, text: String) -> Result<()> {
        if self.record.has_remark(&text) { Ok(()) } else { self.keep(Entry::Remark(text)) }
    }
}

/// Two labs at once measure each other.
const OTHER_RUN: &str = "Another lab run went on on this machine at the same time, and each disturbs the other: measure \
                         again when it is alone.";

/// Downloads on check links, to compare predictions with.
fn check_workload(plan: &Plan) -> Vec<Workload> {
    let able = plan.stacks.iter().filter(|planned| planned.stack.service.accepts(Kind::Download));
    let stacks = able.map(|planned| planned.stack.name.clone()).collect();
    vec![Workload::new(Kind::Download, plan.check_sizes.clone(), stacks)]
}

/// How many blocks are measured on a check link.
fn check_repetitions(plan: &Plan, link: &LinkSpec) -> u32 {
    // where packets are lost at random no few blocks tell
    let lossy = link.down.loss.average_pct() > 0.0;
    if lossy { plan.repetitions } else { plan.repetitions.min(CHECK_REPETITIONS) }
}

/// What is not done between two real machines, and why.
const ONLY_HERE: &str = "Between two real machines packets are not counted and clear text is not looked for: their \
                         interfaces carry other traffic too, and their offloads stay as they are.";

/// A link that is full leaves little to chance: as many blocks as a comparison needs.
const CHECK_REPETITIONS: u32 = analysis::stats::LEAST_RUNS as u32;

/// Larger transfers would take gigabytes of trace.
const LARGEST_ACCOUNTED: u64 = 1 << 30;

/// Octets that test files and their copies need: each size once, and the
/// largest transfer (or a batch of small ones) twice over.
fn scratch_bytes(plan: &Plan) -> u64 {
    const MARGIN: u64 = 64 << 20;
    let check = plan.check_sizes.iter().copied().filter(|_| !plan.check_links.is_empty());
    let files = plan.workloads.iter().filter(|workload| !workload.kind.is_timed());
    let octets = files.flat_map(|w| {
        let kept = u64::from(w.in_a_row.unwrap_or(1));
        w.sizes.iter().map(move |&s| w.octets(s) * kept)
    });
    let octets: Vec<u64> = octets.chain(check).collect();
    // what large ones are warmed up with has a quarter of their size at most
    let files: u64 = octets.iter().map(|octets| octets + octets / 4).sum();
    let largest = octets.iter().copied().max().unwrap_or(0);
    files + 2 * largest.max(cell::BATCH_BYTES) + MARGIN
}

fn windows<'a>(stacks: impl Iterator<Item = &'a str>) -> BTreeMap<String, u64> {
    stacks
        .filter_map(|name| {
            let stack = crate::stack::Stack::parse(name).ok()?;
            Some((name.to_owned(), stack.service.window()?.0))
        })
        .collect()
}
