//! Why a file about trust cannot be used.

use std::io;
use std::path::PathBuf;

/// Why a file about trust cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The system refused something.
    #[error("cannot {doing} {}: {cause}", path.display())]
    System {
        /// What was being done.
        doing: &'static str,
        /// With which file.
        path: PathBuf,
        /// What the system said.
        cause: io::Error,
    },
    /// A line says something else than it should.
    #[error("{}:{line}: {cause}", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What is wrong.
        cause: String,
    },
    /// Others could have written it.
    #[error(
        "{} can be written by others (mode {mode:o}), who could change whom the server trusts: check its content, then `chmod go-w` it and make sure that it is yours",
        path.display()
    )]
    Writable {
        /// The file.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// The file is no certificate of an authority.
    #[error("{} is not a certificate of an authority: {cause}", path.display())]
    Authority {
        /// The file.
        path: PathBuf,
        /// What was found.
        cause: String,
    },
}
