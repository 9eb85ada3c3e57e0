//! `results.json`, schema 3: what a run leaves behind. Documented in
//! `docs/results.md`; everything else is derived from it.

mod derived;
mod hosts;
mod link;
mod pace;
mod plan;
mod run;
mod sample;
mod workload;

use serde::{Deserialize, Serialize};

pub use derived::{
    Accounting, Crossover, LogLine, Model, ModelPoint, Portable, Prediction, Residual, Rfc6349,
    SessionSummary, Summary,
};
pub use headroom_lab_trace::{
    DelayStats, Phase, PhaseInterval, Phases, SetUp, StreamBin, StreamStats, Tcp,
};
pub use hosts::{SshHosts, objection};
pub use link::{
    DelayTest, DirectionReport, DirectionTest, Directions, EmulatorCounters, EmulatorReport,
    LinkReport, LossTest, RateTest, RoundTrips, SelfTest, TraceReport, queue_packets,
};
pub use pace::{CrossTraffic, Pace};
pub use plan::{DefinitionRecord, PlanRecord, StackRecord, WorkloadRecord};
pub use run::{
    ClearText, Environment, HostRecord, KeptCapture, LayerSetup, PROCESSORS, ProgramRecord,
    Resumed, Timeline, VIDEO, WAITS,
};
pub use sample::{Cpu, Load, Sample, Sessions, UNSHAPED_S, Usage, Wire};
pub use workload::{CLIENTS, STREAM_UNIT, TimeOf, WORKLOAD_KINDS, WorkloadKind, workload_name};

/// Version of the schema.
pub const SCHEMA: u32 = 3;

/// Everything.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Results {
    /// [`SCHEMA`].
    pub schema: u32,
    /// The answer in sentences, most important first.
    pub answer: Vec<String>,
    /// The plan as it was run.
    pub plan: PlanRecord,
    /// The machine and its programs.
    pub environment: Environment,
    /// The main link.
    pub link: LinkReport,
    /// Links on which the prediction was checked.
    pub validation_links: Vec<LinkReport>,
    /// One row a sample.
    pub samples: Vec<Sample>,
    /// One row for each link, stack, workload and size.
    pub summary: Vec<Summary>,
    /// Costs of each stack that hold on any link.
    pub portable: Vec<Portable>,
    /// Time against size, one row for each link, stack and workload.
    #[serde(default)]
    pub models: Vec<Model>,
    /// Sizes at which one stack overtakes another.
    #[serde(default)]
    pub crossovers: Vec<Crossover>,
    /// Session times predicted for the validation links, and measured there.
    #[serde(default)]
    pub predictions: Vec<Prediction>,
    /// Checks of `wire` of the samples; null: nothing was counted.
    #[serde(default)]
    pub accounting: Option<Accounting>,
    /// Set-up of each layer, without a transfer.
    #[serde(default)]
    pub layer_setups: Vec<LayerSetup>,
    /// Whether each stack's files could be read on the wire.
    #[serde(default)]
    pub clear_text: Vec<ClearText>,
    /// Packets of the accounting runs that were kept.
    #[serde(default)]
    pub captures: Vec<KeptCapture>,
    /// One transfer of each stack.
    pub timelines: Vec<Timeline>,
    /// Whether everything that the plan asks for was done.
    #[serde(default = "yes")]
    pub complete: bool,
    /// Why the run ended before that, in words; null: it did not.
    #[serde(default)]
    pub ended: Option<String>,
    /// Each time that the run was continued.
    #[serde(default)]
    pub resumed: Vec<Resumed>,
    /// Warnings from the measurement, which cannot be derived.
    #[serde(default)]
    pub remarks: Vec<String>,
    /// All warnings.
    pub warnings: Vec<String>,
}

impl Results {
    /// Warns that the run was interrupted; none: it is complete.
    pub fn incomplete(&self) -> Option<String> {
        let why = self.ended.as_deref().unwrap_or("no reason given");
        let sentence = format!(
            "This run is not complete: {}. Continue it with `headroom lab run --resume` and the folder of this report.",
            why.trim_end_matches('.')
        );
        (!self.complete).then_some(sentence)
    }
}

/// Results without the field are of complete runs.
fn yes() -> bool {
    true
}
