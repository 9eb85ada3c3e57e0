//! The journal of a campaign, `campaign.jsonl` in its folder: what was begun and what became of
//! it, a line each, on the disk before the next thing is done.

use std::fs::File;
use std::path::Path;

use headroom_lab_host::error::{Error, Result};
use headroom_lab_results::schema::{PlanRecord, SshHosts};
use serde::{Deserialize, Serialize};

use super::outcome::Outcome;
use super::schedule::{Schedule, UnixTime};
use super::{Campaign, MAX_PAIRS, MAX_PLANS};
use crate::journal::{self, Format, JournalFile, Verdict};

/// The file's name.
pub(super) const NAME: &str = "campaign.jsonl";

/// Version of the format.
const SCHEMA: u32 = 1;
const FORMAT: Format = Format {
    of: "campaign",
    schema: SCHEMA,
    // the first line has 64 plans and 64 pairs
    max_line: 16 << 20,
    // each of 100 000 runs begins, is continued now and then, and ends
    max_lines: 1_000_000,
    if_going_on: "--status says how far it is",
};

/// One line of the journal.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Entry {
    /// The first line, and only that.
    Campaign(Box<Header>),
    /// A run begins, or is continued.
    Begun {
        /// Which.
        run: RunName,
        /// When.
        at: UnixTime,
    },
    /// A run is over, or will not begin.
    Ended {
        /// Which.
        run: RunName,
        /// When.
        at: UnixTime,
        /// What became of it.
        outcome: Outcome,
    },
    /// The campaign was continued.
    Continued {
        /// When.
        at: UnixTime,
        /// Rounds that it has now.
        rounds: u32,
    },
}

/// A run, by the names of its plan and pair.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct RunName {
    /// From 0.
    pub(super) round: u32,
    pub(super) plan: String,
    pub(super) pair: Option<String>,
}

/// What a campaign measures and when, as it was begun.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Header {
    pub(super) schema: u32,
    pub(super) name: String,
    pub(super) began: UnixTime,
    pub(super) rounds: u32,
    pub(super) schedule: Schedule,
    pub(super) plans: Vec<PlanRecord>,
    pub(super) pairs: Vec<PairRecord>,
    pub(super) scale: Option<String>,
    pub(super) host_programs: bool,
}

/// A pair of hosts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct PairRecord {
    pub(super) name: String,
    /// Null: namespaces of one machine.
    pub(super) hosts: Option<SshHosts>,
}

/// Content of a journal.
#[derive(Debug)]
pub(super) struct Contents {
    pub(super) header: Header,
    pub(super) entries: Vec<Entry>,
}

impl Header {
    /// The header of a campaign that begins.
    pub(super) fn new(campaign: &Campaign, began: UnixTime) -> Self {
        let pairs = campaign
            .pairs
            .iter()
            .map(|pair| PairRecord { name: pair.name.clone(), hosts: pair.hosts.clone() });
        Self {
            schema: SCHEMA,
            name: campaign.name.clone(),
            began,
            rounds: campaign.rounds,
            schedule: campaign.schedule.clone(),
            plans: campaign.plans.iter().map(|plan| plan.plan.record()).collect(),
            pairs: pairs.collect(),
            scale: campaign.scale.map(|scale| scale.name().to_owned()),
            host_programs: campaign.host_programs,
        }
    }

    /// Lists the differences of a campaign to the one that was begun. How many rounds there are,
    /// and how many runs go on at once, may change.
    pub(super) fn differences(&self, campaign: &Campaign) -> Vec<String> {
        let other = Self::new(campaign, self.began);
        let parts = [
            ("its times", self.schedule != other.schedule),
            ("its pairs", self.pairs != other.pairs),
            ("`scale`", self.scale != other.scale),
            ("`host-programs`", self.host_programs != other.host_programs),
        ];
        let parts = parts.into_iter().filter(|(_, differs)| *differs);
        let mut differences: Vec<String> = parts.map(|(part, _)| part.to_owned()).collect();
        let names = |header: &Self| -> Vec<String> {
            header.plans.iter().map(|plan| plan.name.clone()).collect()
        };
        if names(self) != names(&other) {
            differences.push("its plans".to_owned());
            return differences;
        }
        for (plan, record) in campaign.plans.iter().zip(&self.plans) {
            let changed = plan.plan.differences_from(record);
            if !changed.is_empty() {
                differences.push(format!("the plan {}: {}", record.name, changed.join(", ")));
            }
        }
        differences
    }
}

