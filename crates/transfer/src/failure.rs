//! Why one file of a request failed.

use headroom_transfer_proto::message::ErrorCode;

use crate::files;

/// A failure about one file, for people and for programs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure {
    /// A sentence.
    pub(crate) reason: String,
    /// The reason for programs, if it has one.
    pub(crate) code: Option<ErrorCode>,
}

impl Failure {
    /// Makes one with a reason for programs.
    pub(crate) fn coded(code: ErrorCode, reason: String) -> Self {
        Self { reason, code: Some(code) }
    }
}

impl From<&files::Error> for Failure {
    fn from(error: &files::Error) -> Self {
        Self { reason: error.to_string(), code: error.code() }
    }
}

impl From<files::Error> for Failure {
    fn from(error: files::Error) -> Self {
        Self::from(&error)
    }
}

impl From<String> for Failure {
    fn from(reason: String) -> Self {
        Self { reason, code: None }
    }
}
