//! A plan as it is written in TOML. Every name and number is checked on the way
//! to a [`Plan`], and every mistake is told with its line.

mod real_hosts;
mod stacks;
mod workload;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::str::FromStr;

use headroom_lab_results::analysis::stop::{self, Until};
use headroom_suggest::suggestion;
use serde::Deserialize;
use toml::Spanned;

use self::workload::WorkloadFile;
use super::scale::{Scales, Smaller};
use super::testbed::{NamedTestbed, TestbedFile};
use super::{Family, HOST_DEFAULT, LinkBackend, Offload, Plan, PlannedStack, Resolver};
use crate::at::{At, at, bounded, plain};
use crate::custom::{ApplicationFile, Custom, DefinitionsFile, LayerFile};
use crate::link::LinkSpec;
use crate::toml_error;
use crate::units;
use crate::workload::{Workload, WorkloadKind};
use headroom_lab_results::schema::SshHosts;

/// Reads a plan, which includes files of `folder`; an error is `LINE: sentence`.
pub(super) fn read(text: &str, name: &str, folder: Option<&Path>) -> Result<Plan, String> {
    read_on(text, name, folder, None)
}

/// As [`read`], to be run on a testbed in place of the plan's own.
pub(super) fn read_on(
    text: &str,
    name: &str,
    folder: Option<&Path>,
    testbed: Option<&NamedTestbed>,
) -> Result<Plan, String> {
    let file: PlanFile = toml::from_str(text).map_err(|error| toml_error::in_text(&error, text))?;
    file.into_plan_on(name, folder, testbed).map_err(|error| error.in_text(text))
}

/// Whether a file is a study, and no plan: it has parts, each of which is a plan.
pub(crate) fn has_parts(text: &str) -> bool {
    text.parse::<toml::Table>().is_ok_and(|table| table.contains_key("part"))
}

/// A plan, and a part of a study, as TOML has it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct PlanFile {
    name: Option<Spanned<String>>,
    question: Option<String>,
    stacks: Spanned<Vec<Spanned<String>>>,
    #[serde(default)]
    baselines: BTreeMap<Spanned<String>, Spanned<String>>,
    repetitions: Option<Spanned<u32>>,
    until: Option<Spanned<String>>,
    max_repetitions: Option<Spanned<u32>>,
    warmup: Option<Spanned<u32>>,
    family: Option<Spanned<Family>>,
    mtu: Option<Spanned<u32>>,
    offload: Option<Spanned<Offload>>,
    congestion_control: Option<Spanned<String>>,
    #[serde(default)]
    congestion_controls: BTreeMap<Spanned<String>, Spanned<String>>,
    resolver: Option<Spanned<Resolver>>,
    link: Option<Spanned<String>>,
    link_backend: Option<Spanned<LinkBackend>>,
    #[serde(default)]
    validation_links: Vec<Spanned<String>>,
    validation_size: Option<Spanned<String>>,
    count_packets: Option<bool>,
    seed: Option<u64>,
    testbed: Option<Spanned<TestbedFile>>,
    workload: Spanned<Vec<WorkloadFile>>,
    #[serde(default)]
    include: Vec<Spanned<String>>,
    #[serde(default)]
    application: BTreeMap<Spanned<String>, ApplicationFile>,
    #[serde(default)]
    layer: BTreeMap<Spanned<String>, LayerFile>,
    #[serde(default)]
    quick: Smaller,
    #[serde(default)]
    smoke: Smaller,
}

/// Bytes that a file may have.
pub(super) const SIZES: std::ops::RangeInclusive<u64> = 1..=1 << 30;

/// As a baseline: no comparison.
pub(super) const NO_BASELINE: &str = "none";

impl PlanFile {
    /// The plan; `name` is its name where it says none, `folder` where the files are that it
    /// includes.
    pub(crate) fn into_plan(self, name: &str, folder: Option<&Path>) -> Result<Plan, At> {
        self.into_plan_on(name, folder, None)
    }

