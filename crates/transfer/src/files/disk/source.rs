//! Walks the trees to send.
//!
//! A named file or directory is sent under the last component of its path, with or without a
//! slash at its end, as with `scp -r` and `cp -r`: `photos` and `photos/` are `photos` and its
//! content. `photos/.` and `.` are the content without a name, as with `cp` and `rsync`. A
//! slash at the end of a link's name means the directory that it leads to.
//!
//! Directories come before their content, and names in byte order. Pipes, sockets, devices and
//! partial files are skipped with a remark, and what cannot be read is an error that does not
//! end the walk.

use std::collections::{HashSet, VecDeque};
use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use headroom_transfer_proto::path::RelPath;
use nix::fcntl::{OFlag, openat, readlinkat};
use nix::sys::stat::Mode;

use super::attributes;
use super::beneath::{Beneath, Parent};
use super::names::Names;
use super::open::HARMLESS;
use super::reader::SourceFile;
use super::root::Root;
use crate::files::error::{Error, ErrorKind, FileType};
use crate::files::exclude::Excludes;
use crate::files::found::{Found, SourceKind};
use crate::files::metadata::{Identity, Metadata};
use crate::files::remaining::Remaining;
use crate::files::{reader, temporary};
use headroom_transfer_proto::message::{Attributes, Keep, Links};

/// How long names are looked up in a directory before it is opened by its path again: files of one
/// that is moved out of the tree are not sent for longer, however long a peer makes the walk wait.
const REOPEN_AFTER: Duration = Duration::from_millis(100);

/// Walks what to send: an iterator of what was found, and of errors for what cannot be sent.
///
/// Memory is bounded: at most 65 536 names at each level. Few files are open, however deep the
/// trees.
#[derive(Debug)]
pub struct Source {
    links: Links,
    keep: Keep,
    excludes: Arc<Excludes>,
    starts: VecDeque<Start>,
    levels: Vec<Level>,
    /// How long a directory is used before it is opened by its path again.
    reopen_after: Duration,
    /// Names under which sources are sent.
    given: HashSet<RelPath>,
    /// Whether paths of the current source begin with its name.
    is_named: bool,
    /// Whether sources that are not files are errors.
    only_files: bool,
    /// Files to return, if others are passed over.
    remaining: Option<Arc<Remaining>>,
    /// The directory of the last source: the next is often in it, too.
    parent: Option<(PathBuf, Beneath)>,
}

/// A named source.
#[derive(Debug)]
enum Start {
    /// On this machine.
    Here(PathBuf),
    /// Below a root, named by a peer.
    Below {
        beneath: Beneath,
        /// `None` is the root itself.
        place: Option<RelPath>,
        /// Whether to send its content without its name.
        contents: bool,
    },
    /// A name below a root, sent under its path there. Of a directory the content is not sent.
    Listed { beneath: Beneath, path: RelPath },
}

/// A source, or a name in a directory.
#[derive(Debug)]
struct SourcePath {
    beneath: Beneath,
    /// Its path below that; `None` is that directory itself.
    place: Option<Box<[u8]>>,
    /// The directory that it is in, as long as it is being walked.
    walked: Weak<OwnedFd>,
    /// The name under which it is sent; `None` if its content is sent without.
    path: Option<RelPath>,
    /// Its path for error messages.
    shown: Box<[u8]>,
}

/// A directory that is being walked.
#[derive(Debug)]
struct Level {
    place: SourcePath,
    state: State,
    identity: Identity,
    names: Names,
}

#[derive(Debug)]
enum State {
    Open {
        directory: Arc<OwnedFd>,
        since: Instant,
    },
    /// Not opened yet, or closed while a subdirectory is walked.
    Closed,
    /// It could not be opened.
    Ended,
}

impl Source {
    /// Walks these local paths.
    #[must_use]
    pub fn new(paths: impl IntoIterator<Item = PathBuf>, links: Links) -> Self {
        Self::of(paths.into_iter().map(Start::Here).collect(), links)
    }

    /// Walks what a peer names below a root; `None` is the root itself. Of the root, and of those
    /// marked `true`, the content is sent. No link is followed.
    #[must_use]
    pub fn below(
        root: &Root,
        wanted: impl IntoIterator<Item = (Option<RelPath>, bool)>,
        links: Links,
    ) -> Self {
        let links = if links == Links::Follow { Links::Keep } else { links };
        let start = |(place, contents)| {
            let beneath = root.beneath().clone();
            Start::Below { beneath, place, contents }
        };
        Self::of(wanted.into_iter().map(start).collect(), links)
    }

