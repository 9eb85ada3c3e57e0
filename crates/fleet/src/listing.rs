//! Lists the source, directory by directory in the order of a walk, and fills the queue.
//!
//! Items are staged as they fill, in little memory. A checkpoint makes them visible together with
//! the directories that were listed; it follows a complete directory. After a crash the listing
//! resumes there, and what was listed since then is listed again and has been seen by nobody.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use headroom_transfer::files::{FileType, Metadata, Root};
use headroom_transfer::path::{RelPath, shown};
use headroom_transfer::{Client, Error as TransferError, Listed, ListedKind, Time};

use crate::ends::listed_on_server;
use crate::engine::{Checkpoint, Engine};
use crate::entry::{Entry, Kind};
use crate::error::Error;
use crate::job::Batch;
use crate::key::DirectoryKey;
use crate::ranges;

/// The longest time without a checkpoint, as far as directories end: workers wait for the first.
const CHECKPOINT: Duration = Duration::from_secs(1);
/// The most directories in memory: then a checkpoint follows, as soon as the directory ends.
const MAX_DIRECTORIES: usize = 10_000;
/// The most bytes of names and targets of an item.
const MAX_NAME_BYTES: usize = 4 << 20;
/// The most names between two checkpoints of which each gets a sentence: they cannot be copied.
const MAX_PROBLEMS: usize = 1000;
/// How often a paused listing checks whether it may continue.
const LOOK: Duration = Duration::from_millis(100);

/// Lets a listing continue, wait or stop; set by another thread.
#[derive(Debug, Default)]
pub(crate) struct Switch(AtomicU8);

/// What a listing is to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Advice {
    Continue,
    Wait,
    Stop,
}

impl Switch {
    pub(crate) fn set(&self, advice: Advice) {
        self.0.store(advice as u8, Ordering::Relaxed);
    }

    fn get(&self) -> Advice {
        match self.0.load(Ordering::Relaxed) {
            0 => Advice::Continue,
            1 => Advice::Wait,
            _ => Advice::Stop,
        }
    }
}

/// A name in a directory, as the source describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Found {
    Entry(Kind),
    /// Something that is never copied.
    LeftOut,
}

/// Lists the directory or store `root`. Returns early if it is stopped. Waits for disk and store,
/// as no task may.
pub(crate) fn list_folder<E: Engine>(
    engine: &mut E,
    root: &Root,
    batch: Batch,
    switch: &Switch,
) -> Result<(), Error> {
    let mut lister = Lister::begin(engine, batch)?;
    while let Some(directory) = lister.next()? {
        while switch.get() == Advice::Wait {
            std::thread::sleep(LOOK);
        }
        if switch.get() == Advice::Stop {
            return Ok(());
        }
        let mut failure = None;
        match root.list(directory.as_ref()) {
            Ok(mut listing) => {
                while let Some(found) = listing.next() {
                    if switch.get() == Advice::Stop {
                        return Ok(());
                    }
                    match found {
                        Ok((name, metadata)) => {
                            let target = || listing.target(&name);
                            lister.add(&name, of_metadata(&metadata, target))?;
                        }
                        Err(error) => {
                            failure = Some(error);
                            break;
                        }
                    }
                }
            }
            Err(error) => failure = Some(error),
        }
        match failure {
            Some(error) => lister.failed(&error.to_string())?,
            None => lister.listed()?,
        }
    }
    Ok(())
}

/// Lists the directory `from` of a server. Returns early if it is stopped.
pub(crate) async fn list_server<E: Engine, C>(
    engine: &mut E,
    from: &[u8],
    batch: Batch,
    switch: &Switch,
    connect: &mut C,
) -> Result<(), Error>
where
    C: AsyncFnMut() -> Result<Client, TransferError>,
{
    let mut lister = Lister::begin(engine, batch)?;
    let mut client = connect().await?;
    while let Some(directory) = lister.next()? {
        while switch.get() == Advice::Wait {
            tokio::time::sleep(LOOK).await;
        }
        if switch.get() == Advice::Stop {
            return Ok(());
        }
        let path = listed_on_server(from, directory.as_ref());
        let mut last: Option<RelPath> = None;
        let mut added = Ok(());
        let listed = client.list(&path, |found| {
            if added.is_err() {
                return;
            }
            added = match check(last.as_ref(), &found) {
                Ok(()) => lister.add(&found.path, of_listed(&found)),
                Err(error) => Err(error.into()),
            };
            last = Some(found.path);
        });
        let listed = listed.await;
        added?;
        match listed {
            Ok(()) => lister.listed()?,
            // also of a path that is too long for a request
            Err(error @ (TransferError::OnServer { .. } | TransferError::Usage(_))) => {
                lister.failed(&error.to_string())?;
            }
            Err(error) if error.is_temporary() => {
                tracing::info!("{error}");
                lister.discard()?;
                client = reconnect(connect, switch).await?;
            }
            Err(error) => return Err(error.into()),
        }
    }
    client.close().await;
    Ok(())
}