    /// As [`Self::into_plan`], to be run on a testbed in place of its own.
    fn into_plan_on(
        mut self,
        name: &str,
        folder: Option<&Path>,
        testbed: Option<&NamedTestbed>,
    ) -> Result<Plan, At> {
        let custom = self.custom(folder)?;
        self.write_out_braces()?;
        let mut stacks = self.stacks(&custom)?;
        self.set_congestion_controls(&mut stacks, &custom)?;
        let workloads = self
            .workload
            .get_ref()
            .iter()
            .map(|workload| workload.read(&stacks, &custom))
            .collect::<Result<Vec<_>, At>>()?;
        self.require_different(&workloads)?;
        if workloads.is_empty() {
            return Err(at(&self.workload, "the plan has no [[workload]]"));
        }
        let until = self.until.as_ref().map(read_spanned::<Until>).transpose()?;
        let repetitions = match &self.repetitions {
            None if until.is_some() => stop::MIN_BLOCKS,
            None => 5,
            Some(n) if (2..=10_000).contains(n.get_ref()) => *n.get_ref(),
            Some(n) => {
                return Err(at(n, "repetitions must be from 2 (an interval needs two) to 10000"));
            }
        };
        let until = self.until(until, repetitions)?;
        let NamedTestbed { name: pair, hosts } = self.testbed(testbed)?;
        if hosts.is_some() {
            self.require_real_stacks(&stacks)?;
        }
        let family = self.family(hosts.as_ref())?;
        let strictest = family.unwrap_or(Family::Ipv6);
        let mtu = match &self.mtu {
            None => 1500,
            Some(mtu) => {
                let least = strictest.smallest_mtu();
                if !(least..=65_535).contains(mtu.get_ref()) {
                    return Err(at(
                        mtu,
                        format!("the MTU for {} is from {least} to 65535", strictest.name()),
                    ));
                }
                *mtu.get_ref()
            }
        };
        for (planned, written) in stacks.iter().zip(self.stacks.get_ref()) {
            planned.stack.innermost_mtu(mtu, strictest).map_err(|message| at(written, message))?;
        }
        let read_link = |text: &Spanned<String>| match folder {
            Some(folder) => {
                LinkSpec::read(text.get_ref(), folder).map_err(|message| at(text, message))
            }
            None => read_spanned(text),
        };
        let link = self.link.as_ref().map_or(Ok(LinkSpec::default()), read_link)?;
        let validation_links =
            self.validation_links.iter().map(read_link).collect::<Result<Vec<LinkSpec>, _>>()?;
        if let Some(unshaped) = self
            .validation_links
            .iter()
            .zip(&validation_links)
            .find(|(_, l)| l.slowest_bps().is_none())
        {
            return Err(at(unshaped.0, "a validation link needs a rate"));
        }
        self.require_different_links(&link, &validation_links)?;
        let has_trace = |link: &LinkSpec| link.traces().next().is_some();
        if let Some(written) = self.validation_links.first()
            && (has_trace(&link) || validation_links.iter().any(has_trace))
        {
            let message = "a trace has no single rate, so nothing is predicted from it or for it: leave out \
                           `validation-links`, or write links with rates";
            return Err(at(written, message));
        }
        if let Some(stack) = self.congestion_controls.keys().next()
            && !validation_links.is_empty()
        {
            let message = "predictions are those of one congestion control: leave out `validation-links`, or \
                           [congestion-controls]";
            return Err(at(stack, message));
        }
        if hosts.is_some() {
            self.require_no_shaping(&link)?;
            if let Some(stack) = self.congestion_controls.keys().next() {
                let message = "the lab does not change the congestion control of real hosts: leave out \
                               [congestion-controls], or measure on one machine";
                return Err(at(stack, message));
            }
            if let Some(resolver) = &self.resolver {
                let message = "the lab does not change the resolver of a real host: leave out `resolver`, or measure on one machine";
                return Err(at(resolver, message));
            }
            self.require_no_delays()?;
        }
        let validation_sizes = match &self.validation_size {
            Some(size) => vec![read_size(size)?],
            None => first_download(&workloads),
        };
        Ok(Plan {
            name: plain(self.name.as_ref())?.unwrap_or_else(|| name.to_owned()),
            question: self.question.unwrap_or_else(|| {
                let names: Vec<&str> = stacks.iter().map(|p| p.stack.name.as_str()).collect();
                format!("What do {} cost here?", names.join(", "))
            }),
            custom,
            stacks,
            workloads,
            congestion_control: congestion_control(self.congestion_control.as_ref())?
                .unwrap_or_else(|| if hosts.is_some() { HOST_DEFAULT } else { "cubic" }.into()),
            hosts,
            pair,
            repetitions,
            until,
            warmup: bounded("warmup", self.warmup.as_ref(), 1, 1..=100)?,
            family,
            mtu,
            offload: self.offload.as_ref().map_or(Offload::On, |offload| *offload.get_ref()),
            resolver: self.resolver.as_ref().map(|resolver| *resolver.get_ref()),
            link,
            link_backend: self.link_backend.as_ref().map(|backend| *backend.get_ref()),
            validation_links,
            validation_sizes,
            count_packets: self.count_packets.unwrap_or(true),
            seed: self.seed.unwrap_or_else(rand::random),
            seed_is_random: self.seed.is_none(),
            scales: Scales { quick: self.quick, smoke: self.smoke },
        })
    }

    /// Its own applications and layers, and those of the files that it includes.
    fn custom(&mut self, folder: Option<&Path>) -> Result<Custom, At> {
        const MAX_INCLUDES: usize = 16;
        let mut custom = Custom::default();
        if let Some(one) = self.include.get(MAX_INCLUDES) {
            return Err(at(one, format!("a plan includes at most {MAX_INCLUDES} files")));
        }
        for path in &self.include {
            let Some(folder) = folder else {
                let message =
                    "only a plan that is a file of its own includes others: define it here";
                return Err(at(path, message));
            };
            custom.include(&folder.join(path.get_ref())).map_err(|message| at(path, message))?;
        }
        let application = std::mem::take(&mut self.application);
        let layer = std::mem::take(&mut self.layer);
        custom.add(&DefinitionsFile { application, layer })?;
        Ok(custom)
    }

