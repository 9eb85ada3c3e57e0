//! Locks a ledger for one gateway. The lock ends with the process.

use std::fs::{File, OpenOptions, TryLockError};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use super::error::{Error, failed};
use super::paths::with_suffix;

/// Locks `path` through a file beside it, since each write replaces `path` itself. The lock is held
/// while the returned file is open.
///
/// # Errors
/// Another process holds the lock, or the file cannot be made.
pub(super) fn take(path: &Path) -> Result<File, Error> {
    let beside = with_suffix(path, ".lock");
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(&beside)
        .map_err(|cause| failed("make the lock", &beside, cause))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(Error::InUse { path: path.to_owned() }),
        Err(TryLockError::Error(cause)) => Err(failed("lock", &beside, cause)),
    }
}
