//! A partial file without a name, from which an object store reads what arrives.

use std::fs::File;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use headroom_file_lock::LockedFile;
use headroom_transfer_proto::path::RelPath;
use headroom_transfer_proto::span::{ChainingValue, Hash, Spans};

use super::{Partial, State};
use crate::files::content;
use crate::files::error::ErrorKind;
use crate::files::metadata::Metadata;
use crate::files::progress::Progress;

impl Partial {
    /// Makes a partial file of an empty file without a name: what comes is read from it and stored
    /// elsewhere, and it is never sealed.
    pub(in crate::files) fn spooled(
        path: &RelPath,
        size: u64,
        file: File,
    ) -> Result<Self, ErrorKind> {
        let spans = Spans::new(size);
        file.set_len(size).map_err(ErrorKind::of)?;
        let identity = Metadata::of(&file)?.identity;
        let directory = Arc::new(OwnedFd::from(file.try_clone().map_err(ErrorKind::of)?));
        Ok(Self {
            path: path.clone(),
            directory,
            temporary: Vec::new(),
            file: LockedFile::unnamed(file),
            identity,
            old: None,
            spans,
            is_blank: AtomicBool::new(true),
            progress: Mutex::new(Progress::new(spans)),
            state: Mutex::new(State::Ended),
        })
    }

    /// Claims that a span with this value is stored elsewhere, if nothing of it has arrived.
    pub(in crate::files) fn claim(&self, span: u64, value: ChainingValue) {
        let mut progress = self.progress();
        if progress.is_untouched(span) {
            progress.claim(span, value);
        }
    }

    /// Whether all bytes of a span arrived.
    pub(in crate::files) fn has_arrived(&self, span: u64) -> bool {
        self.progress().is_whole(span)
    }

    /// Returns the hash of what arrived and is claimed.
    pub(in crate::files) fn root(&self) -> Result<Hash, ErrorKind> {
        self.progress().root()
    }

    /// Reads bytes of spans that arrived.
    pub(in crate::files) fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<(), ErrorKind> {
        self.file.read_exact_at(into, offset).map_err(ErrorKind::of)
    }

    /// Frees the disk space of bytes that were stored elsewhere.
    pub(in crate::files) fn free(&self, range: &Range<u64>) {
        // what is not freed now is freed with the file
        let _ = content::clear(&self.file, range);
    }
}
