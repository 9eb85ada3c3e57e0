//! What it takes to give a complete file its name: whether what has the name may be replaced, the
//! file's mode, time and attributes, and the sync of the directory.

use std::fs::File;
use std::os::fd::OwnedFd;

use headroom_transfer_proto::message::Attributes;
use nix::errno::Errno;
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::Mode;

use super::attributes;
use crate::files::error::{ErrorKind, FileType};
use crate::files::metadata::{Metadata, set_mtime};
use crate::files::offer::Seal;
use crate::files::temporary;

/// Returns the metadata of what has a name, if it may be replaced by a file or link.
pub(super) fn replaceable(directory: &OwnedFd, name: &[u8]) -> Result<Option<Metadata>, ErrorKind> {
    if temporary::is_temporary(name) {
        return Err(ErrorKind::Reserved);
    }
    match Metadata::at(directory, name, false) {
        Ok(metadata) if matches!(metadata.file_type, FileType::File | FileType::Symlink) => {
            Ok(Some(metadata))
        }
        Ok(metadata) => Err(ErrorKind::Clash { here: metadata.file_type }),
        Err(Errno::ENOENT) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Gives an open file with all its content its mode, time and attributes, and syncs it if asked to.
pub(super) fn complete(
    file: &File,
    seal: &Seal,
    attributes: Option<&Attributes>,
) -> Result<(), ErrorKind> {
    attributes::set(file, Mode::from_bits_truncate(seal.mode & 0o777), attributes)?;
    set_mtime(file, seal.mtime)?;
    if seal.fsync {
        file.sync_all().map_err(ErrorKind::of)?;
    }
    Ok(())
}

/// Makes names in a directory durable.
pub(super) fn sync_directory(directory: &OwnedFd) -> Result<(), ErrorKind> {
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let directory = openat(directory, ".", flags, Mode::empty())?;
    File::from(directory).sync_all().map_err(ErrorKind::of)
}
