//! What a stack is asked to do, and how one knows that it did it.

mod files;
mod filling;
mod pace;

use std::path::PathBuf;

use serde::Deserialize;

pub(crate) use files::{Content, Payloads, make, tree_name, verify};
pub use filling::Filling;
pub use pace::{Beside, Pace};

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

    /// The kind of a workload that has this name in results ([`Workload::name`]).
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
                "one file from server to client (content = text or binary, in-a-row = N)"
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
                "an RTP stream for 10 s (rate = \"1mbit\", beside = \"bulk\"): loss, delay, jitter over time"
            }
        }
    }

    pub(crate) fn default_sizes(self) -> Vec<u64> {
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
    pub(crate) fn default_rate(self) -> Option<Pace> {
        (self == Self::Realtime).then_some(Pace::Bits(1_000_000))
    }

    pub(crate) fn default_seconds(self) -> u32 {
        match self {
            Self::Stream => 5,
            Self::Realtime => 10,
            _ => 3,
        }
    }
}

/// One workload of a plan.
#[derive(Debug, Clone)]
pub struct Workload {
    /// What is done.
    pub kind: Kind,
    /// Octets of each file, or of each datagram; `[0]` for commands.
    pub sizes: Vec<u64>,
    /// Names of the stacks that do it.
    pub stacks: Vec<String>,
    /// Files in the folder (`many`).
    pub files: u32,
    /// Clients at once (`parallel`).
    pub clients: u32,
    /// Commands to run; none: the service's own list.
    pub commands: Option<Vec<String>>,
    /// How long it goes on (`stream`, `packets`, `echo`, `realtime`).
    pub seconds: u32,
    /// What is in the files.
    pub content: Filling,
    /// Transfers one after the other in a sample, whose mean it is (`download`,
    /// `upload`); none: as many as it takes to be measured well.
    pub in_a_row: Option<u32>,
    /// How fast it is sent (`packets`, `realtime`); none: as fast as it arrives.
    pub rate: Option<Pace>,
    /// What goes beside it (`realtime`).
    pub beside: Option<Beside>,
}

/// Clients at once, where a plan does not say.
pub const CLIENTS: u32 = 4;

impl Workload {
    /// One that does as little as its kind can, with files of chance.
    pub(crate) fn new(kind: Kind, sizes: Vec<u64>, stacks: Vec<String>) -> Self {
        Self {
            kind,
            sizes,
            stacks,
            files: 1,
            clients: 1,
            commands: None,
            seconds: 1,
            content: Filling::default(),
            in_a_row: None,
            rate: None,
            beside: None,
        }
    }

    /// The name in results: the kind, and in brackets what tells it from others of its
    /// kind in one plan, if that is not default: `parallel(clients=16)`,
    /// `download(text)`, `upload(in-a-row=20)`.
    pub fn name(&self) -> String {
        let content = Some(self.content).filter(|content| *content != Filling::default());
        let clients = (self.kind == Kind::Parallel).then_some(self.clients);
        let rate = self.rate.filter(|&rate| Some(rate) != self.kind.default_rate());
        let (rate, beside) =
            (rate.map(|rate| rate.to_string()), self.beside.map(|beside| beside.to_string()));
        named(self.kind.name(), content.map(Filling::name), clients, self.in_a_row, [rate, beside])
    }

    /// How its datagrams of `size` octets are sent, where it is of datagrams.
    pub(crate) fn sending(&self, size: u64) -> Option<Sending> {
        let per_second = self.rate.map(|rate| rate.per_second(size));
        match (self.kind, per_second) {
            (Kind::Packets, None) => Some(Sending::AsArrives),
            (Kind::Packets, Some(per_second)) => Some(Sending::Paced(per_second)),
            (Kind::Echo, _) => Some(Sending::Echo),
            (Kind::Realtime, Some(per_second)) => {
                let beside = self.beside.map(|beside| beside.time(self.seconds));
                Some(Sending::Realtime { per_second, beside })
            }
            _ => None,
        }
    }

    /// Octets of file that one transfer of `size` moves in all.
    pub fn octets(&self, size: u64) -> u64 {
        match self.kind {
            Kind::Many => size * u64::from(self.files),
            Kind::Parallel => size * u64::from(self.clients),
            _ => size,
        }
    }
}

