//! Errors of the store as those of files.

use headroom_store::Error;

use crate::files::error::ErrorKind;

impl From<Error> for ErrorKind {
    fn from(error: Error) -> Self {
        match error {
            Error::NotFound(_) => Self::Missing,
            Error::Busy(_) => Self::Busy,
            Error::Changed(_) => Self::Changed,
            other => Self::Store(other.to_string().into()),
        }
    }
}
