//! A `[[workload]]` of a plan as it is written in TOML.

use serde::Deserialize;
use toml::Spanned;

use super::{not_in_plan, read_size, read_spanned};
use crate::at::{At, at, bounded};
use crate::custom::Custom;
use crate::plan::PlannedStack;
use crate::stack::canonical_with;
use crate::units;
use crate::workload::{
    CLIENTS, ContentKind, CrossTraffic, Key, Pace, Workload, WorkloadKind, work,
};

/// A workload, as TOML has it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct WorkloadFile {
    pub(super) kind: Spanned<WorkloadKind>,
    sizes: Option<Spanned<Vec<Spanned<String>>>>,
    pub(super) stacks: Option<Spanned<Vec<Spanned<String>>>>,
    files: Option<Spanned<u32>>,
    clients: Option<Spanned<u32>>,
    commands: Option<Spanned<Vec<String>>>,
    seconds: Option<Spanned<u32>>,
    content: Option<Spanned<ContentKind>>,
    transfers_per_sample: Option<Spanned<u32>>,
    rate: Option<Spanned<String>>,
    cross_traffic: Option<Spanned<String>>,
}

/// Bytes that a datagram may have: the load's header, and what tunnels take.
const DATAGRAMS: std::ops::RangeInclusive<u64> = 16..=16_000;

/// Bytes of the shortest datagram that says when it was sent, behind RTP's header.
const STREAMED: u64 = 20;

impl WorkloadFile {
    pub(super) fn read(&self, all: &[PlannedStack], custom: &Custom) -> Result<Workload, At> {
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
