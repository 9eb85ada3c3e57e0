//! Replacing small files as a whole.

use std::ffi::OsString;
use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Writes a file beside `path`, with the permissions `mode` less the umask, and renames it to
/// `path` when its content is on the disk. A reader finds the old content or the new, also after a
/// power loss. Whether it is the new is certain only when the folder is synced, too. A link of that
/// name is replaced, not followed.
///
/// Several processes may do this at once, but only one thread of each.
///
/// # Errors
/// The file cannot be written. The old content stays, and nothing beside it.
pub fn replace(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    let draft = draft(path);
    // what is there is of a process that was killed, or somebody else's, perhaps a link
    match fs::remove_file(&draft) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&draft)?;
    let written = file
        .write_all(content)
        .and_then(|()| file.sync_all())
        .and_then(|()| fs::rename(&draft, path));
    if written.is_err() {
        let _ = fs::remove_file(&draft);
    }
    written
}

/// Names the file of this process that gets the name `path`: hidden, and with a suffix that no
/// reader of folders looks for.
fn draft(path: &Path) -> PathBuf {
    let mut name = OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(format!(".{}.new", std::process::id()));
    path.with_file_name(name)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn replaces_content_and_permissions_and_leaves_nothing_beside() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("file");
        fs::write(&path, "a longer old content").expect("a file");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).expect("permissions");
        replace(&path, b"new", 0o600).expect("replaced");
        assert_eq!(fs::read(&path).expect("the file"), b"new");
        assert_eq!(fs::metadata(&path).expect("the file").permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 1);
    }

    #[test]
    fn leaves_the_old_and_nothing_beside_it_if_it_fails() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("folder");
        fs::create_dir(&path).expect("what no file replaces");
        assert!(replace(&path, b"new", 0o600).is_err());
        assert!(path.is_dir());
        assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 1);
    }

    #[test]
    fn follows_no_link() {
        let folder = tempfile::tempdir().expect("a folder");
        let (path, victim) = (folder.path().join("file"), folder.path().join("victim"));
        fs::write(&victim, "precious").expect("a file");
        symlink(&victim, &path).expect("a link");
        symlink(&victim, draft(&path)).expect("a link");
        replace(&path, b"new", 0o600).expect("replaced");
        assert!(fs::symlink_metadata(&path).expect("the file").is_file());
        assert_eq!(fs::read(&path).expect("the file"), b"new");
        assert_eq!(fs::read(&victim).expect("the other"), b"precious");
    }
}
