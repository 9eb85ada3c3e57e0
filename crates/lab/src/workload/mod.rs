//! What a stack is asked to do, and how one knows that it did it.

mod files;
mod filling;

use std::path::PathBuf;

use serde::Deserialize;

pub(crate) use files::{Content, Payloads, make, tree_name, verify};
pub use filling::Filling;

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
    /// As many datagrams as arrive, for some seconds, from client to server.
    Packets,
    /// One datagram at a time, there and back, for some seconds.
    Echo,
    /// The outermost layer that negotiates, from nothing to where data can pass.
    Setup,
}

/// All kinds, in the order in which they are listed.
pub const KINDS: [Kind; 10] = [
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
        matches!(self, Self::Stream | Self::Packets | Self::Echo)
    }

    /// Whether it is of datagrams, which the load's own ends count.
    pub fn is_datagrams(self) -> bool {
        matches!(self, Self::Packets | Self::Echo)
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
            Self::Packets => "as many datagrams as arrive for 3 s; the time is that of one",
            Self::Echo => "one datagram there and back at a time for 3 s; the time is the median",
            Self::Setup => {
                "setting up a stack's outermost layer from nothing, apart from any transfer"
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
        }
    }

    pub(crate) fn default_seconds(self) -> u32 {
        if self == Self::Stream { 5 } else { 3 }
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
    /// How long it goes on (`stream`, `packets`, `echo`).
    pub seconds: u32,
    /// What is in the files.
    pub content: Filling,
    /// Transfers one after the other in a sample, whose mean it is (`download`,
    /// `upload`); none: as many as it takes to be measured well.
    pub in_a_row: Option<u32>,
}

/// Clients at once, where a plan does not say.
pub const CLIENTS: u32 = 4;

impl Workload {
    /// One that does as little as its kind can, with files of chance.
    pub(crate) fn new(kind: Kind, sizes: Vec<u64>, stacks: Vec<String>) -> Self {
        let (commands, content, in_a_row) = (None, Filling::default(), None);
        Self { kind, sizes, stacks, files: 1, clients: 1, commands, seconds: 1, content, in_a_row }
    }

    /// The name in results: the kind, and in brackets what tells it from others of its
    /// kind in one plan, if that is not default: `parallel(clients=16)`,
    /// `download(text)`, `upload(in-a-row=20)`.
    pub fn name(&self) -> String {
        let content = Some(self.content).filter(|content| *content != Filling::default());
        let clients = (self.kind == Kind::Parallel).then_some(self.clients);
        named(self.kind.name(), content.map(Filling::name), clients, self.in_a_row)
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
) -> String {
    let clients = clients.filter(|&clients| clients != CLIENTS);
    let words = [
        content.map(str::to_owned),
        clients.map(|clients| format!("clients={clients}")),
        in_a_row.map(|count| format!("in-a-row={count}")),
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

/// One thing for one client process to do, in the terms of files: `remote` is
/// relative to the folder that the server serves.
#[derive(Debug, Clone, PartialEq, Eq)]
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
        /// Whether each comes back before the next is sent.
        echo: bool,
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
