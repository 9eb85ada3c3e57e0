//! What is said over the control socket: a line of JSON a request, a line of
//! JSON an answer (docs/tunnel.md).

use serde::{Deserialize, Serialize};

use super::status::Status;

/// Octets that a request may have.
pub(super) const MOST_REQUEST: usize = 4096;

/// A request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Request {
    /// How does it stand?
    Status,
    /// What is decided about packets? Records follow, one a line.
    Trace {
        /// After how many it ends; none: when the asker goes.
        #[serde(default)]
        count: Option<u64>,
    },
    /// Read the configuration again.
    Reload {
        /// Keys that the ledger does not know are new.
        #[serde(default)]
        new_keys: bool,
    },
    /// Take the tunnel down.
    Down,
}

/// An answer.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Answer {
    /// It was refused, or failed.
    Error {
        /// Why.
        error: String,
    },
    /// To [`Request::Status`].
    Status {
        /// How it stands.
        status: Box<Status>,
    },
    /// To [`Request::Reload`] and [`Request::Down`], and the end of a trace.
    Done {
        /// What should be known: sentences.
        done: Vec<String>,
    },
}
