//! The kinds of work, and how results name a workload.

use serde::Deserialize;

use super::Pace;

/// The kinds of work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WorkloadKind {
    /// One file from server to client.
    Download,
    /// One file from client to server.
    Upload,
    /// A folder of many small files from server to client, in one session.
    Many,
    /// The same download by several clients at once.
    Parallel,
    /// Downloads by several clients at once, each in a session of its own after the one before,
    /// for some seconds.
    Sessions,
    /// A list of commands, each waiting for the answer to the one before.
    Commands,
    /// One small page over HTTP or HTTPS.
    Page,
    /// Bulk data over one TCP connection, for some seconds, from client to server.
    Stream,
    /// As many datagrams as arrive, or so many a second, for some seconds, from client
    /// to server.
    Packets,
    /// One datagram at a time, there and back, for some seconds.
    Echo,
    /// The outermost layer that negotiates, from nothing to where data can pass.
    Setup,
    /// A real-time stream at a steady rate, for some seconds, from client to server.
    Realtime,
}

/// All kinds, in the order in which they are listed.
pub const WORKLOAD_KINDS: [WorkloadKind; 12] = [
    WorkloadKind::Download,
    WorkloadKind::Upload,
    WorkloadKind::Many,
    WorkloadKind::Parallel,
    WorkloadKind::Sessions,
    WorkloadKind::Commands,
    WorkloadKind::Page,
    WorkloadKind::Stream,
    WorkloadKind::Packets,
    WorkloadKind::Echo,
    WorkloadKind::Setup,
    WorkloadKind::Realtime,
];

/// What the time of a sample is that of, and so what is captured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimeOf {
    /// A session on the wire, from request to completion.
    Session,
    /// [`STREAM_UNIT`] at the rate that was seen on the wire.
    Flow,
    /// The client's report; nothing is captured.
    Client,
    /// A session of a closed loop, start to end of the client's process; nothing is captured.
    Process,
    /// The set-up of a layer on the wire.
    LayerSetup,
}

/// Properties of a kind for reports.
struct Facts {
    name: &'static str,
    time: TimeOf,
    goes_up: bool,
    moves_files: bool,
}

impl Facts {
    const fn new(name: &'static str, time: TimeOf, goes_up: bool, moves_files: bool) -> Self {
        Self { name, time, goes_up, moves_files }
    }
}

/// Unit of a stream's time: one GiB.
pub const STREAM_UNIT: u64 = 1 << 30;

impl WorkloadKind {
    const fn facts(self) -> Facts {
        use TimeOf::{Client, Flow, Process, Session};
        match self {
            Self::Download => Facts::new("download", Session, false, true),
            Self::Upload => Facts::new("upload", Session, true, true),
            Self::Many => Facts::new("many", Session, false, true),
            Self::Parallel => Facts::new("parallel", Session, false, true),
            Self::Sessions => Facts::new("sessions", Process, false, true),
            Self::Commands => Facts::new("commands", Session, false, false),
            Self::Page => Facts::new("page", Session, false, false),
            Self::Stream => Facts::new("stream", Flow, true, false),
            Self::Packets => Facts::new("packets", Client, true, false),
            Self::Echo => Facts::new("echo", Client, false, false),
            Self::Setup => Facts::new("setup", TimeOf::LayerSetup, false, false),
            Self::Realtime => Facts::new("realtime", Client, true, false),
        }
    }

    /// The name in plans and results.
    pub fn name(self) -> &'static str {
        self.facts().name
    }

    /// The kind of a workload that has this name in results ([`workload_name`]).
    pub fn of(workload: &str) -> Option<Self> {
        let kind = workload.split_once('(').map_or(workload, |(kind, _)| kind);
        WORKLOAD_KINDS.into_iter().find(|known| known.name() == kind)
    }

    /// The unit of a sample's time.
    pub fn time(self) -> TimeOf {
        self.facts().time
    }

    /// Whether it is one or more files that are moved and verified.
    pub fn moves_files(self) -> bool {
        self.facts().moves_files
    }

    /// Whether it goes on for a time, rather than until its files are moved.
    pub fn is_timed(self) -> bool {
        matches!(self.time(), TimeOf::Flow | TimeOf::Client | TimeOf::Process)
    }

    /// Whether its clients start one session after the other, for a time.
    pub fn is_closed_loop(self) -> bool {
        self.time() == TimeOf::Process
    }

    /// Whether it is of datagrams, which the load's own ends count.
    pub fn is_datagrams(self) -> bool {
        self.time() == TimeOf::Client
    }

    /// Whether what it moves goes from client to server; what goes both ways alike does not.
    pub fn goes_up(self) -> bool {
        self.facts().goes_up
    }

    /// Default rate, if it needs one.
    pub fn default_rate(self) -> Option<Pace> {
        (self == Self::Realtime).then_some(Pace::Bits(1_000_000))
    }
}

/// Clients at once, where a plan does not say.
pub const CLIENTS: u32 = 4;

/// The name in results of a workload of that kind, with what is not default of it.
pub fn workload_name(
    kind: &str,
    content: Option<&str>,
    clients: Option<u32>,
    transfers_per_sample: Option<u32>,
    [rate, cross_traffic]: [Option<String>; 2],
) -> String {
    let clients = clients.filter(|&clients| clients != CLIENTS);
    let words = [
        content.map(str::to_owned),
        clients.map(|clients| format!("clients={clients}")),
        transfers_per_sample.map(|count| format!("transfers-per-sample={count}")),
        rate.map(|rate| format!("rate={rate}")),
        cross_traffic.map(|traffic| format!("cross-traffic={traffic}")),
    ];
    let words: Vec<String> = words.into_iter().flatten().collect();
    if words.is_empty() { kind.to_owned() } else { format!("{kind}({})", words.join(",")) }
}
