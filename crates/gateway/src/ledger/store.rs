//! A ledger that is open: read, believed, written.

use std::path::{Path, PathBuf};

use super::book::{Account, Book, MOST_OCTETS};
use super::disk::{Disk, RealDisk};
use super::error::{Error, failed};
use super::lock;
use super::place::{Place, is_a_ledger, with_suffix, witness_name};

/// An open ledger. Nobody else has it open.
#[derive(Debug)]
pub struct Ledger<D: Disk = RealDisk> {
    disk: D,
    ledger: PathBuf,
    witness_folder: PathBuf,
    witness: PathBuf,
    book: Book,
    /// The witness is one generation ahead of the ledger.
    ledger_is_behind: bool,
    /// Held as long as the ledger is open.
    _locks: Vec<std::fs::File>,
}

impl Ledger<RealDisk> {
    /// Opens the ledger of a tunnel, locks it and its witness, and sees that it
    /// has each of `needed`: accounts, each with the name of its SA.
    ///
    /// `new_keys`: absent accounts are added, beginning at 0.
    ///
    /// # Errors
    /// The ledger is in use, missing, damaged, an old copy, or does not know a
    /// key.
    pub fn open(place: &Place, needed: &[(Account, &str)], new_keys: bool) -> Result<Self, Error> {
        let mut locks = Vec::new();
        let lock = |path: &Path| lock::take(path).map(|lock| locks.push(lock));
        let mut ledger = Self::read(RealDisk, place, needed, new_keys, lock)?;
        ledger._locks = locks;
        ledger.admit(needed, new_keys)?;
        Ok(ledger)
    }

    /// Looks whether [`Ledger::open`] would accept the ledger, without a lock and
    /// without writing it.
    ///
    /// # Errors
    /// As [`Ledger::open`], except that it is in use.
    pub fn look(place: &Place, needed: &[(Account, &str)]) -> Result<(), Error> {
        let ledger = Self::read(RealDisk, place, needed, false, |_| Ok(()))?;
        let absent = needed.iter().filter(|(account, _)| ledger.number(*account).is_none());
        let mut absent = absent.map(|(_, sa)| *sa).peekable();
        if absent.peek().is_none() {
            return Ok(());
        }
        let sas = listed(absent);
        Err(Error::UnknownKeys { path: ledger.ledger, sas })
    }

    /// Writes the ledger of keys that were made just now: the first
    /// [`Ledger::open`] makes its witness.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn create(path: &Path, accounts: &[Account], id: [u8; 16]) -> Result<(), Error> {
        let numbers = accounts.iter().map(|account| (*account, 0)).collect();
        let book = Book { id, generation: 0, numbers };
        write_durably(&RealDisk, path, &book)
    }
}

impl<D: Disk> Ledger<D> {
    /// The highest number that was used, or may have been.
    pub fn number(&self, account: Account) -> Option<u64> {
        self.book.numbers.get(&account).copied()
    }

    /// Raises numbers, and returns when that is durable. A number that is
    /// higher already stays.
    ///
    /// # Errors
    /// The disk refused. Nothing of what was to be reserved may be used; the
    /// call can be repeated.
    pub fn commit(&mut self, numbers: &[(Account, u64)]) -> Result<(), Error> {
        if numbers.is_empty() { Ok(()) } else { self.write(numbers, u64::max) }
    }

    /// Sets numbers to what was really used, which gives back the rest of the
    /// blocks. For when no packet can be sent any more.
    ///
    /// # Errors
    /// The disk refused; the blocks stay reserved.
    pub fn settle(&mut self, numbers: &[(Account, u64)]) -> Result<(), Error> {
        self.write(numbers, |_, used| used)
    }

    /// Adds accounts that came with a reload.
    ///
    /// # Errors
    /// As [`Ledger::open`]: keys that the ledger does not know, without
    /// `new_keys`, or that another ledger does.
    pub fn admit(&mut self, needed: &[(Account, &str)], new_keys: bool) -> Result<(), Error> {
        let absent: Vec<_> = needed.iter().filter(|(a, _)| self.number(*a).is_none()).collect();
        if !absent.is_empty() && !new_keys {
            let sas = listed(absent.iter().map(|(_, sa)| *sa));
            return Err(Error::UnknownKeys { path: self.ledger.clone(), sas });
        }
        let fresh = self.book.generation == 0;
        if fresh {
            self.require_unused_elsewhere(needed)?;
        } else if !absent.is_empty() {
            let absent: Vec<_> = absent.iter().map(|entry| **entry).collect();
            self.require_unused_elsewhere(&absent)?;
        }
        if fresh || !absent.is_empty() {
            let added: Vec<_> = absent.iter().map(|(account, _)| (*account, 0)).collect();
            self.write(&added, u64::max)?;
        }
        Ok(())
    }