/// Connects again, with pauses, until that succeeds or is stopped.
async fn reconnect<C>(connect: &mut C, switch: &Switch) -> Result<Client, Error>
where
    C: AsyncFnMut() -> Result<Client, TransferError>,
{
    let mut pause = Duration::from_millis(500);
    loop {
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(Duration::from_secs(30));
        match connect().await {
            Err(error) if error.is_temporary() && switch.get() != Advice::Stop => {}
            connected => return Ok(connected?),
        }
    }
}

/// Refuses names that no server sends: names below the directory, or out of order, by which one
/// file could be listed twice.
pub(crate) fn check(last: Option<&RelPath>, found: &Listed) -> Result<(), TransferError> {
    let is_single = found.path.components().count() == 1;
    let is_next = last.is_none_or(|last| last.as_bytes() < found.path.as_bytes());
    match is_single && is_next {
        true => Ok(()),
        false => {
            let reason = format!("its listing has {} in the wrong place", found.path);
            Err(TransferError::Protocol(reason))
        }
    }
}

fn of_metadata(metadata: &Metadata, target: impl FnOnce() -> Option<Vec<u8>>) -> Found {
    let &Metadata { file_type, size, mode, mtime, .. } = metadata;
    match file_type {
        FileType::File => Found::Entry(Kind::File { size, mode, mtime, ranges: 0 }),
        FileType::Directory => Found::Entry(Kind::Directory { mode, mtime }),
        FileType::Symlink => of_link(target(), mtime),
        FileType::Pipe | FileType::Socket | FileType::Device => Found::LeftOut,
    }
}

pub(crate) fn of_listed(listed: &Listed) -> Found {
    let &Listed { kind, size, mode, mtime, .. } = listed;
    match kind {
        ListedKind::File => Found::Entry(Kind::File { size, mode, mtime, ranges: 0 }),
        ListedKind::Directory => Found::Entry(Kind::Directory { mode, mtime }),
        ListedKind::Symlink => of_link(listed.target.clone(), mtime),
        ListedKind::Other => Found::LeftOut,
    }
}

fn of_link(target: Option<Vec<u8>>, mtime: Time) -> Found {
    target.map_or(Found::LeftOut, |target| Found::Entry(Kind::Symlink { target, mtime }))
}

/// Fills the queue with what a source has.
struct Lister<'a, E> {
    engine: &'a mut E,
    batch: Batch,
    /// The number for the next entry.
    next_number: u64,
    /// The directory that is listed, or was listed last.
    current: Option<DirectoryKey>,
    /// Entries of the next item.
    entries: Vec<Entry>,
    bytes: u64,
    name_bytes: usize,
    since: Since,
    /// A directory that could not be listed: until it is reached again, a checkpoint follows each
    /// directory.
    careful_until: Option<DirectoryKey>,
    /// When the last checkpoint was.
    at: Instant,
}

/// What was found since the last checkpoint.
#[derive(Debug, Default)]
struct Since {
    listed: Vec<DirectoryKey>,
    /// Directories, but for those that were staged.
    found: BTreeMap<DirectoryKey, Entry>,
    problems: Vec<String>,
    /// Problems without a sentence.
    more_problems: u64,
    files: u64,
    bytes: u64,
    left_out: u64,
    /// Whether anything was staged.
    is_staged: bool,
}

