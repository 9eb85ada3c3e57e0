//! A measured sample.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Phases, SetUp, StreamStats, Tcp};

/// One measured sample: one transfer, or the mean of a batch of small ones.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Sample {
    /// Name of the link.
    pub link: String,
    /// Name of the stack.
    pub stack: String,
    /// Name of the workload.
    pub workload: String,
    /// Bytes of each file.
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
    /// Time of the session in each phase.
    pub phases: Option<Phases>,
    /// The handshake on the connection to the application, first packet to last, without
    /// TCP's own.
    #[serde(default)]
    pub first_handshake_seconds: Option<f64>,
    /// The same on the first data connection (FTPS).
    #[serde(default)]
    pub data_handshake_seconds: Option<f64>,
    /// Updates of a layer's keys during a transfer; none where none were asked for.
    #[serde(default)]
    pub key_updates: Option<f64>,
    /// CPU time of the server's processes while a layer was set up (the workload `setup`). The
    /// client's is that of programs that start, more than all else.
    #[serde(default)]
    pub set_up_server_cpu_seconds: Option<f64>,
    /// CPU time of one transfer.
    pub cpu_seconds: Option<Cpu>,
    /// Of the whole machine.
    pub cpu_idle_pct: Option<f64>,
    /// CPU steal.
    pub steal_pct: Option<f64>,
    /// Background load: CPU of processes outside the run.
    pub background_pct: Option<f64>,
    /// Counted in the accounting run of this cell.
    pub wire: Option<Wire>,
    /// TCP in the file's direction, per transfer.
    #[serde(default)]
    pub tcp: Option<Tcp>,
    /// Amount and duration of a load.
    #[serde(default)]
    pub load: Option<Load>,
    /// How evenly clients at once shared the way (`parallel`): Jain's index of their
    /// rates, from 1/n, where one had it all, to 1.
    #[serde(default)]
    pub fairness: Option<f64>,
    /// Sessions of a closed loop.
    #[serde(default)]
    pub sessions: Option<Sessions>,
    /// How busy both sides and the link were, and what passed it; null between two real
    /// machines.
    #[serde(default)]
    pub usage: Option<Usage>,
    /// Statistics of a real-time stream.
    #[serde(default)]
    pub realtime: Option<StreamStats>,
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
    /// Why this block's figures are doubtful (`background load 7.2 %`). The lab repeats such a block
    /// as long as repeats are left.
    pub disturbed: Option<String>,
    /// The programs that took the most of the machine during such a block, per cent each; one
    /// machine only, without those that ended meanwhile.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub disturbed_by: BTreeMap<String, f64>,
    /// Its transfer took less than [`UNSHAPED_S`] on a link made by a token bucket; its
    /// session may have taken longer.
    pub not_shaped: bool,
    /// Why it failed.
    pub error: Option<String>,
}

/// Seconds below which a token bucket lets pass undelayed so much of a transfer that its
/// time says little of the link.
pub const UNSHAPED_S: f64 = 0.1;

/// Amount and duration of a `stream`, `packets` or `echo`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Load {
    /// The time, by the clock that `seconds` of the sample is from.
    pub measured_s: Option<f64>,
    /// Bytes of payload that arrived (`stream`).
    pub bytes: Option<u64>,
    /// Datagrams that arrived (`packets`), round trips (`echo`).
    pub packets: Option<u64>,
    /// Datagrams that did not.
    pub lost: Option<u64>,
    /// The round trip that one in a hundred exceeds (`echo`).
    pub p99_s: Option<f64>,
}

/// Sessions of a closed loop in a sample, of all clients together. Durations are from start to
/// end of the client's process, of the sessions that succeeded.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Sessions {
    /// Clients at once.
    pub clients: u32,
    /// Sessions that succeeded.
    pub count: u32,
    /// Sessions that failed.
    pub failed: u32,
    /// Why the first of them failed.
    pub first_failure: Option<String>,
    /// Sessions per second: for each client those that succeeded over the time until its last
    /// one ended, added up.
    pub per_s: f64,
    /// Arithmetic mean of the durations.
    pub mean_s: f64,
    /// Their median.
    pub p50_s: f64,
    /// Their 99th percentile, by nearest rank; null for fewer than 100 sessions.
    pub p99_s: Option<f64>,
    /// The longest.
    pub max_s: f64,
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
    /// The whole machine.
    pub machine: f64,
    /// Background load: processes outside the run.
    pub background: f64,
}

impl Cpu {
    /// CPU time of both sides.
    pub fn both_sides(&self) -> f64 {
        self.client + self.server + self.kernel
    }
}

/// Packets of one transfer, counted with offloads off; all frames, TCP or not.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Wire {
    /// Transfers that were counted; all but the round trips is of the one with the median bytes.
    pub captures: u32,
    /// Transfers that were discarded and repeated, because capture and interface disagreed.
    #[serde(default)]
    pub recounted: u32,
    /// Bytes of all frames, Ethernet headers included.
    pub bytes: u64,
    /// Of these, in the direction of the file.
    pub file_direction_bytes: u64,
    /// Of these, in the other direction: acknowledgements, mostly.
    pub ack_direction_bytes: u64,
    /// Frames, both directions.
    pub packets: u64,
    /// Bytes of the largest frame, Ethernet header included.
    pub largest_frame_bytes: u32,
    /// File over what passed in its direction, per cent; null without a file.
    pub payload_efficiency_pct: Option<f64>,
    /// Bytes of a full packet that are not the file's; null below 100 full packets.
    pub header_bytes_per_packet: Option<f64>,
    /// Round trips before the first byte of the file: the fewest of all transfers counted.
    pub round_trips: Option<u32>,
    /// Round trips after the last packet of the file, until completion: the fewest, too.
    #[serde(default)]
    pub round_trips_after: Option<u32>,
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
    /// The handshake on the connection to the application.
    #[serde(default)]
    pub first_handshake: Option<SetUp>,
    /// The handshake on the first data connection (FTPS).
    #[serde(default)]
    pub data_handshake: Option<SetUp>,
}

/// Utilisation of both sides and the link during a sample.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Usage {
    /// Bytes of frames that left the link towards the client, per transfer, Ethernet
    /// headers included.
    pub to_client_bytes: f64,
    /// The same towards the server.
    pub to_server_bytes: f64,
    /// Whole bins of a quarter of a second.
    pub bins: usize,
    /// Lowest and highest CPU of the client's processes in a bin, per cent of one core;
    /// null without a whole bin, as below.
    pub client_pct: Option<[f64; 2]>,
    /// The same of the server's.
    pub server_pct: Option<[f64; 2]>,
    /// Lowest and highest share of the link's rate that was used in a bin, in the file's
    /// direction, framing counted, per cent; null on an unshaped link, too.
    pub link_pct: Option<[f64; 2]>,
}
