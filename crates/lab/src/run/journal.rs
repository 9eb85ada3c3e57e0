//! The journal of a run, `journal.jsonl` in its output folder: what was done, a
//! line each, written before the next thing is begun. Whatever ends a run, the
//! journal has what was measured; a finished run removes it.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};

use headroom_lab_host::error::{Doing, Error, Result};
use headroom_lab_results::schema::SCHEMA;

use super::entry::{Entry, Header};

/// The file's name.
pub const NAME: &str = "journal.jsonl";

/// A block of 64 clients and 100 transfers takes less than a hundredth of this.
const LONGEST_LINE: u64 = 64 << 20;

/// A journal that is being written. Its lock tells a run that is still going on
/// from one that was killed.
#[derive(Debug)]
pub(super) struct Journal {
    file: File,
    path: PathBuf,
    /// Bytes of whole lines.
    length: u64,
}

/// Content of a journal.
#[derive(Debug)]
pub(super) struct Contents {
    pub(super) header: Header,
    pub(super) entries: Vec<Entry>,
    /// Bytes of whole lines; what comes after was torn when the run was killed.
    length: u64,
}

impl Journal {
    /// Begins a journal in a folder that has none.
    pub(super) fn create(folder: &Path) -> Result<Self> {
        let path = folder.join(NAME);
        let file = OpenOptions::new().append(true).create_new(true).open(&path);
        let file = file.doing(|| format!("create {}", path.display()))?;
        lock(&file, &path)?;
        Ok(Self { file, path, length: 0 })
    }

    /// Reopens the journal of a folder, without a torn last line.
    pub(super) fn reopen(folder: &Path) -> Result<(Self, Contents)> {
        let path = folder.join(NAME);
        let file = OpenOptions::new().read(true).append(true).open(&path);
        let file = file.doing(|| format!("open {}", path.display()))?;
        lock(&file, &path)?;
        let contents = parse(&file, &path)?;
        let journal = Self { file, path, length: contents.length };
        journal.truncate()?;
        Ok((journal, contents))
    }

    /// Writes a line; a block's is on the disk when this returns.
    pub(super) fn append(&mut self, entry: &Entry) -> Result<()> {
        let doing = || format!("write {}", self.path.display());
        let mut line = serde_json::to_vec(entry).doing(doing)?;
        line.push(b'\n');
        let written = self.file.write_all(&line).and_then(|()| match entry {
            Entry::Block(_) | Entry::Run(_) | Entry::Done { .. } => self.file.sync_data(),
            _ => Ok(()),
        });
        match written {
            Ok(()) => self.length += line.len() as u64,
            // a full disk takes part of a line
            Err(_) => self.truncate()?,
        }
        written.doing(doing)
    }

    /// Removes it, when there is nothing to continue.
    pub(super) fn remove(self) -> Result<()> {
        std::fs::remove_file(&self.path).doing(|| format!("remove {}", self.path.display()))
    }

    fn truncate(&self) -> Result<()> {
        self.file.set_len(self.length).doing(|| format!("truncate {}", self.path.display()))
    }
}

/// Reads the journal of a folder without touching it; also says whether its run
/// is still going on.
pub(super) fn read(folder: &Path) -> Result<(Contents, bool)> {
    let path = folder.join(NAME);
    let file = File::open(&path).doing(|| format!("open {}", path.display()))?;
    let lives = is_locked(&file);
    Ok((parse(&file, &path)?, lives))
}

/// Whether the run in `folder` is still going on, in another process.
pub fn is_going_on(folder: &Path) -> bool {
    File::open(folder.join(NAME)).is_ok_and(|file| is_locked(&file))
}

fn is_locked(file: &File) -> bool {
    matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock))
}

fn lock(file: &File, path: &Path) -> Result<()> {
    match file.try_lock() {
        Ok(()) => Ok(()),
        Err(TryLockError::WouldBlock) => Err(Error::Plan(format!(
            "the run in {} is still going on; wait for its end, or interrupt it",
            path.parent().unwrap_or(path).display()
        ))),
        Err(TryLockError::Error(error)) => Err(error).doing(|| format!("lock {}", path.display())),
    }
}

