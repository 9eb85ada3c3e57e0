//! How far a campaign is, from its journal.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use headroom_lab_host::error::Result;
use serde::Serialize;

use super::home_of;
use super::journal::{self, Contents, Entry, Header};
use super::outcome::Outcome;
use super::schedule::{UnixTime, written};

/// How far a campaign is.
#[derive(Debug, Clone, Serialize)]
pub struct Status {
    /// Its name.
    pub name: String,
    /// Where its results are.
    pub folder: PathBuf,
    /// Whether a process works on it.
    pub is_going_on: bool,
    /// RFC 3339.
    pub began: String,
    /// Rounds that it has.
    pub rounds: u32,
    /// Runs that it has.
    pub runs: usize,
    /// Of these, measured whole.
    pub measured: usize,
    /// Measured in part.
    pub partial: usize,
    /// Missed.
    pub missed: usize,
    /// When the first round with runs that are left is due, in RFC 3339; null: when the one before
    /// is over, or none is left.
    pub next_due: Option<String>,
    /// Each plan on each pair.
    pub jobs: Vec<JobStatus>,
}

/// How far a plan on a pair is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct JobStatus {
    /// Name of the plan.
    pub plan: String,
    /// Name of the pair; null: the campaign has none.
    pub pair: Option<String>,
    /// Runs that were measured whole.
    pub measured: usize,
    /// Of these, with samples that failed.
    pub with_failures: usize,
    /// Runs that were measured in part.
    pub partial: usize,
    /// Runs that were missed.
    pub missed: usize,
    /// The last one that is over.
    pub last: Option<LastRun>,
    /// When the run began that goes on, in RFC 3339; null: none does.
    pub running_since: Option<String>,
}

/// The last run of a plan on a pair.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LastRun {
    /// From 1.
    pub round: u64,
    /// When it was over, in RFC 3339.
    pub at: String,
    /// `measured`, `partial` or `missed`.
    pub outcome: &'static str,
    /// Why it was not measured whole, or what failed; null: it was.
    pub why: Option<String>,
    /// Where its results are; null: it has none.
    pub folder: Option<PathBuf>,
}

impl Status {
    /// Runs that are left.
    pub fn left(&self) -> usize {
        self.runs.saturating_sub(self.measured + self.partial + self.missed)
    }

    /// Whether all runs were measured whole, and no sample of them failed.
    pub fn is_good(&self) -> bool {
        self.measured == self.runs && self.jobs.iter().all(|job| job.with_failures == 0)
    }
}

/// Reads how far the campaign in `folder` is.
///
/// # Errors
/// There is none, or its journal is damaged.
pub fn status(folder: &Path) -> Result<Status> {
    let (contents, is_going_on) = journal::read(folder)?;
    Ok(of(contents, is_going_on, folder))
}

fn of(contents: Contents, is_going_on: bool, folder: &Path) -> Status {
    let Contents { header, entries } = contents;
    let mut jobs = jobs(&header);
    let mut rounds = header.rounds;
    // runs that are over, by their round
    let mut over: BTreeMap<u32, usize> = BTreeMap::new();
    let mut begun: BTreeMap<(String, Option<String>), (u32, UnixTime)> = BTreeMap::new();
    for entry in entries {
        match entry {
            Entry::Campaign(_) => {}
            Entry::Continued { rounds: now, .. } => rounds = now,
            Entry::Begun { run, at } => {
                begun.insert((run.plan, run.pair), (run.round, at));
            }
            Entry::Ended { run, at, outcome } => {
                let key = (run.plan, run.pair);
                if begun.get(&key).is_some_and(|(round, _)| *round == run.round) {
                    begun.remove(&key);
                }
                *over.entry(run.round).or_default() += 1;
                let job = jobs.iter_mut().find(|job| job.plan == key.0 && job.pair == key.1);
                if let Some(job) = job {
                    job.add(run.round, at, outcome, folder);
                }
            }
        }
    }
    for job in &mut jobs {
        let since = begun.get(&(job.plan.clone(), job.pair.clone())).filter(|_| is_going_on);
        job.running_since = since.map(|(_, at)| written(*at));
    }
    let is_left = |round: &u32| over.get(round).is_none_or(|count| *count < jobs.len());
    let next = (0..rounds).find(is_left);
    let next_due = next.and_then(|round| header.schedule.due(round, header.began)).map(written);
    let sum = |of: fn(&JobStatus) -> usize| jobs.iter().map(of).sum::<usize>();
    Status {
        name: header.name.clone(),
        folder: folder.to_owned(),
        is_going_on,
        began: written(header.began),
        rounds,
        runs: jobs.len().saturating_mul(rounds as usize),
        measured: sum(|job| job.measured),
        partial: sum(|job| job.partial),
        missed: sum(|job| job.missed),
        next_due,
        jobs,
    }
}

