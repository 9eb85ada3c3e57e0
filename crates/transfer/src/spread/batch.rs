//! Divides files into batches of one request each.
//!
//! Batches grow with what was seen before: few files are spread over all servers, too, and many
//! files cost few round trips. The last batches are a fourth of one server's share at most, so that
//! all servers end at about the same time.

use std::collections::HashSet;

use headroom_transfer_proto::path::RelPath;

/// The bounds of the files of a batch.
const FILES: (u64, u64) = (4, 512);
/// The bounds of the bytes of a batch. A larger file ends its batch.
const BYTES: (u64, u64) = (1 << 20, 64 << 20);
/// The part of one server's share that a batch is of what was seen.
const PART: u64 = 4;

/// Collects files of a batch.
#[derive(Debug)]
pub(super) struct Batcher {
    servers: u64,
    /// Files and bytes that were added so far.
    seen: (u64, u64),
    files: Vec<(RelPath, u64)>,
    bytes: u64,
}

impl Batcher {
    pub(super) fn new(servers: usize) -> Self {
        Self { servers: servers.max(1) as u64, seen: (0, 0), files: Vec::new(), bytes: 0 }
    }

    /// Adds a file of this size in bytes; returns the batch if it is full.
    pub(super) fn add(&mut self, path: RelPath, size: u64) -> Option<Vec<(RelPath, u64)>> {
        self.pass(size);
        self.files.push((path, size));
        self.bytes = self.bytes.saturating_add(size);
        let part = |seen: u64, (least, most)| (seen / (PART * self.servers)).clamp(least, most);
        let is_full = self.files.len() as u64 >= part(self.seen.0, FILES)
            || self.bytes >= part(self.seen.1, BYTES);
        is_full.then(|| self.take())
    }

    /// Counts a file that is not copied.
    pub(super) fn pass(&mut self, size: u64) {
        self.seen = (self.seen.0 + 1, self.seen.1.saturating_add(size));
    }

    /// Returns what is left.
    pub(super) fn take(&mut self) -> Vec<(RelPath, u64)> {
        self.bytes = 0;
        std::mem::take(&mut self.files)
    }

    /// Returns the files and bytes that were counted.
    pub(super) const fn seen(&self) -> (u64, u64) {
        self.seen
    }
}

/// Returns the paths of files, each after the directories that it is in: another server may not
/// have made these yet.
pub(super) fn with_parents(files: &[(RelPath, u64)]) -> Vec<RelPath> {
    let mut paths = Vec::with_capacity(files.len());
    let mut known: HashSet<RelPath> = HashSet::new();
    for (path, _) in files {
        let mut missing = Vec::new();
        let mut above = path.parent();
        while let Some(directory) = above.filter(|directory| !known.contains(directory)) {
            above = directory.parent();
            missing.push(directory);
        }
        for directory in missing.into_iter().rev() {
            known.insert(directory.clone());
            paths.push(directory);
        }
        paths.push(path.clone());
    }
    paths
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The batches of so many files of one size, by their files.
    fn batches(servers: usize, count: usize, size: u64) -> Vec<usize> {
        let mut batcher = Batcher::new(servers);
        let path = RelPath::parse(b"name").expect("a path");
        let full = (0..count).filter_map(|_| batcher.add(path.clone(), size));
        let mut sizes: Vec<_> = full.map(|files| files.len()).collect();
        sizes.push(batcher.take().len());
        assert_eq!(sizes.iter().sum::<usize>(), count);
        sizes
    }

    #[test]
    fn few_files_are_spread_and_many_cost_few_requests() {
        assert_eq!(batches(3, 12, 10), [4, 4, 4, 0]);
        let many = batches(3, 20_000, 4096);
        assert!(many.len() < 120, "{}", many.len());
        assert!(many.iter().all(|files| *files <= 512));
        // a third of the files is one server's share
        let last = many.iter().rev().take(3).max().expect("batches");
        assert!(*last <= 20_000 / 3 / 4 + 1, "{last}");
    }

    #[test]
    fn every_path_comes_after_its_directories_and_once() {
        let files = ["a/b/c", "a/b/d/e", "f", "a/g"];
        let files = files.map(|name| (RelPath::parse(name.as_bytes()).expect("a path"), 1));
        let paths: Vec<_> = with_parents(&files).iter().map(ToString::to_string).collect();
        assert_eq!(paths, ["a", "a/b", "a/b/c", "a/b/d", "a/b/d/e", "f", "a/g"]);
    }

    #[test]
    fn a_large_file_is_a_batch_of_its_own() {
        assert_eq!(batches(2, 3, 1 << 30), [1, 1, 1, 0]);
        assert_eq!(batches(2, 6, 600 << 10), [2, 2, 2, 0]);
        assert_eq!(batches(2, 2, u64::MAX), [1, 1, 0]);
    }
}
