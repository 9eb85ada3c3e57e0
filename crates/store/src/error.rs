//! Errors of a store.

use std::io;

/// Each is a sentence: what was being done, what was found, what to do. None has a credential,
/// a signed URL or a body of an answer in it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The object or the bucket is not there.
    #[error("{0}")]
    NotFound(String),
    /// Another server receives this object.
    #[error("{0}")]
    Busy(String),
    /// The object is another than expected: changed, or there where it should not be.
    #[error("{0}")]
    Changed(String),
    /// The store refuses: credentials, permissions, or an operation that it does not have.
    #[error("{0}")]
    Refused(String),
    /// The store cannot hold this name, or it is one of this crate's own.
    #[error("{0}")]
    Name(String),
    /// The object is larger than a store can hold.
    #[error("{0}")]
    TooLarge(String),
    /// The store no longer has the unfinished upload: it begins again.
    #[error("{0}")]
    Gone(String),
    /// The store did not answer, or with an error of its own, after several attempts.
    #[error("{0}")]
    Unavailable(String),
    /// The store's answer contradicts itself or the request.
    #[error("{0}")]
    Reply(String),
    /// The caller asked for what makes no sense.
    #[error("{0}")]
    Misuse(String),
}

impl Error {
    /// Says whether the same call may succeed later without a change anywhere.
    pub fn is_passing(&self) -> bool {
        matches!(self, Self::Unavailable(_) | Self::Busy(_))
    }
}

impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        let kind = match &error {
            Error::NotFound(_) => io::ErrorKind::NotFound,
            Error::Busy(_) => io::ErrorKind::ResourceBusy,
            Error::Refused(_) => io::ErrorKind::PermissionDenied,
            Error::Name(_) | Error::Misuse(_) => io::ErrorKind::InvalidInput,
            Error::TooLarge(_) => io::ErrorKind::FileTooLarge,
            Error::Changed(_) | Error::Gone(_) | Error::Unavailable(_) | Error::Reply(_) => {
                io::ErrorKind::Other
            }
        };
        Self::new(kind, error)
    }
}