/// A journal that is being written.
#[derive(Debug)]
pub(super) struct Journal(JournalFile);

impl Journal {
    /// Begins a journal in a folder that has none.
    pub(super) fn create(folder: &Path, header: Header) -> Result<Self> {
        let mut journal = Self(JournalFile::create(folder.join(NAME), &FORMAT)?);
        journal.append(&Entry::Campaign(Box::new(header)))?;
        Ok(journal)
    }

    /// Reopens the journal of a folder, without a torn last line.
    pub(super) fn reopen(folder: &Path) -> Result<(Self, Contents)> {
        let path = folder.join(NAME);
        let mut parts = Parts::default();
        let file = JournalFile::reopen(path.clone(), &FORMAT, |entry| parts.take(entry))?;
        Ok((Self(file), parts.finish(&path)?))
    }

    /// Writes a line; it is on the disk when this returns.
    pub(super) fn append(&mut self, entry: &Entry) -> Result<()> {
        self.0.append(entry, true)
    }
}

/// Reads the journal of a folder without touching it; also says whether its campaign is going on.
pub(super) fn read(folder: &Path) -> Result<(Contents, bool)> {
    let path = folder.join(NAME);
    let file = File::open(&path).map_err(|error| {
        Error::Plan(format!("there is no campaign in {}: {error}", folder.display()))
    })?;
    let is_going_on = journal::is_going_on(&file);
    let mut parts = Parts::default();
    journal::parse(&file, &path, &FORMAT, |entry| parts.take(entry))?;
    Ok((parts.finish(&path)?, is_going_on))
}

/// Content while it is read.
#[derive(Default)]
struct Parts {
    header: Option<Header>,
    entries: Vec<Entry>,
}

impl Parts {
    fn take(&mut self, entry: Entry) -> Verdict {
        match (entry, &self.header) {
            (Entry::Campaign(first), None) => {
                // a status has a line for each plan on each pair
                if first.plans.len() > MAX_PLANS || first.pairs.len() > MAX_PAIRS {
                    return Err("no campaign has so many plans or pairs");
                }
                self.header = Some(*first);
            }
            (Entry::Campaign(_), Some(_)) => return Err("a second beginning"),
            (_, None) => return Err("a journal begins with the campaign"),
            (entry, Some(_)) => self.entries.push(entry),
        }
        Ok(())
    }

    fn finish(self, path: &Path) -> Result<Contents> {
        let Self { header, entries } = self;
        let header = header.ok_or_else(|| {
            let path = path.display();
            Error::Plan(format!("{path} is empty: remove it to begin the campaign again"))
        })?;
        Ok(Contents { header, entries })
    }
}

#[cfg(test)]
mod tests {
    use std::fs::OpenOptions;
    use std::io::Write;

    use tempfile::TempDir;

    use super::*;
    use crate::campaign::{CampaignPlan, Pair};
    use crate::plan::Plan;

    fn campaign(repetitions: u32, rounds: u32) -> Campaign {
        let text = format!(
            "stacks = [\"http\"]\nrepetitions = {repetitions}\n[[workload]]\nkind = \"download\"\n"
        );
        let plan = Plan::from_toml(&text, "p").expect("a good plan");
        Campaign {
            name: "c".to_owned(),
            plans: vec![CampaignPlan { path: "p.toml".into(), plan }],
            pairs: vec![Pair { name: "here".to_owned(), hosts: None }],
            schedule: Schedule::BackToBack,
            rounds,
            at_once: 1,
            scale: None,
            host_programs: false,
        }
    }

