//! What became of an item's entries so far, as the events of its requests say.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use headroom_mutex::lock;
use headroom_transfer::path::RelPath;
use headroom_transfer::{ErrorCode, Event, Observer};

use crate::engine::CopiedFile;
use crate::entry::Entry;

/// What became of an item's entries.
#[derive(Debug)]
pub(crate) struct Ledger {
    noted: Mutex<Noted>,
    /// Bytes that were moved or found.
    in_flight: Arc<AtomicU64>,
}

#[derive(Debug, Default)]
struct Noted {
    stored: HashSet<RelPath>,
    /// Sizes and hashes that both sides agree on, if the file is stored as well or up to date.
    hashes: HashMap<RelPath, (u64, [u8; 32])>,
    /// The hashes with which files were received that are sent on.
    received: HashMap<RelPath, [u8; 32]>,
    unchanged: HashSet<RelPath>,
    /// Whether what is not stored is up to date.
    is_rest_unchanged: bool,
    /// Whether the item is a range of a file and has ended.
    is_range_ended: bool,
    /// The first reason for a failure.
    reason: Option<String>,
    /// The first one that says that the destination's disk is full.
    disk_full: Option<String>,
}

/// The entries of an item: files to record, entries that are left, and why something failed.
pub(crate) struct Sorted {
    pub(crate) copied: Vec<CopiedFile>,
    pub(crate) left: Vec<Entry>,
    pub(crate) reason: Option<String>,
    /// The first failure that says that the destination's disk is full.
    pub(crate) disk_full: Option<String>,
}

impl Ledger {
    pub(crate) fn new(in_flight: Arc<AtomicU64>) -> Arc<Self> {
        Arc::new(Self { noted: Mutex::default(), in_flight })
    }

    fn noted(&self) -> MutexGuard<'_, Noted> {
        lock(&self.noted)
    }

    /// Notes something that was stored.
    pub(crate) fn stored(&self, path: &RelPath) {
        self.noted().stored.insert(path.clone());
    }

    /// Notes a file that is up to date, and its hash if that is known.
    pub(crate) fn unchanged(&self, path: &RelPath, bytes: u64, hash: Option<[u8; 32]>) {
        let mut noted = self.noted();
        noted.unchanged.insert(path.clone());
        if let Some(hash) = hash {
            noted.hashes.insert(path.clone(), (bytes, hash));
        }
        drop(noted);
        self.in_flight.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Notes that everything that was not stored is up to date: the server compared it.
    pub(crate) fn rest_is_unchanged(&self) {
        self.noted().is_rest_unchanged = true;
    }

    /// Notes that a range has ended: nothing of its item is left. The file has no receipt by that.
    pub(crate) fn range_ended(&self) {
        self.noted().is_range_ended = true;
    }

    /// Notes that those of these entries that were not stored are up to date: the server compared
    /// them.
    pub(crate) fn others_are_unchanged(&self, entries: &[Entry]) {
        let mut noted = self.noted();
        for entry in entries {
            if !noted.stored.contains(&entry.path) {
                noted.unchanged.insert(entry.path.clone());
            }
        }
    }

    /// Notes files that were received, before they are sent on: one that is stored with another
    /// hash does not count as copied.
    pub(crate) fn received(&self, files: Vec<CopiedFile>) {
        let hashes = files.into_iter().filter_map(|file| Some((file.path, file.hash?)));
        self.noted().received.extend(hashes);
    }

    /// Notes the hash of a file that is being stored, or is up to date.
    fn hashed(&self, path: RelPath, bytes: u64, hash: [u8; 32]) {
        let mut noted = self.noted();
        if noted.received.get(&path).is_some_and(|received| *received != hash) {
            noted.hashes.remove(&path);
            let reason = || format!("{path} was received with other content than was sent on");
            noted.reason.get_or_insert_with(reason);
        } else {
            noted.hashes.insert(path, (bytes, hash));
        }
    }

    /// Notes a failure; the first one is kept.
    pub(crate) fn failed(&self, reason: &str, code: Option<ErrorCode>) {
        let mut noted = self.noted();
        noted.reason.get_or_insert_with(|| reason.to_owned());
        if code == Some(ErrorCode::NO_SPACE) {
            noted.disk_full.get_or_insert_with(|| reason.to_owned());
        }
    }

    /// Returns the files that were stored, without their entries, and the first reason for a
    /// failure.
    pub(crate) fn verified(&self) -> (Vec<CopiedFile>, Option<String>) {
        let noted = self.noted();
        let copied = noted.hashes.iter().filter(|(path, _)| noted.stored.contains(*path));
        let copied = copied.map(|(path, (size, hash))| CopiedFile {
            number: 0,
            path: path.clone(),
            size: *size,
            hash: Some(*hash),
        });
        (copied.collect(), noted.reason.clone())
    }

    /// Sorts the entries of the item. A file counts as copied only with the hash that both sides
    /// agree on, or if it was compared.
    pub(crate) fn sorted(&self, entries: Vec<Entry>) -> Sorted {
        let noted = self.noted();
        let (mut copied, mut left) = (Vec::new(), Vec::new());
        for entry in entries.into_iter().filter(|_| !noted.is_range_ended) {
            let is_stored = noted.stored.contains(&entry.path);
            let is_unchanged = noted.is_rest_unchanged || noted.unchanged.contains(&entry.path);
            if !entry.is_file() {
                if !is_stored && !is_unchanged {
                    left.push(entry);
                }
                continue;
            }
            let (size, hash) = match noted.hashes.get(&entry.path) {
                Some((size, hash)) if is_stored || is_unchanged => (*size, Some(*hash)),
                None if is_unchanged && !is_stored => (entry.size(), None),
                _ => {
                    left.push(entry);
                    continue;
                }
            };
            copied.push(CopiedFile { number: entry.number, path: entry.path, size, hash });
        }
        let (reason, disk_full) = (noted.reason.clone(), noted.disk_full.clone());
        Sorted { copied, left, reason, disk_full }
    }
}

