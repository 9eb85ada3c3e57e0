//! Locks files of one gateway.

use std::fs::{OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use headroom_file_lock::LockedFile;

use super::error::{Error, failed};
use super::paths::with_suffix;

/// Locks the file, which is made if it is missing. Returns none if another holds the lock.
///
/// # Errors
/// The file cannot be made or locked.
pub fn try_lock(path: &Path) -> io::Result<Option<LockedFile>> {
    let mut options = OpenOptions::new();
    let file = options.write(true).create(true).truncate(false).mode(0o600).open(path)?;
    match LockedFile::try_exclusive(file) {
        Ok(file) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// Locks `path` through a file beside it, since each write replaces `path` itself.
///
/// # Errors
/// Another holds the lock, or the file cannot be made.
pub(super) fn take(path: &Path) -> Result<LockedFile, Error> {
    let beside = with_suffix(path, ".lock");
    let lock = try_lock(&beside).map_err(|cause| failed("lock", &beside, cause))?;
    lock.ok_or_else(|| Error::InUse { path: path.to_owned() })
}