impl<'a, E: Engine> Lister<'a, E> {
    fn begin(engine: &'a mut E, batch: Batch) -> Result<Self, Error> {
        let next_number = engine.begin_listing()?;
        Ok(Self {
            engine,
            batch,
            next_number,
            current: None,
            entries: Vec::new(),
            bytes: 0,
            name_bytes: 0,
            since: Since::default(),
            careful_until: None,
            at: Instant::now(),
        })
    }

    /// Returns the next directory to list; the inner `None` is the source itself. After the last
    /// one the listing is complete.
    fn next(&mut self) -> Result<Option<Option<RelPath>>, Error> {
        let stored = self.engine.next_directory(self.current.as_ref())?;
        let after = self.current.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
        let mut later = self.since.found.range::<DirectoryKey, _>((after, Bound::Unbounded));
        let found = later.next().map(|(key, _)| key.clone());
        let Some(next) = [stored, found].into_iter().flatten().min() else {
            self.checkpoint(None, true)?;
            return Ok(None);
        };
        let path = next.path();
        self.current = Some(next);
        Ok(Some(path))
    }

    /// Adds a name of the directory.
    fn add(&mut self, name: &RelPath, found: Found) -> Result<(), Error> {
        let directory = self.current.as_ref().and_then(DirectoryKey::path);
        let path = match &directory {
            Some(directory) => directory.join(name),
            None => Ok(name.clone()),
        };
        let path = match path {
            Ok(path) => path,
            Err(error) if self.since.problems.len() < MAX_PROBLEMS => {
                let directory = directory.as_ref().map_or(&b""[..], RelPath::as_bytes);
                let directory = shown(directory).to_string();
                self.since.problems.push(format!("{directory}/{name} cannot be sent: {error}"));
                return Ok(());
            }
            Err(_) => {
                self.since.more_problems += 1;
                return Ok(());
            }
        };
        match found {
            // as every transfer does
            Found::Entry(Kind::Symlink { target, .. }) if !path.holds_link_to(&target) => {
                self.since.left_out += 1;
            }
            Found::LeftOut => self.since.left_out += 1,
            Found::Entry(kind) => self.push(path, kind)?,
        }
        Ok(())
    }

    fn push(&mut self, path: RelPath, mut kind: Kind) -> Result<(), Error> {
        if let Kind::File { size, ranges, .. } = &mut kind {
            *ranges = ranges::count(*size, self.batch.range);
        }
        let entry = Entry { number: self.next_number, path, kind };
        self.next_number += 1;
        if let Kind::Directory { .. } = entry.kind {
            self.since.found.insert(DirectoryKey::of(Some(&entry.path)), entry.clone());
            if self.since.found.len() >= MAX_DIRECTORIES {
                self.stage_directories()?;
            }
        }
        let size = entry.size();
        if entry.is_file() {
            self.since.files += 1;
            self.since.bytes = self.since.bytes.saturating_add(size);
        }
        // a large file is an item of its own, or several, and what waits stays together
        if size >= self.batch.bytes || entry.ranges() > 0 {
            self.since.is_staged = true;
            return self.engine.stage(&[entry]);
        }
        let name_bytes = entry.name_bytes();
        let is_full = self.entries.len() as u64 >= u64::from(self.batch.files)
            || self.bytes.saturating_add(size) > self.batch.bytes
            || self.name_bytes + name_bytes > MAX_NAME_BYTES;
        if is_full {
            self.stage()?;
        }
        self.bytes += size;
        self.name_bytes += name_bytes;
        self.entries.push(entry);
        Ok(())
    }

    fn stage_directories(&mut self) -> Result<(), Error> {
        let found: Vec<_> = std::mem::take(&mut self.since.found).into_iter().collect();
        self.engine.stage_directories(&found)?;
        self.since.is_staged = true;
        Ok(())
    }

    fn stage(&mut self) -> Result<(), Error> {
        if self.entries.is_empty() {
            return Ok(());
        }
        self.engine.stage(&self.entries)?;
        self.entries.clear();
        (self.bytes, self.name_bytes) = (0, 0);
        self.since.is_staged = true;
        Ok(())
    }

