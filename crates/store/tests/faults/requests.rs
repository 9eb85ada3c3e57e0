//! What a store makes of single requests that fail, or whose answers are late, lost, cut or wrong.

use std::time::Duration;

use bytes::Bytes;
use headroom_store::{Condition, Error, FailureKind, Metadata, Patience, Version};

use crate::faulty::Fault;
use crate::{brisk, hashed, open, put, runtime};

#[test]
fn errors_of_the_store_are_repeated_and_counted() {
    let runtime = runtime();
    let (faulty, store) = open(&runtime);
    faulty.will("put", [Fault::Fails(FailureKind::Passing), Fault::Fails(FailureKind::Slow)]);
    put(&store, "a").expect("the store does it");
    let requests = store.requests();
    assert_eq!((requests.put, requests.retried, requests.slowed), (3, 2, 1));
    assert_eq!(requests.total(), 3);
}

#[test]
fn a_store_that_only_fails_is_unavailable() {
    let runtime = runtime();
    let (faulty, store) = open(&runtime);
    faulty.will("put", vec![Fault::Fails(FailureKind::Passing); 4]);
    let error = put(&store, "a").expect_err("it is refused");
    assert!(matches!(error, Error::Unavailable(_)), "{error}");
    assert!(error.is_passing());
    assert_eq!(
        error.to_string(),
        "cannot store \"a\" in memory://: HTTP 500 from the test, after 4 attempts. Repeat it later"
    );
    assert_eq!(store.requests().put, 4);
}

#[test]
fn a_refusal_is_final() {
    let runtime = runtime();
    let (faulty, store) = open(&runtime);
    faulty.will("put", [Fault::Fails(FailureKind::Refused)]);
    assert!(matches!(put(&store, "a"), Err(Error::Refused(_))));
    assert_eq!(store.requests().put, 1);
}

#[test]
fn a_late_answer_is_not_waited_for() {
    let runtime = runtime();
    let (faulty, store) = open(&runtime);
    let store = store.with_patience(Patience { attempt: Duration::from_millis(200), ..brisk() });
    faulty.will("put", [Fault::Late]);
    put(&store, "a").expect("the store does it");
    assert_eq!(store.requests().retried, 1);
}

#[test]
fn a_truncated_content_is_read_again() {
    let runtime = runtime();
    let (faulty, store) = open(&runtime);
    put(&store, "a").expect("the store does it");
    faulty.will("get", [Fault::Cut]);
    assert_eq!(store.read("a", 1..7, None).expect("the store does it"), &b"ontent"[..]);
    faulty.will("get", vec![Fault::Cut; 4]);
    assert!(matches!(store.read("a", 0..7, None), Err(Error::Unavailable(_))));
    assert_eq!(store.read("a", 3..3, None).expect("the store does it"), Bytes::new());
}

#[test]
fn another_version_and_another_length_are_noticed() {
    let runtime = runtime();
    let (faulty, store) = open(&runtime);
    let first = put(&store, "a").expect("the store does it");
    assert!(matches!(store.read("a", 0..8, None), Err(Error::Changed(_))));
    assert!(matches!(store.read("a", 8..9, None), Err(Error::Changed(_))));
    let wrong = Version::new(Some("\"wrong\"".to_owned()), None);
    faulty.will("get", [Fault::Wrong(wrong)]);
    assert!(matches!(store.read("a", 0..7, Some(&first)), Err(Error::Changed(_))));
    let second = put(&store, "a").expect("the store does it");
    assert!(matches!(store.read("a", 0..7, Some(&first)), Err(Error::Changed(_))));
    store.read("a", 0..7, Some(&second)).expect("the store does it");
    assert!(matches!(store.read("b", 0..7, None), Err(Error::NotFound(_))));
}

#[test]
fn conditions_keep_writers_apart() {
    let runtime = runtime();
    let (_, store) = open(&runtime);
    let content = Bytes::from_static(b"x");
    let write = |condition| store.put("a", content.clone(), &Metadata::new(), condition);
    let first = write(Condition::New).expect("the store does it");
    assert!(matches!(write(Condition::New), Err(Error::Changed(_))));
    let second = write(Condition::Is(first.clone())).expect("the store does it");
    assert!(matches!(write(Condition::Is(first)), Err(Error::Changed(_))));
    write(Condition::Is(second)).expect("the store does it");
}

#[test]
fn a_lost_answer_to_a_put_counts_when_the_hash_is_there() {
    let runtime = runtime();
    let (faulty, store) = open(&runtime);
    let content = Bytes::from_static(b"x");
    faulty.will("put", [Fault::Lost]);
    store.put("a", content.clone(), &hashed("1"), Condition::New).expect("the store does it");
    faulty.will("put", [Fault::Lost]);
    let unsure = store.put("b", content.clone(), &Metadata::new(), Condition::New);
    assert!(matches!(unsure, Err(Error::Changed(_))));
    // somebody else's
    store.put("c", content.clone(), &hashed("2"), Condition::Any).expect("the store does it");
    faulty.will("put", [Fault::Fails(FailureKind::Passing)]);
    let others = store.put("c", content, &hashed("1"), Condition::New);
    assert!(matches!(others, Err(Error::Changed(_))));
}