/// The plans on the pairs of a campaign, of which nothing is known yet.
fn jobs(header: &Header) -> Vec<JobStatus> {
    let pairs: Vec<Option<&str>> = if header.pairs.is_empty() {
        vec![None]
    } else {
        header.pairs.iter().map(|pair| Some(pair.name.as_str())).collect()
    };
    let mut jobs = Vec::new();
    for pair in pairs {
        for plan in &header.plans {
            jobs.push(JobStatus {
                plan: plan.name.clone(),
                pair: pair.map(str::to_owned),
                measured: 0,
                with_failures: 0,
                partial: 0,
                missed: 0,
                last: None,
                running_since: None,
            });
        }
    }
    jobs
}

impl JobStatus {
    /// The plan, and the pair if there is one.
    pub fn name(&self) -> String {
        super::name_on(&self.plan, self.pair.as_deref())
    }

    fn add(&mut self, round: u32, at: UnixTime, outcome: Outcome, folder: &Path) {
        let (name, why) = match outcome {
            Outcome::Measured { failed } => {
                self.measured += 1;
                self.with_failures += usize::from(failed.is_some());
                ("measured", failed)
            }
            Outcome::Partial { why } => {
                self.partial += 1;
                ("partial", Some(why))
            }
            Outcome::Missed { why } => {
                self.missed += 1;
                ("missed", Some(why))
            }
        };
        let home = home_of(folder, round, &self.plan, self.pair.as_deref());
        self.last = Some(LastRun {
            round: u64::from(round) + 1,
            at: written(at),
            outcome: name,
            why,
            folder: (name != "missed").then_some(home),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::campaign::journal::{Journal, RunName};
    use crate::campaign::{Campaign, CampaignPlan, Pair, Schedule};
    use crate::plan::Plan;

    #[test]
    fn counts_what_is_over_and_says_what_comes_next() {
        let text = "stacks = [\"http\"]\n[[workload]]\nkind = \"download\"\n";
        let plan = Plan::from_toml(text, "p").expect("a good plan");
        let pair = |name: &str| Pair { name: name.to_owned(), hosts: None };
        let campaign = Campaign {
            name: "c".to_owned(),
            plans: vec![CampaignPlan { path: "p.toml".into(), plan }],
            pairs: vec![pair("near"), pair("far")],
            schedule: Schedule::Every { seconds: 3600, start: None },
            rounds: 2,
            at_once: 1,
            scale: None,
            host_programs: false,
        };
        let ground = tempfile::tempdir().expect("a folder");
        let folder = ground.path();
        let header = Header::new(&campaign, 0);
        let mut journal = Journal::create(folder, header).expect("created");
        let run = |round, pair: &str| RunName {
            round,
            plan: "p".to_owned(),
            pair: Some(pair.to_owned()),
        };
        let failed = Some("1 of 5 samples failed".to_owned());
        let outcomes = [
            ("near", Outcome::Measured { failed }),
            ("far", Outcome::Missed { why: "no route".to_owned() }),
        ];
        for (pair, outcome) in outcomes {
            journal.append(&Entry::Begun { run: run(0, pair), at: 1 }).expect("written");
            journal.append(&Entry::Ended { run: run(0, pair), at: 2, outcome }).expect("written");
        }
        journal.append(&Entry::Begun { run: run(1, "far"), at: 3_600 }).expect("written");
        let going_on = status(folder).expect("a status");
        assert!(going_on.is_going_on);
        assert_eq!((going_on.runs, going_on.measured, going_on.missed), (4, 1, 1));
        assert_eq!((going_on.left(), going_on.is_good()), (2, false));
        assert_eq!(going_on.next_due.as_deref(), Some("1970-01-01T01:00:00Z"));
        let [near, far] = &going_on.jobs[..] else { panic!("{going_on:?}") };
        assert_eq!((near.name().as_str(), near.with_failures), ("p on near", 1));
        assert_eq!(far.running_since.as_deref(), Some("1970-01-01T01:00:00Z"));
        let last = far.last.as_ref().expect("a run");
        assert_eq!((last.round, last.outcome, &last.folder), (1, "missed", &None));
        assert_eq!(last.why.as_deref(), Some("no route"));

        drop(journal);
        let killed = status(folder).expect("a status");
        assert!(!killed.is_going_on && killed.jobs[1].running_since.is_none());
        std::fs::remove_dir_all(folder).expect("removed");
        assert!(status(folder).is_err());
    }
}
