//! Marks directories that are incomplete copies of a tree, by a hidden file, so that the same
//! transfer resumes instead of starting beside them.

use headroom_transfer_proto::path::RelPath;
use nix::errno::Errno;
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::Mode;
use nix::unistd::{UnlinkatFlags, geteuid, unlinkat};

use super::change::change;
use super::open::HARMLESS;
use super::root::Root;
use crate::files::error::{Error, FileType};
use crate::files::metadata::Metadata;
use crate::files::temporary;

impl Root {
    /// Marks a directory as an incomplete copy of the tree `source`.
    ///
    /// # Errors
    /// It is missing, or nothing can be made in it.
    pub fn begin_tree(&self, path: &RelPath, source: &[u8]) -> Result<(), Error> {
        let begin = || {
            let directory = self.beneath().directory(Some(path.as_bytes()))?;
            let flags = OFlag::O_WRONLY | OFlag::O_CREAT | HARMLESS;
            let name = temporary::of_tree(source);
            let mode = Mode::S_IRUSR | Mode::S_IWUSR;
            change(&directory, || openat(&*directory, &*name, flags, mode)).map(drop)
        };
        begin().map_err(|errno: Errno| Error::new(path.as_bytes(), "marked as unfinished", errno))
    }

    /// Whether a directory is an incomplete copy of the tree `source`.
    #[must_use]
    pub fn is_unfinished_tree(&self, path: &RelPath, source: &[u8]) -> bool {
        let look = || {
            let directory = self.beneath().directory(Some(path.as_bytes()))?;
            Metadata::at(&directory, &temporary::of_tree(source), false)
        };
        look().is_ok_and(|metadata| {
            metadata.file_type == FileType::File && metadata.owner == geteuid().as_raw()
        })
    }

    /// Removes the mark: the copy is complete.
    ///
    /// # Errors
    /// It is missing, or nothing can be removed in it.
    pub fn finish_tree(&self, path: &RelPath, source: &[u8]) -> Result<(), Error> {
        let finish = || {
            let directory = self.beneath().directory(Some(path.as_bytes()))?;
            let name = temporary::of_tree(source);
            let remove = || unlinkat(&*directory, &*name, UnlinkatFlags::NoRemoveDir);
            match change(&directory, remove) {
                // a file or link arrived, or it was removed
                Err(Errno::ENOENT) => Ok(()),
                outcome => outcome,
            }
        };
        match finish() {
            // a single file arrived, and has the name
            Ok(()) | Err(Errno::ENOTDIR | Errno::ELOOP | Errno::ENOENT) => Ok(()),
            Err(errno) => Err(Error::new(path.as_bytes(), "marked as complete", errno)),
        }
    }
}
