//! Copies the entries of an item by the transfer's client.

use std::collections::{BTreeMap, HashSet};
use std::path::Path;
use std::sync::Arc;

use headroom_transfer::files::{self, FileType, Root, Sent, Status};
use headroom_transfer::path::RelPath;
use headroom_transfer::{Client, Error, RemotePath};

use crate::engine::{Item, Step};
use crate::entry::{Entry, Kind};
use crate::job::{Direction, Job, Mode};
use crate::ledger::{Ledger, Noting};

/// Files of one request: a server accepts 1024.
const FILES_OF_REQUEST: usize = 1000;
/// Bytes of the paths in one request: a message has at most 1 MiB.
const PATH_BYTES_OF_REQUEST: usize = 768 << 10;
/// The most bytes of a name, and of what a message needs beside it.
const NAME_BYTES: usize = 300;

/// Copies the entries of an item, and notes what became of each.
///
/// # Errors
/// A request failed as a whole, for no reason of this item: any other would fail as well. Failures
/// of single entries are noted instead.
pub(crate) async fn copy(
    job: &Job,
    client: &mut Client,
    item: &Item,
    ledger: &Arc<Ledger>,
) -> Result<(), Error> {
    match &job.direction {
        Direction::Up { from, to } => up(job, client, from, to, item, ledger).await,
        Direction::Down { from, to } => {
            let root = Root::open(to)?;
            let wanted = prepare(job, &root, item, ledger);
            down(job, client, from, &root, wanted, ledger).await
        }
    }
}

async fn up(
    job: &Job,
    client: &mut Client,
    from: &Path,
    to: &RemotePath,
    item: &Item,
    ledger: &Arc<Ledger>,
) -> Result<(), Error> {
    let paths = with_parents(&item.entries);
    let observer = Arc::new(Noting { ledger: Arc::clone(ledger), directory: None });
    // directories are given their mode and time, whether or not these agree
    if job.mode == Mode::Copy || item.step == Step::Finish {
        client.put_listed(from, paths, &to.path, job.fsync, observer).await?;
        return Ok(());
    }
    let summary = client.sync_listed(from, paths, &to.path, job.fsync, observer).await?;
    if (summary.failed, summary.left_out) == (0, 0) {
        ledger.rest_is_unchanged();
    }
    Ok(())
}

async fn down(
    job: &Job,
    client: &mut Client,
    from: &RemotePath,
    root: &Root,
    wanted: Wanted,
    ledger: &Arc<Ledger>,
) -> Result<(), Error> {
    for (directory, names) in &wanted {
        for names in names.chunks(files_of_request(from, directory.as_ref())) {
            let noting = Noting { ledger: Arc::clone(ledger), directory: directory.clone() };
            let (path, observer) = (&from.path, Arc::new(noting));
            let got =
                client.get_listed(path, directory.as_ref(), names, root, job.fsync, observer).await;
            match got {
                Ok(_) => {}
                // about these files alone
                Err(error) if is_about_files(&error) => {
                    ledger.failed(&error.to_string(), error.code());
                }
                Err(error) => return Err(error),
            }
        }
    }
    Ok(())
}

/// Returns how many files of a directory fit into one request, whatever their names.
fn files_of_request(from: &RemotePath, directory: Option<&RelPath>) -> usize {
    let above = directory.map_or(0, |directory| directory.as_bytes().len()) + from.path.len();
    (PATH_BYTES_OF_REQUEST / (above + NAME_BYTES)).clamp(1, FILES_OF_REQUEST)
}

/// Whether an error is about the files of a request, and not about the connection or the rights.
const fn is_about_files(error: &Error) -> bool {
    matches!(error, Error::OnServer { .. } | Error::Files(_) | Error::System { .. })
}

/// Returns the paths of entries, each after the directories that it is in: another worker may not
/// have made these yet.
fn with_parents(entries: &[Entry]) -> Vec<RelPath> {
    let mut paths = Vec::with_capacity(entries.len());
    let mut known: HashSet<RelPath> = HashSet::new();
    for Entry { path, .. } in entries {
        let mut missing = Vec::new();
        let mut above = path.parent();
        while let Some(directory) = above.filter(|directory| !known.contains(directory)) {
            above = directory.parent();
            missing.push(directory);
        }
        for directory in missing.into_iter().rev().chain([path.clone()]) {
            if known.insert(directory.clone()) {
                paths.push(directory);
            }
        }
    }
    paths
}

/// The files to fetch of each directory.
type Wanted = BTreeMap<Option<RelPath>, Vec<RelPath>>;