/// Reads a journal.
pub(super) fn parse(file: impl Read, path: &Path) -> Result<Contents> {
    let mut lines = BufReader::new(file);
    let (mut header, mut entries, mut length) = (None, Vec::new(), 0);
    let mut line = Vec::new();
    for number in 1.. {
        line.clear();
        let bytes = (&mut lines).take(LONGEST_LINE).read_until(b'\n', &mut line);
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
            if bytes == LONGEST_LINE {
                return Err(damaged("the line has no end"));
            }
            break; // the end, or a line that was being written when the run was killed
        }
        if header.is_none() {
            require_schema(&line, path)?;
        }
        let entry = serde_json::from_slice(&line).map_err(|error| damaged(&error.to_string()))?;
        match (entry, &header) {
            (Entry::Run(first), None) => header = Some(*first),
            (Entry::Run(_), Some(_)) => return Err(damaged("a second beginning")),
            (_, None) => return Err(damaged("a journal begins with the plan and the machine")),
            (entry, Some(_)) => entries.push(entry),
        }
        length += bytes;
    }
    let header = header.ok_or_else(|| {
        Error::Plan(format!("{} is empty: nothing was measured before the end", path.display()))
    })?;
    Ok(Contents { header, entries, length })
}

/// The first line of another version may lack what this one needs: the version
/// is the better reason to give.
fn require_schema(line: &[u8], path: &Path) -> Result<()> {
    let value: serde_json::Value = serde_json::from_slice(line).unwrap_or_default();
    match value["run"]["schema"].as_u64() {
        Some(schema) if schema != u64::from(SCHEMA) => Err(Error::Plan(format!(
            "{} has schema {schema}, this program reads schema {SCHEMA}; continue the run with the version of \
             headroom that began it",
            path.display()
        ))),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use headroom_lab_results::schema::Environment;

    use super::*;
    use crate::plan::Plan;

    fn header() -> Entry {
        let plan = Plan::from_toml("stacks = [\"ftp\"]\n[[workload]]\nkind = \"download\"\n", "x");
        let environment = Environment {
            started: "then".into(),
            finished: String::new(),
            headroom: "1".into(),
            kernel: "6".into(),
            distribution: String::new(),
            cpu: String::new(),
            cores: 1,
            memory_bytes: 0,
            hosts: Vec::new(),
            programs: Vec::new(),
            stacks: std::collections::BTreeMap::new(),
            settings: std::collections::BTreeMap::new(),
        };
        let plan = plan.expect("a good plan").record();
        Entry::Run(Box::new(Header { schema: SCHEMA, plan, environment }))
    }

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let folder =
                std::env::temp_dir().join(format!("journal-{name}-{}", std::process::id()));
            std::fs::create_dir_all(&folder).expect("a folder");
            Self(folder)
        }

        fn add(&self, text: &str) {
            let file = OpenOptions::new().append(true).open(self.0.join(NAME));
            file.and_then(|mut file| file.write_all(text.as_bytes())).expect("written");
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_torn_line_is_cut_off_and_the_journal_goes_on() {
        let folder = Folder::new("torn");
        let mut journal = Journal::create(&folder.0).expect("created");
        journal.append(&header()).expect("written");
        journal.append(&Entry::Remark("one".into())).expect("written");
        drop(journal);
        folder.add("{\"remark\":\"tw");
        let (contents, lives) = read(&folder.0).expect("readable");
        assert_eq!((contents.entries.len(), lives), (1, false));
        let (mut journal, contents) = Journal::reopen(&folder.0).expect("readable");
        assert_eq!(contents.entries.len(), 1);
        journal.append(&Entry::Remark("three".into())).expect("written");
        assert!(
            read(&folder.0).is_ok_and(|(contents, lives)| contents.entries.len() == 2 && lives)
        );
        let second = Journal::reopen(&folder.0).expect_err("one at a time");
        assert!(second.to_string().contains("still going on"), "{second}");
        journal.remove().expect("removed");
        assert!(read(&folder.0).is_err());
    }

    #[test]
    fn damage_is_named_with_its_line() {
        let folder = Folder::new("damage");
        let mut journal = Journal::create(&folder.0).expect("created");
        journal.append(&header()).expect("written");
        drop(journal);
        folder.add("{\"remark\":\"one\"}\n{\"remark\":7}\n{\"remark\":\"two\"}\n");
        let error = read(&folder.0).expect_err("damaged").to_string();
        assert!(error.contains("journal.jsonl, line 3: invalid type"), "{error}");
        for (text, words) in [
            ("", "is empty"),
            ("{\"run\":{\"schema\":999}}\n", "has schema 999"),
            ("{\"remark\":\"one\"}\n", "line 1: a journal begins with"),
            ("\0\0\0\n", "line 1: "),
        ] {
            std::fs::write(folder.0.join(NAME), text).expect("written");
            let error = read(&folder.0).expect_err(words).to_string();
            assert!(error.contains(words), "{error}");
        }
    }

    #[test]
    fn a_folder_has_one_journal() {
        let folder = Folder::new("one");
        let _first = Journal::create(&folder.0).expect("created");
        assert!(Journal::create(&folder.0).is_err());
    }
}
