//! Records of requests, for a server's log and its counts.

use std::net::SocketAddr;
use std::time::{Duration, SystemTime};

use headroom_transfer_proto::message::Message;
use headroom_transfer_proto::path::RelPath;

use crate::error::Error;
use crate::files::Requests;
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
    /// Bytes of files that CRC-64/NVME verified, as the client requested. BLAKE3 verified all
    /// others.
    pub by_crc: u64,
    /// Files, directories and links that were stored, on either side.
    pub stored: u64,
    /// Those that failed.
    pub failed: u64,
    /// The requests to the object store that it took; `None` if a directory is served.
    pub store: Option<Requests>,
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
    /// All of them, in the order of their numbers.
    pub(super) const ALL: [Self; 5] =
        [Self::Done, Self::Failed, Self::Refused, Self::Lost, Self::Protocol];

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

/// Which way a server moves files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Direction {
    /// From a client.
    Received,
    /// To a client.
    Sent,
}

/// The kinds of requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operation {
    Put,
    Get,
    SyncTo,
    SyncFrom,
    List,
    MakeDirectory,
    Rename,
    Remove,
    SignIn,
    Share,
    Shares,
    Revoke,
    Join,
    /// None that a request may begin with.
    Unknown,
}

impl Operation {
    /// All of them, in the order of their numbers.
    pub(super) const ALL: [Self; 14] = [
        Self::Put,
        Self::Get,
        Self::SyncTo,
        Self::SyncFrom,
        Self::List,
        Self::MakeDirectory,
        Self::Rename,
        Self::Remove,
        Self::SignIn,
        Self::Share,
        Self::Shares,
        Self::Revoke,
        Self::Join,
        Self::Unknown,
    ];

    /// Returns the operation of a request.
    pub(super) const fn of(request: &Message) -> Self {
        match request {
            Message::Put { .. } | Message::PutStream { .. } => Self::Put,
            Message::Get { .. } | Message::GetStream { .. } => Self::Get,
            Message::Sync { upload: true, .. } => Self::SyncTo,
            Message::Sync { .. } => Self::SyncFrom,
            Message::List { .. } => Self::List,
            Message::MakeDirectory { .. } => Self::MakeDirectory,
            Message::Rename { .. } => Self::Rename,
            Message::Remove { .. } => Self::Remove,
            Message::Rights => Self::SignIn,
            Message::Share { .. } => Self::Share,
            Message::Shares => Self::Shares,
            Message::Revoke { .. } => Self::Revoke,
            Message::Join { .. } => Self::Join,
            _ => Self::Unknown,
        }
    }

    /// Returns its name.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Put => "put",
            Self::Get => "get",
            Self::SyncTo => "sync-to",
            Self::SyncFrom => "sync-from",
            Self::List => "ls",
            Self::MakeDirectory => "mkdir",
            Self::Rename => "mv",
            Self::Remove => "rm",
            Self::SignIn => "sign-in",
            Self::Share => "share",
            Self::Shares => "shares",
            Self::Revoke => "revoke",
            Self::Join => "join",
            Self::Unknown => "unknown",
        }
    }

    /// Returns which way it moves files; `None` if it moves none of its own.
    pub(super) const fn direction(self) -> Option<Direction> {
        match self {
            Self::Put | Self::SyncTo => Some(Direction::Received),
            Self::Get | Self::SyncFrom => Some(Direction::Sent),
            _ => None,
        }
    }
}

/// Returns the paths that a request names.
pub(super) fn paths(request: &Message) -> Vec<Vec<u8>> {
    let one = |path: Option<&RelPath>| {
        vec![path.map_or_else(|| b"/".to_vec(), |path| [b"/", path.as_bytes()].concat())]
    };
    match request {
        Message::Get { from, .. } => {
            from.iter().flat_map(|wanted| one(wanted.path.as_ref())).collect()
        }
        Message::Put { to: path, .. }
        | Message::Sync { path, .. }
        | Message::List { path }
        | Message::Share { path, .. } => one(path.as_ref()),
        Message::PutStream { to: path, .. }
        | Message::GetStream { from: path, .. }
        | Message::MakeDirectory { path, .. }
        | Message::Remove { path, .. } => one(Some(path)),
        Message::Rename { from, to, .. } => [one(Some(from)), one(to.as_ref())].concat(),
        _ => Vec::new(),
    }
}
