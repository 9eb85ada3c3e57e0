//! What a transfer has learned of the directories that it writes to, so that most files need no
//! request but the one that stores them.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use headroom_mutex::lock;
use headroom_store::{Expected, Version};

/// The most directories that are remembered.
const MAX: usize = 1 << 16;
/// The most names of directories from listings that are remembered.
const MAX_NAMES: usize = 1 << 18;
/// The most versions of files that a sync has compared and not stored yet.
const MAX_SEEN: usize = 1 << 14;
/// How long something waits for its directory. Without that nothing is lost but requests, so that
/// threads that wait never keep those from running that they wait for.
const PATIENCE: Duration = Duration::from_secs(2);
/// Files for each of which the store is asked before the directory is listed.
const ASKED: u32 = 16;

/// Directories by their keys, without a slash at the end; the root is the empty key.
#[derive(Debug, Default)]
pub(super) struct Known {
    /// Names that are no files, and what is known of what is in them.
    directories: Mutex<HashMap<String, Directory>>,
    /// A directory is no longer being made.
    settled: Condvar,
    /// Those that were made. Not every store keeps an empty directory.
    made: Mutex<HashSet<String>>,
    /// How many names listings had.
    names: AtomicUsize,
    /// The versions of files that were compared and differ.
    seen: Mutex<HashMap<String, Version>>,
    /// Whether the last file that was stored has replaced one: then the next one does as a rule.
    replaces: AtomicBool,
}

#[derive(Debug)]
enum Directory {
    /// So many threads are about to find it, or to make it.
    Making(u32),
    /// It was empty when this transfer made it.
    New,
    /// It was there. So many files were stored in it.
    Old(u32),
    /// It is being listed, or is too large for that.
    Unlisted,
    /// It had these directories in it.
    Listed(Arc<HashSet<String>>),
}

/// A directory that is about to be found or made. What is stored in it waits until that is done, or
/// this is dropped.
#[derive(Debug)]
pub struct Making {
    known: Arc<Known>,
    key: String,
}

