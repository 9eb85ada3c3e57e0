//! Plans: stacks × workloads × repetitions on a link, read from TOML or from the command
//! line. A plan that exists can be run.

mod braces;
mod command_line;
mod file;
mod outline;
mod record;
mod scale;
mod selection;
mod testbed;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use headroom_lab_host::error::{Error, Result};
use headroom_lab_host::programs::{self, Program};
use headroom_lab_host::testbed::{TestbedSpec, needs_rules};
use headroom_lab_results::analysis::stop::{self, Until};
use serde::Deserialize;

use crate::custom::Custom;
use crate::link::{LinkSpec, Trace};
use crate::stack::Stack;
use crate::workload::Workload;

pub(crate) use crate::at::{At, at};
pub(crate) use braces::expand;
pub use command_line::CommandLine;
pub(crate) use file::{PlanFile, has_parts};
pub use headroom_lab_host::testbed::{Family, HOST_DEFAULT, LinkBackend, Offload};
pub use headroom_lab_results::schema::SshHosts;
pub use scale::{Scale, Scales};
pub use testbed::NamedTestbed;
pub(crate) use testbed::TestbedFile;

/// Everything a run needs to know.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Short name; part of the output folder's name.
    pub name: String,
    /// The question the run answers, as a title.
    pub question: String,
    /// Applications and layers of its own.
    pub custom: Custom,
    /// The stacks, each with the name of its baseline.
    pub stacks: Vec<PlannedStack>,
    /// The workloads.
    pub workloads: Vec<Workload>,
    /// Two real machines; none: namespaces on this one.
    pub hosts: Option<SshHosts>,
    /// Name of the pair of hosts, if its testbed has one.
    pub pair: Option<String>,
    /// Paired blocks for each workload and size; the fewest, with `until`.
    pub repetitions: u32,
    /// Precision of overheads at which blocks end.
    pub until: Option<Until>,
    /// Transfers of each cell before the first that counts.
    pub warmup: u32,
    /// IPv4 or IPv6 between client and server; none: what two real hosts have, and IPv6 on
    /// one machine, if its kernel has that.
    pub family: Option<Family>,
    /// Bytes of IP packet on the link.
    pub mtu: u32,
    /// Whether the hosts' interfaces segment, coalesce and skip checksums.
    pub offload: Offload,
    /// TCP congestion control of both hosts; real ones may keep [`HOST_DEFAULT`].
    pub congestion_control: String,
    /// Name server that sshd asks for clients' names; none: it asks none.
    pub resolver: Option<Resolver>,
    /// The link on which everything is measured.
    pub link: LinkSpec,
    /// Link backend; none: the best available for each.
    pub link_backend: Option<LinkBackend>,
    /// Links on which predictions are checked.
    pub validation_links: Vec<LinkSpec>,
    /// Sizes of the downloads there; by default those of the first download.
    pub validation_sizes: Vec<u64>,
    /// Whether packets are counted at the end, in transfers of their own.
    pub count_packets: bool,
    /// Seed of the order of blocks and of the files' content.
    pub seed: u64,
    /// Nobody asked for this seed.
    pub seed_is_random: bool,
    /// In what the plan is smaller at smaller scales.
    pub scales: Scales,
}

/// A stack and what it is compared with.
#[derive(Debug, Clone)]
pub struct PlannedStack {
    /// The stack.
    pub stack: Stack,
    /// Name of another stack of the plan; none: this one is a baseline.
    pub baseline: Option<String>,
    /// TCP congestion control of this stack; none: the plan's.
    pub congestion_control: Option<String>,
}

/// A name server that the server's host has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Resolver {
    /// It never answers, and sshd asks it for the name of each client
    /// (`UseDNS yes`): ten seconds, by glibc's rules (two times five).
    Silent,
}

impl Resolver {
    /// The name in plans and results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Silent => "silent",
        }
    }
}

impl Plan {
    /// Reads a plan from a file.
    ///
    /// # Errors
    /// [`Error::Plan`] with file and line.
    pub fn read(path: &Path) -> Result<Self> {
        Self::read_from(path, None)
    }

    /// Reads a plan from a file, to be run on a testbed in place of its own.
    ///
    /// # Errors
    /// [`Error::Plan`] with file and line: what is wrong with the plan, or why it cannot be run
    /// there.
    pub fn read_on(path: &Path, testbed: &NamedTestbed) -> Result<Self> {
        Self::read_from(path, Some(testbed))
    }

