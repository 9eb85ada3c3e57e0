//! Uploads in parts of one writer: interrupted, continued, completed, dropped by the store.

use std::time::Duration;

use bytes::Bytes;
use headroom_store::{Backend, Condition, Error, FailureKind, Metadata};

use crate::faulty::Fault;
use crate::{SIZE, is_whole, offer, open, part, put, put_part, runtime};

#[test]
fn uploads_are_complete_only_when_whole() {
    let runtime = runtime();
    let (faulty, store) = open(&runtime);
    let upload = store.begin_upload("d/a", &offer(1)).expect("the store does it");
    assert_eq!((upload.parts(), upload.part_bytes(), upload.size()), (2, 8 << 20, SIZE));
    put_part(&upload, 1).expect("the store does it");
    let error = upload.complete([7; 32], Condition::Any).expect_err("it is refused");
    assert!(matches!(error, Error::Misuse(_)), "{error}");
    assert_eq!(store.look("d/a").expect("the store does it"), None);
    assert!(upload.put_part(0, Bytes::from_static(b"x"), vec![[0; 32]]).is_err());
    put_part(&upload, 0).expect("the store does it");
    let version = upload.complete([7; 32], Condition::New).expect("the store does it");
    drop(upload);
    assert!(is_whole(&store, "d/a"));
    let object = store.look("d/a").expect("an answer").expect("it is there");
    assert_eq!((object.size, &object.version), (SIZE, &version));
    assert_eq!(object.metadata.expect("metadata").get("headroom-blake3"), Some("later"));
    let record = store.record("d/a", &version).expect("an answer").expect("it is there");
    assert_eq!((record.size, record.root), (SIZE, [7; 32]));
    assert_eq!(record.values, [part(0).1, part(1).1].concat());
    // the object and its record
    assert_eq!(faulty.memory.keys().len(), 2, "{:?}", faulty.memory.keys());
    assert_eq!(faulty.memory.uploads(), 0);
}

#[test]
fn a_record_holds_for_one_version_and_goes_with_its_object() {
    let runtime = runtime();
    let (faulty, store) = open(&runtime);
    let mut plain = offer(1);
    plain.metadata = Metadata::new();
    let upload = store.begin_upload("a", &plain).expect("the store does it");
    put_part(&upload, 0).expect("the store does it");
    put_part(&upload, 1).expect("the store does it");
    let version = upload.complete([7; 32], Condition::Any).expect("the store does it");
    drop(upload);
    store.copy("a", "b", false).expect("the store does it");
    assert!(matches!(store.copy("a", "b", false), Err(Error::Changed(_))));
    let copied = store.look("b").expect("an answer").expect("it is there").version;
    assert_eq!(store.record("b", &copied).expect("an answer").expect("it is there").root, [7; 32]);
    assert_eq!(store.record("b", &version).expect("the store does it"), None);
    let changed = put(&store, "a").expect("the store does it");
    assert_eq!(store.record("a", &changed).expect("the store does it"), None);
    store.remove("a").expect("the store does it");
    store.remove("b").expect("the store does it");
    store.remove("b").expect("the store does it");
    assert_eq!(faulty.memory.keys(), Vec::<String>::new());
    assert!(matches!(store.copy("a", "b", true), Err(Error::NotFound(_))));
}

#[test]
fn an_upload_is_continued_where_it_was_left() {
    let runtime = runtime();
    let (_, store) = open(&runtime);
    let upload = store.begin_upload("a", &offer(1)).expect("the store does it");
    put_part(&upload, 1).expect("the store does it");
    drop(upload);
    // another content of the same name
    let other = store.begin_upload("a", &offer(2)).expect("the store does it");
    assert_eq!(other.values(1), None);
    other.abandon().expect("the store does it");
    drop(other);
    let upload = store.begin_upload("a", &offer(1)).expect("the store does it");
    assert_eq!(upload.values(0), None);
    assert_eq!(upload.values(1), Some(part(1).1));
    assert_eq!(upload.values(2), None);
    put_part(&upload, 0).expect("the store does it");
    upload.complete([7; 32], Condition::New).expect("the store does it");
    drop(upload);
    assert!(is_whole(&store, "a"));
    assert_eq!(store.requests().part, 2);
    assert_eq!(store.requests().create, 2);
}

#[test]
fn a_lost_answer_to_a_completion_is_a_completion() {
    let runtime = runtime();
    let (faulty, store) = open(&runtime);
    for (key, condition) in [("a", Condition::Any), ("b", Condition::New)] {
        let upload = store.begin_upload(key, &offer(1)).expect("the store does it");
        put_part(&upload, 0).expect("the store does it");
        put_part(&upload, 1).expect("the store does it");
        faulty.will("complete", [Fault::Lost]);
        let version = upload.complete([7; 32], condition).expect("the store does it");
        assert!(is_whole(&store, key));
        assert_eq!(store.look(key).expect("an answer").expect("it is there").version, version);
    }
    assert_eq!(store.requests().complete, 4);
}

