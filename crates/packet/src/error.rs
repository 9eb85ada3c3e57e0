//! Why a header could not be read or written.

/// Why a header could not be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The bytes end inside the header.
    #[error("the {0} header is cut short")]
    Truncated(&'static str),
    /// A field has a value that the standard does not allow.
    #[error("the {0} header is malformed")]
    Malformed(&'static str),
    /// The packet would be longer than its length field can say.
    #[error("the packet is too long for the {0} header")]
    TooLong(&'static str),
    /// A protocol that this crate does not read.
    #[error("a protocol that is not read here")]
    Unsupported,
}
