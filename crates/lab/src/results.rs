//! `results.json`, schema 2: what a run leaves behind. Documented in
//! `docs/results.md`; everything else is derived from it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use crate::analysis::slow_start::Segment;
pub use crate::measure::realtime::{Bin, Delay, Realtime};
pub use crate::measure::usage::Usage;
pub use crate::measure::wire::{Phase, Phases, SetUp, Stretch, Tcp};
pub use crate::plan::SshHosts;
pub use crate::testbed::{
    DelayTest, EmulatorCounters, EmulatorReport, LinkReport, LossTest, RateTest, RoundTrips,
    SelfTest, WayCounters, WayReport, WayTest, Ways,
};

use crate::workload;

/// Version of the schema.
pub const SCHEMA: u32 = 2;

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
    /// Time against size, one row for each link, stack and workload.
    #[serde(default)]
    pub models: Vec<Model>,
    /// Sizes at which one stack overtakes another.
    #[serde(default)]
    pub crossovers: Vec<Crossover>,
    /// What the main link said of the check links, beside what they said.
    #[serde(default)]
    pub predictions: Vec<Prediction>,
    /// What `wire` of the samples was checked for; null where nothing was counted.
    #[serde(default)]
    pub accounting: Option<Accounting>,
    /// What setting up each layer takes, apart from any transfer.
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
    /// What was noted while measuring: the warnings that cannot be derived.
    #[serde(default)]
    pub remarks: Vec<String>,
    /// What the reader should know before believing it.
    pub warnings: Vec<String>,
}

impl PlanRecord {
    /// A full packet: the MTU less the IP header (40 octets of IPv6, 20 of IPv4)
    /// and TCP's 20 with 12 of time stamps; on the link Ethernet's 38 come on top.
    pub fn segment(&self) -> Segment {
        let ip = if self.family == "ipv4" { 20 } else { 40 };
        Segment {
            payload_bytes: f64::from(self.mtu.saturating_sub(ip + 32).max(1)),
            line_bytes: f64::from(self.mtu) + 38.0,
        }
    }
}

impl Results {
    /// The sentence that stands above everything else where the run was cut.
    pub fn incomplete(&self) -> Option<String> {
        let why = self.ended.as_deref().unwrap_or("no reason given");
        let sentence = format!(
            "This run is not complete: {}. Continue it with `headroom lab run --resume` and the folder of this report.",
            why.trim_end_matches('.')
        );
        (!self.complete).then_some(sentence)
    }
}

/// Results from before runs could be cut are whole.
fn yes() -> bool {
    true
}

/// One continuation of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resumed {
    /// RFC 3339.
    pub at: String,
    /// Blocks that were kept from before.
    pub blocks_before: usize,
    /// What of machine and programs was no longer as before.
    pub changed: Vec<String>,
}

/// The plan as it was run; a [`crate::plan::Plan`] can be made of it again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the fields of `plan::Plan`")]
pub struct PlanRecord {
    pub name: String,
    pub question: String,
    pub stacks: Vec<StackRecord>,
    pub workloads: Vec<WorkloadRecord>,
    /// The two machines of the plan; null: namespaces on one.
    #[serde(default)]
    pub testbed: Option<SshHosts>,
    pub repetitions: u32,
    /// Half-width of every overhead's interval at which blocks end; none: at
    /// `repetitions`, which is the least otherwise.
    #[serde(default)]
    pub until_ci_pct: Option<f64>,
    /// The most blocks, where `until_ci_pct` is not reached.
    #[serde(default)]
    pub max_repetitions: Option<u32>,
    pub warmup: u32,
    pub family: String,
    pub mtu: u32,
    pub offload: String,
    pub congestion_control: String,
    /// A name server that never answers, which sshd asks; null: sshd asks none.
    #[serde(default)]
    pub resolver: Option<String>,
    pub link: String,
    /// What the plan wishes to make the links; none: the best there is.
    #[serde(default)]
    pub link_backend: Option<String>,
    pub check_links: Vec<String>,
    #[serde(default)]
    pub check_sizes_bytes: Vec<u64>,
    /// The largest of them.
    pub check_size_bytes: u64,
    #[serde(default = "yes")]
    pub count_packets: bool,
    pub seed: u64,
}

/// A stack and its baseline.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the fields of `plan::PlannedStack`")]
pub struct StackRecord {
    pub name: String,
    pub baseline: Option<String>,
}

