//! Why results could not be read or written.

use std::io;

/// Why results could not be read or written. Each is a whole sentence with its cause, so
/// that none is a `source` to be printed behind it once more.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file could not be read or written.
    #[error("cannot {doing}: {cause}")]
    File {
        /// The action that failed.
        doing: String,
        /// Why it failed.
        cause: io::Error,
    },
    /// A text is no JSON, or a value cannot be written as such.
    #[error("cannot {doing}: {cause}")]
    Json {
        /// The action that failed.
        doing: String,
        /// Why it failed.
        cause: serde_json::Error,
    },
    /// A file is JSON and holds no results that this program reads; a sentence.
    #[error("{0}")]
    NotResults(String),
    /// The page's template lacks a place that is to be filled.
    #[error("the report's template has no {0}")]
    Template(String),
}

/// Result of reading and writing.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// The exit code of a process that ends with this error.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::NotResults(_) => 2,
            _ => 1,
        }
    }
}

/// Turns an error of I/O or JSON into this crate's, which says what was being done: `read FILE`.
pub(crate) trait Doing<T> {
    fn doing(self, what: impl FnOnce() -> String) -> Result<T>;
}

impl<T> Doing<T> for io::Result<T> {
    fn doing(self, what: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|cause| Error::File { doing: what(), cause })
    }
}

impl<T> Doing<T> for serde_json::Result<T> {
    fn doing(self, what: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|cause| Error::Json { doing: what(), cause })
    }
}
