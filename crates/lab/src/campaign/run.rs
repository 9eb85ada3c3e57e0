//! Runs a campaign: starts what is due, notes what became of it, and waits.

use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::Duration;

use headroom_lab_host::error::{Doing, Error, Result};
use headroom_lab_results::schema::PlanRecord;

use super::journal::{Entry, Header, Journal, NAME, RunName};
use super::machine_lock::MachineLock;
use super::outcome::{self, Outcome};
use super::process::{self, Process};
use super::queue::{Job, Next, Queue};
use super::schedule::{self, UnixTime};
use super::{
    Campaign, CampaignPlan, FOLDER_OF_LOGS, FOLDER_OF_PAIRS, Pair, Status, file_name, home_of,
    name_on, round_folder, status,
};
use crate::run as lab_run;

/// How often it looks whether a run has ended or one is due.
const LOOK: Duration = Duration::from_millis(250);

/// Options of running a campaign.
#[derive(Debug, Clone)]
pub struct Options {
    /// This program's executable.
    pub headroom: PathBuf,
    /// Set by a signal handler to stop; the campaign can be continued.
    pub interrupted: Arc<AtomicBool>,
}

/// Receives what a campaign does.
pub trait Observer {
    /// Something happened: a sentence.
    fn happened(&self, sentence: &str);
    /// A round is complete, or the campaign ends, and nothing is measured now.
    fn results_changed(&self, folder: &Path);
}

/// Runs what `folder` does not have yet of a campaign, and waits for the times of its rounds.
///
/// # Errors
/// The folder has another campaign, one that is going on, or none and other files; a file cannot
/// be written; or the user stopped it. Runs that fail are no errors: the status lists them.
pub fn run(
    campaign: &Campaign,
    folder: &Path,
    options: &Options,
    observer: &dyn Observer,
) -> Result<Status> {
    let mut controller = Controller::new(campaign, folder, options, observer)?;
    controller.run()?;
    drop(controller);
    status(folder)
}

/// A run that goes on.
#[derive(Debug)]
struct Running {
    job: Job,
    /// None: a campaign that was killed has started it.
    process: Option<Process>,
}

struct Controller<'a> {
    campaign: &'a Campaign,
    folder: &'a Path,
    options: &'a Options,
    observer: &'a dyn Observer,
    combinations: Vec<(&'a CampaignPlan, Option<&'a Pair>)>,
    /// The plans as the campaign was begun, in its order.
    records: Vec<PlanRecord>,
    journal: Journal,
    queue: Queue,
    running: Vec<Running>,
    /// When this process began.
    since: UnixTime,
    /// Held while something is measured.
    lock: Option<MachineLock>,
    /// Another campaign measures on this machine.
    is_held: bool,
    /// Results were added.
    has_changed: bool,
    /// Among them the last ones of a round.
    is_round_complete: bool,
    /// The due time that was announced last.
    announced: Option<UnixTime>,
}

impl<'a> Controller<'a> {
    fn new(
        campaign: &'a Campaign,
        folder: &'a Path,
        options: &'a Options,
        observer: &'a dyn Observer,
    ) -> Result<Self> {
        let since = schedule::now();
        std::fs::create_dir_all(folder).doing(|| format!("create {}", folder.display()))?;
        let (journal, header, entries) = if folder.join(NAME).exists() {
            let (mut journal, contents) = Journal::reopen(folder)?;
            require_same(campaign, &contents.header, folder)?;
            let rounds = campaign.rounds;
            journal.append(&Entry::Continued { at: since, rounds })?;
            (journal, contents.header, contents.entries)
        } else {
            require_empty(folder)?;
            let header = Header::new(campaign, since);
            (Journal::create(folder, header.clone())?, header, Vec::new())
        };
        write_testbeds(campaign, folder)?;
        let queue = Queue::new(campaign, header.began);
        let mut controller = Self {
            campaign,
            folder,
            options,
            observer,
            combinations: campaign.combinations().collect(),
            records: header.plans,
            journal,
            queue,
            running: Vec::new(),
            since,
            lock: None,
            is_held: false,
            has_changed: !entries.is_empty(),
            is_round_complete: false,
            announced: None,
        };
        controller.replay(&entries)?;
        Ok(controller)
    }

