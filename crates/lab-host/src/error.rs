//! Errors, each a sentence for the person who gets it: what was being done,
//! what was found, what to do next.

use std::process::ExitStatus;
use std::sync::atomic::{AtomicBool, Ordering};

/// The cause of a failed call.
pub type Cause = Box<dyn std::error::Error + Send + Sync>;

/// Why the lab could not do what was asked. Each is a whole sentence with its cause, so
/// that none is a `source` to be printed behind it once more.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The plan or the arguments ask for something that cannot be.
    #[error("{0}")]
    Plan(String),
    /// This machine lacks something: a program, a privilege, a kernel feature.
    #[error("{0}")]
    Missing(String),
    /// Something that should work did not.
    #[error("{0}")]
    Failed(String),
    /// A call that should work did not.
    #[error("cannot {doing}: {cause}")]
    Doing {
        /// The failed action: `read FILE`.
        doing: String,
        /// Why it failed.
        cause: Cause,
    },
    /// A command ended with something else than success.
    #[error("`{command}` failed ({status}): {said}")]
    Command {
        /// As one would type it.
        command: String,
        /// Its exit status.
        status: ExitStatus,
        /// The end of its standard error.
        said: String,
    },
    /// Something that a run depends on has ended: a host, a server, or the emulator.
    #[error("{0}")]
    Ended(String),
    /// The link failed its self-test.
    #[error("{0}")]
    Link(String),
    /// A capture misses frames, so what is read from it is wrong.
    #[error("the capture lost {0} frames; is the machine overloaded?")]
    FramesLost(u32),
    /// A run has no complete block.
    #[error("nothing was measured: the run ended in its first block")]
    NothingMeasured,
    /// Results could not be read or written.
    #[error(transparent)]
    Results(#[from] headroom_lab_results::Error),
    /// The user asked to stop.
    #[error("interrupted; the testbed was removed")]
    Interrupted,
}

/// The result of most functions of the lab.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// The exit code of a process that ends with this error.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Failed(_)
            | Self::Doing { .. }
            | Self::Command { .. }
            | Self::Ended(_)
            | Self::Link(_)
            | Self::FramesLost(_)
            | Self::NothingMeasured => 1,
            Self::Plan(_) => 2,
            Self::Missing(_) => 3,
            Self::Results(error) => error.exit_code(),
            Self::Interrupted => 130,
        }
    }

    /// Whether a run may note it as a failed sample and go on: something that should work did
    /// not, and the testbed still stands.
    pub fn is_failure(&self) -> bool {
        matches!(self, Self::Failed(_) | Self::Doing { .. } | Self::Command { .. })
    }
}

/// Ends what the user asked to stop.
///
/// # Errors
/// [`Error::Interrupted`] where that is so.
pub fn check(interrupted: &AtomicBool) -> Result<()> {
    if interrupted.load(Ordering::Relaxed) { Err(Error::Interrupted) } else { Ok(()) }
}

/// Turns any error into the lab's, which says what was being done.
pub trait Doing<T> {
    /// Says what was being done: `read FILE`.
    ///
    /// # Errors
    /// [`Error::Doing`] with that and the cause.
    fn doing(self, what: impl FnOnce() -> String) -> Result<T>;
}

impl<T, E: Into<Cause>> Doing<T> for std::result::Result<T, E> {
    fn doing(self, what: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|cause| Error::Doing { doing: what(), cause: cause.into() })
    }
}
