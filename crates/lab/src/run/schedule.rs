//! The order of things: links, warm-up, shuffled blocks, counting.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use headroom_lab_host::command::Executor;
use headroom_lab_host::error::{Error, Result};
use headroom_lab_host::resources::cgroup;
use headroom_lab_host::resources::cpu::MAX_BACKGROUND_PCT;
use headroom_lab_host::resources::others::Others;
use headroom_lab_host::testbed::Testbed;
use headroom_lab_results::analysis::stop::{self, Decision, Until, Width};
use rand::SeedableRng;
use rand::rngs::ChaCha8Rng;
use rand::seq::SliceRandom;

use super::bench::Bench;
use super::blocks::{Blocks, LARGEST_ACCOUNTED, check_repetitions, check_workload};
use super::cell::Cell;
use super::entry::{Block, Counted, Entry, LinkSet, Place, Row};
use super::environment;
use super::estimate::Estimate;
use super::fit;
use super::journal::Journal;
use super::options::{Options, Progress};
use super::record::Record;
use crate::link::{LinkDirection, LinkSpec, Queue};
use crate::plan::{Offload, Plan};
use crate::units;
use crate::workload::Workload;

/// A run in progress.
pub(super) struct Run<'a> {
    plan: &'a Plan,
    pub(super) bench: Bench<'a>,
    progress: &'a dyn Progress,
    /// Of what is left to do.
    estimate: Estimate,
    /// When the time ends that it was given; none: it takes what it takes.
    end: Option<Instant>,
    /// The record of the run and its journal; a dry run writes nothing.
    pub(super) record: Record,
    pub(super) journal: Option<Journal>,
    /// The folder that keeps the packets of the accounting runs, if they are kept.
    pub(super) captures: Option<PathBuf>,
}

impl<'a> Run<'a> {
    pub(super) fn up(
        plan: &'a Plan,
        options: &Options,
        executor: Arc<Executor>,
        progress: &'a dyn Progress,
    ) -> Result<Self> {
        if plan.hosts.is_some() {
            options.require_real_hosts()?;
        }
        let mut estimate = Estimate::new(plan);
        let end = options.time.and_then(|time| Instant::now().checked_add(time));
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
        Ok(Self { plan, bench, progress, estimate, end, record, journal: None, captures: None })
    }