    /// Finds what is settled, and what a campaign that was killed has left.
    fn replay(&mut self, entries: &[Entry]) -> Result<()> {
        let mut begun: Vec<Job> = Vec::new();
        for entry in entries {
            match entry {
                Entry::Begun { run, .. } => begun.extend(self.job_of(run)),
                Entry::Ended { run, .. } => {
                    if let Some(job) = self.job_of(run) {
                        self.queue.settle(job);
                    }
                }
                Entry::Campaign(_) | Entry::Continued { .. } => {}
            }
        }
        begun.sort_unstable();
        begun.dedup();
        begun.retain(|job| !self.queue.is_settled(*job));
        for job in begun {
            let home = self.home(job);
            // in this order: one that ends in between is complete
            if lab_run::is_going_on(&home) {
                self.announce(job, "it still goes on; waiting for its end");
                self.running.push(Running { job, process: None });
            } else if outcome::is_complete(&home) {
                self.settle(job, Outcome::Measured { failed: None })?;
            }
        }
        Ok(())
    }

    fn run(&mut self) -> Result<()> {
        loop {
            self.collect()?;
            if std::mem::take(&mut self.is_round_complete) {
                self.report();
            }
            if self.options.interrupted.load(Ordering::Relaxed) {
                return self.stop();
            }
            let running: Vec<Job> = self.running.iter().map(|running| running.job).collect();
            match self.queue.next(schedule::now(), &running) {
                Next::Start(job) => self.start(job)?,
                Next::Miss(job) => self.miss(job)?,
                Next::Wait(until) => self.wait(until),
                Next::Done => {
                    self.report();
                    return Ok(());
                }
            }
        }
    }

    /// Settles the runs that have ended.
    fn collect(&mut self) -> Result<()> {
        for mut running in std::mem::take(&mut self.running) {
            let home = self.home(running.job);
            let ended = match &mut running.process {
                Some(process) => process.ended()?.map(|status| reason(status, process.log())),
                None => (!lab_run::is_going_on(&home))
                    .then(|| Some("the campaign that started it was killed".to_owned())),
            };
            match ended {
                None => self.running.push(running),
                Some(failed) => {
                    // how one ended that nobody waited for is not known
                    let failed = failed
                        .filter(|_| running.process.is_some() || !outcome::is_complete(&home));
                    self.settle(running.job, outcome::of_ended(&home, failed)?)?;
                }
            }
        }
        if self.running.is_empty() && self.lock.take().is_some() {
            // another campaign that waits for the lock looks meanwhile
            sleep(2 * LOOK);
        }
        Ok(())
    }

    /// Stops what runs; it can be continued.
    fn stop(&mut self) -> Result<()> {
        let running = std::mem::take(&mut self.running);
        for one in &running {
            if let Some(process) = &one.process {
                process.interrupt();
                self.announce(one.job, "is interrupted; waiting for its end");
            }
        }
        for Running { job, process } in running {
            let Some(mut process) = process else { continue };
            let status = process.wait()?;
            let home = self.home(job);
            if outcome::is_complete(&home) {
                let failed = reason(status, process.log());
                self.settle(job, outcome::of_ended(&home, failed)?)?;
            }
        }
        self.lock = None;
        self.report();
        Err(Error::Interrupted)
    }

    fn start(&mut self, job: Job) -> Result<()> {
        if self.lock.is_none() {
            self.lock = MachineLock::take()?;
            if self.lock.is_none() {
                if !self.is_held {
                    self.announce(job, "it waits: another campaign measures on this machine");
                    self.is_held = true;
                }
                sleep(LOOK);
                return Ok(());
            }
            self.is_held = false;
        }
        let home = self.home(job);
        if let Some(why) = self.change_of_plan(job) {
            return self.settle(job, outcome::of_interrupted(&home, why)?);
        }
        let (plan, pair) = self.combinations[job.combination];
        let arguments = process::arguments(self.campaign, plan, pair, self.folder, &home);
        let name = file_name(&plan.plan.name, pair.map(|pair| pair.name.as_str()));
        let logs = self.folder.join(FOLDER_OF_LOGS);
        let log = logs.join(format!("{}-{name}.log", round_folder(job.round)));
        for folder in [home.as_path(), logs.as_path()] {
            std::fs::create_dir_all(folder).doing(|| format!("create {}", folder.display()))?;
        }
        let run = self.name(job);
        self.journal.append(&Entry::Begun { run, at: schedule::now() })?;
        self.announce(job, "begins");
        let process = Process::start(&self.options.headroom, &arguments, log)?;
        self.running.push(Running { job, process: Some(process) });
        Ok(())
    }

    /// Gives a run up.
    fn miss(&mut self, job: Job) -> Result<()> {
        let end = self.queue.end_of(job.round);
        let due = end.map_or_else(String::new, |end| format!(" ({})", schedule::written(end)));
        let because = if end.is_some_and(|end| end <= self.since) {
            "the campaign was not running when the next round was due"
        } else if self.is_held {
            "another campaign measured on this machine until the next round was due"
        } else {
            "the runs before it went on until the next round was due"
        };
        let outcome = outcome::of_interrupted(&self.home(job), format!("{because}{due}"))?;
        self.settle(job, outcome)
    }

