//! Campaigns: the same plans between several pairs of hosts, round after round. A campaign decides
//! which run begins when, and starts a process `headroom lab run` for each, so a run that fails, or
//! mounts over `/run`, does not affect the others.

mod file;
mod journal;
mod machine_lock;
mod outcome;
mod process;
mod queue;
mod run;
mod schedule;
mod status;

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

use headroom_lab_host::error::{Doing, Error, Result};
use headroom_lab_results::schema::SshHosts;

use crate::plan::{NamedTestbed, Plan, Scale};
use crate::run::expected_time;

pub use run::{Observer, Options, run};
pub use schedule::{Schedule, TimeOfDay, UnixTime};
pub use status::{JobStatus, LastRun, Status, status};

/// The longest text of a campaign.
const LONGEST_TEXT: u64 = 1 << 20;

/// Plans and pairs of a campaign.
const MAX_PLANS: usize = 64;
const MAX_PAIRS: usize = 64;

/// In a campaign's folder: a folder for each round, with one for each run in it.
const FOLDER_OF_RUNS: &str = "runs";
/// The testbeds of its pairs.
const FOLDER_OF_PAIRS: &str = "pairs";
/// What its runs print.
const FOLDER_OF_LOGS: &str = "logs";

/// Plans × pairs of hosts × times.
#[derive(Debug, Clone)]
pub struct Campaign {
    /// One word; part of the folder's name.
    pub name: String,
    /// What is measured; each has another name.
    pub plans: Vec<CampaignPlan>,
    /// Between which hosts; none: where each plan says.
    pub pairs: Vec<Pair>,
    /// When.
    pub schedule: Schedule,
    /// How often.
    pub rounds: u32,
    /// The most runs at once.
    pub at_once: usize,
    /// The version of the plans that is run; none: all of them.
    pub scale: Option<Scale>,
    /// Whether this machine's programs are measured, and not the pinned ones.
    pub host_programs: bool,
}

/// One plan of a campaign.
#[derive(Debug, Clone)]
pub struct CampaignPlan {
    /// Its file.
    pub path: PathBuf,
    /// As it runs on its own testbed.
    pub plan: Plan,
}

/// A pair of hosts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pair {
    /// One word.
    pub name: String,
    /// Two real machines; none: namespaces of this one.
    pub hosts: Option<SshHosts>,
}

impl Campaign {
    /// Reads a campaign, and its plans from the folder of its file.
    ///
    /// # Errors
    /// [`Error::Plan`] with file and line: also of a plan that cannot be run on one of the pairs.
    pub fn read(path: &Path) -> Result<Self> {
        let mut text = String::new();
        let read =
            File::open(path).and_then(|file| file.take(LONGEST_TEXT + 1).read_to_string(&mut text));
        read.map_err(|error| {
            Error::Plan(format!("cannot read the campaign {}: {error}", path.display()))
        })?;
        if text.len() as u64 > LONGEST_TEXT {
            let sentence = format!("{} has more than 1 MiB: is it a campaign?", path.display());
            return Err(Error::Plan(sentence));
        }
        let name = path.file_stem().map_or("campaign".into(), |stem| stem.to_string_lossy());
        let folder = path.parent().unwrap_or(Path::new(""));
        let folder = std::path::absolute(folder.join("."))
            .doing(|| format!("find the folder of {}", path.display()))?;
        file::read(&text, &name, &folder)
            .map_err(|error| Error::Plan(format!("{}:{error}", path.display())))
    }

    /// The plans and pairs of one round, in the order of the file: the plans of the first pair
    /// first.
    fn combinations(&self) -> impl Iterator<Item = (&CampaignPlan, Option<&Pair>)> {
        let pairs = self.pairs.iter().map(Some);
        let nowhere_else = self.pairs.is_empty().then_some(None);
        pairs
            .chain(nowhere_else)
            .flat_map(move |pair| self.plans.iter().map(move |plan| (plan, pair)))
    }

    /// Returns how long a round will probably take, one run after the other.
    pub fn expected_time_of_a_round(&self) -> Duration {
        let times = self.combinations().map(|(plan, _)| expected_time(&plan.plan));
        times.fold(Duration::ZERO, Duration::saturating_add)
    }

