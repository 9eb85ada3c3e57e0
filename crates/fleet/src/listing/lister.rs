//! Fills the queue with what a source has, and sets checkpoints.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::time::{Duration, Instant};

use headroom_transfer::path::{RelPath, shown};

use super::found::Found;
use crate::engine::{Checkpoint, Engine};
use crate::entry::{Entry, Kind};
use crate::error::Error;
use crate::job::Batch;
use crate::key::DirectoryKey;
use crate::ranges;

/// The longest time without a checkpoint, as far as directories end: workers wait for the first.
const CHECKPOINT: Duration = Duration::from_secs(1);
/// The most directories in memory: then a checkpoint follows, as soon as the directory ends.
const MAX_DIRECTORIES: usize = 10_000;
/// The most bytes of names and targets of an item.
const MAX_NAME_BYTES: usize = 4 << 20;
/// The most names between two checkpoints of which each gets a sentence: they cannot be copied.
const MAX_PROBLEMS: usize = 1000;

/// Fills the queue with what a source has.
pub(super) struct Lister<'a, E> {
    engine: &'a mut E,
    batch: Batch,
    /// The number for the next entry.
    next_number: u64,
    /// The directory that is listed, or was listed last.
    current: Option<DirectoryKey>,
    /// Entries of the next item.
    entries: Vec<Entry>,
    bytes: u64,
    name_bytes: usize,
    since: Since,
    /// A directory that could not be listed: until it is reached again, a checkpoint follows each
    /// directory.
    careful_until: Option<DirectoryKey>,
    /// When the last checkpoint was.
    at: Instant,
}

/// What was found since the last checkpoint.
#[derive(Debug, Default)]
struct Since {
    listed: Vec<DirectoryKey>,
    /// Directories, but for those that were staged.
    found: BTreeMap<DirectoryKey, Entry>,
    problems: Vec<String>,
    /// Problems without a sentence.
    more_problems: u64,
    files: u64,
    bytes: u64,
    left_out: u64,
    /// Whether anything was staged.
    is_staged: bool,
}

impl<'a, E: Engine> Lister<'a, E> {
    pub(super) fn begin(engine: &'a mut E, batch: Batch) -> Result<Self, Error> {
        let next_number = engine.begin_listing()?;
        Ok(Self {
            engine,
            batch,
            next_number,
            current: None,
            entries: Vec::new(),
            bytes: 0,
            name_bytes: 0,
            since: Since::default(),
            careful_until: None,
            at: Instant::now(),
        })
    }

    /// Returns the next directory to list; the inner `None` is the source itself. After the last
    /// one the listing is complete.
    pub(super) fn next(&mut self) -> Result<Option<Option<RelPath>>, Error> {
        let stored = self.engine.next_directory(self.current.as_ref())?;
        let after = self.current.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
        let mut later = self.since.found.range::<DirectoryKey, _>((after, Bound::Unbounded));
        let found = later.next().map(|(key, _)| key.clone());
        let Some(next) = [stored, found].into_iter().flatten().min() else {
            self.checkpoint(None, true)?;
            return Ok(None);
        };
        let path = next.path();
        self.current = Some(next);
        Ok(Some(path))
    }

    /// Adds a name of the directory.
    pub(super) fn add(&mut self, name: &RelPath, found: Found) -> Result<(), Error> {
        let directory = self.current.as_ref().and_then(DirectoryKey::path);
        let path = match &directory {
            Some(directory) => directory.join(name),
            None => Ok(name.clone()),
        };
        let path = match path {
            Ok(path) => path,
            Err(error) if self.since.problems.len() < MAX_PROBLEMS => {
                let directory = directory.as_ref().map_or(&b""[..], RelPath::as_bytes);
                let directory = shown(directory).to_string();
                self.since.problems.push(format!("{directory}/{name} cannot be sent: {error}"));
                return Ok(());
            }
            Err(_) => {
                self.since.more_problems += 1;
                return Ok(());
            }
        };
        match found {
            // as every transfer does
            Found::Entry(Kind::Symlink { target, .. }) if !path.holds_link_to(&target) => {
                self.since.left_out += 1;
            }
            Found::LeftOut => self.since.left_out += 1,
            Found::Entry(kind) => self.push(path, kind)?,
        }
        Ok(())
    }

