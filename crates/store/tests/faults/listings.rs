//! Listings in pages, which may fail, repeat themselves or have foreign names.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use headroom_store::{
    Backend, Condition, Error, FailureKind, Listed, Memory, Metadata, Page, Store, Version,
};

use crate::faulty::Fault;
use crate::{names, open, put, runtime};

#[test]
fn lists_page_by_page_in_order_of_keys() {
    let runtime = runtime();
    let memory = Arc::new(Memory::with_page(3));
    let backend = Arc::clone(&memory) as Arc<dyn Backend>;
    let store = Store::of(backend, "memory://", runtime.handle().clone());
    for key in ["d/x/1", "d-1", "d0", "d/a", "d", "e/", "f", "ü", "d/x/2", "d/"] {
        let metadata = Metadata::new();
        store.put(key, Bytes::new(), &metadata, Condition::New).expect("the store does it");
    }
    assert_eq!(names(store.list("")), ["d", "d-1", "d/", "d0", "e/", "f", "ü"]);
    assert_eq!(names(store.list("d")), ["a", "x/"]);
    assert_eq!(names(store.list("d/")), ["a", "x/"]);
    assert_eq!(names(store.below("d").list("x")), ["1", "2"]);
    assert_eq!(names(store.list("e")), Vec::<String>::new());
    assert_eq!(names(store.list("nothing")), Vec::<String>::new());
    assert_eq!(
        names(store.list_all("")),
        ["d", "d-1", "d/", "d/a", "d/x/", "d/x/1", "d/x/2", "d0", "e/", "f", "ü"]
    );
    assert_eq!(names(store.below("d").list_all("")), ["a", "x/", "x/1", "x/2"]);
    assert_eq!(store.below("d").url(), "memory://d");
    let requests = store.requests();
    assert!(requests.list > 10, "{requests:?}");
    assert_eq!(store.look("d/").expect("an answer").expect("it is there").name, "d");
}

fn listed(key: &str) -> Listed {
    Listed {
        key: key.to_owned(),
        size: 1,
        modified: SystemTime::UNIX_EPOCH,
        version: Version::unknown(),
    }
}

fn page(keys: &[&str], next: Option<&str>) -> Page {
    Page {
        objects: keys.iter().map(|key| listed(key)).collect(),
        prefixes: Vec::new(),
        next: next.map(str::to_owned),
    }
}

#[test]
fn endless_listings_end_with_an_error() {
    let runtime = runtime();
    let (faulty, store) = open(&runtime);
    faulty.will("list", [page(&["a"], Some("1")), page(&["a"], Some("2"))].map(Fault::Answers));
    let entries: Vec<_> = store.list("").collect();
    assert!(matches!(entries[..], [Ok(_), Err(Error::Reply(_))]), "{entries:?}");
    faulty.will("list", [page(&["a"], Some("1")), page(&["b"], Some("1"))].map(Fault::Answers));
    let last = store.list("").last().expect("an item");
    assert!(matches!(last, Err(Error::Reply(_))), "{last:?}");
    faulty.will("list", [page(&["b"], Some("1")), page(&["a"], None)].map(Fault::Answers));
    let last = store.list("").last().expect("an item");
    assert!(matches!(last, Err(Error::Reply(_))), "{last:?}");
    let journals = [".headroom/uploads/x"];
    let pages = [page(&journals, Some("1")), page(&journals, Some("2"))];
    faulty.will("list", pages.map(Fault::Answers));
    let error = store.abort_uploads(Duration::ZERO).expect_err("it is refused");
    assert!(matches!(error, Error::Reply(_)), "{error}");
    let empty = (0..2000).map(|number| Fault::Answers(page(&[], Some(&number.to_string()))));
    faulty.will("list", empty);
    let entries: Vec<_> = store.list("").collect();
    assert!(matches!(entries[..], [Err(Error::Reply(_))]), "{entries:?}");
}

#[test]
fn foreign_names_in_a_listing_are_refused() {
    let runtime = runtime();
    let (faulty, store) = open(&runtime);
    for key in ["x", "e/x", "d/x/y", "../d/x"] {
        faulty.will("list", [Fault::Answers(page(&[key], None))]);
        let entries: Vec<_> = store.list("d").collect();
        assert!(matches!(entries[..], [Err(Error::Reply(_))]), "{key}: {entries:?}");
    }
    // a name that no path has concerns one entry
    faulty.will("list", [Fault::Answers(page(&["d/..", "d/x"], None))]);
    let entries: Vec<_> = store.list("d").collect();
    assert!(matches!(entries[..], [Err(Error::Name(_)), Ok(_)]), "{entries:?}");
}

#[test]
fn a_listing_goes_on_after_an_error_that_passes() {
    let runtime = runtime();
    let (faulty, store) = open(&runtime);
    put(&store, "a").expect("the store does it");
    faulty.will("list", [Fault::Fails(FailureKind::Slow)]);
    assert_eq!(names(store.list("")), ["a"]);
}
