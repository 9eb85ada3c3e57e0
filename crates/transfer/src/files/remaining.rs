//! Files that remain to be sent of trees of which others have been sent.

use std::collections::HashSet;

use headroom_transfer_proto::path::RelPath;

/// The most bytes of their names. With more, all files remain.
const MAX_BYTES: usize = 16 << 20;

/// Files that remain, by the names under which they are sent.
#[derive(Debug, Default)]
pub(crate) struct Remaining {
    names: HashSet<RelPath>,
    bytes: usize,
    is_all: bool,
}

impl Remaining {
    /// Adds a file.
    pub(crate) fn add(&mut self, path: &RelPath) {
        if self.has(path) {
            return;
        }
        self.bytes += path.as_bytes().len() + size_of::<RelPath>();
        if self.bytes > MAX_BYTES {
            self.add_all();
        } else {
            self.names.insert(path.clone());
        }
    }

    /// Adds all files.
    pub(crate) fn add_all(&mut self) {
        self.is_all = true;
        self.names = HashSet::new();
    }

    /// Whether a file remains.
    pub(crate) fn has(&self, path: &RelPath) -> bool {
        self.is_all || self.names.contains(path)
    }

    /// Whether all files remain.
    pub(crate) fn is_all(&self) -> bool {
        self.is_all
    }

    /// Returns the names, unless all files remain.
    pub(crate) fn names(&self) -> impl Iterator<Item = &RelPath> {
        self.names.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn with_too_many_names_all_files_remain() {
        let path = |n: usize| RelPath::parse(format!("{n:0>200}").as_bytes()).expect("a path");
        let mut remaining = Remaining::default();
        remaining.add(&path(1));
        remaining.add(&path(1));
        assert!(remaining.has(&path(1)) && !remaining.has(&path(2)));
        assert!(!remaining.is_all() && remaining.names().count() == 1);
        (0..MAX_BYTES / 200).for_each(|n| remaining.add(&path(n)));
        assert!(remaining.has(&path(usize::MAX)));
        assert!(remaining.is_all() && remaining.names().count() == 0);
    }
}
