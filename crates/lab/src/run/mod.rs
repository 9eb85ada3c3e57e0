//! A run: build the testbed, start the servers, measure shuffled paired blocks,
//! count packets, take everything down, analyse.

mod accounting;
mod bench;
mod blocks;
mod captures;
mod cell;
mod clear_text;
mod clear_text_verdict;
mod closed_loop;
mod entry;
mod environment;
mod estimate;
mod fit;
mod journal;
mod options;
mod record;
mod resume;
mod sample;
mod schedule;
mod set_up;
mod space;
mod stack_instance;
mod transfer;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use headroom_lab_host::command::Executor;
use headroom_lab_host::error::{Error, Result};
use headroom_lab_host::hosts::{Machines, RealHost};
use headroom_lab_host::privileges::Privileges;
use headroom_lab_host::programs::SearchPath;
use headroom_lab_host::testbed::{self, Testbed};
use headroom_lab_results::schema::{PlanRecord, Results, Resumed, SCHEMA};
use headroom_lab_results::{analysis, report};

use crate::congestion_control;
use crate::plan::Plan;

pub use estimate::{expected_time, rounded, sentence as sentence_on_time};
pub use fit::fit;
pub use journal::{NAME as JOURNAL, is_going_on};
pub use options::{Options, Progress};
pub use resume::{
    Resumption, had_pinned_programs, is_on_this_machine, measured, resume, unfinished,
};

use blocks::Blocks;
use entry::{Entry, Header};
use journal::Journal;
use record::Record;
use schedule::Run;

/// Outcome of a run.
#[derive(Debug)]
pub struct Outcome {
    /// All that was measured; written to the output folder.
    pub results: Results,
    /// Why that is not all of the plan.
    pub interrupted_by: Option<Error>,
}

/// Runs a plan. Results and report are in `folder` afterwards, also where the
/// run was interrupted.
///
/// # Errors
/// A step before the first measurement failed; everything was removed again.
pub fn run(
    plan: &Plan,
    options: &Options,
    folder: &Path,
    progress: &dyn Progress,
) -> Result<Outcome> {
    require(plan, options)?;
    space::require(plan, options, folder)?;
    let journal = Journal::create(folder)?;
    let begun = Begun {
        journal,
        header: None,
        record: Record::default(),
        folder,
        allow_changed_environment: false,
    };
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
    allow_changed_environment: bool,
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
                if !self.allow_changed_environment {
                    resume::require_unchanged(self.folder, &changed)?;
                }
                let (at, blocks_before) = (environment.started, self.record.blocks());
                (header, Entry::Resumed(Resumed { at, blocks_before, changed }))
            }
        };
        (run.journal, run.record) = (Some(self.journal), self.record);
        run.captures = options.keep_captures.then(|| self.folder.join(captures::FOLDER));
        let limits = if plan.hosts.is_none() { testbed::limits() } else { Vec::new() };
        let begun = run
            .keep(first)
            .and_then(|()| limits.into_iter().try_for_each(|limit| run.remark(limit)));
        let measured = begun.and_then(|()| run.measure());
        let interrupted_by = measured.err().map(|error| match error {
            // Ctrl-C also reaches the commands that a run waits for.
            _ if options.interrupted.load(Ordering::Relaxed) => Error::Interrupted,
            // A server that ended explains a failure best.
            error => run.bench.attribute_failure(error),
        });
        let kept = run.keep(last_entry(interrupted_by.as_ref()));
        // a full disk interrupts a run and keeps its last entry from being written
        let interrupted_by = interrupted_by.or(kept.err());
        let (record, journal) = (std::mem::take(&mut run.record), run.journal.take());
        let clock = Instant::now();
        drop(run);
        let (up, down) = (up.as_secs_f64(), clock.elapsed().as_secs_f64());
        let testbed = format!("up in {up:.2} s, servers included; down in {down:.2} s");
        header.environment.settings.insert("testbed".to_owned(), testbed);

        let outcome = match (interrupted_by, record.blocks()) {
            (Some(error), 0) => {
                if let Some(journal) = journal.filter(|_| is_new) {
                    journal.remove()?;
                }
                return Err(error);
            }
            (interrupted_by, _) => Outcome { results: analysed(&record, &header)?, interrupted_by },
        };
        report::write(self.folder, &outcome.results)
            .map_err(|error| space::with_what_is_left(error.into(), self.folder))?;
        if let Some(journal) = journal.filter(|_| outcome.interrupted_by.is_none()) {
            journal.remove()?;
        }
        Ok(outcome)
    }
}

fn last_entry(interrupted_by: Option<&Error>) -> Entry {
    let at = environment::now();
    match interrupted_by {
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

/// Says what plans ask for and this machine's kernel has not loaded, each once, without trying
/// anything.
pub fn not_loaded(plans: &[Plan]) -> Vec<String> {
    let names: BTreeSet<&str> = plans.iter().flat_map(Plan::congestion_controls).collect();
    names.into_iter().filter_map(congestion_control::not_loaded).collect()
}

/// Lists the commands of a run, one shell line each.
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
    require(plan, options)?;
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
/// A requirement is not met.
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

/// Whether this program on this machine can run a plan at all.
///
/// # Errors
/// [`Error::Missing`]: the command that the program lacks, or the privilege, the programs or the
/// congestion control that the machine lacks.
pub fn require(plan: &Plan, options: &Options) -> Result<()> {
    let lacking = options.lacking_commands;
    plan.stacks.iter().try_for_each(|planned| planned.stack.require_commands(lacking))?;
    if plan.hosts.is_some() {
        return Ok(()); // what two real hosts lack they say themselves
    }
    if Privileges::of_this_process() == Privileges::None {
        return Err(Error::Missing(
            "the lab makes network namespaces, which needs root or a user namespace: run it with \
             sudo, or see what it would do with --dry-run"
                .into(),
        ));
    }
    SearchPath::from_environment().require(&plan.programs())?;
    plan.congestion_controls().into_iter().try_for_each(congestion_control::require)?;
    plan.stacks.iter().try_for_each(|planned| planned.stack.require())
}

fn windows<'a>(stacks: impl Iterator<Item = &'a str>) -> BTreeMap<String, u64> {
    stacks
        .filter_map(|name| {
            let stack = crate::stack::Stack::parse(name).ok()?;
            Some((name.to_owned(), stack.application.window()?.0))
        })
        .collect()
}