    /// Reads both copies and decides whether they can be believed.
    fn read(
        disk: D,
        place: &Place,
        needed: &[(Account, &str)],
        new_keys: bool,
        mut lock: impl FnMut(&Path) -> Result<(), Error>,
    ) -> Result<Self, Error> {
        let ledger = place.ledger.clone();
        lock(&ledger)?;
        let main = match read_book(&disk, &ledger)? {
            Some(book) => book,
            None if new_keys => Book { id: random_id(), generation: 0, numbers: [].into() },
            None => {
                let sas = listed(needed.iter().map(|(_, sa)| *sa));
                return Err(Error::Missing { path: ledger, sas });
            }
        };
        let witness = place.witness_folder.join(witness_name(&place.name, &main.id));
        let folder = &place.witness_folder;
        disk.make_folder(folder).map_err(|cause| failed("make the folder", folder, cause))?;
        lock(&witness)?;
        let second = read_book(&disk, &witness)?;
        let (book, ledger_is_behind) = match second {
            None if main.generation == 0 => (main, false),
            None => return Err(Error::WitnessMissing { ledger, witness }),
            Some(second) if second.id != main.id => {
                let what = "it belongs to another ledger".to_owned();
                return Err(Error::Corrupt { path: witness, what });
            }
            Some(second) if second == main => (main, false),
            // a crash between the two writes
            Some(second) if main.generation.checked_add(1) == Some(second.generation) => {
                (second, true)
            }
            Some(second) => {
                let (main, second) = (main.generation, second.generation);
                return Err(Error::Diverged { ledger, witness, main, second });
            }
        };
        Ok(Self {
            disk,
            ledger,
            witness_folder: place.witness_folder.clone(),
            witness,
            book,
            ledger_is_behind,
            _locks: Vec::new(),
        })
    }

    fn write(
        &mut self,
        numbers: &[(Account, u64)],
        choose: fn(u64, u64) -> u64,
    ) -> Result<(), Error> {
        if self.ledger_is_behind {
            write_durably(&self.disk, &self.ledger, &self.book)?;
            self.ledger_is_behind = false;
        }
        let mut book = self.book.clone();
        book.generation += 1;
        for &(account, number) in numbers {
            book.numbers
                .entry(account)
                .and_modify(|reserved| *reserved = choose(*reserved, number))
                .or_insert(number);
        }
        write_durably(&self.disk, &self.witness, &book)?;
        self.book = book;
        self.ledger_is_behind = true;
        write_durably(&self.disk, &self.ledger, &self.book)?;
        self.ledger_is_behind = false;
        Ok(())
    }

    /// A key that is said to be new must not have been used by any tunnel of
    /// this host.
    fn require_unused_elsewhere(&self, accounts: &[(Account, &str)]) -> Result<(), Error> {
        let folder = &self.witness_folder;
        let files = self.disk.files(folder).map_err(|cause| failed("read", folder, cause))?;
        for path in files {
            if !is_a_ledger(&path) || path == self.witness {
                continue;
            }
            // another tunnel's damaged ledger is that tunnel's matter
            let Ok(Some(other)) = read_book(&self.disk, &path) else { continue };
            let used = |account| other.numbers.get(account).is_some_and(|number| *number > 0);
            if let Some((_, sa)) = accounts.iter().find(|(account, _)| used(account)) {
                return Err(Error::UsedElsewhere { sa: format!("`{sa}`"), path });
            }
        }
        Ok(())
    }
}

fn read_book(disk: &impl Disk, path: &Path) -> Result<Option<Book>, Error> {
    let content = disk.read(path, MOST_OCTETS).map_err(|cause| failed("read", path, cause))?;
    let Some(content) = content else { return Ok(None) };
    let book = Book::parse(&content);
    book.map(Some).map_err(|what| Error::Corrupt { path: path.to_owned(), what })
}

/// Puts a new file in the place of the old one; when it returns, that is
/// durable.
fn write_durably(disk: &impl Disk, path: &Path, book: &Book) -> Result<(), Error> {
    let new = with_suffix(path, ".new");
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new("."));
    let text = book.to_text();
    disk.write(&new, text.as_bytes()).map_err(|cause| failed("write", &new, cause))?;
    disk.sync(&new).map_err(|cause| failed("write", &new, cause))?;
    disk.rename(&new, path).map_err(|cause| failed("replace", path, cause))?;
    disk.sync_folder(folder).map_err(|cause| failed("write the folder", folder, cause))
}

/// 128 bits that no other ledger has; unique, not secret.
pub fn random_id() -> [u8; 16] {
    use std::hash::{BuildHasher, RandomState};
    let mut hasher = blake3::Hasher::new();
    hasher.update(&RandomState::new().hash_one(std::process::id()).to_le_bytes());
    hasher.update(&RandomState::new().hash_one(std::time::SystemTime::now()).to_le_bytes());
    let mut id = [0; 16];
    hasher.finalize_xof().fill(&mut id);
    id
}

/// `a`, `b` and 7 more.
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
