//! Replacing small files as a whole.

use std::ffi::OsString;
use std::fs::{self, DirEntry, OpenOptions};
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The end of a draft's name, which no reader of folders looks for.
const SUFFIX: &str = ".new";
/// Hexadecimal digits in a draft's name.
const DIGITS: usize = 16;
/// The age of a draft whose process was killed: no small file takes so long to write.
const ABANDONED: Duration = Duration::from_secs(3600);

/// Writes a draft beside `path`, with the permissions `mode` less the umask, and renames it to
/// `path` when its content is on the disk. A reader finds the old content or the new, also after a
/// power loss. Whether it is the new is certain only when the folder is synced, too. A link of that
/// name is replaced, not followed.
///
/// Several threads and processes may do this at once: the last rename counts. It also removes drafts
/// of `path` that killed processes left more than an hour ago.
///
/// # Errors
/// The file cannot be written. The old content stays, and no draft of this call.
pub fn replace(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    remove_abandoned_drafts(path);
    let draft = draft(path);
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

/// Names a new draft. The name is random: process ids are the same in several containers.
fn draft(path: &Path) -> PathBuf {
    let mut name = beginning(path);
    let id = RandomState::new().hash_one(path);
    name.push(format!("{id:0DIGITS$x}{SUFFIX}"));
    path.with_file_name(name)
}

/// Returns the beginning of the names of a file's drafts, which are hidden.
fn beginning(path: &Path) -> OsString {
    let mut name = OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(".");
    name
}

/// Removes the drafts that nobody renames any more. One that cannot be removed does no harm.
fn remove_abandoned_drafts(path: &Path) {
    let beginning = beginning(path);
    let is_draft = |entry: &DirEntry| {
        let name = entry.file_name();
        let rest = name.as_bytes().strip_prefix(beginning.as_bytes());
        let id = rest.and_then(|rest| rest.strip_suffix(SUFFIX.as_bytes()));
        id.is_some_and(|id| id.len() == DIGITS && id.iter().all(u8::is_ascii_hexdigit))
    };
    let is_abandoned = |entry: &DirEntry| {
        let written = entry.metadata().and_then(|metadata| metadata.modified());
        written.is_ok_and(|written| written.elapsed().is_ok_and(|age| age > ABANDONED))
    };
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let entries = fs::read_dir(folder.unwrap_or(Path::new("."))).into_iter().flatten().flatten();
    for entry in entries.filter(|entry| is_draft(entry) && is_abandoned(entry)) {
        let _ = fs::remove_file(entry.path());
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::time::SystemTime;

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
        replace(&path, b"new", 0o600).expect("replaced");
        assert!(fs::symlink_metadata(&path).expect("the file").is_file());
        assert_eq!(fs::read(&path).expect("the file"), b"new");
        assert_eq!(fs::read(&victim).expect("the other"), b"precious");
    }

    #[test]
    fn threads_replace_one_file_at_once() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("file");
        std::thread::scope(|scope| {
            for letter in *b"abcd" {
                let path = &path;
                scope.spawn(move || {
                    for _ in 0..4 {
                        replace(path, &[letter; 10_000], 0o600).expect("replaced");
                    }
                });
            }
        });
        let content = fs::read(&path).expect("the file");
        assert_eq!(content.len(), 10_000);
        assert!(content.iter().all(|byte| *byte == content[0]), "it is of several threads");
        assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 1);
    }

    #[test]
    fn removes_old_drafts_of_the_file_and_nothing_else() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("file");
        let write = |file: &Path, age: Duration| {
            fs::write(file, "content").expect("a file");
            let file = OpenOptions::new().write(true).open(file).expect("the file");
            file.set_modified(SystemTime::now() - age).expect("a time");
        };
        let (old, recent) = (draft(&path), draft(&path));
        write(&old, 2 * ABANDONED);
        write(&recent, ABANDONED / 2);
        let of_others = [draft(&folder.path().join("other")), folder.path().join(".file.copy.new")];
        of_others.iter().for_each(|file| write(file, 2 * ABANDONED));
        replace(&path, b"new", 0o600).expect("replaced");
        assert!(!old.exists() && recent.exists());
        assert!(of_others.iter().all(|file| file.exists()));
    }
}
