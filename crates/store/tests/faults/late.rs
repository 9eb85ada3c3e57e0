//! Requests that arrive after they were repeated, and after others have stored something newer.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use headroom_store::{
    Error, Expected, FailureKind, Metadata, Patience, Store, UploadOffer, Version,
};
use tokio::runtime::Runtime;

use crate::faulty::{Fault, Faulty};
use crate::{brisk, hashed, open, runtime};

/// Opens a store that does not wait long for an answer.
fn open_impatient(runtime: &Runtime, attempts: u32) -> (Arc<Faulty>, Store) {
    let (late, store) = open(runtime);
    let attempt = Duration::from_millis(500);
    (late, store.with_patience(Patience { attempts, attempt, ..brisk() }))
}

/// Stores a text in place of what is there.
fn replace(store: &Store, text: &'static str) -> Result<bool, Error> {
    let content = Bytes::from_static(text.as_bytes());
    let replaced = store.replace("a", content, &hashed(text), &Expected::Nothing)?;
    Ok(replaced.was_there)
}

fn content(store: &Store) -> Bytes {
    let size = store.look("a").expect("an answer").expect("an object").size;
    store.read_object("a", size, None).expect("its content").1
}

#[test]
fn a_late_put_of_a_new_object_replaces_nothing() {
    let runtime = runtime();
    let (late, store) = open_impatient(&runtime, 4);
    late.will("put", [Fault::Held]);
    assert!(!replace(&store, "old").expect("stored"), "nothing was there");
    assert!(replace(&store, "newer").expect("stored"));
    let arrived = runtime.block_on(late.arrive());
    assert_eq!(arrived.expect_err("it is too late").kind, FailureKind::Changed);
    assert_eq!(content(&store), "newer");
}

#[test]
fn a_late_put_in_place_of_an_object_replaces_no_newer_one() {
    let runtime = runtime();
    let (late, store) = open_impatient(&runtime, 4);
    replace(&store, "first").expect("stored");
    let expected = Expected::Version(store.look("a").expect("an answer").expect("a").version);
    late.will("put", [Fault::Held]);
    let second = Bytes::from_static(b"second");
    let stored = store.replace("a", second, &hashed("second"), &expected).expect("stored");
    assert!(stored.was_there);
    replace(&store, "third").expect("stored");
    let arrived = runtime.block_on(late.arrive());
    assert_eq!(arrived.expect_err("it is too late").kind, FailureKind::Changed);
    assert_eq!(content(&store), "third");
}

#[test]
fn a_put_that_failed_and_arrives_late_replaces_no_newer_object() {
    let runtime = runtime();
    let (late, store) = open_impatient(&runtime, 1);
    late.will("put", [Fault::Held]);
    assert!(matches!(replace(&store, "old"), Err(Error::Unavailable(_))));
    replace(&store, "newer").expect("stored");
    assert!(runtime.block_on(late.arrive()).is_err());
    assert_eq!(content(&store), "newer");
}

#[test]
fn what_is_believed_to_be_there_costs_requests_and_nothing_else() {
    let runtime = runtime();
    let (_, store) = open_impatient(&runtime, 4);
    let put = |text: &'static str, expected: &Expected| {
        let before = store.requests();
        let content = Bytes::from_static(text.as_bytes());
        let stored = store.replace("a", content, &hashed(text), expected).expect("stored");
        let requests = store.requests().since(&before);
        (stored.was_there, requests.put, requests.head)
    };
    let stale = Expected::Version(Version::new(Some("\"stale\"".to_owned()), None));
    assert_eq!(put("1", &Expected::Something), (false, 1, 1));
    assert_eq!(put("2", &Expected::Something), (true, 1, 1));
    assert_eq!(put("3", &Expected::Nothing), (true, 2, 1));
    assert_eq!(put("4", &stale), (true, 2, 1));
    assert_eq!(put("4", &Expected::Nothing), (true, 2, 1), "the same file is stored again");
    store.remove("a").expect("removed");
    assert_eq!(put("5", &stale), (false, 2, 1));
    store.remove("a").expect("removed");
    assert_eq!(put("6", &Expected::Nothing), (false, 1, 0));
    assert_eq!(content(&store), "6");
    let unknown = Expected::Version(Version::unknown());
    assert_eq!(put("7", &unknown), (true, 1, 0));
}

#[test]
fn a_late_completion_replaces_no_newer_object() {
    let runtime = runtime();
    let (late, store) = open_impatient(&runtime, 1);
    let offer = UploadOffer { size: 3, tag: [1; 16], metadata: Metadata::new() };
    let upload = store.begin_upload("a", &offer).expect("begun");
    let value = vec![[1; 32]];
    upload.put_part(0, Bytes::from_static(b"old"), value).expect("stored");
    late.will("complete", [Fault::Held]);
    assert!(matches!(upload.complete_over([1; 32]), Err(Error::Unavailable(_))));
    replace(&store, "newer").expect("stored");
    assert!(runtime.block_on(late.arrive()).is_err());
    assert_eq!(content(&store), "newer");
    // who asks once more replaces it
    upload.complete_over([1; 32]).expect("complete");
    assert_eq!(content(&store), "old");
}

#[test]
fn requests_of_one_user_are_counted_apart() {
    let runtime = runtime();
    let (_, store) = open_impatient(&runtime, 4);
    let (one, other) = (store.counted(), store.counted().below("d"));
    replace(&one, "text").expect("stored");
    assert_eq!(other.list("").count(), 0);
    let offer = UploadOffer { size: 1, tag: [0; 16], metadata: Metadata::new() };
    drop(other.begin_upload("b", &offer).expect("begun"));
    let (ones, others) = (one.own_requests(), other.own_requests());
    assert_eq!((ones.put, ones.total()), (1, 1), "{ones:?}");
    assert_eq!((others.list, others.create), (1, 1), "{others:?}");
    assert_eq!(store.requests().total(), ones.total() + others.total());
    assert_eq!(store.own_requests(), store.requests(), "it counts nothing apart");
}