/// A workload.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the fields of `workload::Workload`")]
pub struct WorkloadRecord {
    pub kind: String,
    pub sizes_bytes: Vec<u64>,
    pub stacks: Vec<String>,
    /// Files in the folder; null unless the workload is `many`.
    #[serde(default)]
    pub files: Option<u32>,
    /// Clients at once; null unless the workload is `parallel`.
    #[serde(default)]
    pub clients: Option<u32>,
    /// The commands; null: those of each service.
    #[serde(default)]
    pub commands: Option<Vec<String>>,
    /// How long it goes on; null where it moves files or runs commands.
    #[serde(default)]
    pub seconds: Option<u32>,
    /// What is in the files; null: octets of chance.
    #[serde(default)]
    pub content: Option<String>,
    /// Transfers in a sample; null: as many as it takes to be measured well.
    #[serde(default)]
    pub in_a_row: Option<u32>,
    /// How fast it is sent; null: as fast as it arrives.
    #[serde(default)]
    pub rate: Option<String>,
    /// What goes beside it; null: nothing.
    #[serde(default)]
    pub beside: Option<String>,
}

impl WorkloadRecord {
    /// As samples name it.
    pub fn name(&self) -> String {
        let rate = self.rate.as_ref().filter(|rate| {
            let default = workload::Kind::of(&self.kind).and_then(workload::Kind::default_rate);
            rate.parse().ok() != default
        });
        let steady = [rate.cloned(), self.beside.clone()];
        workload::named(&self.kind, self.content.as_deref(), self.clients, self.in_a_row, steady)
    }
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
    /// Of two real machines, both; the fields above are then the client's.
    #[serde(default)]
    pub hosts: Vec<HostRecord>,
    pub programs: Vec<ProgramRecord>,
    pub stacks: BTreeMap<String, BTreeMap<String, String>>,
    pub settings: BTreeMap<String, String>,
}

/// One of two real machines.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "named as what they hold")]
pub struct HostRecord {
    /// `client` or `server`.
    pub role: String,
    /// As the plan names it.
    pub host: String,
    /// On the link.
    pub address: String,
    pub kernel: String,
    pub distribution: String,
    pub cpu: String,
    pub cores: usize,
    pub memory_bytes: u64,
    /// Where the run's files were: `tmpfs` or `disk`.
    pub files: String,
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
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Sample {
    /// Name of the link.
    pub link: String,
    /// Name of the stack.
    pub stack: String,
    /// Name of the workload.
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
    /// The wire: first SYN to completion reply; over UDP from the first datagram to when
    /// the client is done.
    pub session_seconds: Option<f64>,
    /// The client's own clock.
    pub client_seconds: Option<f64>,
    /// Start to end of the client's process.
    pub process_seconds: Option<f64>,
    /// Transfers averaged in this sample.
    pub transfers: u32,
    /// What the session was doing.
    pub phases: Option<Phases>,
    /// The handshake on the connection to the service, first packet to last, TCP's own
    /// left out,
    #[serde(default)]
    pub first_handshake_seconds: Option<f64>,
    /// and on the first data connection (FTPS).
    #[serde(default)]
    pub data_handshake_seconds: Option<f64>,
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
    /// What TCP did in the file's direction, per transfer.
    #[serde(default)]
    pub tcp: Option<Tcp>,
    /// What went, and for how long, where that is what was measured.
    #[serde(default)]
    pub load: Option<Load>,
    /// How evenly clients at once shared the way (`parallel`): Jain's index of their
    /// rates, from 1/n, where one had it all, to 1.
    #[serde(default)]
    pub fairness: Option<f64>,
    /// How busy both sides and the link were, and what passed it; null between two real
    /// machines.
    #[serde(default)]
    pub usage: Option<Usage>,
    /// What became of a real-time stream.
    #[serde(default)]
    pub realtime: Option<Realtime>,
    /// Packets that the layers did not pass on, by reason, in all of the sample; null
    /// where they do not say.
    #[serde(default)]
    pub drops: Option<BTreeMap<String, u64>>,
    /// Far from the other samples of its cell (`analysis::outliers`); it counts
    /// all the same.
    #[serde(default)]
    pub outlier: bool,
    /// Of the client's process.
    pub peak_memory_bytes: Option<u64>,
    /// Why this block was repeated.
    pub marked: Option<String>,
    /// Its transfer took less than [`UNSHAPED_S`] on a link made by a token bucket; its
    /// session may have taken longer.
    pub not_shaped: bool,
    /// What went wrong.
    pub error: Option<String>,
}

/// Seconds below which a token bucket lets pass undelayed so much of a transfer that its
/// time says little of the link.
pub const UNSHAPED_S: f64 = 0.1;

/// What went in the time of a `stream`, `packets` or `echo`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Load {
    /// The time, by the clock that `seconds` of the sample is from.
    pub measured_s: Option<f64>,
    /// Octets of payload that arrived (`stream`).
    pub bytes: Option<u64>,
    /// Datagrams that arrived (`packets`), round trips (`echo`).
    pub packets: Option<u64>,
    /// Datagrams that did not.
    pub lost: Option<u64>,
    /// The round trip that one in a hundred exceeds (`echo`).
    pub p99_s: Option<f64>,
}