impl Drop for Making {
    fn drop(&mut self) {
        let mut known = self.known.lock();
        let Some(Directory::Making(users)) = known.get_mut(&self.key) else { return };
        *users -= 1;
        if *users == 0 {
            known.remove(&self.key);
            drop(known);
            self.known.settled.notify_all();
        }
    }
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
        let known = self.wait_for(key);
        known.get(key).is_some_and(|directory| !matches!(directory, Directory::Making(_)))
    }

    /// Whether a directory was empty when this transfer made it.
    pub(super) fn is_new(&self, key: &str) -> bool {
        matches!(self.wait_for(key).get(key), Some(Directory::New))
    }

    /// Whether a directory is known to have been empty when this transfer made it. This waits for
    /// nobody.
    pub(super) fn is_known_as_new(&self, key: &str) -> bool {
        matches!(self.lock().get(key), Some(Directory::New))
    }

    /// Notes a directory that is about to be found or made.
    pub(super) fn expect(known: &Arc<Self>, key: &str) -> Option<Making> {
        let mut directories = known.lock();
        let has_room = directories.len() < MAX;
        match directories.get_mut(key) {
            Some(Directory::Making(users)) => *users += 1,
            None if has_room => {
                directories.insert(key.to_owned(), Directory::Making(1));
            }
            _ => return None,
        }
        drop(directories);
        Some(Making { known: Arc::clone(known), key: key.to_owned() })
    }

    /// Notes the version of a file that is about to be replaced.
    pub(super) fn saw(&self, key: &str, version: &Version) {
        let mut seen = lock(&self.seen);
        if version.is_known() && seen.len() < MAX_SEEN {
            seen.insert(key.to_owned(), version.clone());
        }
    }

    /// Returns what a file that is stored will replace, as far as one can tell.
    pub(super) fn expected(&self, key: &str) -> Expected {
        let mut seen = lock(&self.seen);
        if let Some(version) = seen.remove(key) {
            return Expected::Version(version);
        }
        drop(seen);
        let (parent, _) = key.rsplit_once('/').unwrap_or(("", key));
        match self.replaces.load(Ordering::Relaxed) && !self.is_known_as_new(parent) {
            true => Expected::Something,
            false => Expected::Nothing,
        }
    }

    /// Notes whether a file has replaced one.
    pub(super) fn replaced(&self, key: &str, was_there: bool) {
        let (parent, _) = key.rsplit_once('/').unwrap_or(("", key));
        // what is in a new directory says nothing of others
        if was_there || !self.is_known_as_new(parent) {
            self.replaces.store(was_there, Ordering::Relaxed);
        }
    }

    /// Whether a directory was made for this transfer, by whomever.
    pub(super) fn exists(&self, key: &str) -> bool {
        lock(&self.made).contains(key)
    }

    /// Notes a directory that another transfer made at the same time.
    pub(super) fn is_made_elsewhere(&self, key: &str) {
        self.note_made(key);
        if let Some(new @ Directory::New) = self.lock().get_mut(key) {
            *new = Directory::Old(0);
        }
        self.is_there(key);
    }

    /// Notes a name that is no file: what is below it may be there already.
    pub(super) fn is_there(&self, key: &str) {
        let mut known = self.lock();
        let is_news = match known.get(key) {
            Some(directory) => matches!(directory, Directory::Making(_)),
            None => known.len() < MAX,
        };
        if is_news {
            known.insert(key.to_owned(), Directory::Old(0));
            drop(known);
            self.settled.notify_all();
        }
    }

    /// Notes a directory that was made, and was empty.
    pub(super) fn is_made(&self, key: &str) {
        self.note_made(key);
        let mut known = self.lock();
        if known.len() < MAX || known.contains_key(key) {
            known.insert(key.to_owned(), Directory::New);
        }
        drop(known);
        self.settled.notify_all();
    }

    /// Returns how to find out about a name in a directory, for a file that is stored there.
    pub(super) fn ask(&self, directory: &str) -> Ask {
        match self.wait_for(directory).get_mut(directory) {
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
            Some(Directory::Unlisted | Directory::Making(_)) | None => Ask::Store,
        }
    }

    /// Notes the directories in a directory, unless they are too many.
    pub(super) fn listed(&self, directory: &str, inner: HashSet<String>) {
        let before = self.names.fetch_add(inner.len(), Ordering::Relaxed);
        if before.saturating_add(inner.len()) > MAX_NAMES {
            return;
        }
        if let Some(known) = self.lock().get_mut(directory) {
            *known = Directory::Listed(Arc::new(inner));
        }
    }

    fn note_made(&self, key: &str) {
        let mut made = lock(&self.made);
        if made.len() < MAX {
            made.insert(key.to_owned());
        }
    }

    /// Waits until a directory is found or made, if it is about to be. Only threads that make
    /// requests wait, never the one that begins them.
    fn wait_for(&self, key: &str) -> MutexGuard<'_, HashMap<String, Directory>> {
        let is_making = |known: &mut HashMap<String, Directory>| {
            matches!(known.get(key), Some(Directory::Making(_)))
        };
        let waited = self.settled.wait_timeout_while(self.lock(), PATIENCE, is_making);
        waited.unwrap_or_else(PoisonError::into_inner).0
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Directory>> {
        lock(&self.directories)
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

    #[test]
    fn what_is_in_a_directory_waits_until_that_is_made_or_given_up() {
        let known = Arc::new(Known::default());
        let both = [Known::expect(&known, "d"), Known::expect(&known, "d")];
        assert!(!known.is_known_as_new("d"));
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| known.is_new("d"));
            known.is_made("d");
            assert!(waiting.join().expect("it ends"));
        });
        drop(both);
        assert!(known.is_new("d"), "it stays when it is made");
        assert!(Known::expect(&known, "d").is_none());
        let making = Known::expect(&known, "e");
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| known.has("e"));
            drop(making);
            assert!(!waiting.join().expect("it ends"));
        });
        assert!(matches!(known.ask("e"), Ask::Store));
    }

    #[test]
    fn files_are_expected_where_they_were_seen_and_where_the_last_one_was() {
        let known = Known::default();
        known.is_made("new");
        assert_eq!(known.expected("f"), Expected::Nothing);
        let version = Version::new(Some("\"1\"".to_owned()), None);
        known.saw("f", &version);
        assert_eq!(known.expected("f"), Expected::Version(version));
        assert_eq!(known.expected("f"), Expected::Nothing, "it is stored once");
        known.replaced("f", true);
        assert_eq!(known.expected("g"), Expected::Something);
        assert_eq!(known.expected("new/g"), Expected::Nothing);
        known.replaced("new/g", false);
        assert_eq!(known.expected("h"), Expected::Something);
        known.replaced("h", false);
        assert_eq!(known.expected("i"), Expected::Nothing);
    }
}