    fn read_from(path: &Path, testbed: Option<&NamedTestbed>) -> Result<Self> {
        let text = std::fs::read_to_string(path).map_err(|error| {
            Error::Plan(format!("cannot read the plan {}: {error}", path.display()))
        })?;
        if has_parts(&text) {
            return Err(Error::Plan(format!(
                "{} is a study, as it has [[part]], and here a plan is wanted: `headroom lab run` measures studies",
                path.display()
            )));
        }
        let name = path.file_stem().map_or("plan".into(), |stem| stem.to_string_lossy());
        let folder = path.parent().unwrap_or(Path::new(""));
        file::read_on(&text, &name, Some(folder), testbed)
            .map_err(|error| Error::Plan(format!("{}:{error}", path.display())))
    }

    /// Reads a plan from its text; `name` is used where the plan gives none. It includes no
    /// files: what is read from there has no folder.
    ///
    /// # Errors
    /// `LINE: sentence`.
    pub fn from_toml(text: &str, name: &str) -> std::result::Result<Self, String> {
        file::read(text, name, None)
    }

    /// The programs of testbed, links and stacks on this machine.
    pub fn programs(&self) -> Vec<Program> {
        let ruled = std::iter::once(&self.link).chain(&self.validation_links).any(needs_rules);
        let stacks = self.stacks.iter().flat_map(|planned| planned.stack.programs());
        programs::TESTBED
            .iter()
            .copied()
            .chain(ruled.then_some(programs::NFT))
            .chain(stacks)
            .collect()
    }

    /// Returns the TCP congestion controls that this machine's kernel must have.
    pub(crate) fn congestion_controls(&self) -> BTreeSet<&str> {
        if self.hosts.is_some() {
            return BTreeSet::new();
        }
        let own = self.stacks.iter().filter_map(|planned| planned.congestion_control.as_deref());
        std::iter::once(self.congestion_control.as_str()).chain(own).collect()
    }

    /// Returns the absolute paths of the recorded traces that its links follow.
    pub fn traces(&self) -> Vec<PathBuf> {
        let links = std::iter::once(&self.link).chain(&self.validation_links);
        links.flat_map(LinkSpec::traces).map(Trace::path).collect()
    }

    /// Returns the specification of its testbed.
    pub(crate) fn testbed(&self) -> TestbedSpec {
        let layers = || self.stacks.iter().flat_map(|planned| &planned.stack.layers);
        TestbedSpec {
            hosts: self.hosts.clone(),
            family: self.family,
            mtu: self.mtu,
            congestion_control: self.congestion_control.clone(),
            links: std::iter::once(&self.link).chain(&self.validation_links).cloned().collect(),
            link_backend: self.link_backend,
            seed: self.seed,
            kernel_threads_work: layers().any(|layer| layer.in_kernel()),
            switches_macsec: layers().any(|layer| layer.is_of_the_link()),
            programs: self.programs(),
        }
    }

    /// Changes the number of blocks.
    ///
    /// # Errors
    /// [`Error::Plan`] where the plan's `until` cannot work with it.
    pub fn set_repetitions(&mut self, repetitions: u32) -> Result<()> {
        if let Some(until) = self.until {
            check_until(until, repetitions)
                .map_err(|why| Error::Plan(format!("--repetitions {repetitions}: {why}")))?;
        }
        self.repetitions = repetitions;
        Ok(())
    }

    /// Returns the last baseline of a stack: its own, or that one's, or itself.
    pub(crate) fn root_of<'a>(&'a self, name: &'a str) -> &'a str {
        let baseline = |name: &&'a str| self.stack(name)?.baseline.as_deref();
        // a chain of them is no longer than there are stacks
        let chain = std::iter::successors(Some(name), baseline).take(self.stacks.len());
        chain.last().unwrap_or(name)
    }

    /// The stack of this name; names in a plan are known to exist.
    pub fn stack(&self, name: &str) -> Option<&PlannedStack> {
        self.stacks.iter().find(|planned| planned.stack.name == name)
    }
}

/// Whether a rule to stop by works from so many blocks on.
fn check_until(until: Until, repetitions: u32) -> std::result::Result<(), String> {
    if repetitions < stop::MIN_BLOCKS {
        return Err(format!(
            "`until` needs at least {} repetitions: with fewer, a 95 % interval covers only 90 %",
            stop::MIN_BLOCKS
        ));
    }
    if until.most_blocks < repetitions {
        return Err(format!(
            "`max-repetitions` ({}) is below `repetitions` ({repetitions})",
            until.most_blocks
        ));
    }
    Ok(())
}