/// Makes directories and links of a server's tree here, as the listing described them, and returns
/// the files to fetch. No link below the root is followed.
fn prepare(job: &Job, root: &Root, item: &Item, ledger: &Ledger) -> Wanted {
    let (mut wanted, mut made) = (Wanted::new(), HashSet::new());
    for entry in &item.entries {
        let prepared = match make_parents(root, &entry.path, &mut made) {
            Ok(()) => prepare_entry(job, root, item.step, entry),
            Err(error) => Err(error),
        };
        match prepared {
            Ok(Prepared::Done) => ledger.stored(&entry.path),
            Ok(Prepared::Unchanged) => ledger.unchanged(&entry.path, entry.size()),
            Ok(Prepared::Wanted) => {
                if let Ok(name) = RelPath::single(entry.path.name()) {
                    wanted.entry(entry.path.parent()).or_default().push(name);
                }
            }
            Err(error) => {
                let error = Error::from(error);
                ledger.failed(&error.to_string(), error.code());
            }
        }
    }
    wanted
}

/// What is left to do for an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Prepared {
    Done,
    Unchanged,
    Wanted,
}

fn prepare_entry(
    job: &Job,
    root: &Root,
    step: Step,
    entry: &Entry,
) -> Result<Prepared, files::Error> {
    let path = &entry.path;
    match &entry.kind {
        Kind::Directory { mode, mtime } => {
            let here = root.look(path)?.map(|here| here.file_type);
            if job.mode == Mode::Sync && matches!(here, Some(FileType::File | FileType::Symlink)) {
                root.remove(path)?;
            }
            root.make_directory(path, *mode)?;
            if step == Step::Finish {
                root.seal_directory(path, *mode, *mtime, job.fsync, None)?;
            }
            Ok(Prepared::Done)
        }
        Kind::Symlink { target, mtime } => {
            let sent = Sent::Symlink { target };
            if job.mode == Mode::Copy || root.compare(path, &sent)? != Status::Same {
                root.make_symlink(path, target)?;
            }
            // the link is there: that counts
            if let Err(error) = root.seal_symlink(path, Some(*mtime), None) {
                tracing::debug!("{error}");
            }
            Ok(Prepared::Done)
        }
        Kind::File { .. } if job.mode == Mode::Copy => Ok(Prepared::Wanted),
        Kind::File { size, mode, mtime } => {
            let (size, mode, mtime) = (*size, *mode, *mtime);
            let sent = Sent::File { size, mode, mtime, hash: None, attributes: None };
            match root.compare(path, &sent)? {
                Status::Same => Ok(Prepared::Unchanged),
                Status::MetadataDiffers => {
                    root.update_metadata(path, mode, mtime, None)?;
                    Ok(Prepared::Unchanged)
                }
                // what cannot be replaced, the transfer names
                Status::Missing | Status::ContentDiffers | Status::TypeDiffers(_) => {
                    Ok(Prepared::Wanted)
                }
            }
        }
    }
}

