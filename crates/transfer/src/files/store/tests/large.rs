//! Directories of many names.

use std::sync::Arc;

use headroom_transfer_proto::message::Links;

use super::*;
use crate::files::store::entries::Entries;
use crate::files::{self, Excludes, Extraneous, Found};

/// Names in the directory `d`.
const NAMES: usize = 50_000;

/// The most names that one level of a walk holds: those that wait for a directory that could come
/// before them, and those that are looked up. Beside them a listing has two pages of 1000.
const MAX_HELD: usize = 4096 + 200;

/// A store with names before which directories could come in another order than listed: `a` is
/// before `a-00000`, and its keys are listed after all of these.
fn large(runtime: &Handle, names: usize) -> Root {
    let root = root(runtime);
    for n in 0..names {
        let name = match n % 2 {
            0 => format!("d/a-{n:05}"),
            _ => format!("d/file.{n:05}.txt"),
        };
        put(&root.store, &name, b"x");
    }
    put(&root.store, "d/a/inner", b"x");
    root
}

#[test]
fn large_directories_are_walked_listed_and_compared_in_bounded_memory() {
    run(|runtime| {
        let root = large(runtime, NAMES);
        let before = root.requests();
        let mut listing = root.list(Some(&path("d"))).expect("a listing");
        let mut listed = Vec::new();
        while let Some(found) = listing.next() {
            listed.push(found.expect("a name").0);
            assert!(listing.held() <= MAX_HELD, "{} names", listing.held());
        }
        assert_eq!(listed.len(), NAMES + 1);
        assert!(listed.is_sorted());
        assert_eq!(listed[0], path("a"));

        let mut entries = Entries::open(&root, Some(path("d"))).expect("opened");
        let mut count = 0;
        while let Some((name, is_directory)) = entries.next().expect("a name") {
            assert_eq!(is_directory, name == path("d/a"));
            assert!(entries.held() <= MAX_HELD, "{} names", entries.held());
            count += 1;
        }
        assert_eq!(count, NAMES + 1);
        let requests = root.requests().since(&before);
        assert!(requests.total() < 200, "pages, and a few questions: {requests:?}");

        let links = Links::Keep;
        let mut source = super::super::Source::below(&root, [(Some(path("d")), true)], links);
        let mut found = 0;
        // each name is looked up
        while found < 6000
            && let Some(next) = source.next()
        {
            let Found { path, .. } = next.expect("found");
            assert!(source.held() <= 2 * MAX_HELD, "{} names at {path}", source.held());
            found += 1;
        }
        assert_eq!(found, 6000);
    });
}

#[test]
fn a_large_directory_is_compared_name_by_name() {
    run(|runtime| {
        let names = 10_000;
        let root = files::Root::Store(large(runtime, names));
        let before = root.requests().expect("a store");
        let excludes = Arc::new(Excludes::none());
        let mut extraneous = Extraneous::new(root.clone(), excludes).expect("begun");
        extraneous.pass(&path("d"), true).expect("in order");
        extraneous.pass(&path("d/a"), true).expect("in order");
        // every second name is there as well, and its files
        for n in (0..names).step_by(2).filter(|n| n % 1000 != 0) {
            extraneous.pass(&path(&format!("d/a-{n:05}")), false).expect("in order");
        }
        for n in (1..names).step_by(2) {
            extraneous.pass(&path(&format!("d/file.{n:05}.txt")), false).expect("in order");
        }
        let found = extraneous.finish().expect("compared");
        let expected = std::iter::once("d/a/inner".to_owned())
            .chain((0..names).step_by(1000).map(|n| format!("d/a-{n:05}")));
        assert_eq!(found, expected.map(|name| path(&name)).collect::<Vec<_>>());
        let requests = root.requests().expect("a store").since(&before);
        assert!(requests.total() < 100, "{requests:?}");
    });
}
