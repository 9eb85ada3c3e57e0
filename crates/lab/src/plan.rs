//! What to measure: stacks × workloads × repetitions on a link, read from TOML
//! or from the command line. A plan that exists can be run.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::str::FromStr;

use serde::Deserialize;
use toml::Spanned;

use crate::error::{Error, Result};
use crate::link::LinkSpec;
use crate::stack::Stack;
use crate::units;
use crate::workload::{Kind, Workload};

/// Everything a run needs to know.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Short name; part of the output folder's name.
    pub name: String,
    /// The question the run answers, as a title.
    pub question: String,
    /// What is compared, each with the name of its baseline.
    pub stacks: Vec<PlannedStack>,
    /// What each stack does.
    pub workloads: Vec<Workload>,
    /// Paired blocks for each workload and size.
    pub repetitions: u32,
    /// Transfers of each cell before the first that counts.
    pub warmup: u32,
    /// IPv4 or IPv6 between client and server.
    pub family: Family,
    /// Octets of IP packet on the link.
    pub mtu: u32,
    /// Whether the hosts' interfaces segment, coalesce and skip checksums.
    pub offload: Offload,
    /// TCP congestion control of both hosts.
    pub congestion_control: String,
    /// The link on which everything is measured.
    pub link: LinkSpec,
    /// Links on which the prediction for the picture is checked, with one size.
    pub check_links: Vec<LinkSpec>,
    /// Size of the transfers on the check links.
    pub check_size: u64,
    /// Seed of the order of blocks and of the files' content.
    pub seed: u64,
}

/// A stack and what it is compared with.
#[derive(Debug, Clone)]
pub struct PlannedStack {
    /// The stack.
    pub stack: Stack,
    /// Name of another stack of the plan; none: this one is a baseline.
    pub baseline: Option<String>,
}

/// Address family between client and server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Family {
    /// IPv4.
    Ipv4,
    /// IPv6, the default.
    Ipv6,
}

/// What the interfaces do for the hosts. `METHOD` 9: offload flatters cleartext.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Offload {
    /// As users' machines: segmentation, coalescing and checksums offloaded.
    Offload,
    /// Each packet by itself, checksums computed.
    PerPacket,
}

impl Offload {
    /// The name in plans and results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Offload => "offload",
            Self::PerPacket => "per-packet",
        }
    }
}

impl Family {
    /// The name in plans and results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ipv4 => "ipv4",
            Self::Ipv6 => "ipv6",
        }
    }
}