    /// The testbed that is given, else the plan's own, else this machine.
    fn testbed(&mut self, given: Option<&NamedTestbed>) -> Result<NamedTestbed, At> {
        match (given, self.testbed.take()) {
            (Some(given), _) => Ok(given.clone()),
            (None, None) => Ok(NamedTestbed { name: None, hosts: None }),
            (None, Some(own)) => {
                let span = own.span();
                own.into_inner().into_named(span)
            }
        }
    }

    /// The family that the plan says, or that the server's address has.
    fn family(&self, hosts: Option<&SshHosts>) -> Result<Option<Family>, At> {
        let literal = hosts.and_then(SshHosts::literal_address);
        let literal = literal.map(|address| (address, Family::of(address)));
        match (&self.family, literal) {
            (None, literal) => Ok(literal.map(|(_, family)| family)),
            (Some(family), Some((address, of))) if *family.get_ref() != of => {
                Err(at(family, format!("the server's address {address} is {}", of.name())))
            }
            (Some(family), _) => Ok(Some(*family.get_ref())),
        }
    }

    /// The rule to stop by with its maximum, checked against the minimum.
    fn until(&self, until: Option<Until>, repetitions: u32) -> Result<Option<Until>, At> {
        let Some(mut until) = until else {
            return match &self.max_repetitions {
                Some(most) => Err(at(most, "`max-repetitions` requires `until`")),
                None => Ok(None),
            };
        };
        let most = self.max_repetitions.as_ref();
        let default = stop::MAX_BLOCKS.max(repetitions);
        until.most_blocks = bounded("max-repetitions", most, default, 2..=10_000)?;
        let span = most.map(Spanned::span).filter(|_| repetitions >= stop::MIN_BLOCKS);
        let span = span.or(self.repetitions.as_ref().map(Spanned::span)).unwrap_or(0..0);
        super::check_until(until, repetitions).map_err(|message| At { span, message })?;
        Ok(Some(until))
    }

    /// Two links of one name would fall into the same cells of the results.
    fn require_different_links(&self, link: &LinkSpec, checks: &[LinkSpec]) -> Result<(), At> {
        let mut seen = BTreeSet::from([link.to_string()]);
        for (check, written) in checks.iter().zip(&self.validation_links) {
            if !seen.insert(check.to_string()) {
                return Err(at(written, format!("the plan has the link `{check}` twice")));
            }
        }
        Ok(())
    }

    /// Two workloads of one name and size would fall into one cell of the results.
    fn require_different(&self, workloads: &[Workload]) -> Result<(), At> {
        let mut seen = BTreeSet::new();
        for (workload, written) in workloads.iter().zip(self.workload.get_ref()) {
            for (size, stack) in
                workload.sizes.iter().flat_map(|s| workload.stacks.iter().map(move |w| (s, w)))
            {
                if !seen.insert((workload.name(), size, stack)) {
                    let message = format!("`{stack}` has `{}` of this size twice", workload.name());
                    return Err(at(&written.kind, message));
                }
            }
        }
        Ok(())
    }
}

/// The name of a TCP congestion control, as the kernel may have it.
fn congestion_control(name: Option<&Spanned<String>>) -> Result<Option<String>, At> {
    /// The kernel's `TCP_CA_NAME_MAX` without the byte that ends a name (include/net/tcp.h).
    const MAX_LEN: usize = 15;
    let word = plain(name)?;
    match name.filter(|name| name.get_ref().len() > MAX_LEN) {
        Some(long) => {
            let found = long.get_ref();
            let message = format!(
                "`{found}` is no TCP congestion control: such names have at most {MAX_LEN} characters"
            );
            Err(at(long, message))
        }
        None => Ok(word),
    }
}

/// The sentence about a stack that the plan does not list.
fn not_in_plan(name: &str, stacks: &[PlannedStack]) -> String {
    let known = stacks.iter().map(|planned| planned.stack.name.as_str());
    format!("`{name}` is not one of this plan's stacks{}", suggestion(name, known))
}

fn read_spanned<T: FromStr<Err = String>>(text: &Spanned<String>) -> Result<T, At> {
    text.get_ref().parse().map_err(|message: String| at(text, message))
}

fn read_size(text: &Spanned<String>) -> Result<u64, At> {
    match units::parse_size(text.get_ref()) {
        Ok(size) if SIZES.contains(&size) => Ok(size),
        Ok(_) => Err(at(text, "sizes range from 1 B to 1 GiB")),
        Err(message) => Err(at(text, message)),
    }
}

/// Default sizes on validation links.
fn first_download(workloads: &[Workload]) -> Vec<u64> {
    let download = workloads.iter().find(|workload| workload.kind == WorkloadKind::Download);
    download.map_or(vec![4 << 20], |workload| workload.sizes.clone())
}