    fn wait(&mut self, until: Option<UnixTime>) {
        self.report();
        let due = until.filter(|_| self.running.is_empty());
        if let Some(due) = due
            && self.announced != Some(due)
        {
            let written = schedule::written(due);
            self.observer.happened(&format!("the next round is due at {written}"));
            self.announced = Some(due);
        }
        sleep(LOOK);
    }

    /// Lets the results be looked at where that disturbs nothing.
    fn report(&mut self) {
        if self.has_changed && self.running.is_empty() {
            self.observer.results_changed(self.folder);
            self.has_changed = false;
        }
    }

    fn settle(&mut self, job: Job, outcome: Outcome) -> Result<()> {
        match &outcome {
            Outcome::Measured { failed: None } => self.announce(job, "measured"),
            Outcome::Measured { failed: Some(why) } => {
                self.announce(job, &format!("measured: {why}"));
            }
            Outcome::Partial { why } => self.announce(job, &format!("measured in part: {why}")),
            Outcome::Missed { why } => self.announce(job, &format!("missed: {why}")),
        }
        let run = self.name(job);
        self.journal.append(&Entry::Ended { run, at: schedule::now(), outcome })?;
        self.has_changed = true;
        self.is_round_complete |= self.queue.settle(job);
        Ok(())
    }

    /// Says how the plan of a run is no longer the one that the campaign was begun with.
    fn change_of_plan(&self, job: Job) -> Option<String> {
        let (plan, _) = self.combinations[job.combination];
        let record = self.records.iter().find(|record| record.name == plan.plan.name)?;
        match CampaignPlan::read(plan.path.clone(), self.campaign.scale, None) {
            Ok(now) => {
                let changed = now.plan.differences_from(record);
                let is_same = changed.is_empty();
                let changed = changed.join(", ");
                (!is_same).then(|| format!("the plan has changed since the beginning: {changed}"))
            }
            Err(error) => Some(error.to_string()),
        }
    }

    fn name(&self, job: Job) -> RunName {
        let (plan, pair) = self.combinations[job.combination];
        RunName {
            round: job.round,
            plan: plan.plan.name.clone(),
            pair: pair.map(|pair| pair.name.clone()),
        }
    }

    fn job_of(&self, run: &RunName) -> Option<Job> {
        let combination = self.combinations.iter().position(|(plan, pair)| {
            plan.plan.name == run.plan && pair.map(|pair| &pair.name) == run.pair.as_ref()
        })?;
        Some(Job { round: run.round, combination })
    }

    fn home(&self, job: Job) -> PathBuf {
        let RunName { round, plan, pair } = self.name(job);
        home_of(self.folder, round, &plan, pair.as_deref())
    }

    fn announce(&self, job: Job, what: &str) {
        let RunName { round, plan, pair } = self.name(job);
        let (round, rounds) = (u64::from(round) + 1, self.campaign.rounds);
        let name = name_on(&plan, pair.as_deref());
        self.observer.happened(&format!("round {round} of {rounds}, {name}: {what}"));
    }
}

/// Why a run failed, from what it printed; none: it did not.
fn reason(status: ExitStatus, log: &Path) -> Option<String> {
    let failed = || outcome::last_error(log).unwrap_or_else(|| format!("it ended with {status}"));
    (!status.success()).then(failed)
}

/// Refuses to continue another campaign.
fn require_same(campaign: &Campaign, header: &Header, folder: &Path) -> Result<()> {
    let differences = header.differences(campaign);
    if differences.is_empty() {
        return Ok(());
    }
    Err(Error::Plan(format!(
        "the campaign in {} was begun otherwise ({}): undo that, or choose another folder with --out. Only `rounds` and \
         `at-once` may change",
        folder.display(),
        differences.join("; ")
    )))
}

/// Refuses a folder that somebody else's files are in.
fn require_empty(folder: &Path) -> Result<()> {
    let mut inside =
        std::fs::read_dir(folder).doing(|| format!("read the folder {}", folder.display()))?;
    if inside.next().is_none() {
        return Ok(());
    }
    Err(Error::Plan(format!(
        "the folder {} is not empty and has no campaign: choose another with --out",
        folder.display()
    )))
}

/// Writes where each pair's plans are run.
fn write_testbeds(campaign: &Campaign, folder: &Path) -> Result<()> {
    let pairs = folder.join(FOLDER_OF_PAIRS);
    std::fs::create_dir_all(&pairs).doing(|| format!("create {}", pairs.display()))?;
    for pair in &campaign.pairs {
        let file = process::testbed_file(folder, pair);
        std::fs::write(&file, pair.testbed().to_toml())
            .doing(|| format!("write {}", file.display()))?;
    }
    Ok(())
}