    /// Walks names below a root that a listing found, each sent under its path there. A directory
    /// is sent without its content: what is in it is listed, too. No link is followed.
    #[must_use]
    pub fn listed(root: &Root, paths: impl IntoIterator<Item = RelPath>, links: Links) -> Self {
        let links = if links == Links::Follow { Links::Keep } else { links };
        let start = |path| Start::Listed { beneath: root.beneath().clone(), path };
        Self::of(paths.into_iter().map(start).collect(), links)
    }

    fn of(starts: VecDeque<Start>, links: Links) -> Self {
        let (excludes, levels, given) = (Arc::new(Excludes::none()), Vec::new(), HashSet::new());
        let (keep, is_named, only_files) = (Keep::NONE, false, false);
        let (remaining, parent) = (None, None);
        Self {
            links,
            keep,
            excludes,
            starts,
            levels,
            reopen_after: REOPEN_AFTER,
            given,
            is_named,
            only_files,
            remaining,
            parent,
        }
    }

    /// Returns of files only those that remain, and everything else.
    #[must_use]
    pub(in crate::files) fn only(self, remaining: Arc<Remaining>) -> Self {
        Self { remaining: Some(remaining), ..self }
    }

    /// Whether something is a file that does not remain.
    fn is_done(&self, found: &Result<Found, Error>) -> bool {
        match (found, &self.remaining) {
            (Ok(Found { path, kind: SourceKind::File(_), .. }), Some(remaining)) => {
                !remaining.has(path)
            }
            _ => false,
        }
    }

    /// Sets whether sources that are not files, such as directories, are errors.
    #[must_use]
    pub fn only_files(self, only_files: bool) -> Self {
        Self { only_files, ..self }
    }

    /// Skips what is excluded, silently.
    #[must_use]
    pub fn without(self, excludes: Arc<Excludes>) -> Self {
        Self { excludes, ..self }
    }

    /// Sets which attributes to keep.
    #[must_use]
    pub fn keeping(self, keep: Keep) -> Self {
        Self { keep, ..self }
    }

    /// The same walk, with another time until a directory is opened by its path again.
    #[cfg(test)]
    pub(in crate::files) fn reopening_after(self, reopen_after: Duration) -> Self {
        Self { reopen_after, ..self }
    }

    fn begin(&mut self, start: Start) -> Result<Option<Found>, Error> {
        let place = match start {
            Start::Here(path) => {
                let shown = trimmed(&path).into();
                self.here(&path, shown)?
            }
            Start::Below { beneath, place, contents } => {
                let path = match &place {
                    Some(place) if !contents => RelPath::single(place.name()).ok(),
                    _ => None,
                };
                let place = place.map(|place| Box::from(place.as_bytes()));
                let shown = place.clone().unwrap_or_else(|| b".".as_slice().into());
                SourcePath { beneath, place, walked: Weak::new(), path, shown }
            }
            Start::Listed { beneath, path } => return self.begin_listed(beneath, path),
        };
        self.is_named = place.path.is_some();
        if let Some(path) = &place.path
            && !self.given.insert(path.clone())
        {
            return Err(place.error(ErrorKind::Twice));
        }
        let metadata = place.look().map_err(|kind| place.error(kind))?;
        if self.only_files && metadata.file_type != FileType::File {
            return Err(place.error(ErrorKind::NoFile));
        }
        self.visit(place, metadata)
    }

    /// Visits a single name of a listing.
    fn begin_listed(&mut self, beneath: Beneath, path: RelPath) -> Result<Option<Found>, Error> {
        let shown: Box<[u8]> = path.as_bytes().into();
        let (place, walked, path) = (Some(shown.clone()), Weak::new(), Some(path));
        let place = SourcePath { beneath, place, walked, path, shown };
        self.is_named = false;
        let metadata = place.look().map_err(|kind| place.error(kind))?;
        match metadata.file_type {
            FileType::Directory => self.directory(&place, metadata),
            _ => self.visit(place, metadata),
        }
    }