    /// The directory is complete.
    fn listed(&mut self) -> Result<(), Error> {
        self.since.listed.extend(self.current.clone());
        let Since { listed, found, is_staged, .. } = &self.since;
        let is_due = *is_staged
            || self.careful_until.is_some()
            || listed.len() + found.len() >= MAX_DIRECTORIES
            || self.at.elapsed() >= CHECKPOINT;
        // this time it could be listed
        if self.careful_until.as_ref().is_some_and(|until| self.current.as_ref() >= Some(until)) {
            self.careful_until = None;
        }
        if is_due { self.checkpoint(None, false) } else { Ok(()) }
    }

    /// The directory cannot be listed. Its names are discarded, and with them what was listed since
    /// the last checkpoint. If other directories were, they are listed again, each with a
    /// checkpoint, and the failure is noted when it comes again.
    fn failed(&mut self, reason: &str) -> Result<(), Error> {
        let Some(key) = self.current.clone() else { return Ok(()) };
        let is_first = self.since.listed.is_empty();
        self.discard()?;
        if is_first {
            if self.careful_until.as_ref() == Some(&key) {
                self.careful_until = None;
            }
            return self.checkpoint(Some((&key, reason)), false);
        }
        self.careful_until = Some(key);
        Ok(())
    }

    /// Goes back to the last checkpoint.
    fn discard(&mut self) -> Result<(), Error> {
        self.next_number = self.engine.begin_listing()?;
        self.entries.clear();
        (self.bytes, self.name_bytes) = (0, 0);
        (self.current, self.since) = (None, Since::default());
        Ok(())
    }

