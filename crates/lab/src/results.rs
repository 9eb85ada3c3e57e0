//! `results.json`, schema 1: what a run leaves behind. Documented in
//! `docs/results.md`; everything else is derived from it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use crate::measure::wire::{Phase, Phases, Stretch};
pub use crate::testbed::{LinkReport, SelfTest};

/// Version of the schema.
pub const SCHEMA: u32 = 1;

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
    pub check_links: Vec<LinkReport>,
    /// One row a sample.
    pub samples: Vec<Sample>,
    /// One row for each link, stack, workload and size.
    pub summary: Vec<Summary>,
    /// What one carries to another link.
    pub portable: Vec<Portable>,
    /// One transfer of each stack.
    pub timelines: Vec<Timeline>,
    /// What the reader should know before believing it.
    pub warnings: Vec<String>,
}

/// The plan as it was run.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the fields of `plan::Plan`")]
pub struct PlanRecord {
    pub name: String,
    pub question: String,
    pub stacks: Vec<StackRecord>,
    pub workloads: Vec<WorkloadRecord>,
    pub repetitions: u32,
    pub warmup: u32,
    pub family: String,
    pub mtu: u32,
    pub offload: String,
    pub congestion_control: String,
    pub link: String,
    pub check_links: Vec<String>,
    pub check_size_bytes: u64,
    pub seed: u64,
}

/// A stack and its baseline.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the fields of `plan::PlannedStack`")]
pub struct StackRecord {
    pub name: String,
    pub baseline: Option<String>,
}

/// A workload.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the fields of `workload::Workload`")]
pub struct WorkloadRecord {
    pub kind: String,
    pub sizes_bytes: Vec<u64>,
    pub stacks: Vec<String>,
}

/// The machine and its programs.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[allow(missing_docs, reason = "named as what they hold")]
pub struct Environment {
    pub started: String,
    pub finished: String,
    pub headroom: String,
    pub kernel: String,
    pub distribution: String,
    pub cpu: String,
    pub cores: usize,
    pub memory_bytes: u64,
    pub programs: Vec<ProgramRecord>,
    pub stacks: BTreeMap<String, BTreeMap<String, String>>,
    pub settings: BTreeMap<String, String>,
}

/// A program that took part.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[allow(missing_docs, reason = "named as what they hold")]
pub struct ProgramRecord {
    pub name: String,
    pub version: String,
    pub path: String,
    /// `system`, `cache` or `built-in`.
    pub origin: String,
}

/// One measured sample: one transfer, or the mean of a batch of small ones.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Sample {
    /// Name of the link.
    pub link: String,
    /// Name of the stack.
    pub stack: String,
    /// Kind of the workload.
    pub workload: String,
    /// Octets of each file.
    pub size_bytes: u64,
    /// Files that one transfer moves.
    pub files: u32,
    /// Number of the paired block.
    pub block: u32,
    /// Whether every transfer ended well and every file was verified.
    pub ok: bool,
    /// The wire: first data command to completion reply. Seconds, as all times.
    pub seconds: Option<f64>,
    /// The wire: first SYN to completion reply.
    pub session_seconds: Option<f64>,
    /// The client's own clock.
    pub client_seconds: Option<f64>,
    /// Start to end of the client's process.
    pub process_seconds: Option<f64>,
    /// Transfers averaged in this sample.
    pub transfers: u32,
    /// What the session was doing.
    pub phases: Option<Phases>,
    /// CPU time of one transfer.
    pub cpu_seconds: Option<Cpu>,
    /// Of the whole machine.
    pub cpu_idle_pct: Option<f64>,
    /// Taken by the hypervisor.
    pub steal_pct: Option<f64>,
    /// Taken by processes that are none of the run's.
    pub foreign_pct: Option<f64>,
    /// Counted in the accounting run of this cell.
    pub wire: Option<Wire>,
    /// Of the client's process.
    pub peak_memory_bytes: Option<u64>,
    /// Why this block was repeated.
    pub marked: Option<String>,
    /// Too short for the shaper to act on.
    pub not_shaped: bool,
    /// What went wrong.
    pub error: Option<String>,
}

/// CPU time of one transfer, seconds.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Cpu {
    /// Processes of the client host.
    pub client: f64,
    /// Processes of the server host.
    pub server: f64,
    /// All CPUs, whoever it was.
    pub machine: f64,
    /// Processes that are none of the run's.
    pub foreign: f64,
}

/// Packets of one transfer, counted with offloads off.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Wire {
    /// Octets of all frames, Ethernet headers included.
    pub bytes: u64,
    /// Of these, in the direction of the file: acknowledgements left out.
    pub file_direction_bytes: u64,
    /// Frames, both directions.
    pub packets: u64,
    /// Before the first octet of the file.
    pub round_trips: Option<u32>,
    /// TCP connections.
    pub connections: u32,
    /// TLS handshakes or SSH key exchanges.
    pub handshakes: u32,
    /// Handshakes that took a round trip more, for another key share.
    pub hello_retries: u32,
}

/// One cell.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[allow(missing_docs, reason = "documented in docs/results.md")]
pub struct Summary {
    pub link: String,
    pub stack: String,
    pub workload: String,
    pub size_bytes: u64,
    pub n: usize,
    pub failed: usize,
    pub mean_s: Option<f64>,
    pub stddev_s: Option<f64>,
    pub ci95_s: Option<[f64; 2]>,
    pub baseline: Option<String>,
    pub overhead_pct: Option<f64>,
    pub overhead_ci95_pct: Option<[f64; 2]>,
    pub session_mean_s: Option<f64>,
    pub session_overhead_pct: Option<f64>,
    pub session_overhead_ci95_pct: Option<[f64; 2]>,
    pub goodput_bps: Option<f64>,
    pub cpu_seconds: Option<f64>,
    pub limited_by: Option<String>,
    pub not_shaped: bool,
}

/// What one carries to another link.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "documented in docs/results.md")]
pub struct Portable {
    pub stack: String,
    pub baseline: Option<String>,
    pub round_trips: Option<u32>,
    pub extra_bytes_per_mb: Option<f64>,
    pub cpu_seconds_per_gb: Option<f64>,
    pub fixed_s: Option<f64>,
    pub seconds_per_gb: Option<f64>,
    pub fill_bps: Option<f64>,
}

/// One transfer of a stack, cut into what it was doing.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[allow(missing_docs, reason = "documented in docs/results.md")]
pub struct Timeline {
    pub stack: String,
    pub workload: String,
    pub size_bytes: u64,
    pub session_s: f64,
    pub segments: Vec<Stretch>,
}