    /// Resolves a local path, and the name under which it is sent.
    fn here(&mut self, path: &Path, shown: Box<[u8]>) -> Result<SourcePath, Error> {
        let error = |kind: ErrorKind| Error::new(&shown, "sent", kind);
        let whole = path.as_os_str().as_bytes();
        let trimmed = trimmed(path);
        let last = trimmed.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
        let (top, place, name) = match last {
            b"" | b"." => (path.to_owned(), None, None),
            b".." => {
                let real = path.canonicalize().map_err(|io| error(ErrorKind::of(io)))?;
                let name = real.file_name().map(|name| name.as_bytes().to_vec());
                (path.to_owned(), None, name)
            }
            // the slash follows a link
            name if whole.len() > trimmed.len() => (path.to_owned(), None, Some(name.to_vec())),
            name => {
                let parent = &trimmed[..trimmed.len() - name.len()];
                let parent = if parent.is_empty() { b"." } else { parent };
                (OsStr::from_bytes(parent).into(), Some(name), Some(name.to_vec()))
            }
        };
        let name = name.map(|name| RelPath::single(&name)).transpose();
        let name = name.map_err(|kind| error(kind.into()))?;
        let beneath = match &self.parent {
            Some((parent, beneath)) if *parent == top => beneath.clone(),
            _ => {
                let beneath = Beneath::new(&top).map_err(|errno| error(errno.into()))?;
                let follow = self.links == Links::Follow;
                if follow { beneath.following() } else { beneath }
            }
        };
        self.parent = Some((top, beneath.clone()));
        let (place, walked) = (place.map(Box::from), Weak::new());
        Ok(SourcePath { beneath, place, walked, path: name, shown })
    }

    /// Decides what to send of a name.
    fn visit(&mut self, place: SourcePath, metadata: Metadata) -> Result<Option<Found>, Error> {
        let is_directory = metadata.file_type == FileType::Directory;
        if place.path.as_ref().is_some_and(|path| self.excludes.matches(path, is_directory)) {
            return Ok(None);
        }
        if metadata.file_type == FileType::Directory {
            return self.enter(place, metadata);
        }
        let Some(path) = place.path.clone() else {
            return Err(place.error(ErrorKind::NoDirectory));
        };
        let (parent, name) = place.split();
        if temporary::is_temporary(name) {
            return Err(place.error(ErrorKind::Unfinished));
        }
        let attributes = match metadata.file_type {
            FileType::File | FileType::Symlink => self.attributes(&place, &metadata)?,
            _ => None,
        };
        let kind = match metadata.file_type {
            FileType::File => {
                let (path, name) = (path.clone(), name.into());
                let file = SourceFile { path, parent, name, metadata };
                SourceKind::File(reader::SourceFile::Disk(file))
            }
            FileType::Symlink if self.links == Links::Skip => {
                return Err(place.error(ErrorKind::LinkLeftOut));
            }
            FileType::Symlink => {
                let read = || readlinkat(parent.open()?, name);
                let target = read().map_err(|errno| place.error(errno))?.into_vec();
                let is_inside = match self.is_named {
                    true => path.tree_holds_link_to(&target),
                    false => path.holds_link_to(&target),
                };
                if self.links != Links::Keep && !is_inside {
                    return Err(place.error(match self.links {
                        Links::Refuse => ErrorKind::LinkRefused,
                        _ => ErrorKind::LinkLeavesTree,
                    }));
                }
                SourceKind::Symlink { target, metadata }
            }
            special => return Err(place.error(ErrorKind::Special(special))),
        };
        Ok(Some(Found { path, kind, attributes }))
    }

    /// Reads the attributes to keep.
    fn attributes(
        &self,
        place: &SourcePath,
        metadata: &Metadata,
    ) -> Result<Option<Box<Attributes>>, Error> {
        if self.keep.without(Keep::HARD_LINKS) == Keep::NONE {
            return Ok(None);
        }
        let is_opened =
            attributes::takes_an_open_file(self.keep) && metadata.file_type != FileType::Symlink;
        let read = || -> Result<Attributes, ErrorKind> {
            let file = is_opened.then(|| place.open(metadata)).transpose()?;
            attributes::read(metadata, file.as_ref(), self.keep)
        };
        read().map(|attributes| Some(Box::new(attributes))).map_err(|kind| place.error(kind))
    }

    /// Returns a directory itself, if it has a name.
    fn directory(&self, place: &SourcePath, metadata: Metadata) -> Result<Option<Found>, Error> {
        let Some(path) = place.path.clone() else { return Ok(None) };
        let attributes = self.attributes(place, &metadata)?;
        Ok(Some(Found { path, kind: SourceKind::Directory(metadata), attributes }))
    }

    /// Starts walking a directory, and returns it if it has a name.
    fn enter(&mut self, place: SourcePath, metadata: Metadata) -> Result<Option<Found>, Error> {
        let identity = metadata.identity;
        if self.levels.iter().any(|level| level.identity == identity) {
            return Err(place.error(ErrorKind::Loop));
        }
        if let Some(level) = self.levels.last_mut() {
            level.state = State::Closed;
        }
        let found = self.directory(&place, metadata)?;
        self.levels.push(Level { place, state: State::Closed, identity, names: Names::new() });
        Ok(found)
    }
}

