//! Suppresses failures that follow from another: if a directory cannot be made, nothing in it
//! can be stored, and a line for each file would not help.

use std::collections::HashSet;

use headroom_transfer_proto::path::RelPath;

/// The most bytes of directory names that are kept. Failures below further ones are reported
/// one by one.
const MAX_BYTES: usize = 1 << 20;

/// Directories that could not be made, and the number of failures below them.
#[derive(Debug, Default)]
pub(super) struct FailedDirectories {
    directories: HashSet<RelPath>,
    bytes: usize,
    count: u64,
}

impl FailedDirectories {
    /// Notes a directory that could not be made.
    pub(super) fn add(&mut self, directory: &RelPath) {
        let bytes = directory.as_bytes().len() + size_of::<RelPath>();
        if self.bytes + bytes <= MAX_BYTES {
            self.bytes += bytes;
            self.directories.insert(directory.clone());
        }
    }

    /// Whether a path is below such a directory; if so it is counted.
    pub(super) fn covers(&mut self, path: &RelPath) -> bool {
        if self.directories.is_empty() {
            return false;
        }
        let mut above = path.parent();
        while let Some(directory) = above {
            if self.directories.contains(&directory) {
                self.count += 1;
                return true;
            }
            above = directory.parent();
        }
        false
    }

    /// Summarizes what was counted, if anything was.
    pub(super) fn summary(&self) -> Option<String> {
        match self.count {
            0 => None,
            1 => Some("1 more in a directory that could not be made was not stored".to_owned()),
            count => {
                Some(format!("{count} more in directories that could not be made were not stored"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_below_a_failed_directory_are_counted_and_reported_once() {
        let path = |text: &str| RelPath::parse(text.as_bytes()).expect("a path");
        let mut failed_directories = FailedDirectories::default();
        assert!(!failed_directories.covers(&path("a/b")));
        assert_eq!(failed_directories.summary(), None);
        failed_directories.add(&path("a/b"));
        for (name, follows) in
            [("a/b/c", true), ("a/b/c/d", true), ("a/b", false), ("a/bc/d", false), ("a", false)]
        {
            assert_eq!(failed_directories.covers(&path(name)), follows, "{name}");
        }
        let summary = failed_directories.summary().expect("two followed");
        assert_eq!(summary, "2 more in directories that could not be made were not stored");
    }

    #[test]
    fn a_peer_that_fails_directory_after_directory_fills_little_memory() {
        let mut failed_directories = FailedDirectories::default();
        for n in 0..100_000 {
            let name = format!("{n:0>200}");
            failed_directories.add(&RelPath::parse(name.as_bytes()).expect("a path"));
        }
        assert!(
            failed_directories.bytes <= MAX_BYTES && failed_directories.directories.len() > 1000
        );
    }
}
