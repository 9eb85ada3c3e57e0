//! Why a tunnel could not be brought up, asked or taken down.

use std::io;
use std::path::{Path, PathBuf};

use crate::{config, host, ledger};

/// Each a sentence: what was being done, what was found, what to do.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The configuration asks for something that cannot be.
    #[error(transparent)]
    Config(#[from] config::Error),
    /// The ledger does not allow it.
    #[error(transparent)]
    Ledger(#[from] ledger::Error),
    /// Associations and policies do not go together.
    #[error("{}: {cause}", origin.display())]
    Engine {
        /// The configuration.
        origin: PathBuf,
        /// What is wrong.
        cause: headroom_ipsec::SpecError,
    },
    /// The host refused a change.
    #[error(transparent)]
    Host(#[from] host::Error),
    /// The system refused something.
    #[error("cannot {doing}: {cause}")]
    System {
        /// What was being done.
        doing: String,
        /// What the system said.
        cause: io::Error,
    },
    /// The host was changed, and then something failed.
    #[error(
        "{cause}. What `{name}` is to protect is blocked until `headroom tunnel up` succeeds or `headroom tunnel down \
         {name}`"
    )]
    HalfUp {
        /// The tunnel.
        name: String,
        /// What failed.
        cause: Box<Error>,
    },
    /// A running gateway cannot change this.
    #[error(
        "`{0}` has changed, which a reload cannot: take the tunnel down and up again. The former configuration is \
         still in force"
    )]
    Fixed(&'static str),
    /// There is no such gateway.
    #[error("{0}")]
    NotRunning(String),
    /// What a running gateway answered.
    #[error("{error}")]
    Answered {
        /// Its sentence.
        error: String,
        /// Its exit code.
        code: u8,
    },
    /// Something that cannot be done now.
    #[error("{0}")]
    Refused(String),
}

impl Error {
    /// The exit code of a process that ends with this error.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Config(_) | Self::Engine { .. } | Self::Fixed(_) => 2,
            Self::Host(host::Error::Missing(..)) => 3,
            Self::HalfUp { cause, .. } => cause.exit_code(),
            Self::Answered { code, .. } => *code,
            _ => 1,
        }
    }
}

/// Turns what the system said into a sentence that says what was being done.
pub(super) trait Doing<T> {
    fn doing(self, what: impl FnOnce() -> String) -> Result<T, Error>;
}

impl<T> Doing<T> for io::Result<T> {
    fn doing(self, what: impl FnOnce() -> String) -> Result<T, Error> {
        self.map_err(|cause| Error::System { doing: what(), cause })
    }
}

/// `verb` and a path, for [`Doing`].
pub(super) fn path(verb: &str, path: &Path) -> String {
    format!("{verb} {}", path.display())
}
