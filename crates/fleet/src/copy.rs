//! Copies the entries of an item by the transfer's client.

mod large;
mod range;
mod relay;

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use headroom_transfer::files::{self, FileType, Root, Sent, Status};
use headroom_transfer::path::RelPath;
use headroom_transfer::{Client, Error, SyncOptions};
use tokio::task::spawn_blocking;

use self::large::LargeFile;
use self::range::FileRange;
pub(crate) use self::relay::Relay;
use crate::ends::{Clients, OpenTree, Route, joined};
use crate::engine::{Item, Step};
use crate::entry::{Entry, Kind};
use crate::job::{Job, Mode};
use crate::ledger::{Ledger, Noting};

/// Files of one request: a server accepts 1024.
const FILES_OF_REQUEST: usize = 1000;
/// Bytes of the paths in one request: a message has at most 1 MiB.
const PATH_BYTES_OF_REQUEST: usize = 768 << 10;
/// The most bytes of a name, and of what a message needs beside it.
const NAME_BYTES: usize = 300;
/// Parts of an item that are prepared at once where each answer comes from another machine.
const AT_ONCE: usize = 16;

/// Copies the entries of an item, and notes what became of each.
///
/// # Errors
/// A request failed as a whole, for no reason of this item: any other would fail as well. Failures
/// of single entries are noted instead.
pub(crate) async fn copy(
    job: &Job,
    route: &Route,
    clients: &mut Clients,
    item: &Item,
    ledger: &Arc<Ledger>,
) -> Result<(), Error> {
    if let Step::Range(index) = item.step {
        return copy_range(job, route, clients, (item, index), ledger).await;
    }
    match route {
        Route::Up { from, to, here } => {
            let (from, client) = (&from.root().await?, &mut clients.client);
            if let (None, Step::Copy, [file]) = (here, item.step, item.entries.as_slice())
                && file.ranges() > 0
            {
                let large = LargeFile { job, from, to, file };
                if !large.is_left_to_sync(client).await? {
                    return large.complete(client, ledger).await;
                }
            }
            up(job, client, from, to, item, ledger).await
        }
        Route::Down { from, to } => {
            let (rules, root) = (Rules::of(job, item), to.root().await?);
            let wanted = prepared(rules, &root, &item.entries, ledger).await?;
            down(rules, &mut clients.client, from, &root, wanted, ledger).await
        }
        Route::Across { from, to, spool } => {
            Relay { job, from, to, spool }
                .copy(clients, (item.step, item.was_taken), &item.entries, ledger)
                .await
        }
    }
}

/// Copies a range of the only entry of an item, as [`copy`] copies entries.
async fn copy_range(
    job: &Job,
    route: &Route,
    clients: &mut Clients,
    (item, index): (&Item, u32),
    ledger: &Arc<Ledger>,
) -> Result<(), Error> {
    if let (Route::Up { from, to, here: None }, [file]) = (route, item.entries.as_slice()) {
        clients.ranges_of = Some(file.number);
        let large = LargeFile { job, from: &from.root().await?, to, file };
        return large.send_range(&mut clients.client, index, ledger).await;
    }
    let ends: Option<(&[u8], &OpenTree)> = match route {
        Route::Down { from, to } => Some((from.as_slice(), to)),
        // the process serves the source to itself
        Route::Up { here, .. } => here.as_ref().map(|here| (&b""[..], here)),
        Route::Across { .. } => None,
    };
    let (Some((from, to)), [file]) = (ends, item.entries.as_slice()) else {
        // no listing divides files for another destination
        ledger.range_ended();
        return Ok(());
    };
    let root = to.root().await?;
    let range = FileRange { rules: Rules::of(job, item), from, root: &root, file, index };
    range.copy(clients.reading(), ledger).await
}

/// How entries are stored by this process.
#[derive(Debug, Clone, Copy)]
struct Rules {
    mode: Mode,
    step: Step,
    was_taken: bool,
    fsync: bool,
}

impl Rules {
    const fn of(job: &Job, item: &Item) -> Self {
        Self { mode: job.mode, step: item.step, was_taken: item.was_taken, fsync: job.fsync }
    }
}

/// Returns how files are sent that may be up to date. A worker that was killed may have
/// stored some of them: by size and time alone these would have receipts without a hash.
fn sync_options(job: &Job, was_taken: bool) -> SyncOptions {
    SyncOptions { checksum: was_taken, fsync: job.fsync, ..SyncOptions::default() }
}

async fn up(
    job: &Job,
    client: &mut Client,
    from: &Root,
    to: &[u8],
    item: &Item,
    ledger: &Arc<Ledger>,
) -> Result<(), Error> {
    let paths = with_parents(&item.entries);
    let observer = Arc::new(Noting { ledger: Arc::clone(ledger), directory: None });
    // directories are given their mode and time, whether or not these agree
    if job.mode == Mode::Copy || item.step == Step::Finish {
        client.put_names(from, paths, to, job.fsync, observer).await?;
        return Ok(());
    }
    let options = sync_options(job, item.was_taken);
    let summary = client.sync_names(&options, from, paths, to, observer).await?;
    if (summary.failed, summary.left_out) == (0, 0) {
        ledger.rest_is_unchanged();
    }
    Ok(())
}

