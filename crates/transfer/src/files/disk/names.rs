//! Lists the names in a directory, sorted, in bounded memory.

use std::collections::BinaryHeap;
use std::os::fd::AsFd;

use nix::dir::Dir;
use nix::fcntl::OFlag;
use nix::sys::stat::Mode;

/// Names in memory at once. A larger directory is read several times.
const BATCH: usize = 1 << 16;

/// Returns the names of a directory in byte order. Names that are added or removed meanwhile
/// may be missed, but none is returned twice.
#[derive(Debug)]
pub(super) struct Names {
    /// The next names, in reverse order.
    batch: Vec<Box<[u8]>>,
    /// The last name of the batch; `None` before the first batch.
    last: Option<Box<[u8]>>,
    /// Whether there may be more after the batch.
    more: bool,
    most: usize,
}

impl Names {
    pub(super) fn new() -> Self {
        Self::in_batches_of(BATCH)
    }

    fn in_batches_of(most: usize) -> Self {
        Self { batch: Vec::new(), last: None, more: true, most }
    }

    /// Returns the next name in `directory`, which must be the same each time.
    pub(super) fn next(&mut self, directory: impl AsFd) -> Option<nix::Result<Box<[u8]>>> {
        if self.batch.is_empty()
            && self.more
            && let Err(error) = self.read(directory)
        {
            self.more = false;
            return Some(Err(error));
        }
        self.batch.pop().map(Ok)
    }

    /// Whether all names were returned.
    pub(super) fn is_at_end(&self) -> bool {
        self.batch.is_empty() && !self.more
    }

    /// Returns how many names are in memory.
    pub(super) fn held(&self) -> usize {
        self.batch.len()
    }

    /// Reads the whole directory, and keeps the lowest names after the last one.
    fn read(&mut self, directory: impl AsFd) -> nix::Result<()> {
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let mut directory = Dir::openat(directory, ".", flags, Mode::empty())?;
        let mut lowest: BinaryHeap<Box<[u8]>> = BinaryHeap::new();
        self.more = false;
        for entry in directory.iter() {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if matches!(name, b"." | b"..") || self.last.as_deref().is_some_and(|last| name <= last)
            {
                continue;
            }
            if lowest.len() == self.most {
                self.more = true;
                if let Some(mut highest) = lowest.peek_mut()
                    && name < &**highest
                {
                    *highest = name.into();
                }
            } else {
                lowest.push(Box::from(name));
            }
        }
        self.batch = lowest.into_sorted_vec();
        self.batch.reverse();
        self.last = self.batch.first().cloned().or(self.last.take());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    #[test]
    fn small_batches_give_what_a_large_one_gives() {
        let folder = tempfile::tempdir().expect("a folder");
        for n in (0..1000).rev() {
            File::create(folder.path().join(format!("{}", n * 7919 % 1000))).expect("a file");
        }
        let all = |most| {
            let directory = File::open(folder.path()).expect("a directory");
            let mut names = Names::in_batches_of(most);
            std::iter::from_fn(|| names.next(&directory))
                .collect::<nix::Result<Vec<_>>>()
                .expect("names")
        };
        let mut expected: Vec<Box<[u8]>> =
            (0..1000).map(|n| n.to_string().into_bytes().into()).collect();
        expected.sort();
        for most in [1, 7, 999, 1000, 1001, BATCH] {
            assert_eq!(all(most), expected, "in batches of {most}");
        }
    }

    #[test]
    fn an_unreadable_directory_is_one_error() {
        let file = tempfile::tempfile().expect("a file");
        let mut names = Names::new();
        assert!(names.next(&file).expect("an answer").is_err());
        assert!(names.next(&file).is_none());
    }
}
