//! Partial files: written in any order under a temporary name, hashed span by span, and renamed
//! when they are complete and verified.

mod begin;
mod finish;
mod present;
mod spool;
mod write;

use std::fs::File;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use headroom_file_lock::LockedFile;
use headroom_mutex::lock;
use headroom_transfer_proto::path::RelPath;
use headroom_transfer_proto::span::{Spans, Verification};

use crate::files::content;
use crate::files::error::{Error, ErrorKind};
use crate::files::metadata::Identity;
use crate::files::progress::{KnownSpan, Progress};

/// Aligned runs of this many zeros become a hole.
pub(super) const HOLE: usize = 64 << 10;

/// A partial file. Several threads may write to it at once.
///
/// When this is dropped, received data stays for the next transfer of the same offer; an
/// untouched file is removed.
#[derive(Debug)]
pub struct Partial {
    path: RelPath,
    directory: Arc<OwnedFd>,
    temporary: Vec<u8>,
    file: LockedFile,
    identity: Identity,
    /// The current file of that name, if its content may be reused.
    old: Option<(File, u64)>,
    spans: Spans,
    /// Whether everything that was not written here is a hole.
    is_blank: AtomicBool,
    progress: Mutex<Progress>,
    state: Mutex<State>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Nothing was written.
    Untouched,
    Written,
    /// The temporary name is gone.
    Ended,
}

impl Partial {
    /// Returns the file's name.
    #[must_use]
    pub fn path(&self) -> &RelPath {
        &self.path
    }

    /// Returns the file's spans.
    #[must_use]
    pub fn spans(&self) -> Spans {
        self.spans
    }

    /// Sets how it is verified, before anything of it arrives and if nothing of it is
    /// [`Self::present`].
    pub(in crate::files) fn set_verification(&mut self, verification: Verification) {
        self.spans = self.spans.verified_by(verification);
        let progress = self.progress.get_mut().unwrap_or_else(PoisonError::into_inner);
        *progress = Progress::new(self.spans);
    }

    /// Keeps the values of spans that arrive from now on.
    pub(in crate::files) fn remember(&self) {
        self.progress().remember();
    }

    /// Makes of remembered spans that arrived such as are present, which data replaces.
    pub(in crate::files) fn reopen(&self) {
        self.is_blank.store(false, Relaxed);
        self.progress().reopen();
    }

    /// Returns what is known of a complete span, if spans are remembered.
    pub(in crate::files) fn known(&self, span: u64) -> Option<KnownSpan> {
        self.progress().known(span)
    }

    /// Returns the bytes of complete spans, without those that were [`Self::present`].
    #[must_use]
    pub fn came(&self) -> u64 {
        self.progress().came()
    }

    /// Returns the number of complete spans, including those that were [`Self::present`].
    #[must_use]
    pub fn whole_spans(&self) -> u64 {
        self.progress().present()
    }

    /// Syncs what was written to the disk.
    pub(in crate::files) fn sync(&self) -> Result<(), Error> {
        let synced = self.file.sync_data().map_err(ErrorKind::of);
        synced.map_err(|kind| self.error("stored", kind))
    }

    /// Returns the current file of that name and its size in bytes, if its content may be reused.
    pub(super) fn old(&self) -> Option<(&File, u64)> {
        self.old.as_ref().map(|(file, size)| (file, *size))
    }

    fn error(&self, done: &'static str, kind: ErrorKind) -> Error {
        Error::new(self.path.as_bytes(), done, kind)
    }

    fn progress(&self) -> MutexGuard<'_, Progress> {
        lock(&self.progress)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Whether a range that was not written here contains data.
    fn has_data(&self, range: &Range<u64>) -> Result<bool, ErrorKind> {
        Ok(!self.is_blank.load(Relaxed)
            && content::has_data(&self.file, range).map_err(ErrorKind::of)?)
    }
}