async fn down(
    rules: Rules,
    client: &mut Client,
    from: &[u8],
    root: &Root,
    wanted: Wanted,
    ledger: &Arc<Ledger>,
) -> Result<(), Error> {
    for (directory, names) in &wanted {
        for names in names.chunks(files_of_request(from, directory.as_ref())) {
            let noting = Noting { ledger: Arc::clone(ledger), directory: directory.clone() };
            let (directory, observer) = (directory.as_ref(), Arc::new(noting));
            let got = client.get_listed(from, directory, names, root, rules.fsync, observer);
            match got.await {
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
fn files_of_request(from: &[u8], directory: Option<&RelPath>) -> usize {
    let above = directory.map_or(0, |directory| directory.as_bytes().len()) + from.len();
    (PATH_BYTES_OF_REQUEST / (above + NAME_BYTES)).clamp(1, FILES_OF_REQUEST)
}

/// Whether an error is about the files of a request, and not about the connection or the rights. A
/// path that is too long for a request is [`Error::Usage`].
pub(crate) const fn is_about_files(error: &Error) -> bool {
    matches!(
        error,
        Error::OnServer { .. } | Error::Files(_) | Error::System { .. } | Error::Usage(_)
    )
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

/// Does what [`prepare`] does on other threads, for several parts at once where each answer comes
/// from another machine.
async fn prepared(
    rules: Rules,
    root: &Root,
    entries: &[Entry],
    ledger: &Arc<Ledger>,
) -> Result<Wanted, Error> {
    let parts = if root.is_remote() { AT_ONCE } else { 1 };
    let begin = |entries: &[Entry]| {
        let (root, entries, ledger) = (root.clone(), entries.to_vec(), Arc::clone(ledger));
        spawn_blocking(move || prepare(rules, &root, &entries, &ledger))
    };
    let size = entries.len().div_ceil(parts).max(1);
    let running: Vec<_> = entries.chunks(size).map(begin).collect();
    let mut wanted = Wanted::new();
    for part in running {
        for (directory, names) in joined(part).await? {
            wanted.entry(directory).or_default().extend(names);
        }
    }
    Ok(wanted)
}

/// Makes directories and links of a server's tree here, as the listing described them, and returns
/// the files to fetch. No link below the root is followed.
fn prepare(rules: Rules, root: &Root, entries: &[Entry], ledger: &Ledger) -> Wanted {
    let (mut wanted, mut made) = (Wanted::new(), HashSet::new());
    for entry in entries {
        let prepared = match make_parents(root, &entry.path, &mut made) {
            Ok(()) => prepare_entry(rules, root, entry),
            Err(error) => Err(error),
        };
        let prepared = prepared.and_then(|prepared| {
            // a worker that was killed may have stored it
            let is_read = prepared == Prepared::Unchanged && rules.was_taken;
            let hash = is_read.then(|| root.hash(&entry.path)).transpose()?;
            Ok((prepared, hash.map(<[u8; 32]>::from)))
        });
        match prepared {
            Ok((Prepared::Done, _)) => ledger.stored(&entry.path),
            Ok((Prepared::Unchanged, hash)) => ledger.unchanged(&entry.path, entry.size(), hash),
            Ok((Prepared::Wanted, _)) => {
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

fn prepare_entry(rules: Rules, root: &Root, entry: &Entry) -> Result<Prepared, files::Error> {
    let (path, Rules { mode: how, step, fsync, .. }) = (&entry.path, rules);
    match &entry.kind {
        Kind::Directory { mode, mtime } => {
            let here = root.look(path)?.map(|here| here.file_type);
            if how == Mode::Sync && matches!(here, Some(FileType::File | FileType::Symlink)) {
                root.remove(path)?;
            }
            root.make_directory(path, *mode)?;
            if step == Step::Finish {
                root.seal_directory(path, *mode, *mtime, fsync, None)?;
            }
            Ok(Prepared::Done)
        }
        Kind::Symlink { target, mtime } => {
            let sent = Sent::Symlink { target };
            if how == Mode::Copy || root.compare(path, &sent)? != Status::Same {
                root.make_symlink(path, target)?;
            }
            // the link is there: that counts
            if let Err(error) = root.seal_symlink(path, Some(*mtime), None) {
                tracing::debug!("{error}");
            }
            Ok(Prepared::Done)
        }
        Kind::File { .. } if how == Mode::Copy => Ok(Prepared::Wanted),
        Kind::File { size, mode, mtime, .. } => {
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

/// Makes the directories that a path is in, unless this item has made them. An item does not know
/// their modes: until the directories are finished, they are private.
fn make_parents(
    root: &Root,
    path: &RelPath,
    made: &mut HashSet<RelPath>,
) -> Result<(), files::Error> {
    let Some(directory) = path.parent().filter(|directory| !made.contains(directory)) else {
        return Ok(());
    };
    make_parents(root, &directory, made)?;
    root.make_directory(&directory, 0o700)?;
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

    const MTIME: Time = Time { seconds: 1_000_000_000, nanoseconds: 0 };

    fn entry(name: &str, kind: Kind) -> Entry {
        Entry { number: 0, path: RelPath::parse(name.as_bytes()).expect("a path"), kind }
    }

    fn file(name: &str) -> Entry {
        entry(name, Kind::File { size: 3, mode: 0o640, mtime: MTIME, ranges: 0 })
    }

    fn directory(name: &str) -> Entry {
        entry(name, Kind::Directory { mode: 0o750, mtime: MTIME })
    }

    const COPY: Rules =
        Rules { mode: Mode::Copy, step: Step::Copy, was_taken: false, fsync: false };
    const SYNC: Rules = Rules { mode: Mode::Sync, ..COPY };

    #[test]
    fn every_path_comes_after_its_directories_and_once() {
        let entries = [file("a/b/c"), directory("a/b/d"), file("a/b/d/e"), file("f"), file("a/g")];
        let paths: Vec<_> = with_parents(&entries).iter().map(ToString::to_string).collect();
        assert_eq!(paths, ["a", "a/b", "a/b/c", "a/b/d", "a/b/d/e", "f", "a/g"]);
    }

    #[test]
    fn a_request_fits_into_a_message_however_deep_its_files_are() {
        assert_eq!(files_of_request(b"served", None), FILES_OF_REQUEST);
        let deep = [&[b'a'; 250][..]; 15].join(&b'/');
        let deep = RelPath::parse(&deep).expect("a path");
        let count = files_of_request(b"served", Some(&deep));
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
        let wanted = prepare(COPY, &root, &entries, &ledger);
        let names = |directory: Option<&str>| {
            let directory = directory.map(|name| RelPath::parse(name.as_bytes()).expect("a path"));
            wanted[&directory].iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(names(Some("a")), ["one", "two"]);
        assert_eq!(names(None), ["three"]);
        assert!(ground.path().join("a/empty").is_dir());
        // a directory whose mode the item does not have is private until the last step
        let made = fs::metadata(ground.path().join("a")).expect("it is there");
        assert_eq!(made.mode() & 0o777, 0o700);
        assert!(ground.path().join("a/inside").is_symlink());
        assert!(!ground.path().join("a/outside").is_symlink());
        let sorted = ledger.sorted(entries);
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
        let entries = vec![directory("a/b"), file("a/c")];
        assert!(prepare(COPY, &root, &entries, &ledger).is_empty());
        assert_eq!(fs::read_dir(&elsewhere).expect("a folder").count(), 0);
        assert_eq!(ledger.sorted(entries).left.len(), 2);
    }

    #[test]
    fn what_a_killed_worker_may_have_stored_is_up_to_date_with_its_hash() {
        let ground = tempfile::tempdir().expect("a folder");
        let root = Root::open(ground.path()).expect("a folder");
        fs::write(ground.path().join("same"), "abc").expect("a file");
        let entries = vec![file("same")];
        root.update_metadata(&entries[0].path, 0o640, MTIME, None).expect("it is there");
        // nothing is read of a file that no worker took before
        for was_taken in [false, true] {
            let ledger = Ledger::new(Arc::default());
            assert!(prepare(Rules { was_taken, ..SYNC }, &root, &entries, &ledger).is_empty());
            let copied = ledger.sorted(entries.clone()).copied;
            let expected = was_taken.then(|| root.hash(&entries[0].path).expect("a hash"));
            assert_eq!((copied.len(), copied[0].hash), (1, expected.map(<[u8; 32]>::from)));
        }
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
        let entries: Vec<_> = files.into_iter().chain([directory("d")]).collect();
        let wanted = prepare(SYNC, &root, &entries, &ledger);
        let names: Vec<_> = wanted[&None::<RelPath>].iter().map(ToString::to_string).collect();
        assert_eq!(names, ["older", "longer", "new"]);
        assert!(ground.path().join("d").is_dir());
        let sorted = ledger.sorted(entries);
        assert_eq!((sorted.copied.len(), sorted.left.len()), (1, 3));

        let ledger = Ledger::new(Arc::default());
        let finished = vec![directory("d")];
        prepare(Rules { step: Step::Finish, ..SYNC }, &root, &finished, &ledger);
        assert!(ledger.sorted(finished).left.is_empty());
        let metadata = fs::metadata(ground.path().join("d")).expect("it is there");
        assert_eq!((metadata.mode() & 0o777, metadata.mtime()), (0o750, MTIME.seconds));
    }
}