    fn checkpoint(
        &mut self,
        failed: Option<(&DirectoryKey, &str)>,
        is_complete: bool,
    ) -> Result<(), Error> {
        self.stage()?;
        let Since { listed, found, mut problems, more_problems, files, bytes, left_out, .. } =
            std::mem::take(&mut self.since);
        let found: Vec<_> = found.into_iter().collect();
        if more_problems > 0 {
            problems.push(format!("{more_problems} more names cannot be sent: they are too long"));
        }
        self.engine.checkpoint(&Checkpoint {
            listed: &listed,
            failed,
            found: &found,
            problems: &problems,
            next_number: self.next_number,
            files,
            bytes,
            left_out,
            is_complete,
        })?;
        self.at = Instant::now();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::path::Path;

    use super::*;
    use crate::engine::{Item, Step};
    use crate::job::Job;
    use crate::sqlite::Sqlite;

    const BATCH: Batch = Batch { files: 3, bytes: 100, range: u64::MAX };

    /// A folder with a tree and one with the state of a job about it.
    struct Ground(tempfile::TempDir);

    impl Ground {
        fn new() -> Self {
            let ground = tempfile::tempdir().expect("a folder");
            for folder in ["tree/a/b", "tree/empty", "tree/z", "state"] {
                fs::create_dir_all(ground.path().join(folder)).expect("a folder");
            }
            for (name, bytes) in [
                ("a/1", 10),
                ("a/2", 10),
                ("a/b/3", 60),
                ("a/b/4", 60),
                ("a/b/large", 500),
                ("a-b", 10),
                ("z/5", 10),
            ] {
                let path = ground.path().join("tree").join(name);
                fs::write(path, vec![b'x'; bytes]).expect("a file");
            }
            symlink("1", ground.path().join("tree/a/link")).expect("a link");
            symlink("/etc", ground.path().join("tree/z/out")).expect("a link");
            let text = "name = \"job\"\nfrom = \"tree\"\nto = \"host:\"\n";
            fs::write(ground.path().join("job.toml"), text).expect("a file");
            Self(ground)
        }

        fn engine(&self) -> Sqlite {
            let job = Job::read(&self.0.path().join("job.toml")).expect("a job");
            Sqlite::begin(&self.0.path().join("state"), &job, Path::new("job.toml"))
                .expect("a state")
        }

        fn root(&self) -> Root {
            Root::open(&self.0.path().join("tree")).expect("a folder")
        }

        fn list(&self, engine: &mut Sqlite) {
            list_folder(engine, &self.root(), BATCH, &Switch::default()).expect("it is listed");
        }
    }

    /// Takes all items; returns their paths.
    fn items(engine: &mut Sqlite) -> Vec<Vec<String>> {
        let take = || engine.take("one", 0).expect("an answer");
        let items = std::iter::from_fn(take).inspect(|item| assert_eq!(item.step, Step::Copy));
        let path = |entry: &Entry| entry.path.to_string();
        items.map(|item| item.entries.iter().map(path).collect()).collect()
    }

    #[test]
    fn directories_are_listed_in_the_order_of_a_walk_into_bounded_items() {
        let ground = Ground::new();
        let mut engine = ground.engine();
        ground.list(&mut engine);
        let counts = engine.counts(0).expect("counts");
        assert!(counts.is_listed);
        assert_eq!((counts.found_files, counts.found_bytes, counts.left_out), (7, 660, 1));
        let mut items = items(&mut engine);
        // the large file is an item of its own
        let large = vec!["a/b/large".to_owned()];
        let at = items.iter().position(|item| *item == large).expect("an item");
        items.remove(at);
        assert!(items.iter().all(|item| item.len() <= 3), "{items:?}");
        let is_of_60_bytes = |name: &&String| name.starts_with("a/b/");
        let is_small = |item: &Vec<String>| item.iter().filter(is_of_60_bytes).count() < 2;
        assert!(items.iter().all(is_small), "{items:?}");
        let paths: Vec<_> = items.concat();
        let expected =
            ["a", "a-b", "empty", "z", "a/1", "a/2", "a/b", "a/link", "a/b/3", "a/b/4", "z/5"];
        assert_eq!(paths, expected);
    }

    #[test]
    fn a_file_of_two_ranges_is_an_item_for_each_of_them() {
        let ground = Ground::new();
        let large = fs::File::create(ground.0.path().join("tree/huge")).expect("a file");
        large.set_len(5 << 20).expect("a hole");
        let mut engine = ground.engine();
        let batch = Batch { range: 2 << 20, ..BATCH };
        list_folder(&mut engine, &ground.root(), batch, &Switch::default()).expect("it is listed");
        assert_eq!(engine.counts(0).expect("counts").found_files, 8);
        let take = || engine.take("one", 0).expect("an answer");
        let is_range = |item: &Item| matches!(item.step, Step::Range(_));
        let ranges: Vec<_> = std::iter::from_fn(take).filter(is_range).collect();
        let bytes: Vec<_> = ranges
            .iter()
            .map(|Item { step, entries, .. }| match (step, entries.as_slice()) {
                (Step::Range(index), [entry]) if entry.path.as_bytes() == b"huge" => {
                    entry.range(*index)
                }
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(bytes, [0..2 << 20, 2 << 20..4 << 20, 4 << 20..5 << 20]);
    }

    #[test]
    fn a_complete_listing_is_never_repeated() {
        let ground = Ground::new();
        ground.list(&mut ground.engine());
        fs::write(ground.0.path().join("tree/new"), "new").expect("a file");
        let mut engine = ground.engine();
        ground.list(&mut engine);
        assert_eq!(engine.counts(0).expect("counts").found_files, 7);
        assert!(!items(&mut engine).concat().contains(&"new".to_owned()));
    }

    #[test]
    fn an_interrupted_listing_resumes_and_lists_nothing_twice() {
        // however many directories were listed, and of the next one some names
        for directories in 0..5 {
            for names in 0..4 {
                let ground = Ground::new();
                let (mut engine, root) = (ground.engine(), ground.root());
                let mut seen = BTreeSet::new();
                {
                    let mut lister = Lister::begin(&mut engine, BATCH).expect("it begins");
                    for n in 0..=directories {
                        let Some(directory) = lister.next().expect("an answer") else { break };
                        let mut listing = root.list(directory.as_ref()).expect("a folder");
                        let most = if n < directories { usize::MAX } else { names };
                        for found in listing.by_ref().take(most) {
                            let (name, metadata) = found.expect("a name");
                            let found = of_metadata(&metadata, || Some(b"1".to_vec()));
                            lister.add(&name, found).expect("it is added");
                        }
                        if n < directories {
                            lister.listed().expect("a checkpoint");
                        }
                    }
                }
                // killed: what workers have taken by then is not seen again
                for path in items(&mut engine).concat() {
                    assert!(seen.insert(path.clone()), "{path} twice");
                }
                drop(engine);
                let mut engine = ground.engine();
                ground.list(&mut engine);
                for path in items(&mut engine).concat() {
                    assert!(seen.insert(path.clone()), "{path} twice, after {directories}");
                }
                let files = seen.iter().filter(|path| path.ends_with(|c: char| c.is_ascii_digit()));
                assert_eq!(files.count(), 5, "{seen:?}");
                assert_eq!(engine.counts(0).expect("counts").found_files, 7);
            }
        }
    }

    #[test]
    fn a_directory_that_cannot_be_listed_is_set_aside_and_the_rest_is_listed() {
        let ground = Ground::new();
        let mut engine = ground.engine();
        {
            let mut lister = Lister::begin(&mut engine, BATCH).expect("it begins");
            let root = ground.root();
            while let Some(directory) = lister.next().expect("an answer") {
                let is_a = directory.as_ref().is_some_and(|path| path.as_bytes() == b"a");
                let mut listing = root.list(directory.as_ref()).expect("a folder");
                while let Some(found) = listing.next() {
                    let (name, metadata) = found.expect("a name");
                    let found = of_metadata(&metadata, || listing.target(&name));
                    lister.add(&name, found).expect("it is added");
                }
                match is_a {
                    true => lister.failed("a cannot be listed").expect("it is noted"),
                    false => lister.listed().expect("a checkpoint"),
                }
            }
        }
        let aside = engine.aside(10).expect("an answer");
        assert_eq!(aside.len(), 1);
        assert_eq!(aside[0].reason, "a cannot be listed");
        assert_eq!(engine.counts(0).expect("counts").found_files, 2);
        // the next run lists it, and nothing else
        engine.retry_aside().expect("an answer");
        ground.list(&mut engine);
        assert_eq!(engine.counts(0).expect("counts").found_files, 7);
        let paths = items(&mut engine).concat();
        let once: BTreeSet<_> = paths.iter().collect();
        assert_eq!(paths.len(), once.len(), "{paths:?}");
    }

    #[test]
    fn a_directory_that_fails_long_after_a_checkpoint_is_set_aside_and_ends_no_listing() {
        let ground = Ground::new();
        let (mut engine, root) = (ground.engine(), ground.root());
        // nothing fills an item
        let batch = Batch { files: 1000, bytes: 1 << 30, range: u64::MAX };
        {
            let mut lister = Lister::begin(&mut engine, batch).expect("it begins");
            let mut visits = 0;
            while let Some(directory) = lister.next().expect("an answer") {
                visits += 1;
                assert!(visits < 20, "it never ends");
                let mut listing = root.list(directory.as_ref()).expect("a folder");
                while let Some(found) = listing.next() {
                    let (name, metadata) = found.expect("a name");
                    let found = of_metadata(&metadata, || listing.target(&name));
                    lister.add(&name, found).expect("it is added");
                }
                match directory.is_some_and(|path| path.as_bytes() == b"a/b") {
                    true => lister.failed("a/b cannot be listed").expect("it is noted"),
                    false => lister.listed().expect("a checkpoint"),
                }
            }
        }
        let aside = engine.aside(10).expect("an answer");
        assert_eq!(aside.len(), 1);
        assert_eq!(aside[0].reason, "a/b cannot be listed");
        let counts = engine.counts(0).expect("counts");
        assert_eq!((counts.found_files, counts.left_out, counts.is_listed), (4, 1, true));
        let paths = items(&mut engine).concat();
        let once: BTreeSet<_> = paths.iter().collect();
        assert_eq!(paths.len(), once.len(), "{paths:?}");
    }

    #[test]
    fn a_server_that_lists_a_name_twice_or_elsewhere_is_refused() {
        let mtime = Time { seconds: 0, nanoseconds: 0 };
        let listed = |name: &str| {
            let path = RelPath::parse(name.as_bytes()).expect("a path");
            Listed { path, kind: ListedKind::File, size: 0, mode: 0, mtime, target: None }
        };
        let b = RelPath::single(b"b").expect("a name");
        assert!(check(None, &listed("a")).is_ok() && check(Some(&b), &listed("c")).is_ok());
        for name in ["a", "b", "c/d"] {
            let error = check(Some(&b), &listed(name)).expect_err(name).to_string();
            assert!(error.contains("violates the protocol"), "{error}");
        }
    }
}
