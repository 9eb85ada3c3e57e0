//! The kinds of work, and how results name a workload.

use serde::Deserialize;

use super::Pace;

/// The kinds of work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// One file from server to client.
    Download,
    /// One file from client to server.
    Upload,
    /// A folder of many small files from server to client, in one session.
    Many,
    /// The same download by several clients at once.
    Parallel,
    /// A list of commands, each waiting for the answer to the one before.
    Commands,
    /// One small page over HTTP or HTTPS.
    Page,
    /// As much over one TCP connection as goes, for some seconds, from client to server.
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
pub const KINDS: [Kind; 11] = [
    Kind::Download,
    Kind::Upload,
    Kind::Many,
    Kind::Parallel,
    Kind::Commands,
    Kind::Page,
    Kind::Stream,
    Kind::Packets,
    Kind::Echo,
    Kind::Setup,
    Kind::Realtime,
];

/// What a stream's time is told for: one GiB of it.
pub const STREAM_UNIT: u64 = 1 << 30;

impl Kind {
    /// The name in plans and results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Download => "download",
            Self::Upload => "upload",
            Self::Many => "many",
            Self::Parallel => "parallel",
            Self::Commands => "commands",
            Self::Page => "page",
            Self::Stream => "stream",
            Self::Packets => "packets",
            Self::Echo => "echo",
            Self::Setup => "setup",
            Self::Realtime => "realtime",
        }
    }

    /// The kind of a workload that has this name in results ([`workload_name`]).
    pub fn of(workload: &str) -> Option<Self> {
        let kind = workload.split_once('(').map_or(workload, |(kind, _)| kind);
        KINDS.into_iter().find(|known| known.name() == kind)
    }

    /// Whether it is one or more files that are moved and verified.
    pub fn moves_files(self) -> bool {
        matches!(self, Self::Download | Self::Upload | Self::Many | Self::Parallel)
    }

    /// Whether it goes on for a time, in place of moving files.
    pub fn is_timed(self) -> bool {
        matches!(self, Self::Stream) || self.is_datagrams()
    }

    /// Whether it is of datagrams, which the load's own ends count.
    pub fn is_datagrams(self) -> bool {
        matches!(self, Self::Packets | Self::Echo | Self::Realtime)
    }

    /// Whether what it moves goes from client to server; what goes both ways alike does not.
    pub fn goes_up(self) -> bool {
        matches!(self, Self::Upload | Self::Stream | Self::Packets | Self::Realtime)
    }

    /// One line for `headroom lab list`.
    pub fn about(self) -> &'static str {
        match self {
            Self::Download => {
                "one file from server to client (content = text or binary, transfers-per-sample = N)"
            }
            Self::Upload => "one file from client to server",
            Self::Many => "a folder of 10 000 × 1 KiB in one session (files = N)",
            Self::Parallel => "the same download by 4 clients at once (clients = N)",
            Self::Commands => {
                "a list of commands, each waiting for the last one's answer (commands = [...]; {local}, \
                 {remote} and {new} are paths of small files)"
            }
            Self::Page => "one small page over HTTP or HTTPS",
            Self::Stream => "one TCP stream for 5 s (seconds = N); its time is that of 1 GiB",
            Self::Packets => {
                "as many datagrams as arrive for 3 s, or at a rate (rate = \"100pps\"); the time is that of one"
            }
            Self::Echo => "one datagram there and back at a time for 3 s; the time is the median",
            Self::Setup => {
                "setting up a stack's outermost layer from nothing, apart from any transfer"
            }
            Self::Realtime => {
                "an RTP stream for 10 s (rate = \"1mbit\", cross-traffic = \"bulk\"): loss, delay, jitter over time"
            }
        }
    }

    /// Octets of each file or datagram, where a plan does not say.
    pub fn default_sizes(self) -> Vec<u64> {
        match self {
            Self::Download | Self::Upload => vec![1 << 10, 1 << 20, 256 << 20],
            Self::Many => vec![1 << 10],
            Self::Parallel => vec![64 << 20],
            Self::Commands | Self::Setup => vec![0],
            Self::Page => vec![4 << 10],
            Self::Stream => vec![STREAM_UNIT],
            Self::Packets => vec![64, 512, 1400],
            Self::Echo => vec![64],
            Self::Realtime => vec![1000],
        }
    }

    /// How fast it is sent, where a plan does not say and it must be said.
    pub fn default_rate(self) -> Option<Pace> {
        (self == Self::Realtime).then_some(Pace::Bits(1_000_000))
    }

    /// How long it goes on, where a plan does not say.
    pub fn default_seconds(self) -> u32 {
        match self {
            Self::Stream => 5,
            Self::Realtime => 10,
            _ => 3,
        }
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