impl Iterator for Source {
    type Item = Result<Found, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        let reopen_after = self.reopen_after;
        loop {
            let found = match self.levels.last_mut().map(|level| level.next(reopen_after)) {
                Some(Some(Ok((place, metadata)))) => self.visit(place, metadata),
                Some(Some(Err(error))) => Err(error),
                Some(None) => {
                    self.levels.pop();
                    Ok(None)
                }
                None => {
                    let start = self.starts.pop_front()?;
                    self.begin(start).map_err(Error::asked_for)
                }
            };
            if let Some(found) = found.transpose().filter(|found| !self.is_done(found)) {
                return Some(found);
            }
        }
    }
}

impl Level {
    /// Returns the next name of the directory and its metadata.
    fn next(&mut self, reopen_after: Duration) -> Option<Result<(SourcePath, Metadata), Error>> {
        // what becomes of the directory now is no concern of this walk
        if self.names.is_at_end() {
            return None;
        }
        let directory = match &self.state {
            State::Open { directory, since } if since.elapsed() < reopen_after => {
                Arc::clone(directory)
            }
            State::Ended => return None,
            State::Open { .. } | State::Closed => match self.open() {
                Ok(directory) => directory,
                Err(kind) => {
                    self.state = State::Ended;
                    return Some(Err(self.place.error(kind)));
                }
            },
        };
        Some(match self.names.next(&directory)? {
            Ok(name) => self.look(&directory, &name),
            Err(errno) => Err(self.place.error(errno)),
        })
    }

    fn open(&mut self) -> Result<Arc<OwnedFd>, ErrorKind> {
        let directory = self.place.beneath.directory(self.place.place.as_deref())?;
        // another directory could have its name by now
        if Metadata::of(&directory)?.identity != self.identity {
            return Err(ErrorKind::Replaced);
        }
        self.state = State::Open { directory: Arc::clone(&directory), since: Instant::now() };
        Ok(directory)
    }

    fn look(&self, directory: &Arc<OwnedFd>, name: &[u8]) -> Result<(SourcePath, Metadata), Error> {
        let SourcePath { beneath, place, path, shown, .. } = &self.place;
        let shown: Box<[u8]> = [shown, &b"/"[..], name].concat().into();
        let error = |kind: ErrorKind| Error::new(&shown, "sent", kind);
        let path = path.as_ref().map_or_else(|| RelPath::single(name), |path| path.child(name));
        let path = Some(path.map_err(|kind| error(kind.into()))?);
        let metadata = Metadata::at(directory, name, beneath.follows());
        let metadata = metadata.map_err(|errno| error(errno.into()))?;
        let place = match place {
            Some(place) => [place, &b"/"[..], name].concat().into(),
            None => name.into(),
        };
        let (beneath, walked) = (beneath.clone(), Arc::downgrade(directory));
        Ok((SourcePath { beneath, place: Some(place), walked, path, shown }, metadata))
    }
}

impl SourcePath {
    fn error(&self, kind: impl Into<ErrorKind>) -> Error {
        Error::new(&self.shown, "sent", kind).about(self.path.as_ref())
    }

    /// Splits it into its directory and its name there.
    fn split(&self) -> (Parent, &[u8]) {
        let place = self.place.as_deref().unwrap_or(b".");
        let (directory, name) = match place.iter().rposition(|byte| *byte == b'/') {
            Some(at) => (Some(&place[..at]), &place[at + 1..]),
            None => (None, place),
        };
        (Parent::new(self.beneath.clone(), directory, self.walked.clone()), name)
    }

    /// Opens it, if it is still the same file.
    fn open(&self, metadata: &Metadata) -> Result<File, ErrorKind> {
        let (parent, name) = self.split();
        let directory = parent.open()?;
        let follow = if parent.follows() { OFlag::O_NOFOLLOW } else { OFlag::empty() };
        let flags = (OFlag::O_RDONLY | HARMLESS).difference(follow);
        let file = File::from(openat(&*directory, name, flags, Mode::empty())?);
        match Metadata::of(&file)?.identity == metadata.identity {
            true => Ok(file),
            false => Err(ErrorKind::Replaced),
        }
    }

    fn look(&self) -> Result<Metadata, ErrorKind> {
        let (parent, name) = self.split();
        Ok(Metadata::at(parent.open()?, name, parent.follows())?)
    }
}

/// Returns a path without trailing slashes.
fn trimmed(path: &Path) -> &[u8] {
    let bytes = path.as_os_str().as_bytes();
    let end = bytes.iter().rposition(|byte| *byte != b'/').map_or(0, |at| at + 1);
    &bytes[..end]
}
