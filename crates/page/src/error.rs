//! Why the page cannot be served.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// Why the page cannot be served.
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
    /// A certificate or its key cannot be used.
    #[error("cannot use the certificate {}: {cause}", path.display())]
    Certificate {
        /// The file.
        path: PathBuf,
        /// What was found.
        cause: String,
    },
    /// No certificate could be made.
    #[error("cannot make a certificate: {0}")]
    Make(String),
    /// An ACME authority cannot be asked.
    #[error("cannot ask an ACME authority for a certificate: {0}")]
    Acme(String),
    /// The server of the sessions cannot be started.
    #[error(transparent)]
    Transfer(#[from] headroom_transfer::Error),
}

impl Error {
    pub(crate) fn certificate(path: &Path, cause: &dyn std::fmt::Display) -> Self {
        Self::Certificate { path: path.to_owned(), cause: cause.to_string() }
    }
}
