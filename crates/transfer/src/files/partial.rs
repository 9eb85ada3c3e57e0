//! A file on its way: written in any order under a temporary name, hashed span
//! by span, and given its name when all of it is there and verified.

use std::fs::{File, TryLockError};
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use headroom_transfer_proto::message::Attributes;
use headroom_transfer_proto::path::{RelPath, shown};
use headroom_transfer_proto::span::{ChainingValue, Hash, SPAN_OCTETS, Spans};
use nix::errno::Errno;
use nix::fcntl::{OFlag, openat, renameat};
use nix::sys::stat::Mode;
use nix::sys::statvfs::fstatvfs;
use nix::unistd::{UnlinkatFlags, geteuid, unlinkat};

use super::change::change;
use super::error::{Error, ErrorKind, FileType};
use super::metadata::{Identity, Metadata, set_mtime};
use super::progress::Progress;
use super::{attributes, content, temporary};
use headroom_transfer_proto::message::Time;

/// Zeros of which so many stand together, at a multiple of it, become a hole.
const HOLE: usize = 64 << 10;

/// Flags with which nothing is opened that acts by being opened.
pub(super) const HARMLESS: OFlag =
    OFlag::O_NOFOLLOW.union(OFlag::O_NONBLOCK).union(OFlag::O_NOCTTY).union(OFlag::O_CLOEXEC);

/// A file as its sender offers it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Offer {
    /// Octets of it.
    pub size: u64,
    /// When it was changed at its sender's.
    pub mtime: Time,
    /// Octets that are no holes, as far as is known; at most `size`. They must
    /// have room on the disk.
    pub data: u64,
    /// Whether spans of what has the name now may be taken over.
    pub reuse: bool,
}

/// What makes a file that came whole the one that was offered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seal {
    /// Its BLAKE3 hash.
    pub root: Hash,
    /// Permission bits; others than `0o777` are not set.
    pub mode: u32,
    /// When it was changed.
    pub mtime: Time,
    /// Whether file and directory are written through to the disk first.
    pub fsync: bool,
}

/// A file that lies under its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stored {
    /// Whether something else had the name.
    pub replaced: bool,
}

/// A file on its way. Several threads may write to it at once.
///
/// What came stays when this is dropped, for the next transfer of the same
/// offer; nothing stays where nothing came.
#[derive(Debug)]
pub struct Partial {
    path: RelPath,
    directory: Arc<OwnedFd>,
    temporary: Vec<u8>,
    file: File,
    identity: Identity,
    /// What has the name now, if spans of it may be taken over.
    old: Option<(File, u64)>,
    spans: Spans,
    /// Whether all that this did not write is a hole.
    is_blank: AtomicBool,
    progress: Mutex<Progress>,
    state: Mutex<State>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Nothing was written that was not there before.
    Untouched,
    Written,
    /// The temporary name is gone.
    Ended,
}

