//! A plan as it is written in TOML. Every name and number is checked on the way
//! to a [`Plan`], and every mistake is told with its line.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::str::FromStr;

use headroom_lab_results::analysis::stop::{self, Until};
use serde::Deserialize;
use toml::Spanned;

use super::braces;
use super::scale::{Scales, Smaller};
use super::testbed::{NamedTestbed, TestbedFile};
use super::{Family, HOST_DEFAULT, LinkBackend, Offload, Plan, PlannedStack, Resolver};
use crate::at::{At, at, bounded, plain};
use crate::custom::{ApplicationFile, Custom, DefinitionsFile, LayerFile};
use crate::link::LinkSpec;
use crate::stack::{Stack, canonical_with};
use crate::suggest::suggestion;
use crate::toml_error;
use crate::units;
use crate::workload::{
    CLIENTS, ContentKind, CrossTraffic, Key, Pace, Workload, WorkloadKind, work,
};
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

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct WorkloadFile {
    kind: Spanned<WorkloadKind>,
    sizes: Option<Spanned<Vec<Spanned<String>>>>,
    stacks: Option<Spanned<Vec<Spanned<String>>>>,
    files: Option<Spanned<u32>>,
    clients: Option<Spanned<u32>>,
    commands: Option<Spanned<Vec<String>>>,
    seconds: Option<Spanned<u32>>,
    content: Option<Spanned<ContentKind>>,
    transfers_per_sample: Option<Spanned<u32>>,
    rate: Option<Spanned<String>>,
    cross_traffic: Option<Spanned<String>>,
}

/// Bytes that a file may have.
pub(super) const SIZES: std::ops::RangeInclusive<u64> = 1..=1 << 30;

/// Bytes that a datagram may have: the load's header, and what tunnels take.
const DATAGRAMS: std::ops::RangeInclusive<u64> = 16..=16_000;

