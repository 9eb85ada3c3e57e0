//! Stores files from memory. A small new one is written without a name and gets its own when it is
//! complete, so there is no partial file to lock, to resume or to remove.

use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;

use headroom_transfer_proto::message::Attributes;
use headroom_transfer_proto::path::RelPath;
use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, AtFlags, OFlag, openat};
use nix::sys::stat::Mode;
use nix::unistd::linkat;

use super::partial::HOLE;
use super::replace::{complete, replaceable};
use super::root::Root;
use crate::files::error::{Error, ErrorKind};
use crate::files::offer::{Offer, Seal, Stored};

impl Root {
    /// Stores a file from memory, with attributes.
    ///
    /// # Errors
    /// As those of [`Self::begin`] and [`Partial::finish_with`](super::Partial::finish_with).
    /// Nothing stays.
    pub fn store_with(
        &self,
        path: &RelPath,
        content: &[u8],
        seal: &Seal,
        attributes: Option<&Attributes>,
    ) -> Result<Stored, Error> {
        // Not where it is to be synced: btrfs writes nothing but the content of a file without a
        // name, so that the name, synced afterwards, could lead to an empty file (Linux 6.12).
        let may_be_unnamed = content.len() < HOLE && !seal.fsync;
        // Whatever prevents it (a file system without unnamed files, a directory that was removed
        // and made again, a name that is taken, a full disk): a partial file is used, or says why
        // not.
        if may_be_unnamed && self.store_unnamed(path, content, seal, attributes).is_ok() {
            return Ok(Stored { replaced: false });
        }
        let size = content.len() as u64;
        let partial =
            self.begin(path, &Offer { size, mtime: seal.mtime, data: size, reuse: false })?;
        let stored =
            partial.write_at(0, content).and_then(|_| partial.finish_with(seal, attributes));
        if stored.is_err() {
            // the first error is the one to report
            let _ = partial.abandon();
        }
        stored
    }

    /// Stores a file under a name that nothing has. Nobody else can open, move or replace it before
    /// it has its name, and if this program is killed, nothing of it is left.
    fn store_unnamed(
        &self,
        path: &RelPath,
        content: &[u8],
        seal: &Seal,
        attributes: Option<&Attributes>,
    ) -> Result<(), ErrorKind> {
        let (parent, name) = path.split();
        let directory = self.last_directory.open(self.beneath(), parent)?;
        // linkat(2) checks it as well, but only after the content was written
        if let Some(here) = replaceable(&directory, name)? {
            return Err(ErrorKind::Clash { here: here.file_type });
        }
        if blake3::hash(content) != seal.root {
            return Err(ErrorKind::Mismatch);
        }
        let flags = OFlag::O_WRONLY | OFlag::O_TMPFILE | OFlag::O_CLOEXEC;
        let mode = Mode::S_IRUSR | Mode::S_IWUSR;
        let file = File::from(openat(&*directory, ".", flags, mode)?);
        file.write_all_at(content, 0).map_err(ErrorKind::of)?;
        complete(&file, seal, attributes)?;
        Ok(give_name(&file, &directory, name)?)
    }
}

/// Gives a file without a name one that nothing has.
fn give_name(file: &File, directory: &OwnedFd, name: &[u8]) -> nix::Result<()> {
    match linkat(file, &b""[..], directory, name, AtFlags::AT_EMPTY_PATH) {
        // before Linux 6.10 only root may
        Err(Errno::ENOENT) => {
            let path = format!("/proc/self/fd/{}", file.as_raw_fd());
            linkat(AT_FDCWD, path.as_bytes(), directory, name, AtFlags::AT_SYMLINK_FOLLOW)
        }
        named => named,
    }
}
