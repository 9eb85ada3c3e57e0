//! Finds and removes what is below a root and not in another tree, whose names arrive in the
//! order of a walk.

use std::cmp::Ordering;
use std::collections::VecDeque;
use std::sync::Arc;

use headroom_transfer_proto::path::RelPath;

use super::entries::Entries;
use super::error::{Error, ErrorKind, FileType};
use super::exclude::Excludes;
use super::removing::Removing;
use super::root::Root;

/// The most bytes of names to remove.
const MAX_BYTES: usize = 32 << 20;
/// The most names of nested directories in memory at once.
const MAX_NAMES: usize = 1 << 18;

/// Files of a store that are removed at once.
const AT_ONCE: usize = 64;

/// Compares a root with a tree whose names arrive in the order of a walk: those of one
/// directory in byte order, a directory before its content.
#[derive(Debug)]
pub struct Extraneous {
    root: Root,
    excludes: Arc<Excludes>,
    levels: Vec<Level>,
    last: Option<RelPath>,
    found: Vec<RelPath>,
    bytes: usize,
}

/// Why a comparison fails.
#[derive(Debug, thiserror::Error)]
pub enum CompareError {
    /// A name is out of order.
    #[error("names do not arrive in the order of a walk")]
    OutOfOrder,
    /// There are too many names to remove.
    #[error(
        "nothing is removed: there are more names to remove than fit in memory ({} MiB); remove some of them yourself",
        MAX_BYTES >> 20
    )]
    TooMany,
    /// Nested directories are too large.
    #[error("nothing is removed: nested directories have more than {MAX_NAMES} names together")]
    TooWide,
    /// Something here cannot be read.
    #[error(transparent)]
    Files(#[from] Error),
}

/// The result of removing something.
#[derive(Debug)]
pub enum Removal {
    /// It was removed, or would be.
    Removed(RelPath),
    /// A directory stays because of its content: something excluded or unfinished.
    Kept(RelPath),
    /// It cannot be removed.
    Failed(Error),
}

/// A directory that is being compared.
#[derive(Debug)]
struct Level {
    path: Option<RelPath>,
    /// At rest unless this is the last level.
    entries: Entries,
    /// The next name, if it was read and not used, and whether it is a directory.
    next: Option<(RelPath, bool)>,
    /// Its files that are being removed.
    removing: VecDeque<Removing>,
    /// Whether nothing stays in it.
    is_emptied: bool,
}

impl Extraneous {
    /// Starts at the top of a root.
    ///
    /// # Errors
    /// It cannot be opened.
    pub fn new(root: Root, excludes: Arc<Excludes>) -> Result<Self, Error> {
        let top = Level::open(&root, None)?;
        let levels = vec![top];
        Ok(Self { root, excludes, levels, last: None, found: Vec::new(), bytes: 0 })
    }

    /// Notes a name of the tree. If it is a directory here as well, its content is compared next.
    ///
    /// # Errors
    /// The comparison fails: nothing must be removed.
    pub fn pass(&mut self, path: &RelPath, is_directory: bool) -> Result<(), CompareError> {
        if self.last.as_ref().is_some_and(|last| in_walk(last, path) != Ordering::Less) {
            return Err(CompareError::OutOfOrder);
        }
        self.last = Some(path.clone());
        let parent = path.parent();
        while let Some(level) = self.levels.last() {
            if is_at_or_below(parent.as_ref(), level.path.as_ref()) {
                break;
            }
            self.leave()?;
        }
        let mut listed = None;
        if self.levels.last().is_some_and(|level| level.path == parent) {
            listed = self.skip_to(Some(path))?;
        }
        if !is_directory || !self.is_directory(path, listed)? {
            return Ok(());
        }
        if let Some(level) = self.levels.last_mut() {
            level.entries.rest();
        }
        self.levels.push(Level::open(&self.root, Some(path.clone()))?);
        Ok(())
    }

