//! Begins a partial file: creates the temporary file of an offer, or finds that of an earlier
//! transfer.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use headroom_file_lock::LockedFile;
use headroom_transfer_proto::path::RelPath;
use headroom_transfer_proto::span::{SPAN_BYTES, Spans};
use nix::errno::Errno;
use nix::fcntl::OFlag;

use super::{Partial, State};
use crate::files::disk::locked::{Lock, open_locked};
use crate::files::disk::open::open_ordinary;
use crate::files::disk::replace::replaceable;
use crate::files::disk::space::free_space;
use crate::files::error::{ErrorKind, FileType};
use crate::files::metadata::Metadata;
use crate::files::offer::Offer;
use crate::files::progress::Progress;
use crate::files::temporary;

impl Partial {
    /// Creates or finds the temporary file of an offer, in the directory of `path`'s last
    /// component.
    pub(in crate::files::disk) fn begin(
        directory: Arc<OwnedFd>,
        path: &RelPath,
        offer: &Offer,
    ) -> Result<Self, ErrorKind> {
        Self::begin_locked(directory, path, offer, LockedFile::try_exclusive)
    }

    /// Does what [`Self::begin`] does beside others that write other ranges of the same offer, in
    /// this process or another one. What they have written stays, also when this is dropped. The
    /// values of spans are remembered. `None` if the disk may not have room for all of it.
    pub(in crate::files::disk) fn begin_shared(
        directory: Arc<OwnedFd>,
        path: &RelPath,
        offer: &Offer,
    ) -> Result<Option<Self>, ErrorKind> {
        let temporary = temporary::of_file(path.name(), offer.size, offer.mtime);
        let here = match Metadata::at(&directory, &temporary, false) {
            Ok(metadata) => metadata.allocated,
            Err(Errno::ENOENT) => 0,
            Err(error) => return Err(error.into()),
        };
        let needed = offer.size.saturating_sub(here);
        if needed > SPAN_BYTES && free_space(&directory)? < needed {
            return Ok(None);
        }
        let partial = Self::begin_locked(directory, path, offer, LockedFile::try_shared)?;
        partial.is_blank.store(false, Relaxed);
        *partial.state() = State::Written;
        partial.remember();
        Ok(Some(partial))
    }

    fn begin_locked(
        directory: Arc<OwnedFd>,
        path: &RelPath,
        offer: &Offer,
        lock: Lock,
    ) -> Result<Self, ErrorKind> {
        let name = path.name();
        let here = replaceable(&directory, name)?;
        if i64::try_from(offer.size).is_err() {
            return Err(ErrorKind::TooLarge(offer.size));
        }
        let temporary = temporary::of_file(name, offer.size, offer.mtime);
        let (file, metadata, is_new) = open_locked(&directory, &temporary, lock)?;
        let mut partial = Self {
            path: path.clone(),
            directory,
            temporary,
            file,
            identity: metadata.identity,
            old: None,
            spans: Spans::new(offer.size),
            is_blank: AtomicBool::new(is_new),
            progress: Mutex::new(Progress::new(Spans::new(offer.size))),
            state: Mutex::new(if is_new { State::Untouched } else { State::Written }),
        };
        let needed = offer.data.min(offer.size).saturating_sub(metadata.allocated);
        // not worth the system call for a small file
        if needed > SPAN_BYTES {
            let free = free_space(&partial.directory)?;
            if free < needed {
                return Err(ErrorKind::NoSpace { needed, free });
            }
        }
        if metadata.size != offer.size {
            partial.file.set_len(offer.size).map_err(|error| match ErrorKind::of(error) {
                ErrorKind::System(error) if error.raw_os_error() == Some(Errno::EFBIG as i32) => {
                    ErrorKind::TooLarge(offer.size)
                }
                kind => kind,
            })?;
        }
        if offer.reuse && here.is_some_and(|here| here.file_type == FileType::File) {
            partial.old = open_old(&partial.directory, name);
        }
        Ok(partial)
    }
}

/// Opens a file to reuse; `None` if it cannot be read.
fn open_old(directory: &OwnedFd, name: &[u8]) -> Option<(File, u64)> {
    let (file, metadata) = open_ordinary(directory, name, OFlag::O_RDONLY).ok()?;
    Some((file, metadata.size))
}
