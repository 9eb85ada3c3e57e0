//! A campaign as it is written in TOML, checked on the way to a [`Campaign`].

use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::path::Path;

use serde::Deserialize;
use toml::Spanned;

use super::schedule::{self, Schedule, UnixTime};
use super::{Campaign, CampaignPlan, MAX_PAIRS, MAX_PLANS, Pair};
use crate::at::{At, at, bounded, plain};
use crate::plan::{NamedTestbed, Scale, TestbedFile};
use crate::toml_error;

const ROUNDS: RangeInclusive<u32> = 1..=10_000;
/// Runs of a campaign, all rounds together.
const MAX_RUNS: usize = 100_000;
/// Runs at once.
const AT_ONCE: RangeInclusive<u32> = 1..=32;

/// Reads a campaign, and its plans from `folder`; an error is `LINE: sentence`.
pub(super) fn read(text: &str, name: &str, folder: &Path) -> Result<Campaign, String> {
    let file: CampaignFile =
        toml::from_str(text).map_err(|error| toml_error::in_text(&error, text))?;
    file.into_campaign(name, folder).map_err(|error| error.in_text(text))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct CampaignFile {
    name: Option<Spanned<String>>,
    plans: Spanned<Vec<Spanned<String>>>,
    #[serde(default)]
    pair: Vec<Spanned<TestbedFile>>,
    every: Option<Spanned<String>>,
    times: Option<Spanned<Vec<Spanned<String>>>>,
    time_zone: Option<Spanned<String>>,
    start: Option<Spanned<String>>,
    rounds: Option<Spanned<u32>>,
    at_once: Option<Spanned<u32>>,
    scale: Option<Spanned<String>>,
    host_programs: Option<bool>,
}

impl CampaignFile {
    fn into_campaign(self, name: &str, folder: &Path) -> Result<Campaign, At> {
        let (schedule, rounds) = self.times()?;
        let scale = self.scale.as_ref().map(read_scale).transpose()?;
        let at_once = bounded("at-once", self.at_once.as_ref(), 1, AT_ONCE)?;
        let name = plain(self.name.as_ref())?.unwrap_or_else(|| name.to_owned());
        let host_programs = self.host_programs.unwrap_or(false);
        let pairs = read_pairs(self.pair)?;
        let plans = read_plans(&self.plans, scale, &pairs, folder)?;
        let runs = plans.len() * pairs.len().max(1) * rounds as usize;
        if runs > MAX_RUNS {
            let message = format!("this campaign has {runs} runs: the most is {MAX_RUNS}");
            return Err(at(&self.plans, message));
        }
        let at_once = at_once as usize;
        Ok(Campaign { name, plans, pairs, schedule, rounds, at_once, scale, host_programs })
    }

    /// When rounds are due, and how many there are.
    fn times(&self) -> Result<(Schedule, u32), At> {
        let start = self.start.as_ref().map(read_moment).transpose()?;
        match (&self.every, &self.times) {
            (Some(_), Some(times)) => Err(at(times, "write `every` or `times`, not both")),
            (Some(every), None) => {
                self.require_no_time_zone()?;
                let seconds =
                    schedule::period(every.get_ref()).map_err(|message| at(every, message))?;
                Ok((Schedule::Every { seconds, start }, self.rounds_of(every)?))
            }
            (None, Some(times)) => Ok((self.daily(times, start)?, self.rounds_of(times)?)),
            (None, None) => {
                self.require_no_time_zone()?;
                if let Some(start) = &self.start {
                    return Err(at(start, "`start` requires `every` or `times`"));
                }
                let rounds = bounded("rounds", self.rounds.as_ref(), 1, ROUNDS)?;
                Ok((Schedule::BackToBack, rounds))
            }
        }
    }

    fn daily(
        &self,
        written: &Spanned<Vec<Spanned<String>>>,
        start: Option<UnixTime>,
    ) -> Result<Schedule, At> {
        let time = |text: &Spanned<String>| {
            schedule::time_of_day(text.get_ref()).map_err(|message| at(text, message))
        };
        let times = written.get_ref().iter().map(time).collect::<Result<BTreeSet<_>, At>>()?;
        if times.is_empty() {
            return Err(at(written, "the list of times is empty"));
        }
        if let Some(name) = &self.time_zone {
            schedule::zone(name.get_ref()).map_err(|message| at(name, message))?;
        }
        let zone = self.time_zone.as_ref().map(Spanned::get_ref);
        let time_zone = zone.cloned().unwrap_or_else(|| "UTC".to_owned());
        Ok(Schedule::Daily { times: times.into_iter().collect(), time_zone, start })
    }

    /// The number of rounds, which a schedule without an end must say.
    fn rounds_of<T>(&self, schedule: &Spanned<T>) -> Result<u32, At> {
        if self.rounds.is_none() {
            return Err(at(schedule, "say how often with `rounds`, such as rounds = 28"));
        }
        bounded("rounds", self.rounds.as_ref(), 1, ROUNDS)
    }

    fn require_no_time_zone(&self) -> Result<(), At> {
        self.time_zone.as_ref().map_or(Ok(()), |zone| {
            Err(at(zone, "`time-zone` requires times of day, such as times = [\"02:00\"]"))
        })
    }
}

fn read_moment(text: &Spanned<String>) -> Result<UnixTime, At> {
    schedule::moment(text.get_ref()).map_err(|message| at(text, message))
}

fn read_scale(name: &Spanned<String>) -> Result<Scale, At> {
    let known = Scale::ALL.into_iter().find(|scale| scale.name() == name.get_ref());
    known.ok_or_else(|| at(name, format!("`{}` is no scale: full, quick or smoke", name.get_ref())))
}

fn read_pairs(files: Vec<Spanned<TestbedFile>>) -> Result<Vec<Pair>, At> {
    let mut pairs: Vec<Pair> = Vec::new();
    for file in files {
        let span = file.span();
        let wrong = |message: String| At { span: span.clone(), message };
        let NamedTestbed { name, hosts } = file.into_inner().into_named(span.clone())?;
        let Some(name) = name else {
            return Err(wrong("a pair has a name, such as name = \"berlin-paris\"".to_owned()));
        };
        if pairs.iter().any(|pair| pair.name == name) {
            return Err(wrong(format!("two pairs are called `{name}`")));
        }
        if pairs.len() == MAX_PAIRS {
            return Err(wrong(format!("a campaign has at most {MAX_PAIRS} pairs")));
        }
        pairs.push(Pair { name, hosts });
    }
    Ok(pairs)
}

/// Reads the plans, each also as it would be run on every pair: what cannot be is found out now
/// and not at night.
fn read_plans(
    written: &Spanned<Vec<Spanned<String>>>,
    scale: Option<Scale>,
    pairs: &[Pair],
    folder: &Path,
) -> Result<Vec<CampaignPlan>, At> {
    let mut plans: Vec<CampaignPlan> = Vec::new();
    if written.get_ref().is_empty() {
        return Err(at(written, "the campaign has no plan"));
    }
    if let Some(one) = written.get_ref().get(MAX_PLANS) {
        return Err(at(one, format!("a campaign has at most {MAX_PLANS} plans")));
    }
    for text in written.get_ref() {
        let path = folder.join(text.get_ref());
        let read = CampaignPlan::read(path.clone(), scale, None);
        let plan = read.map_err(|error| at(text, error.to_string()))?;
        for pair in pairs {
            let there = CampaignPlan::read(path.clone(), scale, Some(&pair.testbed()));
            there.map_err(|error| at(text, format!("on the pair {}: {error}", pair.name)))?;
        }
        let name = &plan.plan.name;
        // it is the name of a folder
        let letters = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        if name.is_empty() || name.starts_with('.') || !name.chars().all(letters) {
            let message = format!(
                "the name of the plan, `{name}`, is not one word of letters, digits, - and _: write `name = \"…\"` in it"
            );
            return Err(at(text, message));
        }
        if plans.iter().any(|other| other.plan.name == *name) {
            let message = format!("two plans are called `{name}`: write `name = \"…\"` in one");
            return Err(at(text, message));
        }
        plans.push(plan);
    }
    Ok(plans)
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    const PLAN: &str = "stacks = [\"http\"]\nrepetitions = 2\n[[workload]]\nkind = \"download\"\nsizes = [\"1KiB\"]\n";

    /// A folder with plans.
    struct Folder(TempDir);

    impl Folder {
        fn new() -> Self {
            let folder = tempfile::tempdir().expect("a folder");
            let write = |file: &str, text: String| {
                std::fs::write(folder.path().join(file), text).expect("written");
            };
            write("p.toml", PLAN.to_owned());
            write("q.toml", PLAN.to_owned());
            write("shaped.toml", format!("link = \"1mbit\"\n{PLAN}"));
            write("a b.toml", PLAN.to_owned());
            write("again.toml", format!("name = \"p\"\n{PLAN}"));
            write("broken.toml", "stacks = [\"gopher\"]".to_owned());
            write("study.toml", "[[part]]\n".to_owned());
            Self(folder)
        }

        fn read(&self, text: &str) -> Result<Campaign, String> {
            read(text, "c", self.0.path())
        }
    }

    const FAR: &str = "[[pair]]\nname = \"far\"\nkind = \"ssh\"\nclient = \"a\"\nserver = \"b\"\n";
    const HERE: &str = "[[pair]]\nname = \"here\"\nkind = \"netns\"\n";

    #[test]
    fn reads_plans_pairs_and_times() {
        let folder = Folder::new();
        let text = format!(
            "plans = [\"p.toml\", \"q.toml\"]\nevery = \"6h\"\nrounds = 28\nat-once = 2\n{FAR}{HERE}"
        );
        let campaign = folder.read(&text).expect("a campaign");
        let names: Vec<String> = campaign
            .combinations()
            .map(|(plan, pair)| super::super::name_of(&plan.plan.name, pair))
            .collect();
        assert_eq!(names, ["p on far", "q on far", "p on here", "q on here"]);
        assert_eq!((campaign.rounds, campaign.at_once, campaign.scale), (28, 2, None));
        assert_eq!(campaign.schedule, Schedule::Every { seconds: 21_600, start: None });
        assert_eq!(campaign.pairs[1].hosts, None);

        let alone = folder.read("plans = [\"p.toml\"]").expect("a campaign");
        assert_eq!((alone.name.as_str(), alone.rounds), ("c", 1));
        assert_eq!(alone.schedule, Schedule::BackToBack);
        assert_eq!(alone.combinations().count(), 1);
        assert!(!alone.expected_time_of_a_round().is_zero());

        let text = "name = \"x\"\nplans = [\"p.toml\"]\nrounds = 2\ntimes = [\"14:00\", \"02:00\", \"14:00\"]\n";
        let daily = folder.read(text).expect("a campaign");
        let Schedule::Daily { times, time_zone, .. } = &daily.schedule else { panic!("{daily:?}") };
        assert_eq!((times.len(), time_zone.as_str()), (2, "UTC"));
        assert!(times[0] < times[1]);
    }

    #[test]
    fn the_campaign_of_the_guide_is_one() {
        let folder = Folder::new();
        let guide = include_str!("../../../../docs/lab.md");
        let texts = guide.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next());
        let texts: Vec<&str> = texts.filter(|text| text.starts_with("plans = ")).collect();
        let [text] = texts[..] else { panic!("{} examples", texts.len()) };
        let text = text.replace("downloads.toml", "p.toml").replace("logins.toml", "q.toml");
        let campaign = folder.read(&text).expect("a campaign");
        assert_eq!((campaign.plans.len(), campaign.pairs.len(), campaign.rounds), (2, 2, 28));
        // with every key that it names
        let other = text.replace("every = ", "# every = ").replace("# times = ", "times = ");
        let other = other.replace("# time-", "time-").replace("Europe/Berlin", "UTC");
        let other = other.replace("# start", "start").replace("# at-once", "at-once");
        let other = folder.read(&other).expect("a campaign");
        assert!(matches!(other.schedule, Schedule::Daily { .. }), "{other:?}");
        assert_eq!(other.at_once, 2);
    }

    #[test]
    fn rejects_campaigns_that_cannot_be_run() {
        let folder = Folder::new();
        let plans = |more: &str| format!("plans = [\"p.toml\"]\n{more}");
        let many = |count: usize| {
            let plan = "\"p.toml\",".repeat(count);
            format!("plans = [{plan}]")
        };
        for (text, sentence) in [
            (String::new(), "1: missing field `plans`"),
            ("plans = []".to_owned(), "1: the campaign has no plan"),
            ("plans = \"p.toml\"".to_owned(), "1: "),
            ("plans = [\"none.toml\"]".to_owned(), "1: cannot read the plan "),
            ("plans = [\"broken.toml\"]".to_owned(), "1: "),
            ("plans = [\"study.toml\"]".to_owned(), "1: "),
            ("plans = [\"p.toml\", \"again.toml\"]".to_owned(), "1: two plans are called `p`"),
            (
                "plans = [\"a b.toml\"]".to_owned(),
                "1: the name of the plan, `a b`, is not one word",
            ),
            (many(65), "1: a campaign has at most 64 plans"),
            (plans("pear = 1"), "2: unknown field `pear` (did you mean `pair`?)"),
            (plans("every = \"6h\""), "2: say how often with `rounds`"),
            (plans("every = \"6 weeks\"\nrounds = 2"), "2: `6 weeks` is not a period"),
            (
                plans("every = \"6h\"\ntimes = [\"02:00\"]\nrounds = 2"),
                "3: write `every` or `times`",
            ),
            (plans("every = \"6h\"\nrounds = 0"), "3: `rounds` is 0: it must be from 1 to 10000"),
            (plans("rounds = 4294967296"), "2: "),
            (plans("times = []"), "2: the list of times is empty"),
            (plans("times = [\"02:00\"]"), "2: say how often"),
            (plans("times = [\"02:00\", \"noon\"]\nrounds = 1"), "2: `noon` is not a time of day"),
            (plans("times = [\"25:00\"]"), "2: `25:00` is not a time of day"),
            (
                plans("times = [\"02:00\"]\nrounds = 1\ntime-zone = \"Mars\""),
                "4: `Mars` is no time",
            ),
            (plans("time-zone = \"UTC\""), "2: `time-zone` requires times of day"),
            (plans("start = \"2026-11-30T02:00:00Z\""), "2: `start` requires `every` or `times`"),
            (plans("every = \"1d\"\nrounds = 1\nstart = \"soon\""), "4: `soon` is not a moment"),
            (plans("at-once = 0"), "2: `at-once` is 0"),
            (plans("scale = \"huge\""), "2: `huge` is no scale"),
            (plans("[[pair]]\nkind = \"netns\""), "2: a pair has a name"),
            (plans("[[pair]]\nkind = \"netns\"\nname = \"../x\""), "4: `../x` is not one word"),
            (
                plans(
                    "[[pair]]\nname = \"x\"\nkind = \"ssh\"\nclient = \"-oProxyCommand=x\"\nserver = \"b\"",
                ),
                "5: ",
            ),
            (plans(&format!("{HERE}{HERE}")), "5: two pairs are called `here`"),
            (format!("plans = [\"shaped.toml\"]\n{FAR}"), "1: on the pair far: "),
            (
                format!(
                    "plans = [\"p.toml\", \"q.toml\"]\nevery = \"1h\"\nrounds = 10000\n{}",
                    pairs(6)
                ),
                "1: this campaign has 120000 runs",
            ),
            (plans(&pairs(65)), "194: a campaign has at most 64 pairs"),
        ] {
            let error = folder.read(&text).expect_err(&text);
            assert!(error.starts_with(sentence), "{text}\n{error}");
        }
    }

    /// So many pairs of this machine, three lines each.
    fn pairs(count: usize) -> String {
        (0..count).map(|n| format!("[[pair]]\nname = \"n{n}\"\nkind = \"netns\"\n")).collect()
    }

    #[test]
    fn rejects_text_that_is_no_campaign_without_a_panic() {
        let folder = Folder::new();
        let deep = format!("plans = {}", "[".repeat(100_000));
        for text in ["\0", "plans", "plans = [1]", "[plans]", "pair = 3", deep.as_str()] {
            assert!(folder.read(text).is_err(), "{text:.20}");
        }
        let file = folder.0.path().join("large.toml");
        let text = vec![b'#'; 2 << 20];
        std::fs::write(&file, text).expect("written");
        let error = Campaign::read(&file).expect_err("too large").to_string();
        assert!(error.contains("more than 1 MiB"), "{error}");
        std::fs::write(&file, [0xff, 0xfe]).expect("written");
        let error = Campaign::read(&file).expect_err("no text").to_string();
        assert!(error.contains("cannot read the campaign"), "{error}");
    }
}
