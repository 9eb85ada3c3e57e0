//! Folders for what is between two servers. Each has the files of one item, is for this user
//! alone, and is removed when the item is done; what killed processes left is removed by the next
//! one.

use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use headroom_transfer::Error as TransferError;

use crate::process::{is_gone, name_of};

/// What the names of the folders begin with; the process and a number follow.
const PREFIX: &str = "headroom-fleet-";
/// Names that are tried: another process may have made some.
const MAX_TRIED: u32 = 1000;

/// Makes folders in the system's folder for temporary files.
#[derive(Debug)]
pub(crate) struct Spool {
    folder: PathBuf,
    made: AtomicU64,
}

/// A folder that is removed with this.
#[derive(Debug)]
pub(crate) struct Scratch(PathBuf);

impl Spool {
    /// Removes what processes of this user that are no more have left.
    pub(crate) fn new() -> Self {
        Self::within(std::env::temp_dir())
    }

    fn within(folder: PathBuf) -> Self {
        remove_leftovers(&folder);
        Self { folder, made: AtomicU64::new(0) }
    }

    /// Makes a folder.
    ///
    /// # Errors
    /// The system refuses.
    pub(crate) fn scratch(&self) -> Result<Scratch, TransferError> {
        let process = name_of(std::process::id());
        let mut make = DirBuilder::new();
        make.mode(0o700);
        let mut made = Err(io::Error::from(io::ErrorKind::AlreadyExists));
        for _ in 0..MAX_TRIED {
            let number = self.made.fetch_add(1, Ordering::Relaxed);
            let path = self.folder.join(format!("{PREFIX}{process}-{number}"));
            made = make.create(&path).map(|()| Scratch(path));
            if !made.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::AlreadyExists) {
                break;
            }
        }
        made.map_err(|cause| TransferError::System {
            doing: format!("make a folder for temporary files in {}", self.folder.display()),
            cause,
        })
    }
}

impl Scratch {
    /// Returns its path.
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        remove(&self.0);
    }
}

/// Removes a folder and everything in it; what stays is removed by the next process.
fn remove(folder: &Path) {
    if fs::remove_dir_all(folder).is_err() {
        make_writable(folder);
        let _ = fs::remove_dir_all(folder);
    }
}

/// Lets this user remove what is in directories that have the modes of the source.
fn make_writable(folder: &Path) {
    let mut left = vec![folder.to_owned()];
    while let Some(directory) = left.pop() {
        let _ = fs::set_permissions(&directory, Permissions::from_mode(0o700));
        let Ok(entries) = fs::read_dir(&directory) else { continue };
        // no link is followed
        let is_directory = |entry: &fs::DirEntry| entry.file_type().is_ok_and(|of| of.is_dir());
        left.extend(entries.flatten().filter(is_directory).map(|entry| entry.path()));
    }
}

fn remove_leftovers(folder: &Path) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let process = name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.rsplit_once('-'));
        let is_left = process.is_some_and(|(process, _)| is_gone(process));
        // of a folder of another user nothing is removed
        let is_own =
            |meta: &fs::Metadata| meta.is_dir() && meta.uid() == nix::unistd::geteuid().as_raw();
        if is_left && entry.metadata().is_ok_and(|meta| is_own(&meta)) {
            remove(&entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn a_folder_is_removed_whatever_is_in_it() {
        let ground = tempfile::tempdir().expect("a folder");
        let spool = Spool::within(ground.path().to_owned());
        let scratch = spool.scratch().expect("a folder");
        let mode = fs::metadata(scratch.path()).expect("it is there").mode();
        assert_eq!(mode & 0o777, 0o700);
        fs::create_dir(scratch.path().join("a")).expect("a folder");
        fs::write(scratch.path().join("a/file"), "content").expect("a file");
        let read_only = Permissions::from_mode(0o500);
        fs::set_permissions(scratch.path().join("a"), read_only).expect("chmod");
        let other = spool.scratch().expect("another folder");
        assert_ne!(scratch.path(), other.path());
        drop((scratch, other));
        assert_eq!(fs::read_dir(ground.path()).expect("a folder").count(), 0);
    }

    #[test]
    fn what_a_killed_process_has_left_is_removed_and_nothing_else() {
        let ground = tempfile::tempdir().expect("a folder");
        let program = std::env::current_exe().expect("this program");
        let mut command = Command::new(program);
        let mut child = command.arg("--list").stdout(Stdio::null()).spawn().expect("it starts");
        let gone = name_of(child.id());
        child.wait().expect("it ends");
        let here = name_of(std::process::id());
        let names = [gone.as_str(), here.as_str(), "elsewhere.1"];
        let names = names.map(|process| format!("{PREFIX}{process}-0"));
        for name in &names {
            fs::create_dir(ground.path().join(name)).expect("a folder");
        }
        Spool::within(ground.path().to_owned());
        let is_there = names.map(|name| ground.path().join(name).exists());
        assert_eq!(is_there, [false, true, true]);
    }
}
