//! Locks files of one gateway.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use super::error::{Error, failed};
use super::paths::with_suffix;

/// A locked file. The lock ends when this is dropped, or with the process.
#[derive(Debug)]
pub struct FileLock(File);

impl FileLock {
    /// Locks the file, which is made if it is missing. Returns none if another holds the lock.
    ///
    /// # Errors
    /// The file cannot be made or locked.
    pub fn take(path: &Path) -> io::Result<Option<Self>> {
        let mut options = OpenOptions::new();
        let file = options.write(true).create(true).truncate(false).mode(0o600).open(path)?;
        match file.try_lock() {
            Ok(()) => Ok(Some(Self(file))),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }
}

impl Drop for FileLock {
    fn drop(&mut self) {
        // Closing the file is not enough: a child that another thread has forked and that has not
        // called execve(2) yet has it open as well, and the lock with it (flock(2)).
        let _ = self.0.unlock();
    }
}

/// Locks `path` through a file beside it, since each write replaces `path` itself.
///
/// # Errors
/// Another holds the lock, or the file cannot be made.
pub(super) fn take(path: &Path) -> Result<FileLock, Error> {
    let beside = with_suffix(path, ".lock");
    let lock = FileLock::take(&beside).map_err(|cause| failed("lock", &beside, cause))?;
    lock.ok_or_else(|| Error::InUse { path: path.to_owned() })
}
