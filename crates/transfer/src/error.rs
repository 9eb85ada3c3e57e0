//! Why a transfer did not come about, or not to its end.

use std::io;
use std::path::PathBuf;

use headroom_transfer_proto::message;
use headroom_transfer_proto::path::printable;
use quinn::{Connection, ConnectionError, Side, TransportErrorCode, VarInt};

use crate::key::PublicKey;
use crate::{files, identity, trust};

/// Each a sentence: what was being done, what was found, what to do.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no identity.
    #[error(transparent)]
    Identity(#[from] identity::Error),
    /// A file about trust cannot be used.
    #[error(transparent)]
    Trust(#[from] trust::Error),
    /// Something on this machine cannot be read or written.
    #[error(transparent)]
    Files(#[from] files::Error),
    /// The system refused something.
    #[error("cannot {doing}: {cause}")]
    System {
        /// What was being done.
        doing: String,
        /// What the system said.
        cause: io::Error,
    },
    /// What was asked for cannot be.
    #[error("{0}")]
    Usage(String),
    /// The host cannot be reached.
    #[error("cannot reach {host}: {cause}")]
    Unreachable {
        /// The host, with its port.
        host: String,
        /// Why.
        cause: String,
    },
    /// Nobody said yet that this is the host's key.
    #[error(
        "{host} has not been met before, and shows the key {}. Ask whoever runs it for their `headroom identity show`; \
         if that is the same, say `headroom trust {host} --fingerprint {}`",
        key.fingerprint(), key.fingerprint()
    )]
    UnknownHost {
        /// The host, as it is known.
        host: String,
        /// What it showed.
        key: PublicKey,
    },
    /// The host has another key than before.
    #[error(
        "{host} SHOWS ANOTHER KEY THAN BEFORE: somebody may be between you and it, or it was set up anew. It shows {}. \
         Nothing was sent. If whoever runs it says that this is right, remove line {line} of {} and trust it again",
        shown.map_or_else(|| "no Ed25519 key".to_owned(), |key| key.fingerprint().to_string()), path.display()
    )]
    ChangedHost {
        /// The host, as it is known.
        host: String,
        /// What it showed.
        shown: Option<PublicKey>,
        /// The file that says otherwise.
        path: PathBuf,
        /// Its line, from 1.
        line: usize,
    },
    /// Nobody and nothing vouches for the host.
    #[error("{host} is not trusted: {cause}")]
    NotTrusted {
        /// The host, as it is known.
        host: String,
        /// Why.
        cause: String,
    },
    /// The server does not do it.
    #[error("the server refuses: {0}")]
    Refused(String),
    /// What was named on the server is missing there, or cannot be read or written.
    #[error("on the server: {0}")]
    OnServer(String),
    /// The connection ended.
    #[error(
        "the connection was lost: {0}. What has arrived stays: the same command goes on from there"
    )]
    Lost(String),
    /// The same client sends the same file on another connection.
    #[error(
        "the connection was lost: a newer transfer of the same file, by the same identity, took its place. What has \
         arrived stays: the same command goes on from there"
    )]
    Superseded,
    /// The connection ended, and nothing goes on from there.
    #[error(
        "the connection was lost: {0}. What goes through a pipe is not resumed: start it again"
    )]
    Interrupted(String),
    /// The peer broke the rules.
    #[error("the peer breaks the protocol: {0}")]
    Protocol(String),
}

/// Names the side that says something, for whoever reads it on the other.
pub(crate) fn from_peer(connection: &Connection, reason: &str) -> String {
    match connection.side() {
        Side::Client => format!("on the server: {reason}"),
        Side::Server => format!("at the client: {reason}"),
    }
}

/// Why a connection is closed, as the peer is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Closing {
    /// All is said.
    Done = 0,
    /// The program ends.
    Leaving = 1,
    /// The peer broke the rules.
    Rules = 2,
    /// There are too many connections.
    Full = 3,
    /// A newer connection of the same client stores the same file.
    Superseded = 4,
    /// What the client may do has changed, or it may not come any longer.
    Changed = 5,
    /// The client was known in the handshake, and may not come in after all.
    Refused = 6,
}

impl From<Closing> for VarInt {
    fn from(closing: Closing) -> Self {
        Self::from_u32(closing as u32)
    }
}

