//! Changes directories whose mode forbids writing to their owner.

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Mutex;

use headroom_mutex::lock;
use nix::errno::Errno;
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::{Mode, fchmod, fstat};
use nix::unistd::geteuid;

/// Permissions needed to make, rename and remove names in a directory.
const CHANGE: Mode = Mode::S_IWUSR.union(Mode::S_IXUSR);

/// Attempts, because another program may restore a directory's mode between two steps of this
/// one.
const ATTEMPTS: usize = 4;

/// Changes a directory by `act`, which makes, renames or removes a name in it. If the mode
/// forbids that to this user, who owns the directory, it is changed for that moment, as rsync
/// does.
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
    /// One thread at a time, so that none sees a mode that is to be restored.
    static UNLOCKING: Mutex<()> = Mutex::new(());
    let mut outcome = act();
    for _ in 0..ATTEMPTS {
        if !matches!(outcome, Err(Errno::EACCES)) {
            break;
        }
        let _alone = lock(&UNLOCKING);
        // a directory of another user may allow it already
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
