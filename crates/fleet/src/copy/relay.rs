//! Copies entries from one server to another: files are received into a folder of this machine and
//! sent from there.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashSet};
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Arc, Mutex};

use headroom_mutex::lock;
use headroom_transfer::files::{self, Root};
use headroom_transfer::path::RelPath;
use headroom_transfer::{Client, Error, ErrorCode, Event, Observer};

use super::{Rules, down, is_about_files, make_parents, prepared, sync_options};
use crate::ends::{Clients, Scratch, Spool, blocking, on_server};
use crate::engine::{CopiedFile, Step};
use crate::entry::{Entry, Kind};
use crate::job::{Job, Mode};
use crate::ledger::{Ledger, Noting, Sorted};

/// The way of files between two servers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Relay<'a> {
    pub(crate) job: &'a Job,
    /// The directory below the root of the source's server.
    pub(crate) from: &'a [u8],
    /// The directory below the root of the destination's server.
    pub(crate) to: &'a [u8],
    pub(crate) spool: &'a Spool,
}

impl Relay<'_> {
    /// Copies entries, and notes what became of each. `was_taken`: a worker took them before.
    ///
    /// # Errors
    /// A request failed as a whole, as [`super::copy`] says.
    pub(crate) async fn copy(
        &self,
        clients: &mut Clients,
        (step, was_taken): (Step, bool),
        entries: &[Entry],
        ledger: &Arc<Ledger>,
    ) -> Result<(), Error> {
        let Some(source) = &mut clients.source else {
            return Err(Error::Usage("there is no connection to the source".to_owned()));
        };
        let client = &mut clients.client;
        if step == Step::Finish {
            return self.finish(client, entries, ledger).await;
        }
        self.make_parents_there(client, entries, ledger).await?;
        let entries = match self.job.mode {
            Mode::Sync if !was_taken => self.differing(client, entries, ledger).await?,
            // what a killed worker may have stored is compared with what is received
            Mode::Copy | Mode::Sync => entries.to_vec(),
        };
        let scratch = self.spool.scratch()?;
        let root = opened(&scratch).await?;
        let (arrived, files) = self.receive(source, &root, entries, ledger).await?;
        if !arrived.is_empty() {
            ledger.received(files);
            self.send(client, &root, (was_taken, arrived.as_slice()), ledger).await?;
        }
        removed(scratch).await
    }

    /// Makes the directories that entries are in, unless they are entries themselves: another
    /// worker may not have made these yet. One that is there keeps its mode and time.
    async fn make_parents_there(
        &self,
        client: &mut Client,
        entries: &[Entry],
        ledger: &Ledger,
    ) -> Result<(), Error> {
        let is_directory = |entry: &&Entry| matches!(entry.kind, Kind::Directory { .. });
        let own: HashSet<_> =
            entries.iter().filter(is_directory).map(|entry| entry.path.clone()).collect();
        let parents = entries.iter().filter_map(|entry| entry.path.parent());
        let parents: BTreeSet<_> = parents.filter(|parent| !own.contains(parent)).collect();
        for parent in parents {
            match client.make_directory(&on_server(self.to, &parent), true).await {
                Ok(()) => {}
                Err(error) if is_about_files(&error) => {
                    ledger.failed(&error.to_string(), error.code());
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Returns the entries without files that are up to date at the destination. It compares empty
    /// files with the sizes, modes and times of the source's, without any of their content.
    async fn differing(
        &self,
        client: &mut Client,
        entries: &[Entry],
        ledger: &Ledger,
    ) -> Result<Vec<Entry>, Error> {
        let scratch = self.spool.scratch()?;
        let root = opened(&scratch).await?;
        let (folder, files) = (scratch.path().to_owned(), entries.to_vec());
        let there = root.clone();
        let made = blocking(move || stand_ins(&there, &folder, &files)).await?;
        let mut unchanged = HashSet::new();
        if !made.is_empty() {
            let planned = Arc::new(Planned::default());
            let observer = Arc::clone(&planned);
            let summary = client.plan_names(&root, made.clone(), self.to, observer).await?;
            // which ones failed is not said: then all are sent, and say it again
            if (summary.failed, summary.left_out) == (0, 0) {
                let planned = lock(&planned.0);
                unchanged.extend(made.into_iter().filter(|path| !planned.contains(path)));
            }
        }
        removed(scratch).await?;
        let (same, others): (Vec<_>, Vec<_>) =
            entries.iter().cloned().partition(|entry| unchanged.contains(&entry.path));
        same.iter().for_each(|entry| ledger.unchanged(&entry.path, entry.size(), None));
        Ok(others)
    }

    /// Receives entries; returns those that have arrived, and their files with their hashes.
    async fn receive(
        &self,
        source: &mut Client,
        root: &Root,
        entries: Vec<Entry>,
        ledger: &Ledger,
    ) -> Result<(Vec<Entry>, Vec<CopiedFile>), Error> {
        let here = Ledger::new(Arc::default());
        let rules = Rules { mode: Mode::Copy, step: Step::Copy, was_taken: false, fsync: false };
        let wanted = prepared(rules, root, &entries, &here).await?;
        down(rules, source, self.from, root, wanted, &here).await?;
        let Sorted { copied, left, reason, disk_full } = here.sorted(entries.clone());
        match (disk_full, reason) {
            (Some(full), _) => {
                ledger.failed(&in_scratch(&full), Some(ErrorCode::NO_SPACE));
            }
            (None, Some(reason)) => ledger.failed(&reason, None),
            (None, None) => {}
        }
        let left: HashSet<_> = left.into_iter().map(|entry| entry.path).collect();
        let arrived = entries.into_iter().filter(|entry| !left.contains(&entry.path)).collect();
        Ok((arrived, copied))
    }

    /// Sends entries that have arrived.
    async fn send(
        &self,
        client: &mut Client,
        root: &Root,
        (was_taken, entries): (bool, &[Entry]),
        ledger: &Arc<Ledger>,
    ) -> Result<(), Error> {
        let paths = entries.iter().map(|entry| entry.path.clone()).collect();
        let observer = Arc::new(Noting { ledger: Arc::clone(ledger), directory: None });
        if self.job.mode == Mode::Copy {
            client.put_names(root, paths, self.to, self.job.fsync, observer).await?;
            return Ok(());
        }
        let options = sync_options(self.job, was_taken);
        let summary = client.sync_names(&options, root, paths, self.to, observer).await?;
        if (summary.failed, summary.left_out) == (0, 0) {
            ledger.others_are_unchanged(entries);
        }
        Ok(())
    }

    /// Gives directories at the destination their mode and time.
    async fn finish(
        &self,
        client: &mut Client,
        entries: &[Entry],
        ledger: &Arc<Ledger>,
    ) -> Result<(), Error> {
        let scratch = self.spool.scratch()?;
        let root = opened(&scratch).await?;
        let (there, wanted, noted) = (root.clone(), entries.to_vec(), Arc::clone(ledger));
        blocking(move || make_finished(&there, &wanted, &noted)).await?;
        // without their parents, which have been finished or will be
        let paths = entries.iter().map(|entry| entry.path.clone()).collect();
        let observer = Arc::new(Noting { ledger: Arc::clone(ledger), directory: None });
        client.put_names(&root, paths, self.to, self.job.fsync, observer).await?;
        removed(scratch).await
    }
}

/// Notes what would be sent.
#[derive(Debug, Default)]
struct Planned(Mutex<HashSet<RelPath>>);

impl Observer for Planned {
    fn event(&self, event: Event<'_>) {
        if let Event::Planned { path, .. } = event {
            lock(&self.0).insert(path.clone());
        }
    }
}

async fn opened(scratch: &Scratch) -> Result<Root, Error> {
    let path = scratch.path().to_owned();
    Ok(blocking(move || Root::open(&path)).await??)
}

/// Returns a reason with the place that it is about, which the user did not name.
fn in_scratch(reason: &str) -> String {
    format!("{reason} (in the folder for temporary files)")
}

/// Removes a folder on a thread for that.
async fn removed(scratch: Scratch) -> Result<(), Error> {
    blocking(move || drop(scratch)).await
}

/// Makes a file of holes for each file, with its size, mode and time; returns the paths of those
/// that could be made. The others are not compared.
fn stand_ins(root: &Root, folder: &Path, entries: &[Entry]) -> Vec<RelPath> {
    let mut made = HashSet::new();
    let stand_in = |entry: &Entry| {
        let Kind::File { size, mode, mtime, .. } = entry.kind else { return None };
        make_parents(root, &entry.path, &mut made).ok()?;
        let make = || -> io::Result<()> {
            File::create_new(folder.join(OsStr::from_bytes(entry.path.as_bytes())))?.set_len(size)
        };
        make().ok()?;
        root.update_metadata(&entry.path, mode, mtime, None).ok()?;
        Some(entry.path.clone())
    };
    entries.iter().filter_map(stand_in).collect()
}

/// Makes directories with their modes and times, from which these are sent.
fn make_finished(root: &Root, entries: &[Entry], ledger: &Ledger) {
    let mut made = HashSet::new();
    let failed = |error: files::Error| {
        let error = Error::from(error);
        ledger.failed(&in_scratch(&error.to_string()), error.code());
    };
    for entry in entries {
        let path = &entry.path;
        let directory =
            make_parents(root, path, &mut made).and_then(|()| root.make_directory(path, 0o700));
        if let Err(error) = directory {
            failed(error);
        }
    }
    // what is in a directory before the directory: nothing changes its time again
    let mut inner_first: Vec<_> = entries.iter().collect();
    inner_first.sort_by_key(|entry| Reverse(entry.path.components().count()));
    for entry in inner_first {
        if let Kind::Directory { mode, mtime } = entry.kind
            && let Err(error) = root.seal_directory(&entry.path, mode, mtime, false, None)
        {
            failed(error);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    use headroom_transfer::Time;

    use super::*;

    const MTIME: Time = Time { seconds: 1_000_000_000, nanoseconds: 7 };

    fn entry(name: &str, kind: Kind) -> Entry {
        Entry { number: 0, path: RelPath::parse(name.as_bytes()).expect("a path"), kind }
    }

    #[test]
    fn a_stand_in_has_size_mode_and_time_and_no_content() {
        let ground = tempfile::tempdir().expect("a folder");
        let root = Root::open(ground.path()).expect("a folder");
        let file = |size| Kind::File { size, mode: 0o640, mtime: MTIME, ranges: 0 };
        let entries = [
            entry("a/large", file(1 << 30)),
            entry("d", Kind::Directory { mode: 0o755, mtime: MTIME }),
            entry("a/empty", file(0)),
        ];
        let made = stand_ins(&root, ground.path(), &entries);
        let made: Vec<_> = made.iter().map(ToString::to_string).collect();
        assert_eq!(made, ["a/large", "a/empty"]);
        let meta = fs::metadata(ground.path().join("a/large")).expect("it is there");
        assert_eq!((meta.len(), meta.mode() & 0o777), (1 << 30, 0o640));
        assert_eq!(meta.mtime(), MTIME.seconds);
        assert!(meta.blocks() < 1000, "it has content: {meta:?}");
        assert!(!ground.path().join("d").exists());
    }

    #[test]
    fn directories_are_made_with_their_modes_and_times() {
        let ground = tempfile::tempdir().expect("a folder");
        let root = Root::open(ground.path()).expect("a folder");
        let directory = |name: &str, mode| entry(name, Kind::Directory { mode, mtime: MTIME });
        let entries = [directory("a", 0o555), directory("a/b", 0o750), directory("c/d", 0o700)];
        let ledger = Ledger::new(Arc::default());
        make_finished(&root, &entries, &ledger);
        assert_eq!(ledger.verified().1, None);
        for (name, mode) in [("a", 0o555), ("a/b", 0o750), ("c/d", 0o700)] {
            let meta = fs::metadata(ground.path().join(name)).expect("it is there");
            assert_eq!((meta.mode() & 0o777, meta.mtime()), (mode, MTIME.seconds), "{name}");
        }
        // so that it can be removed
        let writable = fs::Permissions::from_mode(0o700);
        fs::set_permissions(ground.path().join("a"), writable).expect("chmod");
    }
}
