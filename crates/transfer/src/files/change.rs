//! Changes to directories in which their owner may not write.

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Mutex, PoisonError};

use nix::errno::Errno;
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::{Mode, fchmod, fstat};
use nix::unistd::geteuid;

/// What it takes to make, rename and remove names in a directory.
const CHANGE: Mode = Mode::S_IWUSR.union(Mode::S_IXUSR);

/// Another program may restore a directory's mode between two steps of this one.
const ATTEMPTS: usize = 4;

/// Changes a directory by `act`, which makes, renames or removes a name in it. Where the
/// mode forbids that to this user, who owns the directory, it allows it meanwhile, as
/// rsync does.
pub(super) fn change<T>(
    directory: &OwnedFd,
    act: impl FnMut() -> nix::Result<T>,
) -> nix::Result<T> {
    change_all(&[directory], act)
}

/// Changes several directories by one `act`, as [`change`] does one.
pub(super) fn change_all<T>(
    directories: &[&OwnedFd],
    mut act: impl FnMut() -> nix::Result<T>,
) -> nix::Result<T> {
    /// One thread at a time: no other finds a mode that is to be restored.
    static UNLOCKING: Mutex<()> = Mutex::new(());
    let mut outcome = act();
    for _ in 0..ATTEMPTS {
        if !matches!(outcome, Err(Errno::EACCES)) {
            break;
        }
        let _alone = UNLOCKING.lock().unwrap_or_else(PoisonError::into_inner);
        // another user's may allow it as it is
        let unlocked: Vec<_> =
            directories.iter().filter_map(|directory| Unlocked::new(directory).ok()).collect();
        if unlocked.is_empty() {
            break;
        }
        outcome = act();
        drop(unlocked);
    }
    outcome
}

/// A directory that its owner may change until this is dropped.
struct Unlocked {
    directory: File,
    before: Option<Mode>,
}

impl Unlocked {
    fn new(directory: &OwnedFd) -> nix::Result<Self> {
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let directory = File::from(openat(directory.as_fd(), ".", flags, Mode::empty())?);
        let stat = fstat(&directory)?;
        if stat.st_uid != geteuid().as_raw() {
            return Err(Errno::EACCES);
        }
        let mode = Mode::from_bits_truncate(stat.st_mode);
        let before = (!mode.contains(CHANGE)).then_some(mode);
        if before.is_some() {
            fchmod(&directory, mode | CHANGE)?;
        }
        Ok(Self { directory, before })
    }
}

impl Drop for Unlocked {
    fn drop(&mut self) {
        if let Some(before) = self.before {
            // it was allowed a moment ago
            let _ = fchmod(&self.directory, before);
        }
    }
}
