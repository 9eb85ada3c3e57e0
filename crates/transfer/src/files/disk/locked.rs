//! Temporary files: created or found, and locked for one writer or for several.

use std::fs::{File, TryLockError};
use std::os::fd::OwnedFd;

use headroom_file_lock::LockedFile;
use headroom_transfer_proto::path::shown;
use nix::errno::Errno;
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::Mode;
use nix::unistd::{UnlinkatFlags, geteuid, unlinkat};

use super::change::change;
use super::open::{HARMLESS, leads_to, open_ordinary};
use crate::files::error::ErrorKind;
use crate::files::metadata::Metadata;

/// Locks a file, for one writer or for several.
pub(super) type Lock = fn(File) -> Result<LockedFile, TryLockError>;

/// Opens and locks the temporary file. Returns its metadata, and whether it was created.
pub(super) fn open_locked(
    directory: &OwnedFd,
    name: &[u8],
    lock: Lock,
) -> Result<(LockedFile, Metadata, bool), ErrorKind> {
    // each iteration means that another transfer ended between two steps of this one
    for _ in 0..16 {
        let made = OFlag::O_RDWR | OFlag::O_CREAT | OFlag::O_EXCL | HARMLESS;
        let mode = Mode::from_bits_truncate(0o600);
        let (file, is_new) = match change(directory, || openat(directory, name, made, mode)) {
            Ok(file) => (File::from(file), true),
            Err(Errno::EEXIST) => match open_ordinary(directory, name, OFlag::O_RDWR) {
                Ok((file, _)) => (file, false),
                Err(ErrorKind::Missing) => continue,
                Err(ErrorKind::Clash { .. }) => return Err(foreign(name)),
                Err(ErrorKind::Denied) => {
                    // if killed just before the rename, it has the final mode
                    if Metadata::at(directory, name, false)?.owner != geteuid().as_raw() {
                        return Err(foreign(name));
                    }
                    change(directory, || unlinkat(directory, name, UnlinkatFlags::NoRemoveDir))?;
                    continue;
                }
                Err(kind) => return Err(kind),
            },
            Err(error) => return Err(error.into()),
        };
        let file = match lock(file) {
            Ok(file) => file,
            Err(TryLockError::WouldBlock) => return Err(ErrorKind::Busy),
            Err(TryLockError::Error(error)) => return Err(ErrorKind::of(error)),
        };
        if let Some(metadata) = own(directory, name, &file)? {
            return Ok((file, metadata, is_new));
        }
    }
    Err(ErrorKind::Busy)
}

/// Returns the metadata of an open file that belongs to this user alone; `None` if it no longer
/// has the name.
fn own(directory: &OwnedFd, name: &[u8], file: &File) -> Result<Option<Metadata>, ErrorKind> {
    let metadata = Metadata::of(file)?;
    // a file of another user, or with another name, may have been put
    if metadata.owner != geteuid().as_raw() || metadata.links > 1 {
        return Err(foreign(name));
    }
    Ok(leads_to(directory, name, metadata.identity)?.then_some(metadata))
}

fn foreign(name: &[u8]) -> ErrorKind {
    ErrorKind::Foreign(shown(name).to_string().into())
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::fs;

    use super::*;

    thread_local! {
        /// Descriptors of locked open files, which is what forked children have.
        static OF_CHILDREN: RefCell<Vec<File>> = const { RefCell::new(Vec::new()) };
    }

    fn lock_beside_a_child(file: File) -> Result<LockedFile, TryLockError> {
        let of_a_child = file.try_clone().expect("a descriptor");
        OF_CHILDREN.with_borrow_mut(|files| files.push(of_a_child));
        LockedFile::try_exclusive(file)
    }

    #[test]
    fn unlocks_a_file_that_it_refuses_although_a_forked_child_has_it_open() {
        const NAME: &str = ".file.0123456789abcdef.headroom-part";
        let folder = tempfile::tempdir().expect("a folder");
        let directory = OwnedFd::from(File::open(folder.path()).expect("opened"));
        let (first, second) = (folder.path().join(NAME), folder.path().join("second"));
        fs::write(&first, "content").expect("a file");
        fs::hard_link(&first, &second).expect("a second name");
        let refused = open_locked(&directory, NAME.as_bytes(), lock_beside_a_child);
        assert!(matches!(refused, Err(ErrorKind::Foreign(_))), "{refused:?}");
        assert_eq!(OF_CHILDREN.with_borrow(Vec::len), 1);
        fs::remove_file(&second).expect("removed");
        open_locked(&directory, NAME.as_bytes(), LockedFile::try_exclusive)
            .expect("nobody has it locked");
    }
}
