//! Errors of the command, and those that the API answers.

use std::io;
use std::net::SocketAddr;

use headroom_transfer::{self as transfer, ErrorCode};
use hyper::StatusCode;
use serde_json::{Value, json};

/// Why the page cannot be served on this machine.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The address cannot be used.
    #[error("cannot listen at TCP {address}: {cause}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the system said.
        cause: io::Error,
    },
    /// The address is reachable by other machines.
    #[error("{0} is not an address of this machine alone: use 127.0.0.1:PORT or [::1]:PORT")]
    NotLoopback(SocketAddr),
    /// A job of a fleet cannot be shown.
    #[error("{0}")]
    Fleet(String),
    /// There is no randomness for a token.
    #[error("the system gives no random numbers")]
    Random,
    /// A server's address cannot be read.
    #[error("{0}")]
    Server(String),
}

/// An error that the API answers: a code for the page and a sentence for people.
#[derive(Debug)]
pub(crate) struct ApiError {
    pub(crate) status: StatusCode,
    pub(crate) code: &'static str,
    pub(crate) message: String,
    /// Other members of the answer.
    pub(crate) more: Value,
}

impl ApiError {
    pub(crate) fn new(code: &'static str, message: impl Into<String>) -> Self {
        let status = StatusCode::UNPROCESSABLE_ENTITY;
        Self { status, code, message: message.into(), more: json!({}) }
    }

    /// A request that no page of ours makes.
    pub(crate) fn usage(message: &str) -> Self {
        Self { status: StatusCode::BAD_REQUEST, ..Self::new("protocol", message) }
    }

    pub(crate) fn with_status(status: StatusCode, message: &str) -> Self {
        Self { status, ..Self::new("refused", message) }
    }

    /// An error of the system about something on this machine.
    pub(crate) fn system(doing: &str, error: &io::Error) -> Self {
        let code = match error.kind() {
            io::ErrorKind::NotFound => "not-found",
            io::ErrorKind::AlreadyExists => "exists",
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => "no-space",
            _ => "refused",
        };
        Self::new(code, format!("{doing}: {error}"))
    }

    pub(crate) fn body(&self) -> Value {
        let mut body = json!({"code": self.code, "message": self.message});
        if let (Some(body), Some(more)) = (body.as_object_mut(), self.more.as_object()) {
            body.extend(more.clone());
        }
        body
    }
}

impl From<transfer::Error> for ApiError {
    fn from(error: transfer::Error) -> Self {
        use transfer::Error::{
            ChangedHost, Interrupted, Lost, NotTrusted, Protocol, Refused, Superseded, UnknownHost,
            Unreachable, Usage,
        };
        let message = error.to_string();
        let code = match &error {
            UnknownHost { .. } => "unknown-host",
            ChangedHost { .. } => "changed-host",
            NotTrusted { .. } => "not-trusted",
            Unreachable { .. } => "unreachable",
            Lost(_) | Interrupted(_) | Superseded => "lost",
            Protocol(_) => "protocol",
            Usage(_) => "usage",
            Refused(_) => "refused",
            _ => name_of(error.code()),
        };
        let mut made = Self::new(code, message);
        if let UnknownHost { host, key } = &error {
            made.more = json!({"host": host, "fingerprint": key.fingerprint().to_string()});
        }
        made
    }
}

/// Returns the page's name of a reason for programs.
pub(crate) fn name_of(code: Option<ErrorCode>) -> &'static str {
    code.and_then(ErrorCode::name).unwrap_or("refused")
}
