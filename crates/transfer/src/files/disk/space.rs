//! The free space of file systems.

use std::os::fd::OwnedFd;

use nix::sys::statvfs::fstatvfs;

use crate::files::error::ErrorKind;

/// Returns the free bytes of a file system for this user.
pub(super) fn free_space(directory: &OwnedFd) -> Result<u64, ErrorKind> {
    let system = fstatvfs(directory)?;
    Ok(system.blocks_available().saturating_mul(system.fragment_size()))
}
