//! What is listed, after interruptions and failures as well.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use headroom_transfer::{Listed, ListedKind, Time};

use super::*;
use crate::engine::{Item, Step};
use crate::entry::Entry;
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
        Sqlite::begin(&self.0.path().join("state"), &job, Path::new("job.toml")).expect("a state")
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
