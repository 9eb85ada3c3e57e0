//! The record of a run so far, as in its journal: blocks, links, counted packets. Results
//! are made of it, whether the run is complete or not.

use std::collections::BTreeMap;

use headroom_lab_host::error::{Error, Result};
use headroom_lab_results::analysis::stats;
use headroom_lab_results::schema::{
    ClearText, LayerSetup, LinkReport, PlanRecord, Results, Resumed, SCHEMA, Sample, Timeline, Wire,
};

use super::cell::Cell;
use super::entry::{Block, Counted, Entry, Header, LinkSet, Place, Row};
use crate::workload::{WORKLOAD_KINDS, WorkloadKind};

/// A run so far.
#[derive(Debug, Default)]
pub(super) struct Record {
    blocks: BTreeMap<Place, Block>,
    links: BTreeMap<usize, LinkSet>,
    left_out: BTreeMap<usize, String>,
    counted: Vec<Counted>,
    layer_setups: Vec<LayerSetup>,
    clear_text: Vec<ClearText>,
    remarks: Vec<String>,
    resumed: Vec<Resumed>,
    /// Why it ended, if it has and was not continued.
    ended: Option<String>,
    done: bool,
    /// The time of the latest entry.
    at: String,
}

/// A cell of one link: stack, workload, size.
type Key<'a> = (&'a str, &'a str, u64);

fn key(sample: &Sample) -> Key<'_> {
    (&sample.stack, &sample.workload, sample.size_bytes)
}

impl Record {
    /// Takes a line of the journal in.
    pub(super) fn apply(&mut self, entry: Entry) {
        match entry {
            Entry::Run(header) => self.at = header.environment.started,
            Entry::Link(set) => {
                self.left_out.remove(&set.link);
                self.links.insert(set.link, *set);
            }
            Entry::Emulated { link, report } => {
                if let Some(set) = self.links.get_mut(&link) {
                    set.report.emulator = Some(*report);
                }
            }
            Entry::LeftOut { link, why } => {
                self.left_out.insert(link, why);
            }
            Entry::Block(block) => {
                self.at.clone_from(&block.at);
                self.blocks.insert(block.place, block);
            }
            Entry::Counted(counted) => self.counted.push(*counted),
            Entry::LayerSetups(rows) => self.layer_setups = rows,
            Entry::ClearText(rows) => self.clear_text = rows,
            Entry::Remark(text) => self.remarks.push(text),
            Entry::Resumed(resumed) => {
                self.ended = None;
                self.resumed.push(resumed);
            }
            Entry::Ended { at, why } => (self.at, self.ended) = (at, Some(why)),
            Entry::Done { at } => (self.at, self.done) = (at, true),
        }
    }

    pub(super) fn has_clear_text(&self) -> bool {
        !self.clear_text.is_empty()
    }

    pub(super) fn block(&self, place: Place) -> Option<&Block> {
        self.blocks.get(&place)
    }

    /// Number of complete blocks, and of the next one.
    pub(super) fn blocks(&self) -> usize {
        self.blocks.len()
    }

    /// Rounds of a link in which a workload and size have a block.
    pub(super) fn rounds(&self, link: usize, group: usize) -> usize {
        let of_group =
            |place: &&Place| place.link == link && place.group == group && place.attempt == 0;
        self.blocks.keys().filter(of_group).count()
    }

    /// The samples of a workload and size on a link.
    pub(super) fn samples(&self, link: usize, group: usize) -> Vec<&Sample> {
        let blocks = self.blocks.values();
        blocks
            .filter(|block| block.place.link == link && block.place.group == group)
            .flat_map(|block| block.rows.iter().map(|row| &row.sample))
            .collect()
    }

    /// Settings of a link when its first block was measured.
    pub(super) fn link(&self, link: usize) -> Option<&LinkSet> {
        self.links.get(&link)
    }

    /// Whether the whole run is behind.
    pub(super) fn is_done(&self) -> bool {
        self.done
    }

    /// Whether a transfer of this kind has failed on this stack.
    pub(super) fn has_failed(&self, cell: &Cell) -> bool {
        self.rows().any(|(_, row)| {
            let sample = &row.sample;
            !sample.ok && sample.stack == cell.stack && sample.workload == cell.workload.name()
        })
    }

    /// Whether the set-up of the layers was measured.
    pub(super) fn has_layer_setups(&self) -> bool {
        !self.layer_setups.is_empty()
    }

    /// Whether the packets of a cell were counted.
    pub(super) fn has_counted(&self, cell: &Cell) -> bool {
        self.counted.iter().any(|counted| {
            (counted.stack.as_str(), counted.workload.as_str(), counted.size_bytes)
                == (cell.stack.as_str(), cell.workload.name().as_str(), cell.size)
        })
    }

    /// Whether this was remarked.
    pub(super) fn has_remark(&self, text: &str) -> bool {
        self.remarks.iter().any(|remark| remark == text)
    }