/// The name in results of a workload of that kind, with what is not default of it.
pub(crate) fn named(
    kind: &str,
    content: Option<&str>,
    clients: Option<u32>,
    in_a_row: Option<u32>,
    [rate, beside]: [Option<String>; 2],
) -> String {
    let clients = clients.filter(|&clients| clients != CLIENTS);
    let words = [
        content.map(str::to_owned),
        clients.map(|clients| format!("clients={clients}")),
        in_a_row.map(|count| format!("in-a-row={count}")),
        rate.map(|rate| format!("rate={rate}")),
        beside.map(|beside| format!("beside={beside}")),
    ];
    let words: Vec<String> = words.into_iter().flatten().collect();
    if words.is_empty() { kind.to_owned() } else { format!("{kind}({})", words.join(",")) }
}

/// The name that results have for a workload whose name says what is default, too.
pub fn canonical(name: &str) -> String {
    let Some((kind, words)) = name.strip_suffix(')').and_then(|name| name.split_once('(')) else {
        return name.to_owned();
    };
    let default = [format!("clients={CLIENTS}"), Filling::default().name().to_owned()];
    let words: Vec<&str> = words.split(',').map(str::trim).collect();
    let told: Vec<&str> =
        words.into_iter().filter(|word| !default.iter().any(|d| d == word)).collect();
    if told.is_empty() { kind.to_owned() } else { format!("{kind}({})", told.join(",")) }
}

/// When datagrams are sent.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Sending {
    /// As many as arrive.
    AsArrives,
    /// So many a second.
    Paced(f64),
    /// Each when the one before has returned.
    Echo,
    /// So many a second, as a stream that is followed packet by packet.
    Realtime {
        /// Datagrams a second.
        per_second: f64,
        /// From which second to which a TCP connection goes beside it.
        beside: Option<(u32, u32)>,
    },
}

/// One thing for one client process to do, in the terms of files: `remote` is
/// relative to the folder that the server serves.
#[derive(Debug, Clone, PartialEq)]
pub enum Task {
    /// Fetch one file.
    Download {
        /// Name on the server.
        remote: String,
        /// Where it goes.
        local: PathBuf,
    },
    /// Send one file.
    Upload {
        /// What is sent.
        local: PathBuf,
        /// Name on the server, not there yet.
        remote: String,
    },
    /// Fetch a folder of files, in one session.
    DownloadTree {
        /// Name of the folder on the server.
        remote: String,
        /// Names of the files in it.
        names: Vec<String>,
        /// The folder they go to; exists and is empty.
        local: PathBuf,
    },
    /// Run commands one after the other.
    Commands(Vec<String>),
    /// Send as much as goes over one connection.
    Stream {
        /// For how long; of no meaning for a file.
        seconds: u32,
        /// A file to send in place of octets without a meaning.
        content: Option<PathBuf>,
    },
    /// Send datagrams.
    Datagrams {
        /// When each is sent.
        sending: Sending,
        /// Octets of each.
        size: u64,
        /// For how long.
        seconds: u32,
        /// A file whose content they have, in place of octets without a meaning.
        content: Option<PathBuf>,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_what_is_not_default_and_tells_its_kind() {
        let one = Workload::new(Kind::Parallel, vec![1], Vec::new());
        let plain = Workload { clients: CLIENTS, ..one };
        let crowd = Workload { clients: 16, content: Filling::Text, ..plain.clone() };
        let row = Workload { kind: Kind::Upload, in_a_row: Some(20), ..plain.clone() };
        let names = [&plain, &crowd, &row].map(Workload::name);
        assert_eq!(names, ["parallel", "parallel(text,clients=16)", "upload(in-a-row=20)"]);
        for (name, kind) in names.iter().zip([Kind::Parallel, Kind::Parallel, Kind::Upload]) {
            assert_eq!(Kind::of(name), Some(kind));
        }
        assert_eq!(Kind::of("sleep"), None);
        for (written, name) in [
            ("parallel(clients=4)", "parallel"),
            ("parallel(text, clients=4)", "parallel(text)"),
            ("download(random)", "download"),
            ("download", "download"),
        ] {
            assert_eq!(canonical(written), name);
        }
    }
}
