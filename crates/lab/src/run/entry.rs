//! The entries of a run's journal.

use headroom_lab_results::schema::{
    ClearText, EmulatorReport, Environment, KeptCapture, LayerSetup, LinkReport, PlanRecord,
    Resumed, Sample, Timeline, Wire,
};
use serde::{Deserialize, Serialize};

use super::sample::Measured;

/// One line of the journal.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Entry {
    /// The first line, and only that.
    Run(Box<Header>),
    /// A link was set, tested and warmed up.
    Link(Box<LinkSet>),
    /// Report of the emulator of a link.
    Emulated { link: usize, report: Box<EmulatorReport> },
    /// A validation link was given up.
    LeftOut { link: usize, why: String },
    /// A block is complete.
    Block(Block),
    /// The packets of a cell were counted.
    Counted(Box<Counted>),
    /// The layers of all stacks were set up, apart from any transfer.
    LayerSetups(Vec<LayerSetup>),
    /// Every stack was searched for clear text.
    ClearText(Vec<ClearText>),
    /// Something that the reader should know.
    Remark(String),
    /// The run was continued.
    Resumed(Resumed),
    /// The run ended before it was complete.
    Ended { at: String, why: String },
    /// The run is complete.
    Done { at: String },
}

/// The plan and the machine.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Header {
    /// [`SCHEMA`]: the rows are those of the results.
    pub(super) schema: u32,
    pub(super) plan: PlanRecord,
    pub(super) environment: Environment,
}

/// The place of a block in a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct Place {
    /// 0 is the main link, then the validation links in the plan's order.
    pub(super) link: usize,
    /// Which of the repetitions.
    pub(super) round: u32,
    /// Which workload and size: in the order of the plan.
    pub(super) group: usize,
    /// 0, then once more for each time that background load spoilt it.
    pub(super) attempt: u32,
}

/// A complete block.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Block {
    #[serde(flatten)]
    pub(super) place: Place,
    /// RFC 3339.
    pub(super) at: String,
    pub(super) rows: Vec<Row>,
}

/// A sample, and what the analysis needs beside it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Row {
    pub(super) sample: Sample,
    /// SYN to SYN-ACK of each transfer.
    pub(super) rtts_s: Vec<f64>,
    /// The fewest that any transfer took.
    pub(super) round_trips: Option<u32>,
    /// The last transfer.
    pub(super) timeline: Option<Timeline>,
}

/// A link that is ready to be measured on.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct LinkSet {
    pub(super) link: usize,
    pub(super) report: LinkReport,
    /// Transfers in a sample of each cell.
    pub(super) batches: Vec<u32>,
}

/// Packets of one transfer of a cell of the main link; none where no transfer
/// could be read.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Counted {
    pub(super) stack: String,
    pub(super) workload: String,
    pub(super) size_bytes: u64,
    pub(super) wire: Option<Wire>,
    /// The file that keeps its packets.
    #[serde(default)]
    pub(super) capture: Option<KeptCapture>,
}

impl Block {
    /// Whether background load spoilt it.
    pub(super) fn is_disturbed(&self) -> bool {
        self.rows.iter().any(|row| row.sample.disturbed.is_some())
    }
}

impl From<Measured> for Row {
    fn from(measured: Measured) -> Self {
        let Measured { sample, rtts_s, round_trips, last } = measured;
        let timeline = last.map(|record| Timeline {
            stack: sample.stack.clone(),
            workload: sample.workload.clone(),
            size_bytes: sample.size_bytes,
            session_s: record.session_s,
            segments: record.intervals,
        });
        Self { sample, rtts_s, round_trips, timeline }
    }
}