    fn rows(&self) -> impl Iterator<Item = (usize, &Row)> {
        let blocks = self.blocks.values();
        blocks.flat_map(|block| block.rows.iter().map(|row| (block.place.link, row)))
    }

    /// Samples in the order in which they were measured, links by what was
    /// found on them. Nothing is analysed yet.
    ///
    /// # Errors
    /// There is no complete block.
    pub(super) fn results(&self, header: &Header) -> Result<Results> {
        let mut links = self.links.values().map(|set| {
            let rows = self.rows().filter(|(link, _)| *link == set.link);
            let rtts: Vec<f64> = rows.flat_map(|(_, row)| row.rtts_s.iter().copied()).collect();
            LinkReport { rtt_us: stats::median(&rtts).map(|s| s * 1e6), ..set.report.clone() }
        });
        let link = links.next().filter(|_| self.links.contains_key(&0) && !self.blocks.is_empty());
        let link = link.ok_or(Error::NothingMeasured)?;
        let wires = self.wires();
        let with_wire = |(link, row): (usize, &Row)| {
            let wire = wires.get(&key(&row.sample)).copied().filter(|_| link == 0);
            Sample { wire, ..row.sample.clone() }
        };
        let mut samples: Vec<Sample> = self.rows().map(with_wire).collect();
        samples.sort_by_key(|sample| sample.block);
        let mut environment = header.environment.clone();
        environment.finished.clone_from(&self.at);
        let ended = (!self.done)
            .then(|| self.ended.clone().unwrap_or_else(|| "its process was killed".to_owned()));
        Ok(Results {
            schema: SCHEMA,
            answer: Vec::new(),
            plan: header.plan.clone(),
            environment,
            validation_links: links.collect(),
            samples,
            summary: Vec::new(),
            portable: Vec::new(),
            models: Vec::new(),
            crossovers: Vec::new(),
            predictions: Vec::new(),
            accounting: None,
            layer_setups: self.layer_setups.clone(),
            clear_text: self.clear_text.clone(),
            captures: self.counted.iter().filter_map(|one| one.capture.clone()).collect(),
            timelines: self.timelines(&header.plan),
            complete: self.done,
            ended,
            resumed: self.resumed.clone(),
            remarks: self.all_remarks(&header.plan),
            warnings: Vec::new(),
            link,
        })
    }

    /// What was counted of each cell of the main link. Without delay on the link
    /// an answer that nobody waits for can come between two questions and look
    /// like one: of round trips the fewest count.
    fn wires(&self) -> BTreeMap<Key<'_>, Wire> {
        let counted = self.counted.iter().filter_map(|counted| {
            let key = (counted.stack.as_str(), counted.workload.as_str(), counted.size_bytes);
            Some((key, counted.wire?))
        });
        let mut wires: BTreeMap<Key<'_>, Wire> = counted.collect();
        for (_, row) in self.rows().filter(|(link, _)| *link == 0) {
            let wire = wires.get_mut(&key(&row.sample)).map(|wire| &mut wire.round_trips);
            if let Some((trips, seen)) = wire.and_then(Option::as_mut).zip(row.round_trips) {
                *trips = seen.min(*trips);
            }
        }
        wires
    }

    fn all_remarks(&self, plan: &PlanRecord) -> Vec<String> {
        let left_out = self.left_out.iter().map(|(link, why)| {
            let name = link.checked_sub(1).and_then(|check| plan.validation_links.get(check));
            let name = name.map_or("", String::as_str);
            match self.blocks.keys().any(|place| place.link == *link) {
                false => format!("A validation link was left out: {why}."),
                true => format!("The validation link {name} has fewer blocks than planned: {why}."),
            }
        });
        left_out.chain(self.remarks.iter().cloned()).collect()
    }

    /// For each stack the download with the median session among those of 1 MiB,
    /// or of the size nearest to it; failing downloads, of whatever there is.
    fn timelines(&self, plan: &PlanRecord) -> Vec<Timeline> {
        const TELLING: u64 = 1 << 20;
        let distance = |size: u64| size.max(1).ilog2().abs_diff(TELLING.ilog2());
        let kind = |name: &str| {
            WORKLOAD_KINDS.iter().position(|kind| Some(*kind) == WorkloadKind::of(name))
        };
        let of_stack = |stack: &str| {
            let rows = self.rows().filter(|(link, row)| *link == 0 && row.sample.ok);
            let rows = rows.filter(|(_, row)| row.sample.stack == stack);
            let mut of_stack: Vec<&Timeline> =
                rows.filter_map(|(_, row)| row.timeline.as_ref()).collect();
            let cell = |line: &Timeline| {
                (kind(&line.workload), distance(line.size_bytes), line.size_bytes)
            };
            let nearest = of_stack.iter().map(|line| cell(line)).min()?;
            of_stack.retain(|line| cell(line) == nearest);
            of_stack.sort_by(|a, b| a.session_s.total_cmp(&b.session_s));
            of_stack.get(of_stack.len() / 2).copied().cloned()
        };
        plan.stacks.iter().filter_map(|stack| of_stack(&stack.name)).collect()
    }
}
