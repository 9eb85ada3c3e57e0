//! An open ledger: reads and compares both copies, and writes them durably.

use std::path::{Path, PathBuf};

use headroom_file_lock::LockedFile;

use super::disk::{Disk, RealDisk};
use super::error::{Error, failed};
use super::lock;
use super::paths::{LedgerPaths, copy_name, is_ledger, with_suffix};
use super::state::{KeyId, LedgerState, MAX_FILE_LEN};

/// An open ledger, locked against other processes.
#[derive(Debug)]
pub struct Ledger<D: Disk = RealDisk> {
    disk: D,
    ledger: PathBuf,
    copy_folder: PathBuf,
    copy: PathBuf,
    pub(super) state: LedgerState,
    /// The second copy is one generation ahead of the ledger.
    ledger_is_behind: bool,
    /// Held as long as the ledger is open.
    _locks: Vec<LockedFile>,
}

impl Ledger<RealDisk> {
    /// Opens and locks the ledger of a tunnel and its second copy, and checks that it contains
    /// every key of `needed`; each comes with the name of its SA.
    ///
    /// `new_keys`: adds missing keys, starting at 0.
    ///
    /// # Errors
    /// The ledger is in use, missing, damaged or outdated, or lacks a key.
    pub fn open(
        paths: &LedgerPaths,
        needed: &[(KeyId, &str)],
        new_keys: bool,
    ) -> Result<Self, Error> {
        let mut locks = Vec::new();
        let lock = |path: &Path| lock::take(path).map(|lock| locks.push(lock));
        let mut ledger = Self::read(RealDisk, paths, needed, new_keys, lock)?;
        ledger._locks = locks;
        ledger.add_keys(needed, new_keys)?;
        Ok(ledger)
    }

    /// Checks whether [`Ledger::open`] would accept the ledger, without locking or writing it.
    ///
    /// # Errors
    /// As [`Ledger::open`], except that it is in use.
    pub fn check(paths: &LedgerPaths, needed: &[(KeyId, &str)]) -> Result<(), Error> {
        let ledger = Self::read(RealDisk, paths, needed, false, |_| Ok(()))?;
        let absent = needed.iter().filter(|(key_id, _)| ledger.number(*key_id).is_none());
        let mut absent = absent.map(|(_, sa)| *sa).peekable();
        if absent.peek().is_none() {
            return Ok(());
        }
        let sas = listed(absent);
        Err(Error::UnknownKeys { path: ledger.ledger, sas })
    }

    /// Writes the first ledger of new keys. The first [`Ledger::open`] makes its second copy.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn create(path: &Path, key_ids: &[KeyId], id: u128) -> Result<(), Error> {
        let numbers = key_ids.iter().map(|key_id| (*key_id, 0)).collect();
        let state = LedgerState { id, generation: 0, numbers };
        write_durably(&RealDisk, path, &state)
    }
}

impl<D: Disk> Ledger<D> {
    /// Returns the highest number that was used, or may have been.
    pub fn number(&self, key_id: KeyId) -> Option<u64> {
        self.state.numbers.get(&key_id).copied()
    }

    /// Raises numbers, and returns when that is durable. Never lowers one.
    ///
    /// # Errors
    /// The disk refused. None of the new numbers may be used; the call can be repeated.
    pub fn commit(&mut self, numbers: &[(KeyId, u64)]) -> Result<(), Error> {
        if numbers.is_empty() { Ok(()) } else { self.write(numbers, u64::max) }
    }

    /// Lowers numbers to those that were used, which releases the rest of the blocks. To be called
    /// when no packet can be sent any more.
    ///
    /// # Errors
    /// The disk refused; the blocks stay reserved.
    pub fn release_unused(&mut self, numbers: &[(KeyId, u64)]) -> Result<(), Error> {
        self.write(numbers, |_, used| used)
    }

    /// Adds the keys that a reload brings.
    ///
    /// # Errors
    /// As [`Ledger::open`]: a key is missing without `new_keys`, or another ledger contains it.
    pub fn add_keys(&mut self, needed: &[(KeyId, &str)], new_keys: bool) -> Result<(), Error> {
        let absent: Vec<_> = needed.iter().filter(|(a, _)| self.number(*a).is_none()).collect();
        if !absent.is_empty() && !new_keys {
            let sas = listed(absent.iter().map(|(_, sa)| *sa));
            return Err(Error::UnknownKeys { path: self.ledger.clone(), sas });
        }
        let fresh = self.state.generation == 0;
        if fresh {
            self.require_unused_elsewhere(needed)?;
        } else if !absent.is_empty() {
            let absent: Vec<_> = absent.iter().map(|entry| **entry).collect();
            self.require_unused_elsewhere(&absent)?;
        }
        if fresh || !absent.is_empty() {
            let added: Vec<_> = absent.iter().map(|(key_id, _)| (*key_id, 0)).collect();
            self.write(&added, u64::max)?;
        }
        Ok(())
    }

