//! Journals: files of JSON lines to which one process appends what it does, and from which another
//! one continues after a crash. The first line says what the journal is of; a last line without an
//! end was being written when the process was killed, and does not count.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};

use headroom_file_lock::LockedFile;
use headroom_lab_host::error::{Doing, Error, Result};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// What one kind of journal has for itself.
#[derive(Debug)]
pub(crate) struct Format {
    /// What it is of, which is also the key of its first line.
    pub(crate) of: &'static str,
    /// Version of its lines; stands in the first one.
    pub(crate) schema: u32,
    /// Longest line, bytes.
    pub(crate) max_line: u64,
    pub(crate) max_lines: u64,
    /// What can be done if another process writes it.
    pub(crate) if_going_on: &'static str,
}

/// What is wrong with an entry, if anything is.
pub(crate) type Verdict = std::result::Result<(), &'static str>;

/// A journal that is being written. Its lock tells a process that is still going on from one that
/// was killed.
#[derive(Debug)]
pub(crate) struct JournalFile {
    file: LockedFile,
    path: PathBuf,
    /// Bytes of whole lines.
    length: u64,
}

impl JournalFile {
    /// Begins a journal.
    ///
    /// # Errors
    /// The file exists, or it cannot be made.
    pub(crate) fn create(path: PathBuf, format: &Format) -> Result<Self> {
        let file = OpenOptions::new().append(true).create_new(true).open(&path);
        let file = file.doing(|| format!("create {}", path.display()))?;
        let file = lock(file, &path, format)?;
        Ok(Self { file, path, length: 0 })
    }

    /// Reopens a journal without a torn last line; `take` is given every entry, as by [`parse`].
    ///
    /// # Errors
    /// There is none, it is being written, or it is damaged.
    pub(crate) fn reopen<E: DeserializeOwned>(
        path: PathBuf,
        format: &Format,
        take: impl FnMut(E) -> Verdict,
    ) -> Result<Self> {
        let file = OpenOptions::new().read(true).append(true).open(&path);
        let file = file.doing(|| format!("open {}", path.display()))?;
        let file = lock(file, &path, format)?;
        let mut journal = Self { file, path, length: 0 };
        journal.length = parse(&*journal.file, &journal.path, format, take)?;
        journal.truncate()?;
        Ok(journal)
    }

    /// Writes a line; with `sync` it is on the disk when this returns.
    ///
    /// # Errors
    /// The line could not be written: the file then ends with the line before.
    pub(crate) fn append(&mut self, entry: &impl Serialize, sync: bool) -> Result<()> {
        let doing = || format!("write {}", self.path.display());
        let mut line = serde_json::to_vec(entry).doing(doing)?;
        line.push(b'\n');
        let written = self.file.write_all(&line).and_then(|()| match sync {
            true => self.file.sync_data(),
            false => Ok(()),
        });
        match written {
            Ok(()) => self.length += line.len() as u64,
            // a full disk takes part of a line
            Err(_) => self.truncate()?,
        }
        written.doing(doing)
    }

    /// Removes it, when there is nothing to continue.
    ///
    /// # Errors
    /// The file cannot be removed.
    pub(crate) fn remove(self) -> Result<()> {
        std::fs::remove_file(&self.path).doing(|| format!("remove {}", self.path.display()))
    }

    fn truncate(&self) -> Result<()> {
        self.file.set_len(self.length).doing(|| format!("truncate {}", self.path.display()))
    }
}

/// Whether a process writes this journal.
pub(crate) fn is_going_on(file: &File) -> bool {
    match file.try_lock_shared() {
        Ok(()) => {
            // who looks keeps nobody from writing: neither while it reads, nor as long as a child
            // of another thread has the file open (see `LockedFile`)
            let _ = file.unlock();
            false
        }
        Err(error) => matches!(error, TryLockError::WouldBlock),
    }
}

/// Reads a journal and gives `take` its entries, which says what is wrong with one. Returns the
/// bytes of whole lines.
///
/// # Errors
/// A line is too long, is no entry or was refused; the first line is of another version.
pub(crate) fn parse<E: DeserializeOwned>(
    file: impl Read,
    path: &Path,
    format: &Format,
    mut take: impl FnMut(E) -> Verdict,
) -> Result<u64> {
    let mut lines = BufReader::new(file);
    let (mut length, mut line) = (0, Vec::new());
    for number in 1.. {
        line.clear();
        let bytes = (&mut lines).take(format.max_line).read_until(b'\n', &mut line);
        let bytes = bytes.doing(|| format!("read {}", path.display()))? as u64;
        let damaged = |why: &str| {
            let sentence = format!(
                "{}, line {number}: {why}. The journal was damaged after it was written; what comes before this line \
                 can be saved by removing the line and all that follow",
                path.display()
            );
            Error::Plan(sentence)
        };
        if line.last() != Some(&b'\n') {
            if bytes == format.max_line {
                return Err(damaged("the line has no end"));
            }
            break; // the end, or a line that was being written
        }
        if number > format.max_lines {
            return Err(damaged("no journal has so many lines"));
        }
        if number == 1 {
            require_schema(&line, path, format)?;
        }
        let entry = serde_json::from_slice(&line).map_err(|error| damaged(&error.to_string()))?;
        take(entry).map_err(damaged)?;
        length += bytes;
    }
    Ok(length)
}

fn lock(file: File, path: &Path, format: &Format) -> Result<LockedFile> {
    match LockedFile::try_exclusive(file) {
        Ok(file) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(Error::Plan(format!(
            "the {} in {} is still going on; {}",
            format.of,
            path.parent().unwrap_or(path).display(),
            format.if_going_on
        ))),
        Err(TryLockError::Error(error)) => Err(error).doing(|| format!("lock {}", path.display())),
    }
}

/// The first line of another version may lack what this one needs: the version is the better
/// reason to give.
fn require_schema(line: &[u8], path: &Path, format: &Format) -> Result<()> {
    let value: serde_json::Value = serde_json::from_slice(line).unwrap_or_default();
    let Format { of, schema: ours, .. } = format;
    match value[of]["schema"].as_u64() {
        Some(schema) if schema != u64::from(*ours) => Err(Error::Plan(format!(
            "{} has schema {schema}, this program reads schema {ours}; continue the {of} with the version of \
             headroom that began it",
            path.display()
        ))),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_not_going_on_although_a_forked_child_has_the_file_open() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("journal.jsonl");
        let format =
            Format { of: "test", schema: 1, max_line: 1024, max_lines: 8, if_going_on: "wait" };
        let journal = JournalFile::create(path.clone(), &format).expect("created");
        // a descriptor of the same open file, which is what a child has
        let of_a_child = journal.file.try_clone().expect("a descriptor");
        let reader = File::open(&path).expect("opened");
        assert!(is_going_on(&reader));
        drop(journal);
        assert!(!is_going_on(&reader));
        // nor does one who looked keep others from writing
        drop(JournalFile::reopen::<serde_json::Value>(path, &format, |_| Ok(())).expect("free"));
        drop((of_a_child, reader));
    }
}
