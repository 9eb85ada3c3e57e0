//! Errors of a transfer.

use std::io;
use std::path::PathBuf;

use headroom_transfer_proto::message::{self, ErrorCode};
use headroom_transfer_proto::path::printable;
use quinn::{ConnectionError, Side, TransportErrorCode, VarInt};

use crate::key::PublicKey;
use crate::{files, identity, trust};

/// Each is a sentence: what was being done, what was found, what to do.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The identity cannot be used.
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
    /// The request makes no sense.
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
    /// The host's key is unknown.
    #[error(
        "{host} is unknown. Its key is {}. Compare that with what `headroom serve` prints there; if they agree, run `headroom trust {host} --fingerprint {}`",
        key.fingerprint(), key.fingerprint()
    )]
    UnknownHost {
        /// The host, as it is known.
        host: String,
        /// The key that it presented.
        key: PublicKey,
    },
    /// The host's key has changed.
    #[error(
        "THE KEY OF {host} HAS CHANGED: somebody may be intercepting the connection, or the server was set up again. Its key is now {}. Nothing was sent. If its administrator confirms the new key, remove line {line} of {} and trust it again",
        shown.map_or_else(|| "no Ed25519 key".to_owned(), |key| key.fingerprint().to_string()), path.display()
    )]
    ChangedHost {
        /// The host, as it is known.
        host: String,
        /// The key that it presented.
        shown: Option<PublicKey>,
        /// The file with the former key.
        path: PathBuf,
        /// Its line, from 1.
        line: usize,
    },
    /// The host's key or certificate is not trusted.
    #[error("{host} is not trusted: {cause}")]
    NotTrusted {
        /// The host, as it is known.
        host: String,
        /// Why.
        cause: String,
    },
    /// The server refuses the request.
    #[error("the server refuses: {0}")]
    Refused(String),
    /// The server refuses the request, for a reason that programs can tell.
    #[error("the server refuses: {reason}")]
    Denied {
        /// The reason for programs.
        code: ErrorCode,
        /// The same for people.
        reason: String,
    },
    /// A named file on the server is missing, or cannot be read or written.
    #[error("on the server: {reason}")]
    OnServer {
        /// A sentence.
        reason: String,
        /// The reason for programs.
        code: Option<ErrorCode>,
    },
    /// The connection was lost.
    #[error("the connection was lost: {0}. Repeat the command to resume")]
    Lost(String),
    /// The same client transfers the same file on another connection.
    #[error(
        "the connection was lost: a newer transfer of the same file, with the same key, took its place. Repeat the command to resume"
    )]
    Superseded,
    /// The connection was lost during a transfer that cannot be resumed.
    #[error("the connection was lost: {0}. `-` is not resumed: start again")]
    Interrupted(String),
    /// The peer violated the protocol.
    #[error("the peer violates the protocol: {0}")]
    Protocol(String),
}

/// Adds which side a message comes from; `own` is this side.
pub(crate) fn from_peer(own: Side, reason: &str) -> String {
    match own {
        Side::Client => format!("on the server: {reason}"),
        Side::Server => format!("at the client: {reason}"),
    }
}

/// The application error code with which a connection is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Closing {
    /// Everything is done.
    Done = 0,
    /// The program is stopping, or lets running transfers finish and takes no others.
    Leaving = 1,
    /// The peer violated the protocol.
    Rules = 2,
    /// There are too many connections.
    Full = 3,
    /// A newer connection of the same client stores the same file.
    Superseded = 4,
    /// The client's rights have changed.
    Changed = 5,
    /// The client is refused after the handshake.
    Refused = 6,
}

impl From<Closing> for VarInt {
    fn from(closing: Closing) -> Self {
        Self::from_u32(closing as u32)
    }
}

/// Why a server that lets running transfers finish ends a connection: [`Closing::Leaving`].
pub(crate) const SHUTTING_DOWN: &str = "the server is shutting down";

const FULL: &str = "it has too many connections, or is being stopped; try again later";

/// TLS alerts (RFC 8446, section 6) that have a meaning here.
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
                    "it has another version of the protocol, or none. Use the same version of headroom on both sides"
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
                    Self::Lost(match close.reason.is_empty() {
                        true => "the other side was stopped".to_owned(),
                        false => said(&close.reason),
                    })
                } else if code == Closing::Changed.into() {
                    Self::Refused(
                        "its authorized keys have changed, and with them the rights of this key"
                            .to_owned(),
                    )
                } else if code == Closing::Superseded.into() {
                    // a retry would take over from the newer transfer
                    Self::Superseded
                } else if code == Closing::Refused.into() {
                    Self::Refused(said(&close.reason))
                } else if code == Closing::Rules.into() {
                    Self::Protocol(format!("it reports a violation by this side: {}", said(&close.reason)))
                } else {
                    Self::Lost("the other side closed it".to_owned())
                }
            }
            ConnectionError::TimedOut => Self::Lost("nothing arrived for too long".to_owned()),
            ConnectionError::Reset => Self::Lost("the other side was restarted".to_owned()),
            ConnectionError::LocallyClosed => Self::Lost("this side closed it".to_owned()),
            // the peer may have said why
            other => Self::Lost(printable(&other.to_string())),
        }
    }
}

/// Returns the reason that a peer gave, safe for a terminal.
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
    /// Whether the server may be there or accept the client a little later.
    #[must_use]
    pub fn is_temporary(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::Lost(_) => true,
            Self::Refused(reason) => reason == FULL,
            _ => false,
        }
    }

    /// Makes the error for a client that is not accepted.
    pub(crate) fn not_let_in() -> Self {
        Self::Refused(
            "it does not know this key. Send what `headroom identity` prints to its administrator, to be added to its authorized keys"
                .to_owned(),
        )
    }

    /// Makes the error for a share that is not open, or not any longer.
    pub(crate) fn share_ended() -> Self {
        let reason = "this share link has expired, was revoked, or is not one of this server: ask for another one";
        Self::Denied { code: ErrorCode::SHARE_ENDED, reason: reason.to_owned() }
    }

    /// Makes the error for a request that is not one of the share's.
    pub(crate) fn not_shared() -> Self {
        let reason = "this share link does not allow that".to_owned();
        Self::Denied { code: ErrorCode::NOT_SHARED, reason }
    }

    /// Returns the reason for programs.
    #[must_use]
    pub fn code(&self) -> Option<ErrorCode> {
        match self {
            Self::Denied { code, .. } => Some(*code),
            Self::OnServer { code, .. } => *code,
            Self::Files(error) => error.code(),
            _ => None,
        }
    }

    /// Makes the error for a refusal by the server.
    pub(crate) const fn refused(
        reason: String,
        about_files: Option<bool>,
        code: Option<ErrorCode>,
    ) -> Self {
        match about_files {
            Some(true) => Self::OnServer { reason, code },
            _ => Self::Refused(reason),
        }
    }

    /// Returns the reason to tell the peer.
    pub(crate) fn reason(&self) -> String {
        match self {
            Self::Refused(reason) | Self::Protocol(reason) | Self::Denied { reason, .. } => {
                reason.clone()
            }
            error => error.to_string(),
        }
    }

    /// Makes the error for a task of this program that failed.
    pub(crate) fn task(error: &tokio::task::JoinError) -> Self {
        Self::System { doing: "go on".to_owned(), cause: io::Error::other(error.to_string()) }
    }
}
