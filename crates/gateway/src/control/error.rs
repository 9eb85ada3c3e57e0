//! Errors of bringing up, controlling or taking down a tunnel.

use std::io;
use std::path::{Path, PathBuf};

use crate::{config, host, ledger};

/// An error of a tunnel. Each message says what failed, why, and what to do.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The configuration is refused.
    #[error(transparent)]
    Config(#[from] config::Error),
    /// The ledger refuses it.
    #[error(transparent)]
    Ledger(#[from] ledger::Error),
    /// Associations or policies do not fit together.
    #[error("{}: {cause}", origin.display())]
    Engine {
        /// The configuration.
        origin: PathBuf,
        /// What is wrong.
        cause: headroom_ipsec::SpecError,
    },
    /// A command that changes the host failed.
    #[error(transparent)]
    Host(#[from] host::Error),
    /// A system call failed.
    #[error("cannot {doing}: {cause}")]
    System {
        /// What was being done.
        doing: String,
        /// What the system said.
        cause: io::Error,
    },
    /// A step failed after the host was changed.
    #[error(
        "{cause}. The traffic of `{name}` is blocked until `headroom tunnel up` succeeds or `headroom tunnel down {name}`"
    )]
    HalfUp {
        /// The tunnel.
        name: String,
        /// What failed.
        cause: Box<Error>,
    },
    /// A reload failed, and what it had changed is not all undone.
    #[error(
        "{cause}. What the reload had changed is not all undone: {undoing}. Take the tunnel down and up again"
    )]
    HalfReloaded {
        /// What failed first.
        cause: Box<Error>,
        /// What failed when it was undone.
        undoing: String,
    },
    /// A reload cannot make this change.
    #[error(
        "a reload cannot change `{0}`: take the tunnel down and up again. The former configuration is still in \
         force"
    )]
    Fixed(&'static str),
    /// There is no such gateway.
    #[error("{0}")]
    NotRunning(String),
    /// A running gateway responded with an error.
    #[error("{error}")]
    Answered {
        /// Its message.
        error: String,
        /// Its exit code.
        code: u8,
    },
    /// The request is refused.
    #[error("{0}")]
    Refused(String),
}

impl Error {
    /// The exit code of a process that ends with this error.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Config(_) | Self::Engine { .. } | Self::Fixed(_) => 2,
            Self::Host(host::Error::Missing(..)) => 3,
            Self::HalfUp { cause, .. } | Self::HalfReloaded { cause, .. } => cause.exit_code(),
            Self::Answered { code, .. } => *code,
            _ => 1,
        }
    }

    /// Adds what failed when a reload was undone that had failed with this error.
    pub(super) fn after_undoing(self, undone: impl IntoIterator<Item = Result<(), Self>>) -> Self {
        let failed = undone.into_iter().filter_map(Result::err);
        let undoing = failed.map(|error| error.to_string()).collect::<Vec<_>>().join("; ");
        match undoing.is_empty() {
            true => self,
            false => Self::HalfReloaded { cause: Box::new(self), undoing },
        }
    }
}

/// Turns an I/O error into a tunnel's, which says what was being done: `read FILE`.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fails_when_a_reload_is_undone_does_not_hide_why_it_failed() {
        let failed = |doing: &str| Error::System {
            doing: doing.to_owned(),
            cause: io::Error::other("no space"),
        };
        let alone = Error::Fixed("queues").after_undoing([Ok(()), Ok(())]);
        assert!(matches!(alone, Error::Fixed("queues")), "{alone}");
        let undone = [Err(failed("write the ledger")), Err(failed("add a route"))];
        let error = Error::Fixed("queues").after_undoing(undone);
        assert_eq!(error.exit_code(), 2, "that of the first");
        let said = error.to_string();
        for part in ["`queues`", "write the ledger: no space; cannot add a route: no space"] {
            assert!(said.contains(part), "{said}");
        }
    }
}
