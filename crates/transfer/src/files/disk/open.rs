//! Opens ordinary files of a directory without side effects, and says what a name leads to.

use std::fs::File;
use std::os::fd::OwnedFd;

use nix::errno::Errno;
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::Mode;

use crate::files::error::{ErrorKind, FileType};
use crate::files::metadata::{Identity, Metadata};

/// Flags that prevent side effects of opening.
pub(super) const HARMLESS: OFlag =
    OFlag::O_NOFOLLOW.union(OFlag::O_NONBLOCK).union(OFlag::O_NOCTTY).union(OFlag::O_CLOEXEC);

/// Opens an ordinary file, and returns its metadata.
pub(super) fn open_ordinary(
    directory: &OwnedFd,
    name: &[u8],
    access: OFlag,
) -> Result<(File, Metadata), ErrorKind> {
    // checked first, because opening some devices has effects
    let before = Metadata::at(directory, name, false)?;
    if before.file_type != FileType::File {
        return Err(ErrorKind::Clash { here: before.file_type });
    }
    let file = File::from(openat(directory, name, access | HARMLESS, Mode::empty())?);
    let metadata = Metadata::of(&file)?;
    if metadata.identity != before.identity {
        return Err(ErrorKind::Missing);
    }
    Ok((file, metadata))
}

/// Whether a name leads to this file.
pub(super) fn leads_to(
    directory: &OwnedFd,
    name: &[u8],
    identity: Identity,
) -> Result<bool, ErrorKind> {
    match Metadata::at(directory, name, false) {
        Ok(metadata) => Ok(metadata.identity == identity),
        Err(Errno::ENOENT) => Ok(false),
        Err(error) => Err(error.into()),
    }
}