    fn append(folder: &TempDir, text: &str) {
        let file = OpenOptions::new().append(true).open(folder.path().join(NAME));
        file.and_then(|mut file| file.write_all(text.as_bytes())).expect("written");
    }

    #[test]
    fn what_was_written_is_read_and_a_torn_line_is_removed() {
        let folder = tempfile::tempdir().expect("a folder");
        let header = Header::new(&campaign(2, 3), 1_000);
        let mut journal = Journal::create(folder.path(), header.clone()).expect("created");
        let run = RunName { round: 0, plan: "p".to_owned(), pair: Some("here".to_owned()) };
        let outcome = Outcome::Missed { why: "no route".to_owned() };
        journal.append(&Entry::Begun { run: run.clone(), at: 1_001 }).expect("written");
        journal.append(&Entry::Ended { run, at: 1_002, outcome }).expect("written");
        let second = Journal::reopen(folder.path()).expect_err("one at a time").to_string();
        assert!(second.contains("is still going on"), "{second}");
        assert!(read(folder.path()).is_ok_and(|(_, is_going_on)| is_going_on));
        drop(journal);
        append(&folder, "{\"begun\":{\"ru");
        let (mut journal, contents) = Journal::reopen(folder.path()).expect("readable");
        assert_eq!((contents.header, contents.entries.len()), (header, 2));
        journal.append(&Entry::Continued { at: 1_003, rounds: 3 }).expect("written");
        drop(journal);
        let (contents, is_going_on) = read(folder.path()).expect("readable");
        assert_eq!((contents.entries.len(), is_going_on), (3, false));
    }

    #[test]
    fn damage_is_named_with_its_line() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join(NAME);
        let header = Header::new(&campaign(2, 3), 1_000);
        drop(Journal::create(folder.path(), header).expect("created"));
        append(&folder, "{\"continued\":{\"at\":1,\"rounds\":2}}\n{\"continued\":7}\n");
        let error = read(folder.path()).expect_err("damaged").to_string();
        assert!(error.contains("campaign.jsonl, line 3: "), "{error}");
        let pair = PairRecord { name: "here".to_owned(), hosts: None };
        let mut many = Header::new(&campaign(2, 3), 1_000);
        many.pairs = vec![pair; MAX_PAIRS + 1];
        let line = serde_json::to_string(&Entry::Campaign(Box::new(many))).expect("JSON");
        std::fs::write(&path, line + "\n").expect("written");
        let error = read(folder.path()).expect_err("damaged").to_string();
        assert!(error.contains("line 1: no campaign has so many"), "{error}");
        for (text, words) in [
            ("", "is empty"),
            ("{\"campaign\":{\"schema\":999}}\n", "has schema 999"),
            ("{\"continued\":{\"at\":1,\"rounds\":2}}\n", "line 1: a journal begins with"),
            ("\0\0\0\n", "line 1: "),
        ] {
            std::fs::write(&path, text).expect("written");
            let error = read(folder.path()).expect_err(words).to_string();
            assert!(error.contains(words), "{error}");
        }
        std::fs::remove_file(&path).expect("removed");
        let error = read(folder.path()).expect_err("nothing").to_string();
        assert!(error.contains("there is no campaign in"), "{error}");
    }

    #[test]
    fn what_changed_since_the_beginning_is_named_and_more_rounds_are_no_change() {
        let header = Header::new(&campaign(2, 3), 1_000);
        assert!(header.differences(&campaign(2, 30)).is_empty());
        let differences = header.differences(&campaign(5, 3));
        assert_eq!(differences, ["the plan p: repetitions: 5 instead of 2"]);
        let mut other = campaign(2, 3);
        other.schedule = Schedule::Every { seconds: 60, start: None };
        other.pairs.clear();
        other.plans.clear();
        assert_eq!(header.differences(&other), ["its times", "its pairs", "its plans"]);
    }
}
