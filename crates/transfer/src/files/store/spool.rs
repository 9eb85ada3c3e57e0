//! Files without a name, for what is on its way into a store.

use std::fs::{File, OpenOptions, remove_file};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, OFlag, openat};
use nix::sys::stat::Mode;

use crate::files::error::ErrorKind;

/// Creates an empty file in a folder that nobody else can open.
///
/// # Errors
/// The folder is missing, or no file can be made in it.
pub(super) fn unnamed_file(folder: &Path) -> Result<File, ErrorKind> {
    let flags = OFlag::O_TMPFILE | OFlag::O_RDWR | OFlag::O_CLOEXEC;
    match openat(AT_FDCWD, folder, flags, Mode::S_IRUSR | Mode::S_IWUSR) {
        Ok(file) => Ok(File::from(file)),
        // this file system has no unnamed files
        Err(Errno::EOPNOTSUPP | Errno::EISDIR | Errno::EINVAL) => removed_file(folder),
        Err(error) => Err(unusable(folder, &error.into())),
    }
}

/// Creates a file and removes its name.
fn removed_file(folder: &Path) -> Result<File, ErrorKind> {
    static MADE: AtomicU64 = AtomicU64::new(0);
    let number = MADE.fetch_add(1, Ordering::Relaxed);
    let path = folder.join(format!(".headroom-spool-{}-{number}", std::process::id()));
    let make = || -> std::io::Result<File> {
        let file =
            OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&path)?;
        remove_file(&path)?;
        Ok(file)
    };
    make().map_err(|error| unusable(folder, &error))
}

fn unusable(folder: &Path, error: &std::io::Error) -> ErrorKind {
    ErrorKind::Store(
        format!(
            "no temporary file can be made in {}: {error}; name another folder by --spool",
            folder.display()
        )
        .into(),
    )
}