/// Makes the directories that a path is in, unless this item has made them.
fn make_parents(
    root: &Root,
    path: &RelPath,
    made: &mut HashSet<RelPath>,
) -> Result<(), files::Error> {
    let Some(directory) = path.parent().filter(|directory| !made.contains(directory)) else {
        return Ok(());
    };
    make_parents(root, &directory, made)?;
    root.make_directory(&directory, 0o777)?;
    made.insert(directory);
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::os::unix::fs::MetadataExt;
    use std::time::{Duration, UNIX_EPOCH};

    use headroom_transfer::Time;

    use super::*;
    use crate::engine::Lease;

    const MTIME: Time = Time { seconds: 1_000_000_000, nanoseconds: 0 };

    fn entry(name: &str, kind: Kind) -> Entry {
        Entry { number: 0, path: RelPath::parse(name.as_bytes()).expect("a path"), kind }
    }

    fn file(name: &str) -> Entry {
        entry(name, Kind::File { size: 3, mode: 0o640, mtime: MTIME })
    }

    fn directory(name: &str) -> Entry {
        entry(name, Kind::Directory { mode: 0o750, mtime: MTIME })
    }

    fn job(mode: &str) -> Job {
        let ground = tempfile::tempdir().expect("a folder");
        let path = ground.path().join("job.toml");
        let text = format!("name = \"job\"\nfrom = \"host:\"\nto = \"/to\"\nmode = \"{mode}\"\n");
        fs::write(&path, text).expect("a file");
        Job::read(&path).expect("a job")
    }

    fn item(step: Step, entries: Vec<Entry>) -> Item {
        Item { lease: Lease { item: 1, take: 1 }, step, entries }
    }

    #[test]
    fn every_path_comes_after_its_directories_and_once() {
        let entries = [file("a/b/c"), directory("a/b/d"), file("a/b/d/e"), file("f"), file("a/g")];
        let paths: Vec<_> = with_parents(&entries).iter().map(ToString::to_string).collect();
        assert_eq!(paths, ["a", "a/b", "a/b/c", "a/b/d", "a/b/d/e", "f", "a/g"]);
    }

    #[test]
    fn a_request_fits_into_a_message_however_deep_its_files_are() {
        let from = RemotePath::parse("host:served".as_ref()).expect("a remote path");
        assert_eq!(files_of_request(&from, None), FILES_OF_REQUEST);
        let deep = [&[b'a'; 250][..]; 15].join(&b'/');
        let deep = RelPath::parse(&deep).expect("a path");
        let count = files_of_request(&from, Some(&deep));
        assert!(count > 100 && count * (deep.as_bytes().len() + 255) < 1 << 20, "{count}");
    }

    #[test]
    fn directories_and_links_are_made_and_files_are_wanted_by_directory() {
        let ground = tempfile::tempdir().expect("a folder");
        let root = Root::open(ground.path()).expect("a folder");
        let link = |name: &str, target: &str| {
            entry(name, Kind::Symlink { target: target.as_bytes().to_vec(), mtime: MTIME })
        };
        let entries = vec![
            file("a/one"),
            directory("a/empty"),
            link("a/inside", "one"),
            link("a/outside", "../../etc/passwd"),
            file("a/two"),
            file("three"),
        ];
        let ledger = Ledger::new(Arc::default());
        let item = item(Step::Copy, entries);
        let wanted = prepare(&job("copy"), &root, &item, &ledger);
        let names = |directory: Option<&str>| {
            let directory = directory.map(|name| RelPath::parse(name.as_bytes()).expect("a path"));
            wanted[&directory].iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(names(Some("a")), ["one", "two"]);
        assert_eq!(names(None), ["three"]);
        assert!(ground.path().join("a/empty").is_dir());
        assert!(ground.path().join("a/inside").is_symlink());
        assert!(!ground.path().join("a/outside").is_symlink());
        let sorted = ledger.sorted(item.entries);
        let left: Vec<_> = sorted.left.iter().map(|entry| entry.path.to_string()).collect();
        assert_eq!(left, ["a/one", "a/outside", "a/two", "three"]);
        assert!(sorted.reason.is_some_and(|reason| reason.contains("a/outside")));
    }

    #[test]
    fn nothing_is_made_behind_a_link() {
        let ground = tempfile::tempdir().expect("a folder");
        let (to, elsewhere) = (ground.path().join("to"), ground.path().join("elsewhere"));
        for folder in [&to, &elsewhere] {
            fs::create_dir(folder).expect("a folder");
        }
        std::os::unix::fs::symlink("../elsewhere", to.join("a")).expect("a link");
        let root = Root::open(&to).expect("a folder");
        let ledger = Ledger::new(Arc::default());
        let item = item(Step::Copy, vec![directory("a/b"), file("a/c")]);
        assert!(prepare(&job("copy"), &root, &item, &ledger).is_empty());
        assert_eq!(fs::read_dir(&elsewhere).expect("a folder").count(), 0);
        assert_eq!(ledger.sorted(item.entries).left.len(), 2);
    }

    #[test]
    fn a_sync_fetches_what_differs_and_directories_are_finished_last() {
        let ground = tempfile::tempdir().expect("a folder");
        let root = Root::open(ground.path()).expect("a folder");
        for (name, content, seconds) in
            [("same", "abc", 0), ("older", "abc", 5), ("longer", "abcd", 0)]
        {
            let path = ground.path().join(name);
            fs::write(&path, content).expect("a file");
            let time = UNIX_EPOCH + Duration::from_secs(1_000_000_000 - seconds);
            let file = File::options().write(true).open(&path).expect("a file");
            file.set_modified(time).expect("a time");
        }
        fs::write(ground.path().join("d"), "in the place of a directory").expect("a file");
        let ledger = Ledger::new(Arc::default());
        let files = ["same", "older", "longer", "new"].map(file);
        let entries = files.into_iter().chain([directory("d")]).collect();
        let copied = item(Step::Copy, entries);
        let wanted = prepare(&job("sync"), &root, &copied, &ledger);
        let names: Vec<_> = wanted[&None::<RelPath>].iter().map(ToString::to_string).collect();
        assert_eq!(names, ["older", "longer", "new"]);
        assert!(ground.path().join("d").is_dir());
        let sorted = ledger.sorted(copied.entries);
        assert_eq!((sorted.copied.len(), sorted.left.len()), (1, 3));

        let ledger = Ledger::new(Arc::default());
        let finished = item(Step::Finish, vec![directory("d")]);
        prepare(&job("sync"), &root, &finished, &ledger);
        assert!(ledger.sorted(finished.entries).left.is_empty());
        let metadata = fs::metadata(ground.path().join("d")).expect("it is there");
        assert_eq!((metadata.mode() & 0o777, metadata.mtime()), (0o750, MTIME.seconds));
    }
}
