//! Which numbers were used under which key, kept so that none is used twice:
//! not after a crash, not after a restart, not with a copy of the ledger from a
//! backup.
//!
//! AES-GCM and ChaCha20-Poly1305 make their nonce from the sequence number. Two
//! packets with one number under one key give the key stream away (RFC 4106 §2),
//! so a counter that starts anew with keys from a file would be fatal. RFC 4303
//! §3.3.3 asks for the counter to be kept.
//!
//! Numbers are reserved ahead, in blocks: [`Ledger::commit`] returns when both
//! copies of the ledger are durable, and only then may a number of the block be
//! used. After a crash counting goes on behind the block. There are two copies,
//! one beside the configuration and a *witness* elsewhere, each with the number
//! of times it was written. The witness is written first. A copy that was put
//! back from a backup is behind its sister, and both are refused.

mod book;
mod disk;
mod keeper;
mod lock;

use std::path::{Path, PathBuf};

use book::MOST_OCTETS;

pub use book::{Account, Book, Way};
pub use disk::{Disk, RealDisk};
pub use keeper::{Keeper, MARKED_EVERY};

/// The folder of the witness where the configuration names none.
pub const WITNESS_FOLDER: &str = "/var/lib/headroom";

/// Where a ledger and its witness are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The ledger's file, beside the configuration.
    pub ledger: PathBuf,
    /// The folder of the witness.
    pub witness_folder: PathBuf,
    /// The tunnel's name; the witness is named by it.
    pub name: String,
}

impl Place {
    /// The ledger, and the witnesses in its folder: of this tunnel and of others.
    #[must_use]
    pub fn files(&self) -> Vec<PathBuf> {
        let beside = RealDisk.files(&self.witness_folder).unwrap_or_default();
        let witnesses = beside.into_iter().filter(|path| is_a_ledger(path));
        witnesses.chain([self.ledger.clone()]).collect()
    }
}

fn is_a_ledger(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "ledger")
}

/// Why a ledger was refused or could not be written.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The disk did not do what it should.
    #[error("cannot {doing} {}: {cause}; no sequence number is used that it does not hold{}", path.display(), whose(cause))]
    Disk {
        /// What was being done.
        doing: &'static str,
        /// To which file or folder.
        path: PathBuf,
        /// What the system said.
        cause: std::io::Error,
    },
    /// There is no ledger.
    #[error(
        "there is no ledger {}: it is not known which sequence numbers were used under the keys of {sas}. If these \
         keys have never been used, start once with --new-keys. If they may have been, make new ones for both ends \
         (`headroom tunnel keygen`)", path.display()
    )]
    Missing {
        /// The ledger.
        path: PathBuf,
        /// The security associations that need it.
        sas: String,
    },
    /// The ledger has been used and its witness is gone.
    #[error(
        "the ledger {} was in use, but its witness {} is missing: the ledger may be an old copy. Make new keys for both \
         ends (`headroom tunnel keygen`)", ledger.display(), witness.display()
    )]
    WitnessMissing {
        /// The ledger.
        ledger: PathBuf,
        /// Where its witness should be.
        witness: PathBuf,
    },
    /// A file is not what was written.
    #[error(
        "the ledger {} cannot be used: {what}. What it held is not guessed: make new keys for both ends (`headroom \
         tunnel keygen`)", path.display()
    )]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// One copy is older than it can be.
    #[error(
        "the ledger {} (written {main} times) and its witness {} (written {second} times) do not agree: one of them is \
         an old copy, from a backup or a snapshot, and the numbers used since are not known. Make new keys for both \
         ends (`headroom tunnel keygen`)", ledger.display(), witness.display()
    )]
    Diverged {
        /// The ledger.
        ledger: PathBuf,
        /// Its witness.
        witness: PathBuf,
        /// How often the ledger was written.
        main: u64,
        /// How often the witness was.
        second: u64,
    },
    /// Keys that the ledger does not know.
    #[error(
        "the ledger {} does not know the keys of {sas}. If these keys have never been used, say so once with \
         --new-keys. If they may have been, make new ones for both ends (`headroom tunnel keygen`)", path.display()
    )]
    UnknownKeys {
        /// The ledger.
        path: PathBuf,
        /// The security associations whose keys they are.
        sas: String,
    },
    /// A key that another ledger holds numbers of.
    #[error(
        "the key of {sa} is not new: the ledger {} says that it was used. Make new keys for both ends (`headroom \
         tunnel keygen`)", path.display()
    )]
    UsedElsewhere {
        /// The security association.
        sa: String,
        /// The other ledger.
        path: PathBuf,
    },
    /// Another gateway has it.
    #[error(
        "the ledger {} is in use by another gateway; two gateways with the same keys would repeat each other's \
         sequence numbers. Stop it first (`headroom tunnel down`)", path.display()
    )]
    InUse {
        /// The locked file.
        path: PathBuf,
    },
}

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

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

fn witness_name(name: &str, id: &[u8; 16]) -> String {
    let mut file = format!("{name}-");
    let _ = book::write_hex(&mut file, &id[..8]);
    file + ".ledger"
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

/// A gateway has few capabilities.
fn whose(error: &std::io::Error) -> &'static str {
    match error.kind() {
        std::io::ErrorKind::PermissionDenied => {
            ". The gateway gives up root's right to pass over permissions: the ledger's folder must belong to root"
        }
        _ => "",
    }
}

fn failed(doing: &'static str, path: &Path, cause: std::io::Error) -> Error {
    Error::Disk { doing, path: path.to_owned(), cause }
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
