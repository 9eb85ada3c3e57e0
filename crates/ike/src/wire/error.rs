//! Why a message cannot be read.

use thiserror::Error;

use super::PayloadType;

/// Why a message cannot be read: which part, and what is wrong with it.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
pub enum Error {
    /// The IKE header (RFC 7296 §3.1).
    #[error("IKE header: {0}")]
    Header(Problem),
    /// The major version is not 2; RFC 7296 §2.5 answers a request with INVALID_MAJOR_VERSION.
    #[error("IKE version {0}, not 2")]
    MajorVersion(u8),
    /// A payload.
    #[error("{payload} payload: {problem}")]
    Payload {
        /// Its type.
        payload: PayloadType,
        /// What is wrong with it.
        problem: Problem,
    },
    /// A payload of an unknown type has its critical bit set (RFC 7296 §2.5).
    #[error("critical payload of the unknown type {0}")]
    UnknownCritical(u8),
    /// The message has more payloads than any exchange needs.
    #[error("more than {max} payloads")]
    TooManyPayloads {
        /// The limit.
        max: usize,
    },
    /// Bytes follow the last payload.
    #[error("{0} bytes after the last payload")]
    Trailing(usize),
    /// An SK or SKF payload is not the last, or is inside of another (RFC 7296 §3.14).
    #[error("{0} payload in a wrong place")]
    Misplaced(PayloadType),
}

/// What is wrong with a part of a message.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
pub enum Problem {
    /// It ends before its last field.
    #[error("truncated")]
    Truncated,
    /// Its length field is less than its fixed part, or does not fit what contains it.
    #[error("length {0} does not fit")]
    Length(usize),
    /// A field has a value that the RFC forbids.
    #[error("{field} is {value}")]
    Value {
        /// The RFC's name of the field.
        field: &'static str,
        /// Its value.
        value: u32,
    },
    /// It has more elements than its count says, or than the limit.
    #[error("too many {0}")]
    TooMany(&'static str),
    /// It has none of the elements that it is for.
    #[error("no {0}")]
    Empty(&'static str),
}
