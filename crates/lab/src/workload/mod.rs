//! What a stack is asked to do, and how one knows that it did it.

mod files;

use std::path::PathBuf;

use serde::Deserialize;

pub(crate) use files::{Content, Payloads, make, tree_name, verify};

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
}

/// All kinds, in the order in which they are listed.
pub const KINDS: [Kind; 9] = [
    Kind::Download,
    Kind::Upload,
    Kind::Many,
    Kind::Parallel,
    Kind::Commands,
    Kind::Page,
    Kind::Stream,
    Kind::Packets,
    Kind::Echo,
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
        }
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
            Self::Download => "one file from server to client",
            Self::Upload => "one file from client to server",
            Self::Many => "a folder of 10 000 × 1 KiB in one session (files = N)",
            Self::Parallel => "the same download by 4 clients at once (clients = N)",
            Self::Commands => "a list of commands, each waiting for the last one's answer",
            Self::Page => "one small page over HTTP or HTTPS",
            Self::Stream => "one TCP stream for 5 s (seconds = N); its time is that of 1 GiB",
            Self::Packets => "as many datagrams as arrive for 3 s; the time is that of one",
            Self::Echo => "one datagram there and back at a time for 3 s; the time is the median",
        }
    }

    pub(crate) fn default_sizes(self) -> Vec<u64> {
        match self {
            Self::Download | Self::Upload => vec![1 << 10, 1 << 20, 256 << 20],
            Self::Many => vec![1 << 10],
            Self::Parallel => vec![64 << 20],
            Self::Commands => vec![0],
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
}

impl Workload {
    /// Octets of file that one transfer of `size` moves in all.
    pub fn octets(&self, size: u64) -> u64 {
        match self.kind {
            Kind::Many => size * u64::from(self.files),
            Kind::Parallel => size * u64::from(self.clients),
            _ => size,
        }
    }
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
