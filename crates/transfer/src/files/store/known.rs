//! What a transfer has learned of the directories that it writes to, so that most files need no
//! request but the one that stores them.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The most directories that are remembered.
const MOST: usize = 1 << 16;
/// The most names of directories from listings that are remembered.
const MOST_NAMES: usize = 1 << 18;
/// Files for each of which the store is asked before the directory is listed.
const ASKED: u32 = 16;

/// Directories by their keys, without a slash at the end; the root is the empty key.
#[derive(Debug, Default)]
pub(super) struct Known {
    /// Names that are no files, and what is known of what is in them.
    directories: Mutex<HashMap<String, Directory>>,
    /// Those that were made. Not every store keeps an empty directory.
    made: Mutex<HashSet<String>>,
    /// How many names listings had.
    names: AtomicUsize,
}

#[derive(Debug)]
enum Directory {
    /// It was empty when this transfer made it.
    New,
    /// It was there. So many files were stored in it.
    Old(u32),
    /// It is being listed, or is too large for that.
    Unlisted,
    /// It had these directories in it.
    Listed(Arc<HashSet<String>>),
}

/// How to find out whether a name in a directory is that of a directory.
#[derive(Debug)]
pub(super) enum Ask {
    /// It is none.
    No,
    /// It may be one if it is in here, else it is none.
    In(Arc<HashSet<String>>),
    /// By a request for this name.
    Store,
    /// By a listing of the whole directory, which [`Known::listed`] is then told.
    List,
}

impl Known {
    /// Whether a directory is known to be one.
    pub(super) fn has(&self, key: &str) -> bool {
        self.lock().contains_key(key)
    }

    /// Whether a directory was empty when this transfer made it.
    pub(super) fn is_new(&self, key: &str) -> bool {
        matches!(self.lock().get(key), Some(Directory::New))
    }

    /// Whether a directory was made for this transfer, by whomever.
    pub(super) fn exists(&self, key: &str) -> bool {
        self.made.lock().unwrap_or_else(PoisonError::into_inner).contains(key)
    }

    /// Notes a directory that another transfer made at the same time.
    pub(super) fn is_made_elsewhere(&self, key: &str) {
        self.note_made(key);
        self.is_there(key);
    }

    /// Notes a name that is no file: what is below it may be there already.
    pub(super) fn is_there(&self, key: &str) {
        let mut known = self.lock();
        if known.len() < MOST && !known.contains_key(key) {
            known.insert(key.to_owned(), Directory::Old(0));
        }
    }

    /// Notes a directory that was made, and was empty.
    pub(super) fn is_made(&self, key: &str) {
        self.note_made(key);
        let mut known = self.lock();
        if known.len() < MOST {
            known.insert(key.to_owned(), Directory::New);
        }
    }

    /// Returns how to find out about a name in a directory, for a file that is stored there.
    pub(super) fn ask(&self, directory: &str) -> Ask {
        match self.lock().get_mut(directory) {
            Some(Directory::New) => Ask::No,
            Some(Directory::Listed(inner)) => Ask::In(Arc::clone(inner)),
            Some(old @ Directory::Old(ASKED)) => {
                *old = Directory::Unlisted;
                Ask::List
            }
            Some(Directory::Old(files)) => {
                *files += 1;
                Ask::Store
            }
            Some(Directory::Unlisted) | None => Ask::Store,
        }
    }

    /// Notes the directories in a directory, unless they are too many.
    pub(super) fn listed(&self, directory: &str, inner: HashSet<String>) {
        let before = self.names.fetch_add(inner.len(), Ordering::Relaxed);
        if before.saturating_add(inner.len()) > MOST_NAMES {
            return;
        }
        if let Some(known) = self.lock().get_mut(directory) {
            *known = Directory::Listed(Arc::new(inner));
        }
    }

    fn note_made(&self, key: &str) {
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        if made.len() < MOST {
            made.insert(key.to_owned());
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Directory>> {
        self.directories.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_listed_once_when_files_are_many() {
        let known = Known::default();
        assert!(matches!(known.ask("d"), Ask::Store), "nothing is known of it");
        known.is_there("d");
        for _ in 0..ASKED {
            assert!(matches!(known.ask("d"), Ask::Store));
        }
        assert!(matches!(known.ask("d"), Ask::List));
        assert!(matches!(known.ask("d"), Ask::Store), "it is being listed");
        known.listed("d", HashSet::from(["inner".to_owned()]));
        assert!(matches!(known.ask("d"), Ask::In(inner) if inner.contains("inner")));
        known.is_there("d");
        assert!(matches!(known.ask("d"), Ask::In(_)), "it is known already");
        known.is_made("new");
        assert!(matches!(known.ask("new"), Ask::No));
        known.is_made_elsewhere("other");
        assert!(matches!(known.ask("other"), Ask::Store));
        let made = ["d", "new", "other"].map(|key| known.exists(key));
        assert_eq!(made, [false, true, true]);
    }
}