/// CPU time of one transfer, seconds.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Cpu {
    /// Processes of the client host.
    pub client: f64,
    /// Processes of the server host.
    pub server: f64,
    /// The link's emulator; part of neither side.
    #[serde(default)]
    pub router: f64,
    /// The kernel's own threads, where they do a layer's work; part of the costs,
    /// whichever side it was for.
    #[serde(default)]
    pub kernel: f64,
    /// All CPUs, whoever it was.
    pub machine: f64,
    /// Processes that are none of the run's.
    pub foreign: f64,
}

impl Cpu {
    /// What the transfer cost both sides.
    pub fn both_sides(&self) -> f64 {
        self.client + self.server + self.kernel
    }
}

/// Packets of one transfer, counted with offloads off; all frames, TCP or not.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Wire {
    /// Transfers that were counted; this is the one with the median octets.
    pub captures: u32,
    /// Transfers more, left out because capture and interface disagreed.
    #[serde(default)]
    pub recounted: u32,
    /// Octets of all frames, Ethernet headers included.
    pub bytes: u64,
    /// Of these, in the direction of the file.
    pub file_direction_bytes: u64,
    /// Of these, in the other direction: acknowledgements, mostly.
    pub ack_direction_bytes: u64,
    /// Frames, both directions.
    pub packets: u64,
    /// Octets of the largest frame, Ethernet header included.
    pub largest_frame_bytes: u32,
    /// File over what passed in its direction, per cent; null without a file.
    pub payload_efficiency_pct: Option<f64>,
    /// Octets of a full packet that are not the file's; null below 100 of them.
    pub header_bytes_per_packet: Option<f64>,
    /// Before the first octet of the file.
    pub round_trips: Option<u32>,
    /// TCP connections.
    pub connections: u32,
    /// TLS handshakes or SSH key exchanges.
    pub handshakes: u32,
    /// Handshakes that took a round trip more, for another key share.
    pub hello_retries: u32,
    /// Commands that the server refused in the clear (FTP's 5xx replies), each a round
    /// trip for nothing.
    #[serde(default)]
    pub refused_commands: u32,
    /// The handshake on the connection to the service,
    #[serde(default)]
    pub first_handshake: Option<SetUp>,
    /// and on the first data connection (FTPS).
    #[serde(default)]
    pub data_handshake: Option<SetUp>,
}

/// What the accounting runs were checked for; one that fails ends the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Accounting {
    /// Transfers of which every frame was captured, over all cells.
    pub captures: u32,
    /// Frames that a capture lost.
    pub capture_drops: u64,
    /// Whether frames and octets were those that the interface counted.
    pub counters_agree: bool,
    /// Transfers more, left out because they were not.
    #[serde(default)]
    pub recounted: u32,
}

/// What was found of one stack when the wire was searched for the content of its files.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClearText {
    /// Name of the stack.
    pub stack: String,
    /// Whether it says that it encrypts.
    pub secured: bool,
    /// Whether the file's content was seen on the wire.
    pub marker_seen: bool,
    /// Of all frames, both ways.
    pub octets_searched: u64,
}

/// The packets of one accounted transfer, in a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptCapture {
    /// Name of the stack.
    pub stack: String,
    /// Name of the workload.
    pub workload: String,
    /// Octets of one file.
    pub size_bytes: u64,
    /// In the folder of the results: a pcap file with times in nanoseconds.
    pub file: String,
    /// Frames, those that `wire` counts.
    pub packets: u64,
    /// Octets of each frame that were kept at most.
    pub snaplen: u32,
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
    /// Blocks in which stack and baseline were both measured.
    #[serde(default)]
    pub overhead_n: usize,
    pub overhead_pct: Option<f64>,
    pub overhead_ci95_pct: Option<[f64; 2]>,
    pub session_mean_s: Option<f64>,
    #[serde(default)]
    pub session_ci95_s: Option<[f64; 2]>,
    pub session_overhead_pct: Option<f64>,
    pub session_overhead_ci95_pct: Option<[f64; 2]>,
    pub goodput_bps: Option<f64>,
    pub cpu_seconds: Option<f64>,
    pub limited_by: Option<String>,
    pub not_shaped: bool,
    /// Of the `n`, samples flagged as outliers; they count.
    #[serde(default)]
    pub outliers: usize,
    /// RFC 6349's three measures beside our own; null for what is no file
    /// transfer.
    #[serde(default)]
    pub rfc6349: Option<Rfc6349>,
}

