//! Files that are locked (flock(2)) as long as they are in use.

use std::fs::{File, TryLockError};
use std::io;
use std::ops::{Deref, DerefMut};

/// A locked file. The lock ends when this is dropped, or with the process.
#[derive(Debug)]
pub struct LockedFile(File);

impl LockedFile {
    /// Locks a file for this holder alone. Waits until no other holder has locked it.
    ///
    /// # Errors
    /// The system refuses.
    pub fn exclusive(file: File) -> io::Result<Self> {
        file.lock()?;
        Ok(Self(file))
    }

    /// Locks a file for this holder alone, without waiting.
    ///
    /// # Errors
    /// Another holder has locked it (`WouldBlock`), or the system refuses.
    pub fn try_exclusive(file: File) -> Result<Self, TryLockError> {
        file.try_lock()?;
        Ok(Self(file))
    }

    /// Locks a file that other holders may lock like this as well, without waiting.
    ///
    /// # Errors
    /// Another holder has locked it for itself alone (`WouldBlock`), or the system refuses.
    pub fn try_shared(file: File) -> Result<Self, TryLockError> {
        file.try_lock_shared()?;
        Ok(Self(file))
    }

    /// Takes a file without a name: no other holder can open it, so that it needs no lock.
    #[must_use]
    pub fn unnamed(file: File) -> Self {
        Self(file)
    }
}

impl Drop for LockedFile {
    fn drop(&mut self) {
        // Closing the file is not enough: a child that another thread has forked and that has not
        // called execve(2) yet has it open as well, and the lock with it (flock(2)).
        let _ = self.0.unlock();
    }
}

impl Deref for LockedFile {
    type Target = File;

    fn deref(&self) -> &File {
        &self.0
    }
}

impl DerefMut for LockedFile {
    fn deref_mut(&mut self) -> &mut File {
        &mut self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lock_ends_although_a_forked_child_has_the_file_open() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("lock");
        let open = || File::options().create(true).append(true).open(&path).expect("opened");
        let is_free = || LockedFile::try_exclusive(open()).is_ok();
        let waited = LockedFile::exclusive(open()).expect("locked");
        // a descriptor of the same open file, which is what a child has
        let of_a_child = waited.try_clone().expect("a descriptor");
        assert!(!is_free());
        drop(waited);
        assert!(is_free());
        drop(of_a_child);
    }

    #[test]
    fn several_lock_a_file_beside_each_other_but_none_alone() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("lock");
        let open = || File::options().create(true).append(true).open(&path).expect("opened");
        let two = [(); 2].map(|()| LockedFile::try_shared(open()).expect("locked"));
        let alone = LockedFile::try_exclusive(open());
        assert!(matches!(alone, Err(TryLockError::WouldBlock)));
        drop(two);
        let _alone = LockedFile::try_exclusive(open()).expect("locked");
        assert!(matches!(LockedFile::try_shared(open()), Err(TryLockError::WouldBlock)));
    }
}
