//! Follows `authorized_keys` while a server runs, and reads it again when it has changed.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::authorized_keys::AuthorizedKeys;
use super::error::Error;

/// A file of authorized keys that may change.
#[derive(Debug)]
pub struct Followed {
    path: PathBuf,
    /// Its state when it was read, and when it was last checked.
    read: Stamp,
    looked_at: Stamp,
}

/// A state of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stamp {
    Missing,
    Unreadable(io::ErrorKind),
    /// Device, inode and size; modification and change time in seconds and nanoseconds.
    File([u64; 3], [i64; 4]),
}

impl Followed {
    /// Follows a file from its current state on. Read the file after this call.
    #[must_use]
    pub fn new(path: &Path) -> Self {
        let stamp = Stamp::of(path);
        Self { path: path.to_owned(), read: stamp, looked_at: stamp }
    }

    /// Returns the file's path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the keys, if the file has changed, and errors for skipped lines. A change counts
    /// when two checks find the same state: the file may just be being written. A missing file has
    /// no keys.
    ///
    /// # Errors
    /// It cannot be read, or others could have written it.
    pub fn look(&mut self) -> Option<Result<(AuthorizedKeys, Vec<Error>), Error>> {
        let now = Stamp::of(&self.path);
        let is_settled = std::mem::replace(&mut self.looked_at, now) == now;
        if now == self.read || !is_settled {
            return None;
        }
        self.read = now;
        Some(match now {
            Stamp::Missing => Ok((AuthorizedKeys::default(), Vec::new())),
            _ => AuthorizedKeys::read_what_is_right(&self.path),
        })
    }
}

impl Stamp {
    fn of(path: &Path) -> Self {
        match fs::metadata(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Self::Missing,
            Err(error) => Self::Unreadable(error.kind()),
            Ok(meta) => Self::File(
                [meta.dev(), meta.ino(), meta.size()],
                [meta.mtime(), meta.mtime_nsec(), meta.ctime(), meta.ctime_nsec()],
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::identity::Identity;
    use crate::key::PublicKey;

    fn key() -> PublicKey {
        Identity::ephemeral().expect("a key").public()
    }

    /// What comes of a change, which must have settled.
    fn after(followed: &mut Followed) -> Option<Result<(AuthorizedKeys, Vec<Error>), Error>> {
        assert!(followed.look().is_none(), "it may be just being written");
        followed.look()
    }

    #[test]
    fn a_changed_file_of_keys_is_read_once_and_its_wrong_lines_authorize_nobody() {
        let ground = tempfile::tempdir().expect("a folder");
        let path = ground.path().join("authorized_keys");
        let [one, two, three] = [key(), key(), key()];
        fs::write(&path, format!("{one}\n")).expect("a file");
        let mut followed = Followed::new(&path);
        assert!(followed.look().is_none() && followed.look().is_none());

        fs::write(&path, format!("{two}\nread-olny {three}\n{two} again\n")).expect("a file");
        let (keys, wrong) = after(&mut followed).expect("it changed").expect("it can be read");
        assert_eq!(keys.len(), 1);
        assert!(keys.access(&two).is_some());
        let wrong: Vec<_> = wrong.iter().map(ToString::to_string).collect();
        assert!(wrong[0].contains("authorized_keys:2: ") && wrong[0].contains("read-olny"));
        assert!(wrong[1].contains("authorized_keys:3: ") && wrong.len() == 2, "{wrong:?}");
        assert!(followed.look().is_none() && followed.look().is_none());

        fs::rename(&path, ground.path().join("away")).expect("it is there");
        let (keys, _) = after(&mut followed).expect("it changed").expect("nobody is known");
        assert!(keys.is_empty());

        fs::rename(ground.path().join("away"), &path).expect("it is there");
        let (keys, _) = after(&mut followed).expect("it changed").expect("it can be read");
        assert_eq!(keys.len(), 1);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o622)).expect("chmod");
        let error = after(&mut followed).expect("it changed").expect_err("others can write it");
        assert!(error.to_string().contains("chmod"), "{error}");
    }
}