/// The measures of RFC 6349, section 4.1.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "documented in docs/results.md")]
pub struct Rfc6349 {
    pub ideal_s: Option<f64>,
    pub transfer_time_ratio: Option<f64>,
    pub tcp_efficiency_pct: Option<f64>,
    pub buffer_delay_pct: Option<f64>,
}

/// What one carries to another link.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "documented in docs/results.md")]
pub struct Portable {
    pub stack: String,
    pub baseline: Option<String>,
    pub round_trips: Option<u32>,
    pub extra_bytes_per_mb: Option<f64>,
    /// Octets that a link carries for each octet of file, framing counted.
    #[serde(default)]
    pub line_bytes_per_byte: Option<f64>,
    pub cpu_seconds_per_gb: Option<f64>,
    pub fixed_s: Option<f64>,
    pub seconds_per_gb: Option<f64>,
    pub fill_bps: Option<f64>,
    /// Of `fixed_s`, what is not spent waiting for round trips.
    #[serde(default)]
    pub work_s: Option<f64>,
    /// What the application may have in flight.
    #[serde(default)]
    pub window_bytes: Option<u64>,
}

/// Time against size of one stack doing one workload on one link: what a
/// transfer costs however small, and what a gigabyte costs beyond that.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "documented in docs/results.md")]
pub struct Model {
    pub link: String,
    pub stack: String,
    pub workload: String,
    /// `transfer` or `session`.
    pub clock: String,
    /// Blocks of the size that has the fewest.
    #[serde(default)]
    pub n: usize,
    pub fixed_s: f64,
    pub fixed_ci95_s: Option<[f64; 2]>,
    pub seconds_per_gb: f64,
    pub seconds_per_gb_ci95: Option<[f64; 2]>,
    /// One row a size.
    pub points: Vec<ModelPoint>,
    /// One row a sample.
    pub residuals: Vec<Residual>,
    /// Null for a baseline: the studies' line is one of overheads.
    pub aic_cost: Option<f64>,
    pub aic_log_line: Option<f64>,
    /// Overhead in per cent = intercept + slope · ln(size in octets).
    pub log_line: Option<LogLine>,
    /// `cost` or `log-line`, whichever has the smaller AICc.
    pub preferred: Option<String>,
}

/// A model beside what was measured at one size.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct ModelPoint {
    /// Octets of the file.
    pub size_bytes: u64,
    /// Geometric mean.
    pub measured_s: f64,
    /// By the model.
    pub modelled_s: f64,
    /// Of that, the known time in which slow start waited (0 without delay).
    pub slow_start_s: f64,
}

/// How far a sample lies from its model.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Residual {
    /// Octets of the file.
    pub size_bytes: u64,
    /// The paired block.
    pub block: u32,
    /// ln(measured / modelled).
    pub log_ratio: f64,
}

/// A line over the natural logarithm of the size: the studies' form.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct LogLine {
    /// Overhead in per cent at one octet.
    pub intercept_pct: f64,
    /// Points for each factor e of size.
    pub slope_pct: f64,
}

/// The size at which two stacks' models cross.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Crossover {
    /// Name of the link.
    pub link: String,
    /// Kind of the workload.
    pub workload: String,
    /// `transfer` or `session`.
    pub clock: String,
    /// The faster stack below the size.
    pub below: String,
    /// The faster stack above it.
    pub above: String,
    /// Blocks of the size that has the fewest.
    #[serde(default)]
    pub n: usize,
    /// Octets.
    pub size_bytes: f64,
    /// 95 % interval; an end that lies beyond what was measured is null.
    pub ci95_bytes: [Option<f64>; 2],
    /// Whether each stack is the faster one on its side beyond doubt.
    pub significant: bool,
}

/// A session time foretold from the main link, and what came of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "documented in docs/results.md")]
pub struct Prediction {
    pub link: String,
    pub stack: String,
    pub workload: String,
    pub size_bytes: u64,
    pub predicted_s: f64,
    pub measured_s: f64,
    /// (predicted − measured) / measured, × 100.
    pub error_pct: f64,
}

/// A layer brought up from nothing, several times, on the main link.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LayerSetup {
    /// Name of the stack.
    pub stack: String,
    /// Name of the layer; a stack may have one twice.
    pub layer: String,
    /// Packets of the handshake, both directions; the median of all.
    pub packets: u64,
    /// Octets of these, Ethernet headers included.
    pub bytes: u64,
    /// Times that the client spoke and the server answered.
    pub round_trips: u32,
    /// First packet to last, one for each time.
    pub seconds: Vec<f64>,
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