    fn push(&mut self, path: RelPath, mut kind: Kind) -> Result<(), Error> {
        if let Kind::File { size, ranges, .. } = &mut kind {
            *ranges = ranges::count(*size, self.batch.range);
        }
        let entry = Entry { number: self.next_number, path, kind };
        self.next_number += 1;
        if let Kind::Directory { .. } = entry.kind {
            self.since.found.insert(DirectoryKey::of(Some(&entry.path)), entry.clone());
            if self.since.found.len() >= MAX_DIRECTORIES {
                self.stage_directories()?;
            }
        }
        let size = entry.size();
        if entry.is_file() {
            self.since.files += 1;
            self.since.bytes = self.since.bytes.saturating_add(size);
        }
        // a large file is an item of its own, or several, and what waits stays together
        if size >= self.batch.bytes || entry.ranges() > 0 {
            self.since.is_staged = true;
            return self.engine.stage(&[entry]);
        }
        let name_bytes = entry.name_bytes();
        let is_full = self.entries.len() as u64 >= u64::from(self.batch.files)
            || self.bytes.saturating_add(size) > self.batch.bytes
            || self.name_bytes + name_bytes > MAX_NAME_BYTES;
        if is_full {
            self.stage()?;
        }
        self.bytes += size;
        self.name_bytes += name_bytes;
        self.entries.push(entry);
        Ok(())
    }

    fn stage_directories(&mut self) -> Result<(), Error> {
        let found: Vec<_> = std::mem::take(&mut self.since.found).into_iter().collect();
        self.engine.stage_directories(&found)?;
        self.since.is_staged = true;
        Ok(())
    }

    fn stage(&mut self) -> Result<(), Error> {
        if self.entries.is_empty() {
            return Ok(());
        }
        self.engine.stage(&self.entries)?;
        self.entries.clear();
        (self.bytes, self.name_bytes) = (0, 0);
        self.since.is_staged = true;
        Ok(())
    }

    /// The directory is complete.
    pub(super) fn listed(&mut self) -> Result<(), Error> {
        self.since.listed.extend(self.current.clone());
        let Since { listed, found, is_staged, .. } = &self.since;
        let is_due = *is_staged
            || self.careful_until.is_some()
            || listed.len() + found.len() >= MAX_DIRECTORIES
            || self.at.elapsed() >= CHECKPOINT;
        // this time it could be listed
        if self.careful_until.as_ref().is_some_and(|until| self.current.as_ref() >= Some(until)) {
            self.careful_until = None;
        }
        if is_due { self.checkpoint(None, false) } else { Ok(()) }
    }

    /// The directory cannot be listed. Its names are discarded, and with them what was listed since
    /// the last checkpoint. If other directories were, they are listed again, each with a
    /// checkpoint, and the failure is noted when it comes again.
    pub(super) fn failed(&mut self, reason: &str) -> Result<(), Error> {
        let Some(key) = self.current.clone() else { return Ok(()) };
        let is_first = self.since.listed.is_empty();
        self.discard()?;
        if is_first {
            if self.careful_until.as_ref() == Some(&key) {
                self.careful_until = None;
            }
            return self.checkpoint(Some((&key, reason)), false);
        }
        self.careful_until = Some(key);
        Ok(())
    }

    /// Goes back to the last checkpoint.
    pub(super) fn discard(&mut self) -> Result<(), Error> {
        self.next_number = self.engine.begin_listing()?;
        self.entries.clear();
        (self.bytes, self.name_bytes) = (0, 0);
        (self.current, self.since) = (None, Since::default());
        Ok(())
    }

    fn checkpoint(
        &mut self,
        failed: Option<(&DirectoryKey, &str)>,
        is_complete: bool,
    ) -> Result<(), Error> {
        self.stage()?;
        let Since { listed, found, mut problems, more_problems, files, bytes, left_out, .. } =
            std::mem::take(&mut self.since);
        let found: Vec<_> = found.into_iter().collect();
        if more_problems > 0 {
            problems.push(format!("{more_problems} more names cannot be sent: they are too long"));
        }
        self.engine.checkpoint(&Checkpoint {
            listed: &listed,
            failed,
            found: &found,
            problems: &problems,
            next_number: self.next_number,
            files,
            bytes,
            left_out,
            is_complete,
        })?;
        self.at = Instant::now();
        Ok(())
    }
}
