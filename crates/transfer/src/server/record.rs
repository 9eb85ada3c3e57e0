//! Records of requests, for a server's log.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use headroom_transfer_proto::message::Message;
use headroom_transfer_proto::path::RelPath;

use crate::delivery::{Event, Observer};
use crate::error::Error;
use crate::key::Fingerprint;

/// Receives a record of each request when it has ended. Called from several threads.
pub trait Log: Send + Sync + std::fmt::Debug {
    /// Logs a request that has ended.
    fn ended(&self, record: &Record<'_>);
}

/// One request of a client.
#[derive(Debug, Clone)]
pub struct Record<'a> {
    /// When it began.
    pub began: SystemTime,
    /// How long it took.
    pub took: Duration,
    /// The comment of the client's key in `authorized_keys`.
    pub client: Option<&'a str>,
    /// The client's key, if it has proven one.
    pub key: Option<Fingerprint>,
    /// The ID of the share whose link the client uses, or that it has made or revoked.
    pub share: Option<&'a str>,
    /// The client's address.
    pub address: SocketAddr,
    /// The operation.
    pub operation: &'static str,
    /// The paths in the request, below the client's root, with a leading `/`. With a share link,
    /// below the server's root.
    pub paths: &'a [Vec<u8>],
    /// Bytes of files that were sent or received.
    pub bytes: u64,
    /// Files, directories and links that were stored, on either side.
    pub stored: u64,
    /// Those that failed.
    pub failed: u64,
    /// How it ended.
    pub outcome: Outcome,
    /// The reason for a failure.
    pub reason: Option<&'a str>,
}

/// How a request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// All was done.
    Done,
    /// Some files failed, or a named file is missing or cannot be read or written.
    Failed,
    /// The client may not do this.
    Refused,
    /// The connection was lost.
    Lost,
    /// The client violated the protocol.
    Protocol,
}

impl Outcome {
    /// Returns its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Refused => "refused",
            Self::Lost => "lost",
            Self::Protocol => "protocol",
        }
    }

    pub(super) fn of(outcome: &Result<(), Error>, failed: u64) -> Self {
        match outcome {
            Ok(()) if failed == 0 => Self::Done,
            Ok(()) => Self::Failed,
            Err(Error::Refused(_) | Error::Denied { .. }) => Self::Refused,
            Err(Error::Lost(_) | Error::Interrupted(_)) => Self::Lost,
            Err(Error::Protocol(_)) => Self::Protocol,
            Err(_) => Self::Failed,
        }
    }
}

/// Counts what a request moves, also if it fails.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) bytes: AtomicU64,
    pub(super) stored: AtomicU64,
    pub(super) failed: AtomicU64,
}

impl Observer for Tally {
    fn event(&self, event: Event<'_>) {
        let (count, by) = match event {
            Event::Moved { bytes } => (&self.bytes, bytes),
            Event::Stored { .. } => (&self.stored, 1),
            _ => return,
        };
        count.fetch_add(by, Ordering::Relaxed);
    }
}

/// Returns a request's operation and paths.
pub(super) fn named(request: &Message) -> (&'static str, Vec<Vec<u8>>) {
    let one = |path: Option<&RelPath>| {
        vec![path.map_or_else(|| b"/".to_vec(), |path| [b"/", path.as_bytes()].concat())]
    };
    match request {
        Message::Put { to, .. } => ("put", one(to.as_ref())),
        Message::Get { from, .. } => {
            let paths = from.iter().flat_map(|wanted| one(wanted.path.as_ref()));
            ("get", paths.collect())
        }
        Message::Sync { path, upload: true, .. } => ("sync-to", one(path.as_ref())),
        Message::Sync { path, .. } => ("sync-from", one(path.as_ref())),
        Message::PutStream { to, .. } => ("put", one(Some(to))),
        Message::GetStream { from, .. } => ("get", one(Some(from))),
        Message::List { path } => ("ls", one(path.as_ref())),
        Message::MakeDirectory { path, .. } => ("mkdir", one(Some(path))),
        Message::Rename { from, to, .. } => ("mv", [one(Some(from)), one(to.as_ref())].concat()),
        Message::Remove { path, .. } => ("rm", one(Some(path))),
        Message::Rights => ("sign-in", Vec::new()),
        Message::Share { path, .. } => ("share", one(path.as_ref())),
        Message::Shares => ("shares", Vec::new()),
        Message::Revoke { .. } => ("revoke", Vec::new()),
        Message::Join { .. } => ("join", Vec::new()),
        _ => ("unknown", Vec::new()),
    }
}