/// Bytes of the shortest datagram that says when it was sent, behind RTP's header.
const STREAMED: u64 = 20;

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

    fn write_out_braces(&mut self) -> Result<(), At> {
        *self.stacks.get_mut() = written_out(self.stacks.get_ref())?;
        let mut baselines = BTreeMap::new();
        for (stack, baseline) in &self.baselines {
            let (stacks, of) = (each(stack)?, each(baseline)?);
            if of.len() != 1 && of.len() != stacks.len() {
                let message =
                    "a list of baselines is as long as that of what is compared with them";
                return Err(at(baseline, message));
            }
            baselines.extend(stacks.into_iter().zip(of.into_iter().cycle()));
        }
        self.baselines = baselines;
        for workload in self.workload.get_mut() {
            if let Some(stacks) = &mut workload.stacks {
                *stacks.get_mut() = written_out(stacks.get_ref())?;
            }
        }
        Ok(())
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

    /// Between real hosts nothing is built that a lost connection would leave
    /// behind.
    fn require_real_stacks(&self, stacks: &[PlannedStack]) -> Result<(), At> {
        let most = SshHosts::MAX_STACKS;
        if stacks.len() > most {
            return Err(at(&self.stacks, format!("between two real hosts at most {most} stacks")));
        }
        for (planned, written) in stacks.iter().zip(self.stacks.get_ref()) {
            let mut layers = planned.stack.layers.iter();
            if let Some(network) = layers.find(|layer| layer.kind().is_network()) {
                let message = format!(
                    "`{}`: `{}` would change interfaces and routes of two real hosts, which the lab does not; between \
                     them the layer `tls` can be measured",
                    planned.stack.name,
                    network.name()
                );
                return Err(at(written, message));
            }
        }
        Ok(())
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

    /// Two real hosts have the link that they have.
    fn require_no_shaping(&self, link: &LinkSpec) -> Result<(), At> {
        let shaped = self.link.as_ref().filter(|_| !link.is_unshaped()).map(Spanned::span);
        let checked = self.validation_links.first().map(Spanned::span);
        let backend = self.link_backend.as_ref().map(Spanned::span);
        let offload = self.offload.as_ref().map(Spanned::span);
        match shaped.or(checked).or(backend) {
            Some(span) => {
                let message = "the lab does not shape the link between two real hosts: leave out `link`, `validation-links` and \
                               `link-backend`, or measure on one machine";
                Err(At { span, message: message.to_owned() })
            }
            None => match offload {
                Some(span) => {
                    let message =
                        "the lab does not change the offloads of real hosts: leave out `offload`";
                    Err(At { span, message: message.to_owned() })
                }
                None => Ok(()),
            },
        }
    }

    /// A one-way delay is told by one clock.
    fn require_no_delays(&self) -> Result<(), At> {
        let mut kinds = self.workload.get_ref().iter().map(|workload| &workload.kind);
        kinds.find(|kind| *kind.get_ref() == WorkloadKind::Realtime).map_or(Ok(()), |kind| {
            Err(at(
                kind,
                "two real hosts have two clocks, so their one-way delay cannot be measured: \
                          run `realtime` on one machine",
            ))
        })
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

    fn stacks(&self, custom: &Custom) -> Result<Vec<PlannedStack>, At> {
        let canonical = |name: &str| canonical_with(name, custom);
        if self.stacks.get_ref().is_empty() {
            return Err(at(&self.stacks, "the plan has no stack"));
        }
        let mut stacks: Vec<PlannedStack> = Vec::new();
        for name in self.stacks.get_ref() {
            let stack = Stack::parse_with(name.get_ref(), custom);
            let stack = stack.map_err(|message| at(name, message))?;
            if stacks.iter().any(|planned| planned.stack.name == stack.name) {
                return Err(at(
                    name,
                    format!(
                        "`{0}` is listed twice; label one to compare it with itself: `{0}#again`",
                        stack.name
                    ),
                ));
            }
            stacks.push(PlannedStack { stack, baseline: None, congestion_control: None });
        }
        let known = |name: &str| stacks.iter().any(|planned| planned.stack.name == name);
        let mut baselines = BTreeMap::new();
        for (stack, baseline) in &self.baselines {
            let canonical_names = (canonical(stack.get_ref()), canonical(baseline.get_ref()));
            for (name, canonical) in [(stack, &canonical_names.0), (baseline, &canonical_names.1)] {
                let none = baseline.get_ref() == NO_BASELINE && name == baseline;
                if !none && !known(canonical) {
                    return Err(at(name, not_in_plan(canonical, &stacks)));
                }
            }
            if canonical_names.0 == canonical_names.1 {
                return Err(at(
                    baseline,
                    "a stack cannot be its own baseline; list it again with a label (`ftp#again`)",
                ));
            }
            baselines.insert(canonical_names.0, canonical_names.1);
        }
        let defaults: Vec<Option<String>> =
            stacks.iter().map(|p| p.stack.baselines().into_iter().find(|b| known(b))).collect();
        for (planned, default) in stacks.iter_mut().zip(defaults.clone()) {
            let named = baselines.remove(&planned.stack.name);
            planned.baseline = named.or(default).filter(|baseline| baseline != NO_BASELINE);
        }
        for (stack, baseline) in &self.baselines {
            let (name, of) = (canonical(stack.get_ref()), canonical(baseline.get_ref()));
            let chained = stacks.iter().any(|p| p.stack.name == of && p.baseline.is_some());
            // whoever writes what holds anyway, as a record does, changes nothing
            let is_default = stacks
                .iter()
                .zip(&defaults)
                .any(|(p, default)| p.stack.name == name && default.as_ref() == Some(&of));
            if chained && !is_default {
                return Err(at(
                    baseline,
                    format!(
                        "`{of}` has a baseline itself: compare `{name}` with that, or compare `{of}` with \
                         nothing, by `{of:?} = {NO_BASELINE:?}` in [baselines]"
                    ),
                ));
            }
        }
        Ok(stacks)
    }

    /// Gives stacks the congestion control that the plan names for them alone.
    fn set_congestion_controls(
        &self,
        stacks: &mut [PlannedStack],
        custom: &Custom,
    ) -> Result<(), At> {
        for (written, chosen) in &self.congestion_controls {
            let name = canonical_with(written.get_ref(), custom);
            let Some(index) = stacks.iter().position(|planned| planned.stack.name == name) else {
                return Err(at(written, not_in_plan(&name, stacks)));
            };
            let planned = &mut stacks[index];
            if !planned.stack.layers.is_empty() {
                let message = format!(
                    "`{name}` has layers, and the congestion control of what is inside them is the plan's: name a \
                     stack without layers, or write `congestion-control` for all"
                );
                return Err(at(written, message));
            }
            if planned.stack.application.over_datagrams() {
                let message = format!("`{name}` does not move its files over TCP");
                return Err(at(written, message));
            }
            planned.congestion_control = congestion_control(Some(chosen))?;
        }
        Ok(())
    }
}

impl WorkloadFile {
    fn read(&self, all: &[PlannedStack], custom: &Custom) -> Result<Workload, At> {
        let canonical = |name: &str| canonical_with(name, custom);
        let kind = *self.kind.get_ref();
        let names: Vec<String> = match &self.stacks {
            None => all.iter().map(|planned| planned.stack.name.clone()).collect(),
            Some(names) if names.get_ref().is_empty() => {
                return Err(at(
                    names,
                    "the list of stacks is empty: leave out `stacks` for all of them",
                ));
            }
            Some(names) => names.get_ref().iter().map(|name| canonical(name.get_ref())).collect(),
        };
        for (index, name) in names.iter().enumerate() {
            let here = self.stacks.as_ref().map(|names| names.get_ref()[index].span());
            let here = here.unwrap_or(self.kind.span());
            let Some(planned) = all.iter().find(|planned| planned.stack.name == *name) else {
                return Err(At { span: here, message: not_in_plan(name, all) });
            };
            if !planned.stack.accepts(kind) {
                let message = format!(
                    "the workload `{}` cannot run on `{name}`; give this workload its own `stacks = [...]`",
                    kind.name()
                );
                return Err(At { span: here, message });
            }
        }
        self.check_keys(kind)?;
        let count = |key: Key, written, default, bounds| match work(kind).keys.contains(&key) {
            true => bounded(key.name(), written, default, bounds),
            false => Ok(1),
        };
        let sizes = self.sizes(kind)?;
        let rate = self.rate(kind, &sizes)?;
        let name = Key::Seconds.name();
        let seconds = bounded(name, self.seconds.as_ref(), work(kind).default_seconds, 1..=60)?;
        let cross_traffic =
            self.cross_traffic.as_ref().map(read_spanned::<CrossTraffic>).transpose()?;
        Ok(Workload {
            kind,
            sizes,
            stacks: names,
            files: count(Key::Files, self.files.as_ref(), 10_000, 1..=100_000)?,
            clients: count(Key::Clients, self.clients.as_ref(), CLIENTS, 1..=64)?,
            commands: self.commands.as_ref().map(|commands| commands.get_ref().clone()),
            content: self
                .content
                .as_ref()
                .map_or_else(ContentKind::default, |named| *named.get_ref()),
            transfers_per_sample: match &self.transfers_per_sample {
                None => None,
                asked => Some(bounded(Key::TransfersPerSample.name(), asked.as_ref(), 1, 1..=256)?),
            },
            seconds,
            rate,
            cross_traffic,
        })
    }

    /// The sizes of its files or datagrams, in bytes.
    fn sizes(&self, kind: WorkloadKind) -> Result<Vec<u64>, At> {
        let Some(sizes) = &self.sizes else { return Ok(work(kind).default_sizes.to_vec()) };
        if sizes.get_ref().is_empty() {
            let default: Vec<String> =
                work(kind).default_sizes.iter().copied().map(units::chosen_size).collect();
            let message = format!(
                "the list of sizes is empty: leave out `sizes` for the default of this workload ({})",
                default.join(", ")
            );
            return Err(at(sizes, message));
        }
        let read = |written: &Spanned<String>| {
            let size = read_size(written)?;
            if kind.is_datagrams() && !DATAGRAMS.contains(&size) {
                let (least, most) = (DATAGRAMS.start(), DATAGRAMS.end());
                return Err(at(written, format!("datagrams have {least} B to {most} B")));
            }
            Ok(size)
        };
        sizes.get_ref().iter().map(read).collect()
    }

    /// Returns the rate at which it is sent, if it is given or must be.
    fn rate(&self, kind: WorkloadKind, sizes: &[u64]) -> Result<Option<Pace>, At> {
        let rate = self.rate.as_ref().map(read_spanned::<Pace>).transpose()?;
        let rate = rate.or(kind.default_rate());
        let Some(rate) = rate else { return Ok(None) };
        let span = self.rate.as_ref().map_or(self.kind.span(), Spanned::span);
        let wrong = |message: String| Err(At { span: span.clone(), message });
        if let Some(size) = sizes.iter().find(|size| **size < STREAMED) {
            return wrong(format!(
                "datagrams at a rate are RTP with a send time: they have {STREAMED} bytes or more, not {size}"
            ));
        }
        let possible = |size: &&u64| !Pace::PER_SECOND.contains(&rate.per_second(**size));
        if let Some(size) = sizes.iter().find(possible) {
            let (least, most) = (Pace::PER_SECOND.start(), Pace::PER_SECOND.end());
            return wrong(format!(
                "{rate} at {size} bytes is {:.1} datagrams per second; the sender can pace {least} to {most}",
                rate.per_second(*size)
            ));
        }
        Ok(Some(rate))
    }

    /// A key that the workload would ignore is a mistake of the plan's author.
    fn check_keys(&self, kind: WorkloadKind) -> Result<(), At> {
        let given = [
            (Key::Sizes, self.sizes.as_ref().map(Spanned::span)),
            (Key::Commands, self.commands.as_ref().map(Spanned::span)),
            (Key::Seconds, self.seconds.as_ref().map(Spanned::span)),
            (Key::Rate, self.rate.as_ref().map(Spanned::span)),
            (Key::CrossTraffic, self.cross_traffic.as_ref().map(Spanned::span)),
            (Key::Files, self.files.as_ref().map(Spanned::span)),
            (Key::Clients, self.clients.as_ref().map(Spanned::span)),
            (Key::TransfersPerSample, self.transfers_per_sample.as_ref().map(Spanned::span)),
            (Key::Content, self.content.as_ref().map(Spanned::span)),
        ];
        for (key, span) in given {
            if let Some(span) = span.filter(|_| !work(kind).keys.contains(&key)) {
                let message = format!("the workload `{}` has no `{}`", kind.name(), key.name());
                return Err(At { span, message });
            }
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

fn written_out(texts: &[Spanned<String>]) -> Result<Vec<Spanned<String>>, At> {
    let all = texts.iter().map(each).collect::<Result<Vec<_>, At>>()?;
    Ok(all.into_iter().flatten().collect())
}

fn each(text: &Spanned<String>) -> Result<Vec<Spanned<String>>, At> {
    let all = braces::expand(text.get_ref()).map_err(|message| at(text, message))?;
    Ok(all.into_iter().map(|one| Spanned::new(text.span(), one)).collect())
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
