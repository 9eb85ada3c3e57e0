//! The folder with a job's state, on a local disk: the embedded engine's database, and the lock
//! of the run.

use std::fs::{DirBuilder, File, TryLockError};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use headroom_file_lock::LockedFile;

use crate::error::Error;
use crate::job::Job;
use crate::sqlite::Sqlite;

/// The file whose lock a run has.
const LOCK: &str = "run.lock";

/// A folder with the state of a job.
#[derive(Debug, Clone)]
pub struct StateFolder(PathBuf);

/// Keeps other runs out until it is dropped.
#[derive(Debug)]
pub struct Lock {
    _file: LockedFile,
}

impl StateFolder {
    /// Names a folder, which may be missing.
    #[must_use]
    pub const fn new(path: PathBuf) -> Self {
        Self(path)
    }

    /// Returns its path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Makes the folder, for its user alone, and keeps other runs out.
    ///
    /// # Errors
    /// It cannot be made, or another run has it ([`Error::Busy`]).
    pub fn lock(&self) -> Result<Lock, Error> {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&self.0);
        made.map_err(Error::system("make the state folder", &self.0))?;
        let path = self.0.join(LOCK);
        let opened = File::options().create(true).truncate(false).write(true).open(&path);
        let file = opened.map_err(Error::system("write", &path))?;
        match LockedFile::try_exclusive(file) {
            Ok(file) => Ok(Lock { _file: file }),
            Err(TryLockError::WouldBlock) => Err(Error::Busy(self.0.clone())),
            Err(TryLockError::Error(cause)) => Err(Error::system("lock", &path)(cause)),
        }
    }

    /// Opens the state of a job, or makes it. What has changed in the job file applies from now on.
    ///
    /// # Errors
    /// It is that of another job or version, or cannot be read or written.
    pub fn begin(&self, _lock: &Lock, job: &Job, file: &Path) -> Result<Sqlite, Error> {
        Sqlite::begin(&self.0, job, file)
    }

    /// Removes the state, so that the job starts again.
    ///
    /// # Errors
    /// It cannot be removed.
    pub fn clear(&self, _lock: &Lock) -> Result<(), Error> {
        Sqlite::remove(&self.0)
    }

    /// Opens the state of a job that was begun.
    ///
    /// # Errors
    /// There is none, it is of another version, or cannot be read.
    pub fn open(&self) -> Result<Sqlite, Error> {
        Sqlite::open(&self.0)
    }

    /// Opens the state of a job for a short look, or to steer it, beside a run that may start it
    /// again meanwhile.
    ///
    /// # Errors
    /// As those of [`Self::open`].
    pub fn open_beside(&self) -> Result<Sqlite, Error> {
        Sqlite::open_beside(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_run_is_kept_out_until_the_first_ends() {
        let ground = tempfile::tempdir().expect("a folder");
        let folder = StateFolder::new(ground.path().join("a/b"));
        let lock = folder.lock().expect("nobody has it");
        // a descriptor of the same open file, which is what a forked child has
        let of_a_child = lock._file.try_clone().expect("a descriptor");
        let error = folder.lock().expect_err("the first has it");
        assert!(matches!(error, Error::Busy(_)), "{error}");
        drop(lock);
        folder.lock().expect("nobody has it");
        drop(of_a_child);
        assert!(matches!(folder.open(), Err(Error::NoJob(_))));
    }
}