const FULL: &str = "it has too many connections; try again later";

/// TLS alerts (RFC 8446, section 6) that mean something here.
const ACCESS_DENIED: u8 = 49;
const CERTIFICATE_REQUIRED: u8 = 116;
const NO_APPLICATION_PROTOCOL: u8 = 120;

impl From<ConnectionError> for Error {
    fn from(error: ConnectionError) -> Self {
        let is_alert = |code, alert| code == TransportErrorCode::crypto(alert);
        match error {
            ConnectionError::ConnectionClosed(close)
                if is_alert(close.error_code, ACCESS_DENIED)
                    || is_alert(close.error_code, CERTIFICATE_REQUIRED) =>
            {
                Self::not_let_in()
            }
            ConnectionError::ConnectionClosed(close)
                if is_alert(close.error_code, NO_APPLICATION_PROTOCOL) =>
            {
                Self::Protocol(
                    "it speaks another version of it, or none. Use the same version of headroom on both sides"
                        .to_owned(),
                )
            }
            ConnectionError::ConnectionClosed(close)
                if close.error_code == TransportErrorCode::CONNECTION_REFUSED =>
            {
                Self::Refused(FULL.to_owned())
            }
            ConnectionError::ApplicationClosed(close) => {
                let code = close.error_code;
                if code == Closing::Full.into() {
                    Self::Refused(FULL.to_owned())
                } else if code == Closing::Leaving.into() {
                    Self::Lost("the other side was stopped".to_owned())
                } else if code == Closing::Changed.into() {
                    Self::Refused(
                        "it does not let this identity in any longer, or for something else now: its authorized keys \
                         were changed"
                            .to_owned(),
                    )
                } else if code == Closing::Superseded.into() {
                    // to be tried again it would have to take the place of the newer one
                    Self::Superseded
                } else if code == Closing::Refused.into() {
                    Self::Refused(said(&close.reason))
                } else if code == Closing::Rules.into() {
                    Self::Protocol(format!("it says that this side did: {}", said(&close.reason)))
                } else {
                    Self::Lost("the other side ended it".to_owned())
                }
            }
            ConnectionError::TimedOut => Self::Lost("nothing came for too long".to_owned()),
            ConnectionError::Reset => Self::Lost("the other side was started anew".to_owned()),
            ConnectionError::LocallyClosed => Self::Lost("this side ended it".to_owned()),
            // the peer may have said why
            other => Self::Lost(printable(&other.to_string())),
        }
    }
}

/// What a peer says for a reason, as it can be printed.
fn said(reason: &[u8]) -> String {
    printable(&String::from_utf8_lossy(reason))
}

impl From<message::Error> for Error {
    fn from(error: message::Error) -> Self {
        Self::Protocol(error.to_string())
    }
}

impl From<quinn::WriteError> for Error {
    fn from(error: quinn::WriteError) -> Self {
        match error {
            quinn::WriteError::ConnectionLost(error) => error.into(),
            other => Self::Lost(other.to_string()),
        }
    }
}

impl From<quinn::ReadError> for Error {
    fn from(error: quinn::ReadError) -> Self {
        match error {
            quinn::ReadError::ConnectionLost(error) => error.into(),
            other => Self::Lost(other.to_string()),
        }
    }
}

impl Error {
    /// Somebody who may not come in, as they are told.
    pub(crate) fn not_let_in() -> Self {
        Self::Refused(
            "it does not know this identity. Send what `headroom identity show` prints to whoever runs it, to be \
             added to its authorized keys"
                .to_owned(),
        )
    }

    /// What a server says instead of doing what it was asked.
    pub(crate) const fn refused(reason: String, about_files: Option<bool>) -> Self {
        match about_files {
            Some(true) => Self::OnServer(reason),
            _ => Self::Refused(reason),
        }
    }

    /// What a peer is told that is turned away for it.
    pub(crate) fn reason(&self) -> String {
        match self {
            Self::Refused(reason) => reason.clone(),
            error => error.to_string(),
        }
    }

    /// A task of this program that did not come to its end.
    pub(crate) fn task(error: &tokio::task::JoinError) -> Self {
        Self::System { doing: "go on".to_owned(), cause: io::Error::other(error.to_string()) }
    }
}
