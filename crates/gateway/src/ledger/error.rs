//! Why a ledger was refused or could not be written.

use std::path::{Path, PathBuf};

/// Why a ledger was refused or could not be written.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The disk did not do what it should.
    #[error("cannot {doing} {}: {cause}; no sequence number is used that it does not hold{}", path.display(), whose(cause))]
    Disk {
        /// What was being done.
        doing: &'static str,
        /// To which file or folder.
        path: PathBuf,
        /// What the system said.
        cause: std::io::Error,
    },
    /// There is no ledger.
    #[error(
        "there is no ledger {}: it is not known which sequence numbers were used under the keys of {sas}. If these \
         keys have never been used, start once with --new-keys. If they may have been, make new ones for both ends \
         (`headroom tunnel keygen`)", path.display()
    )]
    Missing {
        /// The ledger.
        path: PathBuf,
        /// The security associations that need it.
        sas: String,
    },
    /// The ledger has been used and its witness is gone.
    #[error(
        "the ledger {} was in use, but its witness {} is missing: the ledger may be an old copy. Make new keys for both \
         ends (`headroom tunnel keygen`)", ledger.display(), witness.display()
    )]
    WitnessMissing {
        /// The ledger.
        ledger: PathBuf,
        /// Where its witness should be.
        witness: PathBuf,
    },
    /// A file is not what was written.
    #[error(
        "the ledger {} cannot be used: {what}. What it held is not guessed: make new keys for both ends (`headroom \
         tunnel keygen`)", path.display()
    )]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// One copy is older than it can be.
    #[error(
        "the ledger {} (written {main} times) and its witness {} (written {second} times) do not agree: one of them is \
         an old copy, from a backup or a snapshot, and the numbers used since are not known. Make new keys for both \
         ends (`headroom tunnel keygen`)", ledger.display(), witness.display()
    )]
    Diverged {
        /// The ledger.
        ledger: PathBuf,
        /// Its witness.
        witness: PathBuf,
        /// How often the ledger was written.
        main: u64,
        /// How often the witness was.
        second: u64,
    },
    /// Keys that the ledger does not know.
    #[error(
        "the ledger {} does not know the keys of {sas}. If these keys have never been used, say so once with \
         --new-keys. If they may have been, make new ones for both ends (`headroom tunnel keygen`)", path.display()
    )]
    UnknownKeys {
        /// The ledger.
        path: PathBuf,
        /// The security associations whose keys they are.
        sas: String,
    },
    /// A key that another ledger holds numbers of.
    #[error(
        "the key of {sa} is not new: the ledger {} says that it was used. Make new keys for both ends (`headroom \
         tunnel keygen`)", path.display()
    )]
    UsedElsewhere {
        /// The security association.
        sa: String,
        /// The other ledger.
        path: PathBuf,
    },
    /// Another gateway has it.
    #[error(
        "the ledger {} is in use by another gateway; two gateways with the same keys would repeat each other's \
         sequence numbers. Stop it first (`headroom tunnel down`)", path.display()
    )]
    InUse {
        /// The locked file.
        path: PathBuf,
    },
}

/// A gateway has few capabilities.
fn whose(error: &std::io::Error) -> &'static str {
    match error.kind() {
        std::io::ErrorKind::PermissionDenied => {
            ". The gateway gives up root's right to pass over permissions: the ledger's folder must belong to root"
        }
        _ => "",
    }
}

pub(super) fn failed(doing: &'static str, path: &Path, cause: std::io::Error) -> Error {
    Error::Disk { doing, path: path.to_owned(), cause }
}