    /// Returns the shortest time between two rounds, of the first ones; none: each begins when the
    /// one before it is over.
    pub fn time_between_rounds(&self) -> Option<Duration> {
        /// Times of day come again after so many rounds in nearly every campaign.
        const SEARCHED: u32 = 100;
        let began = schedule::now();
        let due = |round| self.schedule.due(round, began);
        let rounds = 1..self.rounds.min(SEARCHED);
        let between = rounds.filter_map(|round| u64::try_from(due(round)? - due(round - 1)?).ok());
        between.min().map(Duration::from_secs)
    }

    /// Lists what would be run and when: a line for each round, up to `most`, and the commands of
    /// the first.
    pub fn dry_run(&self, folder: &Path, headroom: &Path, most: u32) -> Vec<String> {
        let began = schedule::now();
        let runs: Vec<String> =
            self.combinations().map(|(plan, pair)| name_of(&plan.plan.name, pair)).collect();
        let mut lines = vec![
            format!("# {}: {} rounds of {} runs", self.name, self.rounds, runs.len()),
            format!("# {}", runs.join(", ")),
        ];
        for round in 0..self.rounds.min(most) {
            let due = match self.schedule.due(round, began) {
                Some(due) => schedule::written(due),
                None if round == 0 => "now".to_owned(),
                None => "when the one before is over".to_owned(),
            };
            lines.push(format!("# round {}: {due}", round + 1));
        }
        if let Some(more) = self.rounds.checked_sub(most).filter(|more| *more > 0) {
            let last = self.schedule.due(self.rounds - 1, began);
            let last = last.map(|due| format!(", the last at {}", schedule::written(due)));
            lines.push(format!("# and {more} more{}", last.unwrap_or_default()));
        }
        for (plan, pair) in self.combinations() {
            let home = home_of(folder, 0, &plan.plan.name, pair.map(|pair| pair.name.as_str()));
            let words = process::arguments(self, plan, pair, folder, &home);
            let words: Vec<String> =
                words.iter().map(|word| word.to_string_lossy().into_owned()).collect();
            lines.push(format!("{} {}", headroom.display(), words.join(" ")));
        }
        lines
    }
}

impl CampaignPlan {
    /// Reads a plan as the campaign runs it.
    ///
    /// # Errors
    /// It cannot be read, or has no such version.
    fn read(path: PathBuf, scale: Option<Scale>, testbed: Option<&NamedTestbed>) -> Result<Self> {
        let plan = match testbed {
            Some(testbed) => Plan::read_on(&path, testbed)?,
            None => Plan::read(&path)?,
        };
        let Some(scale) = scale else { return Ok(Self { path, plan }) };
        let name = plan.name.clone();
        let plan = plan.at_scale(scale)?.ok_or_else(|| {
            Error::Plan(format!("the plan {name} has no version at scale {}", scale.name()))
        })?;
        Ok(Self { path, plan })
    }
}

impl Pair {
    fn testbed(&self) -> NamedTestbed {
        NamedTestbed { name: Some(self.name.clone()), hosts: self.hosts.clone() }
    }
}

/// `demo on berlin-paris`.
fn name_of(plan: &str, pair: Option<&Pair>) -> String {
    name_on(plan, pair.map(|pair| pair.name.as_str()))
}

fn name_on(plan: &str, pair: Option<&str>) -> String {
    pair.map_or_else(|| plan.to_owned(), |pair| format!("{plan} on {pair}"))
}

/// The folder of a run's results.
fn home_of(folder: &Path, round: u32, plan: &str, pair: Option<&str>) -> PathBuf {
    folder.join(FOLDER_OF_RUNS).join(round_folder(round)).join(file_name(plan, pair))
}

/// Rounds are counted from 1 where people see them.
fn round_folder(round: u32) -> String {
    format!("{:05}", u64::from(round) + 1)
}

/// No name has an @.
fn file_name(plan: &str, pair: Option<&str>) -> String {
    pair.map_or_else(|| plan.to_owned(), |pair| format!("{plan}@{pair}"))
}