    /// Whether a directory has the name. `listed`: what its listing says of it.
    fn is_directory(&self, path: &RelPath, listed: Option<bool>) -> Result<bool, CompareError> {
        // two requests less for each
        if self.root.is_remote() {
            return Ok(listed.unwrap_or(false));
        }
        match self.root.look(path) {
            Ok(metadata) => {
                Ok(metadata.is_some_and(|metadata| metadata.file_type == FileType::Directory))
            }
            // in a dry run its parent may be missing
            Err(error) if matches!(error.kind(), ErrorKind::Missing | ErrorKind::NotBeneath) => {
                Ok(false)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Ends the comparison; returns what the tree does not have, without what is below these names.
    ///
    /// # Errors
    /// The comparison fails: nothing must be removed.
    pub fn finish(mut self) -> Result<Vec<RelPath>, CompareError> {
        while !self.levels.is_empty() {
            self.leave()?;
        }
        Ok(self.found)
    }

    /// Leaves a directory: the rest of its names are extraneous.
    fn leave(&mut self) -> Result<(), CompareError> {
        self.skip_to(None)?;
        self.levels.pop();
        Ok(())
    }

    /// Collects names before `path` as extraneous; all of them without `path`. Returns whether
    /// `path` itself is a directory, if it is there.
    fn skip_to(&mut self, path: Option<&RelPath>) -> Result<Option<bool>, CompareError> {
        let mut found = None;
        let Some(level) = self.levels.last_mut() else { return Ok(None) };
        while let Some((name, is_directory)) = level.next()? {
            match path.map_or(Ordering::Less, |path| name.name().cmp(path.name())) {
                Ordering::Less => {}
                Ordering::Equal => {
                    found = Some(is_directory);
                    break;
                }
                Ordering::Greater => {
                    level.next = Some((name, is_directory));
                    break;
                }
            }
            if self.excludes.matches(&name, is_directory) {
                continue;
            }
            self.bytes += name.as_bytes().len() + size_of::<RelPath>();
            if self.bytes > MAX_BYTES {
                return Err(CompareError::TooMany);
            }
            self.found.push(name);
        }
        let held: usize = self.levels.iter().map(|level| level.entries.held()).sum();
        if held > MAX_NAMES { Err(CompareError::TooWide) } else { Ok(found) }
    }
}

impl Root {
    /// Removes several things as [`Self::remove_tree`] does each, in a store several at once.
    pub fn remove_trees(
        &self,
        paths: Vec<RelPath>,
        excludes: &Excludes,
        dry_run: bool,
        each: &mut dyn FnMut(Removal),
    ) {
        let Self::Store(store) = self else {
            return paths.iter().for_each(|path| self.remove_tree(path, excludes, dry_run, each));
        };
        let mut paths = paths.into_iter();
        let mut removing = VecDeque::new();
        loop {
            while removing.len() < AT_ONCE
                && let Some(path) = paths.next()
            {
                let running = store.begin_removal_of_any(&path, dry_run);
                removing.push_back((path, running));
            }
            let Some((path, running)) = removing.pop_front() else { return };
            let failed = |kind: ErrorKind| Err(Error::new(path.as_bytes(), "removed", kind));
            match running.wait().unwrap_or_else(failed) {
                Ok(None) => {}
                Ok(Some(true)) => self.remove_tree(&path, excludes, dry_run, each),
                Ok(Some(false)) => each(Removal::Removed(path)),
                Err(error) => each(Removal::Failed(error)),
            }
        }
    }

    /// Removes something and its content, except excluded names; in a dry run only reports that. No
    /// link is followed.
    pub fn remove_tree(
        &self,
        path: &RelPath,
        excludes: &Excludes,
        dry_run: bool,
        each: &mut dyn FnMut(Removal),
    ) {
        let is_directory = match self.look(path) {
            Ok(None) => return,
            Ok(Some(metadata)) => metadata.file_type == FileType::Directory,
            Err(error) => return each(Removal::Failed(error)),
        };
        let remove = |path: RelPath, is_directory| {
            let removed = if dry_run { Ok(()) } else { self.remove_found(&path, is_directory) };
            Removal::of(path, removed)
        };
        if !is_directory {
            return each(remove(path.clone(), false));
        }
        // a disk removes one after the other
        let at_once = if self.is_remote() { AT_ONCE } else { 0 };
        let mut levels = Vec::new();
        match Level::open(self, Some(path.clone())) {
            Ok(level) => levels.push(level),
            Err(error) => return each(Removal::Failed(error)),
        }
        while let Some(level) = levels.last_mut() {
            match level.next() {
                Ok(Some((name, is_directory))) => {
                    if excludes.matches(&name, is_directory) {
                        level.is_emptied = false;
                    } else if is_directory {
                        level.settle(0, each);
                        level.entries.rest();
                        match Level::open(self, Some(name)) {
                            Ok(inner) => levels.push(inner),
                            Err(error) => {
                                level.is_emptied = false;
                                each(Removal::Failed(error));
                            }
                        }
                    } else {
                        level.removing.push_back(match dry_run {
                            true => Removing::pretend(name),
                            false => Removing::begin(self, name),
                        });
                        level.settle(at_once, each);
                    }
                }
                end => {
                    level.settle(0, each);
                    let Some(Level { path: Some(path), is_emptied, .. }) = levels.pop() else {
                        return;
                    };
                    let removal = match end {
                        Err(error) => Removal::Failed(error),
                        Ok(_) if is_emptied => remove(path, true),
                        Ok(_) => Removal::Kept(path),
                    };
                    if let Some(outer) = levels.last_mut() {
                        outer.is_emptied &= matches!(removal, Removal::Removed(_));
                    }
                    each(removal);
                }
            }
        }
    }
}

impl Removal {
    fn of(path: RelPath, removed: Result<(), Error>) -> Self {
        match removed {
            Ok(()) => Self::Removed(path),
            Err(error) if matches!(error.kind(), ErrorKind::NotEmpty) => Self::Kept(path),
            Err(error) => Self::Failed(error),
        }
    }
}

impl Level {
    fn open(root: &Root, path: Option<RelPath>) -> Result<Self, Error> {
        let entries = Entries::open(root, path.clone())?;
        Ok(Self { path, entries, next: None, removing: VecDeque::new(), is_emptied: true })
    }

    /// Waits until at most so many files are being removed.
    fn settle(&mut self, most: usize, each: &mut dyn FnMut(Removal)) {
        while self.removing.len() > most {
            let Some(removing) = self.removing.pop_front() else { return };
            let (path, removed) = removing.wait();
            let removal = Removal::of(path, removed);
            self.is_emptied &= matches!(removal, Removal::Removed(_));
            each(removal);
        }
    }

    /// Returns the next name, and whether it is a directory.
    fn next(&mut self) -> Result<Option<(RelPath, bool)>, Error> {
        match self.next.take() {
            Some(next) => Ok(Some(next)),
            None => self.entries.next(),
        }
    }
}

/// Compares two names in the order of a walk.
fn in_walk(one: &RelPath, other: &RelPath) -> Ordering {
    one.components().cmp(other.components())
}

fn is_at_or_below(path: Option<&RelPath>, directory: Option<&RelPath>) -> bool {
    let Some(directory) = directory else { return true };
    path.is_some_and(|path| {
        let rest = path.as_bytes().strip_prefix(directory.as_bytes());
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
    })
}
