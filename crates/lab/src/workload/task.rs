//! The task of one client process.

use std::path::PathBuf;

/// The times at which datagrams are sent.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Sending {
    /// As fast as they arrive.
    AsArrives,
    /// At a rate per second.
    Paced(f64),
    /// Each when the one before has returned.
    Echo,
    /// At a rate per second, as a stream that is followed packet by packet.
    Realtime {
        /// Datagrams a second.
        per_second: f64,
        /// Start and end of TCP cross traffic, in seconds.
        cross_traffic: Option<(u32, u32)>,
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
        /// Its destination.
        local: PathBuf,
    },
    /// Send one file.
    Upload {
        /// The file to send.
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
        /// A file to send in place of bytes without a meaning.
        content: Option<PathBuf>,
    },
    /// Send datagrams.
    Datagrams {
        /// The time at which each is sent.
        sending: Sending,
        /// Bytes of each.
        size: u64,
        /// For how long.
        seconds: u32,
        /// A file whose content they have, in place of bytes without a meaning.
        content: Option<PathBuf>,
    },
}
