//! Why a ledger was refused or could not be written.

use std::path::{Path, PathBuf};

/// Why a ledger was refused or could not be written.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file or folder could not be read or written.
    #[error("cannot {doing} {}: {cause}; no sequence number is used before it is recorded{}", path.display(), remedy(cause))]
    Disk {
        /// The failed operation.
        doing: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The error of the system.
        cause: std::io::Error,
    },
    /// There is no ledger.
    #[error(
        "the ledger {} is missing, so the sequence numbers used with the keys of {sas} are unknown. If these keys \
         have never been used, start once with --new-keys. Otherwise make new keys for both ends (`headroom tunnel \
         keygen`)", path.display()
    )]
    Missing {
        /// The ledger.
        path: PathBuf,
        /// The security associations that need it.
        sas: String,
    },
    /// The ledger was used before, and its second copy is missing.
    #[error(
        "the ledger {} was used before, but its second copy {} is missing: the ledger may be outdated. Make new keys for both \
         ends (`headroom tunnel keygen`)", ledger.display(), copy.display()
    )]
    CopyMissing {
        /// The ledger.
        ledger: PathBuf,
        /// Where its second copy should be.
        copy: PathBuf,
    },
    /// A file is damaged.
    #[error(
        "the ledger {} is damaged: {what}. Make new keys for both ends (`headroom tunnel keygen`)", path.display()
    )]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// The damage.
        what: String,
    },
    /// One copy is outdated.
    #[error(
        "the ledger {} (written {main} times) and its second copy {} (written {second} times) differ: one of them is \
         outdated, restored from a backup or a snapshot, and the numbers used since are unknown. Make new keys for \
         both ends (`headroom tunnel keygen`)", ledger.display(), copy.display()
    )]
    Diverged {
        /// The ledger.
        ledger: PathBuf,
        /// The second copy.
        copy: PathBuf,
        /// How often the ledger was written.
        main: u64,
        /// How often the second copy was.
        second: u64,
    },
    /// The ledger does not contain these keys.
    #[error(
        "the ledger {} does not contain the keys of {sas}. If these keys have never been used, start once with \
         --new-keys. Otherwise make new keys for both ends (`headroom tunnel keygen`)", path.display()
    )]
    UnknownKeys {
        /// The ledger.
        path: PathBuf,
        /// The security associations with these keys.
        sas: String,
    },
    /// Another ledger contains a key that is said to be new.
    #[error(
        "the key of {sa} is not new: the ledger {} records that it was used. Make new keys for both ends (`headroom \
         tunnel keygen`)", path.display()
    )]
    UsedElsewhere {
        /// The security association.
        sa: String,
        /// The other ledger.
        path: PathBuf,
    },
    /// Another gateway uses the ledger.
    #[error(
        "the ledger {} is in use by another gateway. Two gateways with the same keys would repeat each other's \
         sequence numbers: stop the other first (`headroom tunnel down`)", path.display()
    )]
    InUse {
        /// The locked file.
        path: PathBuf,
    },
}

/// Returns the remedy if the gateway lacks the permission.
fn remedy(error: &std::io::Error) -> &'static str {
    match error.kind() {
        std::io::ErrorKind::PermissionDenied => {
            ". The gateway drops root's override of permissions: the ledger's folder must belong to root"
        }
        _ => "",
    }
}

pub(super) fn failed(doing: &'static str, path: &Path, cause: std::io::Error) -> Error {
    Error::Disk { doing, path: path.to_owned(), cause }
}
