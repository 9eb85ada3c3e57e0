//! Deletes partial files that were not resumed.

use std::fs::TryLockError;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use headroom_file_lock::LockedFile;
use headroom_transfer_proto::path::RelPath;
use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::unistd::{UnlinkatFlags, geteuid, unlinkat};

use super::change::change;
use super::names::Names;
use super::open::open_ordinary;
use super::root::Root;
use crate::files::cleanup::CleanupStats;
use crate::files::error::{ErrorKind, FileType};
use crate::files::metadata::Metadata;
use crate::files::temporary;

struct Level {
    path: Option<RelPath>,
    names: Names,
    directory: Option<Arc<OwnedFd>>,
}

impl Root {
    /// Deletes partial files that were not written to for `age`. Open files, files of other users
    /// and files with a second name stay; what cannot be read is skipped. No link is followed.
    pub fn remove_unfinished(&self, age: Duration) -> CleanupStats {
        let mut stats = CleanupStats::default();
        let Some(before) = SystemTime::now().checked_sub(age) else { return stats };
        let mut levels = vec![Level { path: None, names: Names::new(), directory: None }];
        while let Some(level) = levels.last_mut() {
            let directory = match &level.directory {
                Some(directory) => Ok(Arc::clone(directory)),
                None => self.beneath().directory(level.path.as_ref().map(RelPath::as_bytes)),
            };
            let Ok(directory) = directory else {
                levels.pop();
                continue;
            };
            level.directory = Some(Arc::clone(&directory));
            let Some(Ok(name)) = level.names.next(&directory) else {
                levels.pop();
                continue;
            };
            if temporary::is_temporary(&name) {
                match remove(&directory, &name, before) {
                    Ok(Some(bytes)) => {
                        stats.removed += 1;
                        stats.bytes += bytes;
                    }
                    Ok(None) | Err(_) => stats.left += 1,
                }
            } else if Metadata::at(&directory, &name, false)
                .is_ok_and(|metadata| metadata.file_type == FileType::Directory)
            {
                let path = match &level.path {
                    Some(path) => path.child(&name),
                    None => RelPath::single(&name),
                };
                if let Ok(path) = path {
                    level.directory = None;
                    levels.push(Level { path: Some(path), names: Names::new(), directory: None });
                }
            }
        }
        stats
    }
}

/// Deletes a partial file if it is old and not in use, and returns how many bytes it used.
fn remove(directory: &OwnedFd, name: &[u8], before: SystemTime) -> Result<Option<u64>, ErrorKind> {
    let metadata = Metadata::at(directory, name, false)?;
    if metadata.owner != geteuid().as_raw() || metadata.links > 1 || !metadata.is_older(before) {
        return Ok(None);
    }
    if metadata.file_type == FileType::Symlink {
        // a link whose program was killed before renaming it
        change(directory, || unlinkat(directory, name, UnlinkatFlags::NoRemoveDir))?;
        return Ok(Some(0));
    }
    let (file, metadata) = open_ordinary(directory, name, OFlag::O_RDONLY)?;
    let _locked = match LockedFile::try_exclusive(file) {
        Ok(locked) => locked,
        Err(TryLockError::WouldBlock) => return Ok(None),
        Err(TryLockError::Error(error)) => return Err(ErrorKind::of(error)),
    };
    // it may have been resumed before it was locked
    let now = Metadata::at(directory, name, false)?;
    if now.identity != metadata.identity || !now.is_older(before) {
        return Ok(None);
    }
    match change(directory, || unlinkat(directory, name, UnlinkatFlags::NoRemoveDir)) {
        Ok(()) => Ok(Some(now.allocated)),
        Err(Errno::ENOENT) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::files::offer::Offer;
    use headroom_transfer_proto::message::Time;

    #[test]
    fn old_partial_files_are_removed_and_nothing_else() {
        let folder = tempfile::tempdir().expect("a folder");
        let outside = tempfile::tempdir().expect("a folder");
        let root = Root::open(folder.path()).expect("a root");
        std::fs::create_dir_all(folder.path().join("a/b")).expect("a folder");
        std::fs::write(folder.path().join("a/file"), "content").expect("a file");
        symlink(outside.path(), folder.path().join("out")).expect("a link");
        let elsewhere = outside.path().join(".film.0123456789abcdef.headroom-part");
        std::fs::write(&elsewhere, "content").expect("a file");
        let begin = |name: &[u8]| {
            let path = RelPath::parse(name).expect("a name");
            let mtime = Time { seconds: 7, nanoseconds: 0 };
            let offer = Offer { size: 9000, mtime, data: 0, reuse: false };
            let partial = root.begin(&path, &offer).expect("it is new");
            partial.write_at(0, &[1; 5000]).expect("it is written");
            partial
        };
        let going_on = begin(b"a/going on");
        drop((begin(b"left"), begin(b"a/b/left")));
        let none = root.remove_unfinished(Duration::from_secs(3600));
        assert_eq!(none, CleanupStats { removed: 0, bytes: 0, left: 3 });
        // times of files are those of the last tick
        std::thread::sleep(Duration::from_millis(50));
        let two = root.remove_unfinished(Duration::ZERO);
        assert_eq!((two.removed, two.left), (2, 1));
        assert!(two.bytes >= 10_000);
        drop(going_on);
        assert_eq!(root.remove_unfinished(Duration::ZERO).removed, 1);
        assert!(elsewhere.exists() && folder.path().join("a/file").exists());
    }
}