    /// Reads both copies and decides whether they can be trusted.
    fn read(
        disk: D,
        paths: &LedgerPaths,
        needed: &[(KeyId, &str)],
        new_keys: bool,
        mut lock: impl FnMut(&Path) -> Result<(), Error>,
    ) -> Result<Self, Error> {
        let ledger = paths.ledger.clone();
        lock(&ledger)?;
        let main = match read_state(&disk, &ledger)? {
            Some(state) => state,
            None if new_keys => LedgerState { id: random_id(), generation: 0, numbers: [].into() },
            None => {
                let sas = listed(needed.iter().map(|(_, sa)| *sa));
                return Err(Error::Missing { path: ledger, sas });
            }
        };
        let copy = paths.copy_folder.join(copy_name(&paths.name, main.id));
        let folder = &paths.copy_folder;
        disk.make_folder(folder).map_err(|cause| failed("make the folder", folder, cause))?;
        lock(&copy)?;
        let second = read_state(&disk, &copy)?;
        let (state, ledger_is_behind) = match second {
            None if main.generation == 0 => (main, false),
            None => return Err(Error::CopyMissing { ledger, copy }),
            Some(second) if second.id != main.id => {
                let what = "it belongs to another ledger".to_owned();
                return Err(Error::Corrupt { path: copy, what });
            }
            Some(second) if second == main => (main, false),
            // The gateway crashed between the two writes.
            Some(second) if main.generation.checked_add(1) == Some(second.generation) => {
                (second, true)
            }
            Some(second) => {
                let (main, second) = (main.generation, second.generation);
                return Err(Error::Diverged { ledger, copy, main, second });
            }
        };
        Ok(Self {
            disk,
            ledger,
            copy_folder: paths.copy_folder.clone(),
            copy,
            state,
            ledger_is_behind,
            _locks: Vec::new(),
        })
    }

    fn write(
        &mut self,
        numbers: &[(KeyId, u64)],
        choose: fn(u64, u64) -> u64,
    ) -> Result<(), Error> {
        if self.ledger_is_behind {
            write_durably(&self.disk, &self.ledger, &self.state)?;
            self.ledger_is_behind = false;
        }
        let mut state = self.state.clone();
        state.generation += 1;
        for &(key_id, number) in numbers {
            state
                .numbers
                .entry(key_id)
                .and_modify(|reserved| *reserved = choose(*reserved, number))
                .or_insert(number);
        }
        write_durably(&self.disk, &self.copy, &state)?;
        self.state = state;
        self.ledger_is_behind = true;
        write_durably(&self.disk, &self.ledger, &self.state)?;
        self.ledger_is_behind = false;
        Ok(())
    }

    /// Rejects a key declared as new that another tunnel of this host has used.
    fn require_unused_elsewhere(&self, key_ids: &[(KeyId, &str)]) -> Result<(), Error> {
        let folder = &self.copy_folder;
        let files = self.disk.files(folder).map_err(|cause| failed("read", folder, cause))?;
        for path in files {
            if !is_ledger(&path) || path == self.copy {
                continue;
            }
            // Another tunnel's damaged ledger does not concern this tunnel.
            let Ok(Some(other)) = read_state(&self.disk, &path) else { continue };
            let used = |key_id| other.numbers.get(key_id).is_some_and(|number| *number > 0);
            if let Some((_, sa)) = key_ids.iter().find(|(key_id, _)| used(key_id)) {
                return Err(Error::UsedElsewhere { sa: format!("`{sa}`"), path });
            }
        }
        Ok(())
    }
}

fn read_state(disk: &impl Disk, path: &Path) -> Result<Option<LedgerState>, Error> {
    let content = disk.read(path, MAX_FILE_LEN).map_err(|cause| failed("read", path, cause))?;
    let Some(content) = content else { return Ok(None) };
    let state = LedgerState::parse(&content);
    state.map(Some).map_err(|what| Error::Corrupt { path: path.to_owned(), what })
}

/// Replaces a file durably.
fn write_durably(disk: &impl Disk, path: &Path, state: &LedgerState) -> Result<(), Error> {
    let new = with_suffix(path, ".new");
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new("."));
    let text = state.to_text();
    disk.write(&new, text.as_bytes()).map_err(|cause| failed("write", &new, cause))?;
    disk.sync(&new).map_err(|cause| failed("write", &new, cause))?;
    disk.rename(&new, path).map_err(|cause| failed("replace", path, cause))?;
    disk.sync_folder(folder).map_err(|cause| failed("write the folder", folder, cause))
}

/// Returns an id that no other ledger has. It is unique, not secret.
pub fn random_id() -> u128 {
    use std::hash::{BuildHasher, RandomState};
    let mut hasher = blake3::Hasher::new();
    hasher.update(&RandomState::new().hash_one(std::process::id()).to_le_bytes());
    hasher.update(&RandomState::new().hash_one(std::time::SystemTime::now()).to_le_bytes());
    let mut id = [0; 16];
    hasher.finalize_xof().fill(&mut id);
    u128::from_be_bytes(id)
}

/// Returns a list such as: `a`, `b` and 7 more.
fn listed<'a>(names: impl Iterator<Item = &'a str>) -> String {
    const SHOWN: usize = 5;
    let names: Vec<String> = names.map(|name| format!("`{name}`")).collect();
    match names.len() {
        0 => "no SA".into(),
        n if n <= SHOWN => names.join(", "),
        n => format!("{} and {} more", names[..SHOWN].join(", "), n - SHOWN),
    }
}

#[cfg(test)]
mod crash_tests;
#[cfg(test)]
mod tests;
