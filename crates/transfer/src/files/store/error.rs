//! Errors of the store as those of files.

use headroom_store::Error;

use crate::files::error::ErrorKind;

impl From<Error> for ErrorKind {
    fn from(error: Error) -> Self {
        match error {
            Error::NotFound(_) => Self::Missing,
            Error::Busy(_) => Self::Busy,
            Error::Changed(_) => Self::Changed,
            Error::Gone(reason) => Self::UploadGone(reason.into()),
            other => Self::Store(other.to_string().into()),
        }
    }
}

/// Returns the error of a write in place of whatever is there.
pub(super) fn of_write(error: Error) -> ErrorKind {
    match error {
        // others have written it again and again
        Error::Changed(_) => ErrorKind::Replaced,
        error => error.into(),
    }
}