impl Plan {
    /// Reads a plan from a file.
    ///
    /// # Errors
    /// [`Error::Plan`] with file and line.
    pub fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path).map_err(|error| {
            Error::Plan(format!("cannot read the plan {}: {error}", path.display()))
        })?;
        let name = path.file_stem().map_or("plan".into(), |stem| stem.to_string_lossy());
        Self::from_toml(&text, &name)
            .map_err(|error| Error::Plan(format!("{}:{error}", path.display())))
    }

    /// Reads a plan from its text; `name` is used where the plan gives none.
    ///
    /// # Errors
    /// `LINE: sentence`.
    pub fn from_toml(text: &str, name: &str) -> std::result::Result<Self, String> {
        let file: PlanFile = toml::from_str(text).map_err(|error| {
            let line = error.span().map_or(1, |span| line_of(text, &span));
            format!("{line}: {}", error.message().trim())
        })?;
        file.into_plan(name)
            .map_err(|At { span, message }| format!("{}: {message}", line_of(text, &span)))
    }

    /// The plan of a command line: stacks, sizes and a link.
    ///
    /// # Errors
    /// [`Error::Plan`] with a sentence.
    pub fn from_arguments(stacks: &[String], sizes: &[String], link: &str) -> Result<Self> {
        let quoted = |items: &[String]| {
            items.iter().map(|item| format!("{item:?}")).collect::<Vec<_>>().join(", ")
        };
        // Baselines that the user did not name are measured too: an overhead
        // over nothing is no answer.
        let mut all: Vec<String> = Vec::new();
        for name in stacks {
            let baseline = Stack::parse(name).map_err(Error::Plan)?.service.baseline();
            let missing = baseline.filter(|b| !stacks.iter().any(|s| s == b));
            all.extend(missing.filter(|b| !all.iter().any(|s| s == b)).map(str::to_owned));
            all.push(name.clone());
        }
        let commands_only =
            Stack::parse(&stacks[0]).is_ok_and(|s| !s.service.accepts(Kind::Download));
        let workloads = if commands_only {
            "[[workload]]\nkind = \"commands\"\n".to_owned()
        } else {
            let sizes = quoted(sizes);
            format!(
                "[[workload]]\nkind = \"download\"\nsizes = [{sizes}]\n[[workload]]\nkind = \"upload\"\nsizes = [{sizes}]\n"
            )
        };
        let text = format!("stacks = [{}]\nlink = {link:?}\n{workloads}", quoted(&all));
        Self::from_toml(&text, "adhoc").map_err(|error| {
            Error::Plan(
                error.split_once(": ").map_or(error.clone(), |(_line, rest)| rest.to_owned()),
            )
        })
    }

    /// Keeps the stacks whose name matches `pattern` (`*` stands for any text),
    /// and the baselines that they are compared with.
    ///
    /// # Errors
    /// [`Error::Plan`] where nothing is left.
    pub fn keep_only(&mut self, pattern: &str) -> Result<()> {
        let kept: Vec<String> = self
            .stacks
            .iter()
            .filter(|planned| matches_glob(pattern, &planned.stack.name))
            .flat_map(|planned| [Some(planned.stack.name.clone()), planned.baseline.clone()])
            .flatten()
            .collect();
        if kept.is_empty() {
            let names: Vec<&str> = self.stacks.iter().map(|p| p.stack.name.as_str()).collect();
            return Err(Error::Plan(format!(
                "--only {pattern}: no stack of this plan matches; it has {}",
                names.join(", ")
            )));
        }
        self.stacks.retain(|planned| kept.contains(&planned.stack.name));
        for workload in &mut self.workloads {
            workload.stacks.retain(|name| kept.contains(name));
        }
        self.workloads.retain(|workload| !workload.stacks.is_empty());
        Ok(())
    }

    /// The stack of this name; names in a plan are known to exist.
    pub fn stack(&self, name: &str) -> Option<&PlannedStack> {
        self.stacks.iter().find(|planned| planned.stack.name == name)
    }
}