/// Notes the events of a request whose names are below a directory.
#[derive(Debug)]
pub(crate) struct Noting {
    pub(crate) ledger: Arc<Ledger>,
    /// The directory below the source.
    pub(crate) directory: Option<RelPath>,
}

impl Noting {
    /// Returns the path below the source.
    fn whole(&self, path: &RelPath) -> Option<RelPath> {
        match &self.directory {
            Some(directory) => directory.join(path).ok(),
            None => Some(path.clone()),
        }
    }
}

impl Observer for Noting {
    fn event(&self, event: Event<'_>) {
        match event {
            Event::Hashed { path, bytes, hash } => {
                if let Some(path) = self.whole(path) {
                    self.ledger.hashed(path, bytes, *hash);
                }
            }
            Event::Stored { path } => {
                if let Some(path) = self.whole(path) {
                    self.ledger.noted().stored.insert(path);
                }
            }
            Event::Failed { reason, code } => self.ledger.failed(reason, code),
            Event::Moved { bytes } | Event::Kept { bytes } | Event::Hole { bytes } => {
                self.ledger.in_flight.fetch_add(bytes, Ordering::Relaxed);
            }
            Event::Warning { reason } | Event::LeftOut { reason } => tracing::debug!("{reason}"),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use headroom_transfer::Time;

    use super::*;
    use crate::entry::Kind;

    fn entry(number: u64, name: &str) -> Entry {
        let mtime = Time { seconds: 0, nanoseconds: 0 };
        let kind = match name.ends_with("directory") {
            true => Kind::Directory { mode: 0o755, mtime },
            false => Kind::File { size: 7, mode: 0o644, mtime, ranges: 0 },
        };
        Entry { number, path: RelPath::parse(name.as_bytes()).expect("a path"), kind }
    }

    #[test]
    fn only_what_was_verified_counts_as_copied() {
        let names = ["a/directory", "a/whole", "a/sent", "a/stored", "a/same", "a/other"];
        let entries: Vec<_> =
            names.iter().enumerate().map(|(n, name)| entry(n as u64, name)).collect();
        let ledger = Ledger::new(Arc::default());
        let directory = Some(RelPath::parse(b"a").expect("a path"));
        let noting = Noting { ledger: Arc::clone(&ledger), directory };
        let path = |name: &str| RelPath::parse(name.as_bytes()).expect("a path");
        let (whole, sent, stored) = (path("whole"), path("sent"), path("stored"));
        let hash = [1; 32];
        noting.event(Event::Stored { path: &path("directory") });
        noting.event(Event::Hashed { path: &whole, bytes: 8, hash: &hash });
        noting.event(Event::Stored { path: &whole });
        // the receiver has not confirmed this one, and that one has no hash
        noting.event(Event::Hashed { path: &sent, bytes: 7, hash: &hash });
        noting.event(Event::Stored { path: &stored });
        noting.event(Event::Failed { reason: "the first", code: None });
        let full = Some(ErrorCode::NO_SPACE);
        noting.event(Event::Failed { reason: "the disk is full", code: full });
        ledger.unchanged(&path("a/same"), 7, None);
        let Sorted { copied, left, reason, disk_full } = ledger.sorted(entries.clone());
        let copied: Vec<_> =
            copied.iter().map(|file| (file.number, file.size, file.hash)).collect();
        assert_eq!(copied, [(1, 8, Some(hash)), (4, 7, None)]);
        let left: Vec<_> = left.iter().map(|entry| entry.number).collect();
        assert_eq!(left, [2, 3, 5]);
        let reasons = [reason, disk_full];
        assert_eq!(reasons, [Some("the first".to_owned()), Some("the disk is full".to_owned())]);

        // it was received with other content
        let other = [2; 32];
        let path_of_whole = path("a/whole");
        let received = CopiedFile { number: 1, path: path_of_whole, size: 8, hash: Some(other) };
        ledger.received(vec![received]);
        noting.event(Event::Hashed { path: &whole, bytes: 8, hash: &hash });
        let others = [entry(5, "a/other")];
        ledger.others_are_unchanged(&others);
        let Sorted { copied, left, .. } = ledger.sorted(entries.clone());
        assert_eq!(copied.iter().map(|file| file.number).collect::<Vec<_>>(), [4, 5]);
        assert_eq!(left.iter().map(|entry| entry.number).collect::<Vec<_>>(), [1, 2, 3]);

        noting.event(Event::Hashed { path: &whole, bytes: 8, hash: &other });
        ledger.rest_is_unchanged();
        let Sorted { copied, left, .. } = ledger.sorted(entries);
        let copied: Vec<_> = copied.iter().map(|file| file.number).collect();
        assert_eq!(copied, [1, 2, 4, 5]);
        // what is stored without a hash never counts
        assert_eq!(left.iter().map(|entry| entry.number).collect::<Vec<_>>(), [3]);
    }
}
