//! Partial files: written in any order under a temporary name, hashed span by span, and renamed
//! when they are complete and verified.

use std::fs::File;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use headroom_mutex::lock;
use headroom_transfer_proto::message::Attributes;
use headroom_transfer_proto::path::RelPath;
use headroom_transfer_proto::span::{ChainingValue, Hash, SPAN_BYTES, Spans, Verification};
use nix::errno::Errno;
use nix::fcntl::{OFlag, renameat};
use nix::unistd::{UnlinkatFlags, unlinkat};

use super::change::change;
use super::locked::{Lock, open_locked};
use super::open::{leads_to, open_ordinary};
use super::replace::{complete, replaceable, sync_directory};
use super::space::free_space;
use crate::files::error::{Error, ErrorKind, FileType};
use crate::files::metadata::{Identity, Metadata};
use crate::files::offer::{Offer, Seal, Stored};
use crate::files::progress::{KnownSpan, Progress};
use crate::files::{content, temporary};

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
    file: File,
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
    /// Creates or finds the temporary file of an offer, in the directory of `path`'s last
    /// component.
    pub(super) fn begin(
        directory: Arc<OwnedFd>,
        path: &RelPath,
        offer: &Offer,
    ) -> Result<Self, ErrorKind> {
        Self::begin_locked(directory, path, offer, File::try_lock)
    }

    /// Does what [`Self::begin`] does beside others that write other ranges of the same offer, in
    /// this process or another one. What they have written stays, also when this is dropped. The
    /// values of spans are remembered. `None` if the disk may not have room for all of it.
    pub(super) fn begin_shared(
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
        let partial = Self::begin_locked(directory, path, offer, File::try_lock_shared)?;
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
            file,
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

    /// Hashes a span that is present: in what an earlier transfer left, or in the current file of
    /// that name, from which it is then copied. `None` if nothing is present.
    ///
    /// The span counts as the sender's unless data for it is written: the caller reports it to the
    /// sender, which sends spans with other values.
    ///
    /// # Errors
    /// The file cannot be read, or the copy cannot be written.
    pub fn present(&mut self, span: u64) -> Result<Option<ChainingValue>, Error> {
        self.find(span).map_err(|kind| self.error("resumed", kind))
    }

    /// Returns the first span from `from` on that may be [`Self::present`]. Holes are skipped: an
    /// offer may have more spans than anybody can ask for.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn next_present(&self, from: u64) -> Result<Option<u64>, Error> {
        self.next(from).map_err(|kind| self.error("resumed", kind))
    }

    /// Writes bytes at an offset, in any order. Bytes that arrived before are not written again;
    /// returns how many were written. Pieces of 64 KiB and more that follow others are hashed from
    /// `bytes`; smaller ones are read back, but none for a CRC.
    ///
    /// # Errors
    /// They are beyond the file's end, cannot be written (they may arrive again), or there are too
    /// many separate pieces.
    pub fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<u64, Error> {
        let written = self.each_span(offset, bytes.len() as u64, |span, range| {
            let at = |position: u64| usize::try_from(position - offset).unwrap_or(bytes.len());
            self.write_span(span, range, Some(&bytes[at(range.start)..at(range.end)]))
        });
        written.map_err(|kind| self.error("written", kind))
    }

    /// Does what [`Self::write_at`] does with `len` zeros, which use no disk space if the file
    /// system supports holes.
    ///
    /// # Errors
    /// As those of `write_at`.
    pub fn write_zeros(&self, offset: u64, len: u64) -> Result<u64, Error> {
        let written = self.each_span(offset, len, |span, range| self.write_span(span, range, None));
        written.map_err(|kind| self.error("written", kind))
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

    /// Verifies the complete file, sets its attributes, and renames it, replacing the file or link
    /// of that name.
    ///
    /// # Errors
    /// Spans are missing: the data stays. The hash is wrong: the data is removed. The name now
    /// belongs to something that is not replaced, or the disk refuses: the data stays.
    pub fn finish_with(
        &self,
        seal: &Seal,
        attributes: Option<&Attributes>,
    ) -> Result<Stored, Error> {
        self.seal(seal, attributes).map_err(|kind| self.error("stored", kind))
    }

    /// Syncs what was written to the disk.
    pub(in crate::files) fn sync(&self) -> Result<(), Error> {
        let synced = self.file.sync_data().map_err(ErrorKind::of);
        synced.map_err(|kind| self.error("stored", kind))
    }

    /// Removes the data.
    ///
    /// # Errors
    /// It cannot be removed.
    pub fn abandon(&self) -> Result<(), Error> {
        self.remove().map_err(|kind| self.error("removed", kind))
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

    fn next(&self, from: u64) -> Result<Option<u64>, ErrorKind> {
        let Some(range) = self.spans.range(from) else { return Ok(None) };
        if self.old.as_ref().is_some_and(|(_, size)| range.end <= *size) {
            return Ok(Some(from));
        }
        if self.is_blank.load(Relaxed) {
            return Ok(None);
        }
        let data = content::next_data(&self.file, range.start).map_err(ErrorKind::of)?;
        let span = data.map(|start| start / SPAN_BYTES);
        Ok(span.filter(|span| *span < self.spans.count()))
    }

    fn find(&mut self, span: u64) -> Result<Option<ChainingValue>, ErrorKind> {
        let Some(range) = self.spans.range(span) else { return Ok(None) };
        {
            let progress = self.progress();
            if !progress.is_untouched(span) {
                return Ok(progress.claimed(span));
            }
        }
        // nobody else writes: `&mut self`
        if !self.has_data(&range)? {
            let Some((old, size)) = &self.old else { return Ok(None) };
            if range.end > *size {
                return Ok(None);
            }
            self.is_blank.store(false, Relaxed);
            *self.state() = State::Written;
            if content::copy(old, &self.file, &range).is_err() {
                // a partial copy does no harm: nothing is claimed of it
                return Ok(None);
            }
        }
        let value = content::value(&self.file, self.spans, span).map_err(ErrorKind::of)?;
        if let Some(value) = value {
            self.progress().claim(span, value);
        }
        Ok(value)
    }

    fn each_span(
        &self,
        offset: u64,
        len: u64,
        write: impl Fn(u64, &Range<u64>) -> Result<u64, ErrorKind>,
    ) -> Result<u64, ErrorKind> {
        let end = offset.checked_add(len).filter(|end| *end <= self.spans.size());
        let bytes = offset..end.ok_or(ErrorKind::BeyondEnd)?;
        let mut new = 0;
        for span in self.spans.touched(bytes.clone()) {
            let Some(whole) = self.spans.range(span) else { return Err(ErrorKind::BeyondEnd) };
            new += write(span, &(whole.start.max(bytes.start)..whole.end.min(bytes.end)))?;
        }
        Ok(new)
    }

    /// Writes bytes or zeros of one span, and hashes what is contiguous.
    fn write_span(
        &self,
        span: u64,
        range: &Range<u64>,
        bytes: Option<&[u8]>,
    ) -> Result<u64, ErrorKind> {
        let gaps = self.progress().take(span, range)?;
        if gaps.is_empty() {
            return Ok(0);
        }
        *self.state() = State::Written;
        let of_gap = |gap: &Range<u64>| {
            let at = |position: u64| usize::try_from(position - range.start).unwrap_or(0);
            bytes.map(|bytes| &bytes[at(gap.start)..at(gap.end)])
        };
        for (n, gap) in gaps.iter().enumerate() {
            let bytes = of_gap(gap);
            // of what arrived, whatever the disk makes of it
            let sum = self.spans.piece_sum(gap, bytes);
            let outcome = match bytes {
                Some(bytes) => self.put(gap.start, bytes),
                None => self.put_zeros(gap),
            };
            let mut progress = self.progress();
            if let Err(kind) = outcome {
                // a part of it may have been written
                self.is_blank.store(false, Relaxed);
                gaps[n..].iter().for_each(|gap| progress.given_back(span, gap));
                return Err(kind);
            }
            progress.written(span, gap, sum);
        }
        self.hash_span(span, |wanted| {
            let gap = gaps.iter().find(|gap| gap.start <= wanted.start && wanted.end <= gap.end)?;
            let at = |position: u64| usize::try_from(position - gap.start).unwrap_or(0);
            Some(of_gap(gap).map(|bytes| &bytes[at(wanted.start)..at(wanted.end)]))
        })?;
        Ok(gaps.iter().map(|gap| gap.end - gap.start).sum())
    }

    /// Hashes what can be hashed of a span. `in_memory` returns a range's bytes (`Some(None)` for
    /// zeros), or `None` if they must be read back.
    fn hash_span<'a>(
        &self,
        span: u64,
        in_memory: impl Fn(&Range<u64>) -> Option<Option<&'a [u8]>>,
    ) -> Result<(), ErrorKind> {
        loop {
            let Some(mut task) = self.progress().next_task(span) else { return Ok(()) };
            match in_memory(&task.range) {
                Some(Some(bytes)) => {
                    task.hasher.update(bytes);
                }
                Some(None) => {
                    content::hash_zeros(task.range.end - task.range.start, &mut task.hasher);
                }
                None => {
                    let outcome = content::hash(&self.file, &task.range, &mut task.hasher);
                    if let Err(error) = outcome {
                        self.progress().not_hashed(span);
                        return Err(ErrorKind::of(error));
                    }
                }
            }
            self.progress().hashed(span, task);
        }
    }

    /// Writes bytes; runs of zeros become holes.
    fn put(&self, offset: u64, bytes: &[u8]) -> Result<(), ErrorKind> {
        let lead = usize::try_from(offset.next_multiple_of(HOLE as u64) - offset)
            .unwrap_or(0)
            .min(bytes.len());
        let (mut done, mut at) = (0, lead);
        // `done..at` is to be written; from `at` on is not decided yet
        while at < bytes.len() {
            let block = &bytes[at..bytes.len().min(at + HOLE)];
            if block.len() == HOLE && is_zero(block) {
                self.write_all(offset + done as u64, &bytes[done..at])?;
                let start = offset + at as u64;
                self.put_zeros(&(start..start + HOLE as u64))?;
                done = at + HOLE;
            }
            at += block.len();
        }
        self.write_all(offset + done as u64, &bytes[done..])
    }

    fn write_all(&self, offset: u64, bytes: &[u8]) -> Result<(), ErrorKind> {
        if bytes.is_empty() {
            return Ok(());
        }
        self.file.write_all_at(bytes, offset).map_err(ErrorKind::of)
    }

    fn put_zeros(&self, range: &Range<u64>) -> Result<(), ErrorKind> {
        if self.has_data(range)? {
            content::clear(&self.file, range).map_err(ErrorKind::of)?;
        }
        Ok(())
    }

    /// Whether a range that was not written here contains data.
    fn has_data(&self, range: &Range<u64>) -> Result<bool, ErrorKind> {
        Ok(!self.is_blank.load(Relaxed)
            && content::has_data(&self.file, range).map_err(ErrorKind::of)?)
    }

    fn seal(&self, seal: &Seal, attributes: Option<&Attributes>) -> Result<Stored, ErrorKind> {
        let root = self.progress().root()?;
        if root != seal.root {
            self.remove()?;
            return Err(ErrorKind::Mismatch);
        }
        let mut state = self.state();
        if *state == State::Ended {
            return Err(ErrorKind::Moved);
        }
        complete(&self.file, seal, attributes)?;
        // somebody with write access could have put something else there
        if !leads_to(&self.directory, &self.temporary, self.identity)? {
            return Err(ErrorKind::Moved);
        }
        let replaced = replaceable(&self.directory, self.path.name())?.is_some();
        change(&self.directory, || {
            renameat(&self.directory, &*self.temporary, &self.directory, self.path.name())
        })?;
        *state = State::Ended;
        if seal.fsync {
            sync_directory(&self.directory)?;
        }
        Ok(Stored { replaced })
    }

    fn remove(&self) -> Result<(), ErrorKind> {
        let mut state = self.state();
        if *state != State::Ended && leads_to(&self.directory, &self.temporary, self.identity)? {
            change(&self.directory, || {
                unlinkat(&self.directory, &*self.temporary, UnlinkatFlags::NoRemoveDir)
            })?;
        }
        *state = State::Ended;
        Ok(())
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        if *self.state() == State::Untouched {
            // a remaining empty file is harmless
            let _ = self.remove();
        }
        // Closing the file is not enough: a child that another thread has forked and that has not
        // called execve(2) yet has it open as well, and the lock with it (flock(2)).
        let _ = self.file.unlock();
    }
}

/// Opens a file to reuse; `None` if it cannot be read.
fn open_old(directory: &OwnedFd, name: &[u8]) -> Option<(File, u64)> {
    let (file, metadata) = open_ordinary(directory, name, OFlag::O_RDONLY).ok()?;
    Some((file, metadata.size))
}

fn is_zero(block: &[u8]) -> bool {
    let (first, rest) = block.split_at(block.len().min(16));
    first.iter().all(|byte| *byte == 0)
        && rest.chunks(1024).all(|piece| piece == &[0; 1024][..piece.len()])
}