#[test]
fn a_completion_that_nobody_saw_is_found_by_who_continues() {
    let runtime = runtime();
    let (faulty, store) = open(&runtime);
    let upload = store.begin_upload("a", &offer(1)).expect("the store does it");
    put_part(&upload, 0).expect("the store does it");
    put_part(&upload, 1).expect("the store does it");
    faulty.will("complete", [Fault::Lost]);
    faulty.will("complete", vec![Fault::Fails(FailureKind::Passing); 3]);
    faulty.will("head", vec![Fault::Fails(FailureKind::Passing); 4]);
    let error = upload.complete([7; 32], Condition::Any).expect_err("it is refused");
    assert!(matches!(error, Error::Unavailable(_)), "{error}");
    drop(upload);
    let upload = store.begin_upload("a", &offer(1)).expect("the store does it");
    assert_eq!(upload.values(0), Some(part(0).1));
    upload.complete([7; 32], Condition::New).expect("the store does it");
    drop(upload);
    assert!(is_whole(&store, "a"));
    assert_eq!(faulty.memory.keys().len(), 2, "{:?}", faulty.memory.keys());
}

#[test]
fn an_upload_may_outlive_the_runtime() {
    let runtime = runtime();
    let (_, store) = open(&runtime);
    let upload = store.begin_upload("a", &offer(1)).expect("the store does it");
    drop(runtime);
    drop(upload);
}

#[test]
fn an_upload_that_the_store_has_dropped_begins_again() {
    let runtime = runtime();
    let (faulty, store) = open(&runtime);
    let upload = store.begin_upload("a", &offer(1)).expect("the store does it");
    put_part(&upload, 0).expect("the store does it");
    faulty.will("part", [Fault::Fails(FailureKind::NotFound)]);
    assert!(matches!(put_part(&upload, 1), Err(Error::Gone(_))));
    assert!(matches!(put_part(&upload, 1), Err(Error::Gone(_))));
    drop(upload);
    let upload = store.begin_upload("a", &offer(1)).expect("the store does it");
    assert_eq!(upload.values(0), None);
    put_part(&upload, 0).expect("the store does it");
    put_part(&upload, 1).expect("the store does it");
    faulty.will("complete", [Fault::Fails(FailureKind::Invalid)]);
    let error = upload.complete([7; 32], Condition::Any).expect_err("it is refused");
    assert!(matches!(error, Error::Gone(_)), "{error}");
    drop(upload);
    assert_eq!(faulty.memory.keys(), Vec::<String>::new());
}

#[test]
fn a_lost_answer_to_a_journal_stops_nobody() {
    let runtime = runtime();
    let (faulty, store) = open(&runtime);
    faulty.will("put", [Fault::Lost]);
    let upload = store.begin_upload("a", &offer(1)).expect("the store does it");
    put_part(&upload, 0).expect("the store does it");
    faulty.will("put", [Fault::Lost]);
    // this writes the journal first
    put_part(&upload, 0).expect("the store does it");
    put_part(&upload, 0).expect("the store does it");
    put_part(&upload, 1).expect("the store does it");
    upload.complete([7; 32], Condition::New).expect("the store does it");
    assert!(is_whole(&store, "a"));
}

#[test]
fn a_damaged_journal_is_replaced() {
    let runtime = runtime();
    let (faulty, store) = open(&runtime);
    let upload = store.begin_upload("a", &offer(1)).expect("the store does it");
    let journal = faulty.memory.keys().remove(0);
    drop(upload);
    let damaged = Bytes::from_static(b"\x9f\xff\x00damaged");
    runtime
        .block_on(faulty.memory.put(&journal, damaged, &Metadata::new(), &Condition::Any))
        .expect("the store does it");
    let upload = store.begin_upload("a", &offer(1)).expect("the store does it");
    put_part(&upload, 0).expect("the store does it");
    put_part(&upload, 1).expect("the store does it");
    upload.complete([7; 32], Condition::New).expect("the store does it");
    assert!(is_whole(&store, "a"));
}

#[test]
fn uploads_that_nobody_continues_are_given_up() {
    let runtime = runtime();
    let (faulty, store) = open(&runtime);
    let left = store.begin_upload("a", &offer(1)).expect("the store does it");
    put_part(&left, 0).expect("the store does it");
    drop(left);
    let living = store.begin_upload("b", &offer(1)).expect("the store does it");
    assert_eq!(store.abort_uploads(Duration::from_secs(3600)).expect("the store does it"), 0);
    assert_eq!(faulty.memory.uploads(), 2);
    assert_eq!(store.abort_uploads(Duration::ZERO).expect("the store does it"), 1);
    assert_eq!(faulty.memory.uploads(), 1);
    living.abandon().expect("the store does it");
    drop(living);
    assert_eq!(faulty.memory.uploads(), 0);
    assert_eq!(faulty.memory.keys(), Vec::<String>::new());
}