/// The file as it is written; every name is checked on the way to a [`Plan`].
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct PlanFile {
    name: Option<String>,
    question: Option<String>,
    stacks: Spanned<Vec<Spanned<String>>>,
    #[serde(default)]
    baselines: BTreeMap<Spanned<String>, Spanned<String>>,
    repetitions: Option<Spanned<u32>>,
    warmup: Option<u32>,
    family: Option<Family>,
    mtu: Option<Spanned<u32>>,
    offload: Option<Offload>,
    congestion_control: Option<String>,
    link: Option<Spanned<String>>,
    #[serde(default)]
    check_links: Vec<Spanned<String>>,
    check_size: Option<Spanned<String>>,
    seed: Option<u64>,
    workload: Spanned<Vec<WorkloadFile>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct WorkloadFile {
    kind: Spanned<Kind>,
    #[serde(default)]
    sizes: Vec<Spanned<String>>,
    stacks: Option<Vec<Spanned<String>>>,
    files: Option<Spanned<u32>>,
    clients: Option<Spanned<u32>>,
    commands: Option<Spanned<Vec<String>>>,
}

/// A message and the place in the plan that it is about.
struct At {
    span: Range<usize>,
    message: String,
}

fn at<T>(spanned: &Spanned<T>, message: impl Into<String>) -> At {
    At { span: spanned.span(), message: message.into() }
}

const LARGEST: u64 = 1 << 30;

impl PlanFile {
    fn into_plan(self, name: &str) -> std::result::Result<Plan, At> {
        let stacks = self.stacks()?;
        let workloads = self
            .workload
            .get_ref()
            .iter()
            .map(|workload| workload.read(&stacks))
            .collect::<std::result::Result<Vec<_>, At>>()?;
        if workloads.is_empty() {
            return Err(at(&self.workload, "the plan has no [[workload]]"));
        }
        let repetitions = match &self.repetitions {
            None => 5,
            Some(n) if (2..=10_000).contains(n.get_ref()) => *n.get_ref(),
            Some(n) => {
                return Err(at(n, "repetitions must be from 2 (an interval needs two) to 10000"));
            }
        };
        let family = self.family.unwrap_or(Family::Ipv6);
        let mtu = match &self.mtu {
            None => 1500,
            Some(mtu) => {
                let least = if family == Family::Ipv6 { 1280 } else { 576 };
                if !(least..=65_535).contains(mtu.get_ref()) {
                    return Err(at(
                        mtu,
                        format!("the MTU for {} is from {least} to 65535", family.name()),
                    ));
                }
                *mtu.get_ref()
            }
        };
        let link = self.link.as_ref().map_or(Ok(LinkSpec::default()), read_spanned)?;
        let check_links = self
            .check_links
            .iter()
            .map(read_spanned)
            .collect::<std::result::Result<Vec<LinkSpec>, _>>()?;
        if let Some(unshaped) =
            self.check_links.iter().zip(&check_links).find(|(_, l)| l.rate_bps.is_none())
        {
            return Err(at(unshaped.0, "a check link needs a rate: it is a point on the picture"));
        }
        let check_size = self.check_size.as_ref().map_or(Ok(4 << 20), read_size)?;
        Ok(Plan {
            name: self.name.unwrap_or_else(|| name.to_owned()),
            question: self.question.unwrap_or_else(|| {
                let names: Vec<&str> = stacks.iter().map(|p| p.stack.name.as_str()).collect();
                format!("What do {} cost here?", names.join(", "))
            }),
            stacks,
            workloads,
            repetitions,
            warmup: self.warmup.unwrap_or(1),
            family,
            mtu,
            offload: self.offload.unwrap_or(Offload::Offload),
            congestion_control: self.congestion_control.unwrap_or_else(|| "cubic".into()),
            link,
            check_links,
            check_size,
            seed: self.seed.unwrap_or_else(rand::random),
        })
    }

    fn stacks(&self) -> std::result::Result<Vec<PlannedStack>, At> {
        if self.stacks.get_ref().is_empty() {
            return Err(at(&self.stacks, "the plan has no stack"));
        }
        let mut stacks: Vec<PlannedStack> = Vec::new();
        for name in self.stacks.get_ref() {
            let stack = Stack::parse(name.get_ref()).map_err(|message| at(name, message))?;
            if stacks.iter().any(|planned| planned.stack.name == stack.name) {
                return Err(at(
                    name,
                    format!(
                        "`{0}` is listed twice; label one to compare it with itself: `{0}#again`",
                        stack.name
                    ),
                ));
            }
            stacks.push(PlannedStack { stack, baseline: None });
        }
        let known = |name: &str| stacks.iter().any(|planned| planned.stack.name == name);
        let mut baselines = BTreeMap::new();
        for (stack, baseline) in &self.baselines {
            for name in [stack, baseline] {
                if !known(name.get_ref()) {
                    return Err(at(
                        name,
                        format!("`{}` is not one of this plan's stacks", name.get_ref()),
                    ));
                }
            }
            if stack.get_ref() == baseline.get_ref() {
                return Err(at(
                    baseline,
                    "a stack cannot be its own baseline; list it again with a label (`ftp#again`)",
                ));
            }
            baselines.insert(stack.get_ref().clone(), baseline.get_ref().clone());
        }
        let defaults: Vec<Option<String>> = stacks
            .iter()
            .map(|p| p.stack.service.baseline().filter(|b| known(b)).map(str::to_owned))
            .collect();
        for (planned, default) in stacks.iter_mut().zip(defaults) {
            planned.baseline = baselines.remove(&planned.stack.name).or(default);
        }
        for (stack, baseline) in &self.baselines {
            let chained =
                stacks.iter().any(|p| p.stack.name == *baseline.get_ref() && p.baseline.is_some());
            if chained {
                return Err(at(
                    baseline,
                    format!(
                        "`{}` has a baseline itself; compare `{}` with that",
                        baseline.get_ref(),
                        stack.get_ref()
                    ),
                ));
            }
        }
        Ok(stacks)
    }
}

impl WorkloadFile {
    fn read(&self, all: &[PlannedStack]) -> std::result::Result<Workload, At> {
        let kind = *self.kind.get_ref();
        let names: Vec<String> = match &self.stacks {
            None => all.iter().map(|planned| planned.stack.name.clone()).collect(),
            Some(names) => names.iter().map(|name| name.get_ref().clone()).collect(),
        };
        for (index, name) in names.iter().enumerate() {
            let here = self.stacks.as_ref().map_or(self.kind.span(), |names| names[index].span());
            let Some(planned) = all.iter().find(|planned| planned.stack.name == *name) else {
                return Err(At {
                    span: here,
                    message: format!("`{name}` is not one of this plan's stacks"),
                });
            };
            if !planned.stack.service.accepts(kind) {
                let message = format!(
                    "the workload `{}` cannot run on `{name}`; give this workload its own `stacks = [...]`",
                    kind.name()
                );
                return Err(At { span: here, message });
            }
        }
        self.check_keys(kind)?;
        let sizes = if self.sizes.is_empty() {
            kind.default_sizes()
        } else {
            self.sizes.iter().map(read_size).collect::<std::result::Result<Vec<_>, _>>()?
        };
        Ok(Workload {
            kind,
            sizes,
            stacks: names,
            files: bounded(self.files.as_ref(), 10_000, 1..=100_000)?,
            clients: bounded(self.clients.as_ref(), 4, 2..=64)?,
            commands: self.commands.as_ref().map(|commands| commands.get_ref().clone()),
        })
    }

    /// A key that the workload would ignore is a mistake of the plan's author.
    fn check_keys(&self, kind: Kind) -> std::result::Result<(), At> {
        let wrong = |span: Option<Range<usize>>, key: &str| match span {
            Some(span) => {
                Err(At { span, message: format!("the workload `{}` has no `{key}`", kind.name()) })
            }
            None => Ok(()),
        };
        if kind == Kind::Commands {
            wrong(self.sizes.first().map(Spanned::span), "sizes")?;
        } else {
            wrong(self.commands.as_ref().map(Spanned::span), "commands")?;
        }
        if kind != Kind::Many {
            wrong(self.files.as_ref().map(Spanned::span), "files")?;
        }
        if kind != Kind::Parallel {
            wrong(self.clients.as_ref().map(Spanned::span), "clients")?;
        }
        match &self.commands {
            Some(commands) if commands.get_ref().is_empty() => {
                Err(at(commands, "the list of commands is empty"))
            }
            Some(commands) if commands.get_ref().iter().any(|c| c.contains(['\n', '\0'])) => {
                Err(at(commands, "a command is one line"))
            }
            _ => Ok(()),
        }
    }
}

fn bounded(
    value: Option<&Spanned<u32>>,
    default: u32,
    range: std::ops::RangeInclusive<u32>,
) -> std::result::Result<u32, At> {
    match value {
        None => Ok(default),
        Some(value) if range.contains(value.get_ref()) => Ok(*value.get_ref()),
        Some(value) => Err(at(value, format!("must be from {} to {}", range.start(), range.end()))),
    }
}

fn read_spanned<T: FromStr<Err = String>>(text: &Spanned<String>) -> std::result::Result<T, At> {
    text.get_ref().parse().map_err(|message: String| at(text, message))
}

fn read_size(text: &Spanned<String>) -> std::result::Result<u64, At> {
    match units::parse_size(text.get_ref()) {
        Ok(size) if (1..=LARGEST).contains(&size) => Ok(size),
        Ok(_) => Err(at(text, "sizes go from 1 B to 1 GiB")),
        Err(message) => Err(at(text, message)),
    }
}

fn line_of(text: &str, span: &Range<usize>) -> usize {
    text.as_bytes()[..span.start.min(text.len())].iter().filter(|&&byte| byte == b'\n').count() + 1
}

/// Whether `name` matches `pattern`, in which `*` stands for any text.
fn matches_glob(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == name,
        Some((before, after)) => name.strip_prefix(before).is_some_and(|rest| {
            (0..=rest.len())
                .filter(|&i| rest.is_char_boundary(i))
                .any(|i| matches_glob(after, &rest[i..]))
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"
question = "What does FTPS cost?"
stacks = ["ftp", "ftps"]
repetitions = 3
link = "100mbit"

[[workload]]
kind = "download"
sizes = ["1KiB", "1MiB"]
"#;

    #[test]
    fn a_good_plan_and_its_defaults() {
        let plan = Plan::from_toml(GOOD, "x").expect("a good plan");
        assert_eq!(plan.stacks[1].baseline.as_deref(), Some("ftp"));
        assert_eq!(plan.workloads[0].sizes, [1024, 1 << 20]);
        assert_eq!(plan.link.rate_bps, Some(100_000_000));
        assert_eq!((plan.family, plan.mtu, plan.warmup), (Family::Ipv6, 1500, 1));
    }

    #[test]
    fn every_mistake_is_named_with_its_line() {
        let cases = [
            (GOOD.replace("\"ftps\"", "\"ftsp\""), "3: there is no stack `ftsp`"),
            (GOOD.replace("\"ftps\"", "\"ftp\""), "3: `ftp` is listed twice"),
            (GOOD.replace("repetitions", "repetitons"), "4: unknown field `repetitons`"),
            (GOOD.replace("= 3", "= 1"), "4: repetitions must be"),
            (GOOD.replace("100mbit", "100"), "5: `100` is not a rate"),
            (GOOD.replace("download", "downlod"), "8: unknown variant `downlod`"),
            (
                GOOD.replace("download", "commands"),
                "8: the workload `commands` cannot run on `ftp`",
            ),
            (GOOD.replace("1KiB", "2TiB"), "9: `2TiB` is not a size"),
            (GOOD.replace("1KiB", "2GiB"), "9: sizes go from"),
            (
                GOOD.replace("sizes =", "clients = 4\nsizes ="),
                "9: the workload `download` has no `clients`",
            ),
            (GOOD.replace("link", "mtu = 100\nlink"), "5: the MTU for ipv6"),
            (
                GOOD.replace("link", "check-links = [\"unshaped\"]\nlink"),
                "5: a check link needs a rate",
            ),
            (format!("{GOOD}[baselines]\nftps = \"http\"\n"), "11: `http` is not one of"),
            (format!("{GOOD}[baselines]\nftp = \"ftp\"\n"), "11: a stack cannot be its own"),
            ("stacks = [\"ftp\"".into(), "1:"),
            (String::new(), "1: missing field `stacks`"),
        ];
        for (text, expected) in cases {
            let error = Plan::from_toml(&text, "x").expect_err(expected);
            assert!(error.starts_with(expected), "{error:?} does not start with {expected:?}");
        }
    }

    #[test]
    fn a_command_line_brings_the_baselines_along() {
        let strings = |s: &[&str]| s.iter().map(|s| (*s).to_owned()).collect::<Vec<_>>();
        let plan =
            Plan::from_arguments(&strings(&["ftps", "https"]), &strings(&["1KiB"]), "unshaped")
                .expect("a good command line");
        let names: Vec<&str> = plan.stacks.iter().map(|p| p.stack.name.as_str()).collect();
        assert_eq!(names, ["ftp", "ftps", "http", "https"]);
        let error = Plan::from_arguments(&strings(&["ftps"]), &strings(&["1K"]), "unshaped");
        assert!(error.is_err_and(|e| e.to_string().starts_with("`1K` is not a size")));
    }

    #[test]
    fn only_keeps_the_baselines_of_what_it_keeps() {
        let mut plan = Plan::from_toml(GOOD, "x").expect("a good plan");
        assert!(plan.keep_only("http*").is_err());
        plan.keep_only("*ps").expect("ftps is there");
        assert_eq!(plan.stacks.len(), 2);
        plan.keep_only("ftp").expect("ftp is there");
        assert_eq!(plan.workloads[0].stacks, ["ftp"]);
    }

    #[test]
    fn globs() {
        assert!(
            matches_glob("*", "ftp") && matches_glob("f*p", "ftp") && matches_glob("ftp*", "ftp")
        );
        assert!(!matches_glob("f*s", "ftp") && !matches_glob("", "ftp"));
    }
}