    /// Does all that the record does not have yet.
    pub(super) fn measure(&mut self) -> Result<()> {
        let plan = self.plan;
        self.check_clear_text()?;
        self.on_link(0, &plan.link, &plan.workloads, plan.repetitions, plan.until)?;
        self.estimate.is_done(0);
        let check = check_workload(plan);
        for (index, link) in plan.validation_links.iter().enumerate() {
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
        let link = self.clear_text_link();
        self.bench.testbed.shape(&link, Offload::Off)?;
        let plan = self.plan;
        let rows = plan
            .stacks
            .iter()
            .map(|one| tried_again(MAX_TRIES, || self.bench.check_clear_text(&one.stack, &link)));
        let rows = rows.collect::<Result<_>>()?;
        self.keep(Entry::ClearText(rows))
    }

    /// Writes down what was done.
    pub(super) fn keep(&mut self, entry: Entry) -> Result<()> {
        if let Some(journal) = &mut self.journal {
            journal.append(&entry)?;
        }
        self.record.apply(entry);
        Ok(())
    }

    /// Notes every command of a run, each kind of transfer once.
    pub(super) fn rehearse(&mut self) -> Result<()> {
        let plan = self.plan;
        let is_made_here = self.bench.testbed.one_machine();
        if is_made_here {
            let link = self.clear_text_link();
            self.note_link("link of the clear-text check, whatever the plan's is", &link);
            self.bench.testbed.shape(&link, Offload::Off)?;
            for planned in &plan.stacks {
                self.bench.rehearse_clear_text(&planned.stack, &link)?;
            }
        }
        let check = check_workload(plan);
        let checks = plan.validation_links.iter().map(|link| ("validation link", link, &check[..]));
        let main = ("link of the plan", &plan.link, &plan.workloads[..]);
        for (what, link, workloads) in std::iter::once(main).chain(checks) {
            if is_made_here {
                self.note_link(what, link);
            }
            self.bench.testbed.set_link(link, plan.offload)?;
            self.bench.testbed.forget_metrics()?;
            for cell in Blocks::of(plan, link, workloads).cells {
                self.bench.rehearse(&cell)?;
            }
        }
        Ok(())
    }

    /// Notes in a dry run which link the commands that follow make.
    fn note_link(&self, what: &str, link: &LinkSpec) {
        self.bench.testbed.client.note(|| format!("# {what}: {link}"));
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
        let mut losses_left = MAX_BLOCKS_WITH_LOST_FRAMES;
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
                        let block = self.complete_block(&blocks, place, &mut losses_left)?;
                        self.look_for_other_runs()?;
                        self.keep(Entry::Block(block))?;
                    }
                    let disturbed = self.record.block(place).is_some_and(Block::is_disturbed);
                    if !disturbed || repeats_left == 0 {
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
            self.keep(Entry::Emulated { link, report: Box::new(report) })?;
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
            let rows = tried_again(MAX_TRIES, || self.bench.set_ups(spec))?;
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
        let Some(until) = until else {
            // what checks a prediction is measured no more often than that needs
            let again = link == 0 && self.has_time_for_another(blocks, active, rounds);
            return Ok(if again { active.to_vec() } else { Vec::new() });
        };
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

    /// Whether another round of the main link, and all that follows it, fits into the time that
    /// the run was given.
    fn has_time_for_another(&mut self, blocks: &Blocks, active: &[usize], rounds: u32) -> bool {
        let Some(end) = self.end else { return false };
        let round_s: f64 =
            active.iter().map(|&group| blocks.expected_s(&blocks.groups[group])).sum();
        self.estimate.expects(0, round_s);
        let is_new = rounds < fit::MAX_ROUNDS.saturating_mul(self.plan.repetitions);
        let left = end.saturating_duration_since(Instant::now());
        let again = is_new && fit::has_time(self.estimate.left(), left);
        if !again {
            self.estimate.expects(0, 0.0);
        }
        self.progress.left(self.estimate.left());
        again
    }

    /// A block of which no frame was lost: one that misses some is discarded, as its clocks are
    /// wrong, and measured again.
    fn complete_block(
        &mut self,
        blocks: &Blocks,
        place: Place,
        losses_left: &mut u32,
    ) -> Result<Block> {
        let mut is_first = place.attempt == 0;
        loop {
            match self.block(blocks, place, is_first) {
                Err(Error::FramesLost(_)) if *losses_left > 0 => *losses_left -= 1,
                block => return block,
            }
            is_first = false;
            self.remark(FRAMES_LOST.to_owned())?;
        }
    }

    /// One block: all stacks of one workload and size, adjacent in time, in
    /// random order; disturbed if another program took a large share of the machine.
    fn block(&mut self, blocks: &Blocks, place: Place, is_first: bool) -> Result<Block> {
        let Place { link, round, group, attempt } = place;
        let mut random = self.random(&format!("block {link} {round} {group} {attempt}"));
        let order = self.in_families(blocks, group, &mut random);
        self.bench.testbed.require_link()?;
        self.bench.testbed.forget_metrics()?;
        let number = self.record.blocks() as u32;
        let mut rows: Vec<Row> = Vec::new();
        let mut background: f64 = 0.0;
        let others = self.bench.testbed.one_machine().then(Others::look);
        for cell in order.into_iter().map(|index| &blocks.cells[index]) {
            let measured = self.bench.measure(cell, number)?;
            background = background.max(measured.sample.background_pct.unwrap_or(0.0));
            let again = if is_first { "" } else { " again" };
            if is_first {
                self.estimate.measured(link, cell.expected_s());
            }
            self.progress.left(self.estimate.left());
            self.progress.done(&format!("{cell}{again}"));
            rows.push(measured.into());
        }
        if background > MAX_BACKGROUND_PCT {
            let by = others.map(|others| others.busiest_since()).unwrap_or_default();
            for row in &mut rows {
                row.sample.disturbed_by.clone_from(&by);
                row.sample.disturbed = Some(format!("background load {background:.1} %"));
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

    /// So slow that a capture of whole frames, which a busy machine drains late, misses none.
    fn clear_text_link(&self) -> LinkSpec {
        self.shaped_link(100_000_000, 1000)
    }

    /// 1 Gbit/s, and a queue that holds all that TCP's largest buffer lets it send.
    fn accounting_link(&self) -> LinkSpec {
        self.shaped_link(1_000_000_000, 20_000)
    }

    /// A link with a rate and a queue of so many packets; without a shaper, as fast as the machine.
    fn shaped_link(&self, rate_bps: u64, packets: u32) -> LinkSpec {
        LinkSpec::symmetric(LinkDirection {
            rate_bps: self.bench.testbed.has_htb().then_some(rate_bps),
            queue: Some(Queue::Packets(packets)),
            ..LinkDirection::default()
        })
    }

    /// Counts packets and bytes: one transfer of each cell of the main link, in
    /// runs of their own without offloads, at a rate that no queue of
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
            if cell.bytes() > LARGEST_ACCOUNTED {
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
                self.bench.testbed.shape(&self.accounting_link(), Offload::Off)?;
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
    pub(super) fn remark(&mut self, text: String) -> Result<()> {
        if self.record.has_remark(&text) { Ok(()) } else { self.keep(Entry::Remark(text)) }
    }
}

/// Two labs at once measure each other.
const OTHER_RUN: &str = "Another lab run went on on this machine at the same time, and each disturbs the other: measure \
                         again when it is alone.";

/// Does something again while it fails for lost frames.
fn tried_again<T>(times: u32, mut act: impl FnMut() -> Result<T>) -> Result<T> {
    for _ in 1..times {
        match act() {
            Err(Error::FramesLost(_)) => {}
            done => return done,
        }
    }
    act()
}

/// How often clear text is looked for, or layers are set up, until no frame is lost.
const MAX_TRIES: u32 = 3;

/// Of one link: a machine that loses frames more often is too slow for it.
const MAX_BLOCKS_WITH_LOST_FRAMES: u32 = 5;

/// The note of a link on which that happened.
const FRAMES_LOST: &str = "The machine was too busy to capture every frame: the lab discarded blocks that missed some, and \
                           measured them again.";

/// Notes of what the lab leaves out between two real machines, and why.
const ONLY_HERE: &str = "Between two real machines packets are not counted and clear text is not looked for: their \
                         interfaces carry other traffic too, and their offloads stay as they are.";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_lost_frames_are_a_reason_to_try_again() {
        let mut tries = 0;
        let mut after = |lost: u32| {
            tries = 0;
            tried_again(3, || {
                tries += 1;
                if tries > lost { Ok(tries) } else { Err(Error::FramesLost(1)) }
            })
        };
        assert_eq!(after(0).ok(), Some(1));
        assert_eq!(after(2).ok(), Some(3));
        assert!(matches!(after(3), Err(Error::FramesLost(1))));
        let mut tries = 0;
        let other = tried_again(3, || {
            tries += 1;
            Err::<(), _>(Error::Ended("the server".into()))
        });
        assert!(matches!(other, Err(Error::Ended(_))) && tries == 1);
    }
}
