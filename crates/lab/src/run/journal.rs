//! The journal of a run, `journal.jsonl` in its output folder: what was done, a line each,
//! written before the next thing is begun. Whatever ends a run, the journal has what was
//! measured; a finished run removes it.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use headroom_lab_host::error::{Doing, Error, Result};
use headroom_lab_results::schema::SCHEMA;

use super::entry::{Entry, Header};
use crate::journal::{self, Format, JournalFile, Verdict};

/// The file's name.
pub const NAME: &str = "journal.jsonl";

const FORMAT: Format = Format {
    of: "run",
    schema: SCHEMA,
    // a block of 64 clients and 100 transfers takes less than a hundredth of this
    max_line: 64 << 20,
    max_lines: u64::MAX,
    if_going_on: "wait for its end, or interrupt it",
};

/// A journal that is being written.
#[derive(Debug)]
pub(super) struct Journal(JournalFile);

/// Content of a journal.
#[derive(Debug)]
pub(super) struct Contents {
    pub(super) header: Header,
    pub(super) entries: Vec<Entry>,
}

impl Journal {
    /// Begins a journal in a folder that has none.
    pub(super) fn create(folder: &Path) -> Result<Self> {
        Ok(Self(JournalFile::create(folder.join(NAME), &FORMAT)?))
    }

    /// Reopens the journal of a folder, without a torn last line.
    pub(super) fn reopen(folder: &Path) -> Result<(Self, Contents)> {
        let path = folder.join(NAME);
        let mut parts = Parts::default();
        let file = JournalFile::reopen(path.clone(), &FORMAT, |entry| parts.take(entry))?;
        Ok((Self(file), parts.finish(&path)?))
    }

    /// Writes a line; a block's is on the disk when this returns.
    pub(super) fn append(&mut self, entry: &Entry) -> Result<()> {
        let sync = matches!(entry, Entry::Block(_) | Entry::Run(_) | Entry::Done { .. });
        self.0.append(entry, sync)
    }

    /// Removes it, when there is nothing to continue.
    pub(super) fn remove(self) -> Result<()> {
        self.0.remove()
    }
}

/// Reads the journal of a folder without touching it; also says whether its run
/// is still going on.
pub(super) fn read(folder: &Path) -> Result<(Contents, bool)> {
    let path = folder.join(NAME);
    let file = File::open(&path).doing(|| format!("open {}", path.display()))?;
    let lives = journal::is_going_on(&file);
    Ok((parse(&file, &path)?, lives))
}

/// Whether the run in `folder` is still going on, in another process.
pub fn is_going_on(folder: &Path) -> bool {
    File::open(folder.join(NAME)).is_ok_and(|file| journal::is_going_on(&file))
}

/// Reads a journal.
pub(super) fn parse(file: impl Read, path: &Path) -> Result<Contents> {
    let mut parts = Parts::default();
    journal::parse(file, path, &FORMAT, |entry| parts.take(entry))?;
    parts.finish(path)
}

/// Content while it is read.
#[derive(Default)]
struct Parts {
    header: Option<Header>,
    entries: Vec<Entry>,
}

impl Parts {
    fn take(&mut self, entry: Entry) -> Verdict {
        match (entry, &self.header) {
            (Entry::Run(first), None) => self.header = Some(*first),
            (Entry::Run(_), Some(_)) => return Err("a second beginning"),
            (_, None) => return Err("a journal begins with the plan and the machine"),
            (entry, Some(_)) => self.entries.push(entry),
        }
        Ok(())
    }

    fn finish(self, path: &Path) -> Result<Contents> {
        let Self { header, entries } = self;
        let header = header.ok_or_else(|| {
            Error::Plan(format!("{} is empty: nothing was measured before the end", path.display()))
        })?;
        Ok(Contents { header, entries })
    }
}

#[cfg(test)]
mod tests {
    use std::fs::OpenOptions;
    use std::io::Write;

    use headroom_lab_results::schema::Environment;
    use tempfile::TempDir;

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

    fn append(folder: &TempDir, text: &str) {
        let file = OpenOptions::new().append(true).open(folder.path().join(NAME));
        file.and_then(|mut file| file.write_all(text.as_bytes())).expect("written");
    }

    #[test]
    fn a_torn_line_is_cut_off_and_the_journal_goes_on() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut journal = Journal::create(folder.path()).expect("created");
        journal.append(&header()).expect("written");
        journal.append(&Entry::Remark("one".into())).expect("written");
        drop(journal);
        append(&folder, "{\"remark\":\"tw");
        let (contents, lives) = read(folder.path()).expect("readable");
        assert_eq!((contents.entries.len(), lives), (1, false));
        let (mut journal, contents) = Journal::reopen(folder.path()).expect("readable");
        assert_eq!(contents.entries.len(), 1);
        journal.append(&Entry::Remark("three".into())).expect("written");
        assert!(
            read(folder.path()).is_ok_and(|(contents, lives)| contents.entries.len() == 2 && lives)
        );
        let second = Journal::reopen(folder.path()).expect_err("one at a time");
        assert!(second.to_string().contains("still going on"), "{second}");
        journal.remove().expect("removed");
        assert!(read(folder.path()).is_err());
    }

    #[test]
    fn damage_is_named_with_its_line() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut journal = Journal::create(folder.path()).expect("created");
        journal.append(&header()).expect("written");
        drop(journal);
        append(&folder, "{\"remark\":\"one\"}\n{\"remark\":7}\n{\"remark\":\"two\"}\n");
        let error = read(folder.path()).expect_err("damaged").to_string();
        assert!(error.contains("journal.jsonl, line 3: invalid type"), "{error}");
        for (text, words) in [
            ("", "is empty"),
            ("{\"run\":{\"schema\":999}}\n", "has schema 999"),
            ("{\"remark\":\"one\"}\n", "line 1: a journal begins with"),
            ("\0\0\0\n", "line 1: "),
        ] {
            std::fs::write(folder.path().join(NAME), text).expect("written");
            let error = read(folder.path()).expect_err(words).to_string();
            assert!(error.contains(words), "{error}");
        }
    }

    #[test]
    fn a_folder_has_one_journal() {
        let folder = tempfile::tempdir().expect("a folder");
        let _first = Journal::create(folder.path()).expect("created");
        assert!(Journal::create(folder.path()).is_err());
    }
}
