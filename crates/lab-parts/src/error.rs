//! Errors, each a sentence: what was being done, what was found, what to do.

use std::io;
use std::path::{Path, PathBuf};

/// Why the pinned programs cannot be fetched or entered.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The lock has packages for another processor.
    #[error(
        "the pinned programs are for x86-64 and this machine is {0}: install the programs, or use scripts/fetch-parts of the source tree"
    )]
    Processor(&'static str),
    /// The archive does not answer, or not with a package.
    #[error(
        "cannot fetch {url} ({why}): check the network, or name another archive with --archive"
    )]
    Unreachable {
        /// What was asked for.
        url: String,
        /// Why it failed.
        why: String,
    },
    /// The archive has it no longer.
    #[error(
        "{url} is gone: Debian keeps only the newest version of a package. Use a newer headroom, or name an archive that has it with --archive"
    )]
    Gone {
        /// What was asked for.
        url: String,
    },
    /// What arrived is not what the lock names.
    #[error(
        "{url} is not the package that is pinned (its SHA-256 is {found}): name another archive with --archive"
    )]
    Foreign {
        /// What was asked for.
        url: String,
        /// What came, in hexadecimal digits.
        found: String,
    },
    /// A package has another form than Debian's have.
    #[error("cannot unpack {package}: {what}")]
    Package {
        /// Its name.
        package: String,
        /// What is wrong.
        what: String,
    },
    /// A file or folder could not be read or written.
    #[error("cannot {doing} {path}: {cause}")]
    File {
        /// The failed action.
        doing: &'static str,
        /// Of which file.
        path: PathBuf,
        /// The system's error.
        cause: io::Error,
    },
    /// The archive is named by something else than a plain HTTP address.
    #[error(
        "the archive {0} does not begin with http://: encryption adds nothing, as the hash of each package is known"
    )]
    Archive(String),
    /// The tree cannot be made the root file system.
    #[error("cannot enter the pinned programs ({doing}: {cause})")]
    Enter {
        /// The failed action.
        doing: String,
        /// The system's error.
        cause: io::Error,
    },
    /// This program did not begin again in the tree.
    #[error("cannot start this program among the pinned programs ({cause}): use --host-programs")]
    Begin {
        /// The system's error.
        cause: io::Error,
    },
}

/// The result of most functions here.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// Returns the exit code of a process that ends with it.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Archive(_) => 2,
            Self::Processor(_) | Self::Enter { .. } | Self::Begin { .. } => 3,
            _ => 1,
        }
    }

    /// Returns what turns an error of the system into one about a file.
    pub(crate) fn of(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |cause| Self::File { doing, path, cause }
    }
}