impl Partial {
    /// Makes or finds the temporary file of an offer, in the directory that
    /// `path` has its last component in.
    pub(super) fn begin(
        directory: Arc<OwnedFd>,
        path: &RelPath,
        offer: &Offer,
    ) -> Result<Self, ErrorKind> {
        let name = path.name();
        let here = replaceable(&directory, name)?;
        if i64::try_from(offer.size).is_err() {
            return Err(ErrorKind::TooLarge(offer.size));
        }
        let temporary = temporary::of_file(name, offer.size, offer.mtime);
        let (file, metadata, is_new) = open_locked(&directory, &temporary)?;
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
        // a file this small is not worth the question
        if needed > SPAN_OCTETS {
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

    /// The file's name.
    #[must_use]
    pub fn path(&self) -> &RelPath {
        &self.path
    }

    /// The file's spans.
    #[must_use]
    pub fn spans(&self) -> Spans {
        self.spans
    }

    /// The value of a span that lies here already: in what an earlier transfer
    /// left, or in what has the name now, from where it is then copied. None
    /// where nothing lies.
    ///
    /// The span counts as the sender's unless octets of it are written: whoever
    /// asks tells the sender, who sends the spans whose values are others.
    ///
    /// # Errors
    /// The file cannot be read, or the copy not be written.
    pub fn present(&mut self, span: u64) -> Result<Option<ChainingValue>, Error> {
        self.find(span).map_err(|kind| self.error("resumed", kind))
    }

    /// The first span from `from` on that may be [`Self::present`]. Holes are passed
    /// over: a file may be offered that has more spans than anybody can ask for.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn next_present(&self, from: u64) -> Result<Option<u64>, Error> {
        self.next(from).map_err(|kind| self.error("resumed", kind))
    }

    /// Writes octets to their place, in whatever order they come. Those that
    /// came before are not written again: says how many were. Pieces of 64 KiB and
    /// more that begin where others ended are hashed from `octets`; smaller ones are
    /// read back.
    ///
    /// # Errors
    /// They are not the file's, or cannot be written: they may come again. More
    /// pieces came that do not join than are kept in mind.
    pub fn write_at(&self, offset: u64, octets: &[u8]) -> Result<u64, Error> {
        let written = self.each_span(offset, octets.len() as u64, |span, range| {
            let at = |position: u64| usize::try_from(position - offset).unwrap_or(octets.len());
            self.write_span(span, range, Some(&octets[at(range.start)..at(range.end)]))
        });
        written.map_err(|kind| self.error("written", kind))
    }

    /// As [`Self::write_at`] with `len` zeros, which take no room on the disk
    /// where the file system knows holes.
    ///
    /// # Errors
    /// As those of `write_at`.
    pub fn write_zeros(&self, offset: u64, len: u64) -> Result<u64, Error> {
        let written = self.each_span(offset, len, |span, range| self.write_span(span, range, None));
        written.map_err(|kind| self.error("written", kind))
    }

    /// Octets of spans that came and are whole, those that were
    /// [`Self::present`] not counted.
    #[must_use]
    pub fn came(&self) -> u64 {
        self.progress().came()
    }

    /// How many spans are whole, with those that were [`Self::present`].
    #[must_use]
    pub fn whole_spans(&self) -> u64 {
        self.progress().present()
    }

    /// Verifies that what came is what was sent, and gives it its name, in place
    /// of the file or link that has it. All octets were written before.
    ///
    /// # Errors
    /// Spans are missing: what came stays. The hash is another: what came is
    /// removed. The name was given to something that is not replaced, or the
    /// disk refuses: what came stays.
    pub fn finish(&self, seal: &Seal) -> Result<Stored, Error> {
        self.finish_with(seal, None)
    }

    /// Does what [`Self::finish`] does, and gives it its attributes.
    ///
    /// # Errors
    /// As those of [`Self::finish`].
    pub fn finish_with(
        &self,
        seal: &Seal,
        attributes: Option<&Attributes>,
    ) -> Result<Stored, Error> {
        self.seal(seal, attributes).map_err(|kind| self.error("stored", kind))
    }

    /// Removes what came.
    ///
    /// # Errors
    /// It cannot be removed.
    pub fn abandon(&self) -> Result<(), Error> {
        self.remove().map_err(|kind| self.error("removed", kind))
    }

    fn error(&self, done: &'static str, kind: ErrorKind) -> Error {
        Error::new(self.path.as_bytes(), done, kind)
    }

    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
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
        let span = data.map(|start| start / SPAN_OCTETS);
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
        // nobody writes meanwhile: this has the file for itself
        if !self.has_data(&range)? {
            let Some((old, size)) = &self.old else { return Ok(None) };
            if range.end > *size {
                return Ok(None);
            }
            self.is_blank.store(false, Relaxed);
            *self.state() = State::Written;
            if content::copy(old, &self.file, &range).is_err() {
                // what was copied does no harm: nothing is claimed of it
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
        let octets = offset..end.ok_or(ErrorKind::BeyondEnd)?;
        let mut new = 0;
        for span in self.spans.touched(octets.clone()) {
            let Some(whole) = self.spans.range(span) else { return Err(ErrorKind::BeyondEnd) };
            new += write(span, &(whole.start.max(octets.start)..whole.end.min(octets.end)))?;
        }
        Ok(new)
    }

    /// Writes octets of one span, or zeros, and hashes what became worth it.
    fn write_span(
        &self,
        span: u64,
        range: &Range<u64>,
        octets: Option<&[u8]>,
    ) -> Result<u64, ErrorKind> {
        let gaps = self.progress().take(span, range)?;
        if gaps.is_empty() {
            return Ok(0);
        }
        *self.state() = State::Written;
        let of_gap = |gap: &Range<u64>| {
            let at = |position: u64| usize::try_from(position - range.start).unwrap_or(0);
            octets.map(|octets| &octets[at(gap.start)..at(gap.end)])
        };
        for (n, gap) in gaps.iter().enumerate() {
            let outcome = match of_gap(gap) {
                Some(octets) => self.put(gap.start, octets),
                None => self.put_zeros(gap),
            };
            let mut progress = self.progress();
            if let Err(kind) = outcome {
                // a part of it may lie there
                self.is_blank.store(false, Relaxed);
                gaps[n..].iter().for_each(|gap| progress.given_back(span, gap));
                return Err(kind);
            }
            progress.written(span, gap);
        }
        self.hash_span(span, |wanted| {
            let gap = gaps.iter().find(|gap| gap.start <= wanted.start && wanted.end <= gap.end)?;
            let at = |position: u64| usize::try_from(position - gap.start).unwrap_or(0);
            Some(of_gap(gap).map(|octets| &octets[at(wanted.start)..at(wanted.end)]))
        })?;
        Ok(gaps.iter().map(|gap| gap.end - gap.start).sum())
    }

    /// Hashes what of a span can be. `in_memory` gives a range's octets (none if
    /// they are zeros), or nothing if they must be read back.
    fn hash_span<'a>(
        &self,
        span: u64,
        in_memory: impl Fn(&Range<u64>) -> Option<Option<&'a [u8]>>,
    ) -> Result<(), ErrorKind> {
        loop {
            let Some(mut task) = self.progress().next_task(span) else { return Ok(()) };
            match in_memory(&task.range) {
                Some(Some(octets)) => {
                    task.hasher.update(octets);
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

    /// Writes octets; runs of zeros become holes.
    fn put(&self, offset: u64, octets: &[u8]) -> Result<(), ErrorKind> {
        let lead = usize::try_from(offset.next_multiple_of(HOLE as u64) - offset)
            .unwrap_or(0)
            .min(octets.len());
        let (mut done, mut at) = (0, lead);
        // `done..at` is to be written; from `at` on it is not known yet
        while at < octets.len() {
            let block = &octets[at..octets.len().min(at + HOLE)];
            if block.len() == HOLE && is_zero(block) {
                self.write_all(offset + done as u64, &octets[done..at])?;
                let start = offset + at as u64;
                self.put_zeros(&(start..start + HOLE as u64))?;
                done = at + HOLE;
            }
            at += block.len();
        }
        self.write_all(offset + done as u64, &octets[done..])
    }

    fn write_all(&self, offset: u64, octets: &[u8]) -> Result<(), ErrorKind> {
        if octets.is_empty() {
            return Ok(());
        }
        self.file.write_all_at(octets, offset).map_err(ErrorKind::of)
    }

    fn put_zeros(&self, range: &Range<u64>) -> Result<(), ErrorKind> {
        if self.has_data(range)? {
            content::clear(&self.file, range).map_err(ErrorKind::of)?;
        }
        Ok(())
    }

    /// Whether a range that this did not write has octets other than a hole's.
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
        attributes::set(&self.file, Mode::from_bits_truncate(seal.mode & 0o777), attributes)?;
        set_mtime(&self.file, seal.mtime)?;
        if seal.fsync {
            self.file.sync_all().map_err(ErrorKind::of)?;
        }
        // somebody who may write here could have put something else there
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
            // an empty file that stays is untidy, no more
            let _ = self.remove();
        }
    }
}

/// What has a name, if it may be replaced by a file or link.
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

/// Octets that this user may still write to a file system.
pub(super) fn free_space(directory: &OwnedFd) -> Result<u64, ErrorKind> {
    let system = fstatvfs(directory)?;
    Ok(system.blocks_available().saturating_mul(system.fragment_size()))
}

/// Makes names in a directory durable.
pub(super) fn sync_directory(directory: &OwnedFd) -> Result<(), ErrorKind> {
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let directory = openat(directory, ".", flags, Mode::empty())?;
    File::from(directory).sync_all().map_err(ErrorKind::of)
}

/// Opens the temporary file, for this transfer alone. Says what it is, and
/// whether it was made.
pub(super) fn open_locked(
    directory: &OwnedFd,
    name: &[u8],
) -> Result<(File, Metadata, bool), ErrorKind> {
    // each time round, another transfer ended between two steps of this one
    for _ in 0..16 {
        let made = OFlag::O_RDWR | OFlag::O_CREAT | OFlag::O_EXCL | HARMLESS;
        let mode = Mode::from_bits_truncate(0o600);
        let (file, is_new) = match change(directory, || openat(directory, name, made, mode)) {
            Ok(file) => (File::from(file), true),
            Err(Errno::EEXIST) => match open_ordinary(directory, name, OFlag::O_RDWR) {
                Ok((file, _)) => (file, false),
                Err(ErrorKind::Missing) => continue,
                Err(ErrorKind::Clash { .. }) => return Err(foreign(name)),
                Err(ErrorKind::Denied) => {
                    // killed just before it got its name, it has the mode of the
                    // file already, which may forbid writing
                    if Metadata::at(directory, name, false)?.owner != geteuid().as_raw() {
                        return Err(foreign(name));
                    }
                    change(directory, || unlinkat(directory, name, UnlinkatFlags::NoRemoveDir))?;
                    continue;
                }
                Err(kind) => return Err(kind),
            },
            Err(error) => return Err(error.into()),
        };
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(ErrorKind::Busy),
            Err(TryLockError::Error(error)) => return Err(ErrorKind::of(error)),
        }
        let metadata = Metadata::of(&file)?;
        // somebody else's file, or one that has another name as well, was put
        // there to be written to
        if metadata.owner != geteuid().as_raw() || metadata.links > 1 {
            return Err(foreign(name));
        }
        if leads_to(directory, name, metadata.identity)? {
            return Ok((file, metadata, is_new));
        }
    }
    Err(ErrorKind::Busy)
}

fn foreign(name: &[u8]) -> ErrorKind {
    ErrorKind::Foreign(shown(name).to_string().into())
}

/// Opens a file that is an ordinary one, and says what it is.
pub(super) fn open_ordinary(
    directory: &OwnedFd,
    name: &[u8],
    access: OFlag,
) -> Result<(File, Metadata), ErrorKind> {
    // looked at first: some devices act by being opened
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

/// What may be taken over of; nothing where it cannot be read.
fn open_old(directory: &OwnedFd, name: &[u8]) -> Option<(File, u64)> {
    let (file, metadata) = open_ordinary(directory, name, OFlag::O_RDONLY).ok()?;
    Some((file, metadata.size))
}

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

fn is_zero(block: &[u8]) -> bool {
    let (first, rest) = block.split_at(block.len().min(16));
    first.iter().all(|octet| *octet == 0)
        && rest.chunks(1024).all(|piece| piece == &[0; 1024][..piece.len()])
}
