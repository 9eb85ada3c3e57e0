//! Files of unknown length: written from the beginning under a temporary name. Nothing stays
//! unless they are finished.

use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::SystemTime;

use headroom_file_lock::LockedFile;
use headroom_transfer_proto::path::RelPath;
use nix::fcntl::renameat;
use nix::sys::stat::{Mode, fchmod};
use nix::unistd::{UnlinkatFlags, unlinkat};

use super::change::change;
use super::locked::open_locked;
use super::open::leads_to;
use super::replace::{replaceable, sync_directory};
use super::root::Root;
use crate::files::error::{Error, ErrorKind, FileType};
use crate::files::metadata::Identity;
use crate::files::temporary;
use headroom_transfer_proto::message::Time;

/// Permissions of a new file, before the umask.
const MODE: u32 = 0o666;

/// A file of unknown length. It is removed when it is dropped before [`Self::finish`].
#[derive(Debug)]
pub struct StreamFile {
    path: RelPath,
    directory: Arc<OwnedFd>,
    temporary: Vec<u8>,
    file: LockedFile,
    identity: Identity,
    is_finished: bool,
}

impl Root {
    /// Creates a file of unknown length. Its directory exists.
    ///
    /// # Errors
    /// Something has the name that is not replaced; it cannot be made.
    pub fn create_stream_file(&self, path: &RelPath) -> Result<StreamFile, Error> {
        let begin = || -> Result<StreamFile, ErrorKind> {
            let directory = self.parent(path)?;
            replaceable(&directory, path.name())?;
            // files begun at different times have different names
            let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
            let seconds = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
            let began = Time { seconds, nanoseconds: now.subsec_nanos() };
            let temporary = temporary::of_file(path.name(), u64::MAX, began);
            let (file, metadata, _) =
                open_locked(&directory, &temporary, LockedFile::try_exclusive)?;
            let (path, identity) = (path.clone(), metadata.identity);
            let begun =
                StreamFile { path, directory, temporary, file, identity, is_finished: false };
            begun.file.set_len(0).map_err(ErrorKind::of)?;
            Ok(begun)
        };
        begin().map_err(|kind| Error::new(path.as_bytes(), "stored", kind))
    }
}

impl Write for StreamFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl StreamFile {
    /// Makes the error for a failed write.
    #[must_use]
    pub fn error(&self, error: io::Error) -> Error {
        let kind = match ErrorKind::of(error) {
            ErrorKind::Full => ErrorKind::FullOnce,
            kind => kind,
        };
        Error::new(self.path.as_bytes(), "stored", kind)
    }

    /// Renames it, replacing a file or link of that name, and sets the permissions of the replaced
    /// file, or those of any new file.
    ///
    /// # Errors
    /// The name belongs to something that is not replaced, or the disk refuses.
    pub fn finish(mut self, fsync: bool) -> Result<(), Error> {
        self.rename(fsync).map_err(|kind| Error::new(self.path.as_bytes(), "stored", kind))
    }

    fn rename(&mut self, fsync: bool) -> Result<(), ErrorKind> {
        let here = replaceable(&self.directory, self.path.name())?;
        let here = here.filter(|here| here.file_type == FileType::File);
        let mode = here.map_or_else(|| MODE & !umask(), |here| here.mode);
        fchmod(&*self.file, Mode::from_bits_truncate(mode & 0o777))?;
        if fsync {
            self.file.sync_all().map_err(ErrorKind::of)?;
        }
        if !leads_to(&self.directory, &self.temporary, self.identity)? {
            return Err(ErrorKind::Moved);
        }
        change(&self.directory, || {
            renameat(&self.directory, &*self.temporary, &self.directory, self.path.name())
        })?;
        self.is_finished = true;
        if fsync { sync_directory(&self.directory) } else { Ok(()) }
    }
}

/// Returns the umask of this process. umask(2) would change it for a moment, for all threads.
/// If the kernel does not report it, only the owner gets permissions.
fn umask() -> u32 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("Umask:"));
    line.and_then(|mask| u32::from_str_radix(mask.trim(), 8).ok()).unwrap_or(0o077)
}

impl Drop for StreamFile {
    fn drop(&mut self) {
        let is_there = leads_to(&self.directory, &self.temporary, self.identity);
        if !self.is_finished && is_there.unwrap_or(false) {
            // it is never resumed; if it cannot be removed now, the cleanup of partial files does
            // it
            let _ = change(&self.directory, || {
                unlinkat(&self.directory, &*self.temporary, UnlinkatFlags::NoRemoveDir)
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    #[test]
    fn the_lock_ends_although_a_forked_child_has_the_file_open() {
        let folder = tempfile::tempdir().expect("a folder");
        let root = Root::open(folder.path()).expect("a root");
        let path = RelPath::parse(b"file").expect("a path");
        let begun = root.create_stream_file(&path).expect("begun");
        // a descriptor of the same open file, which is what a child has
        let of_a_child = begun.file.try_clone().expect("a descriptor");
        begun.finish(false).expect("stored");
        let stored = File::open(folder.path().join("file")).expect("it is there");
        stored.try_lock().expect("nobody has it locked");
        drop(of_a_child);
    }
}
