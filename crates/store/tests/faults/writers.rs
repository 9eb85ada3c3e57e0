//! Writers that meet: who stores one file at the same time, and what keeps them apart.

use std::time::{Duration, SystemTime};

use bytes::Bytes;
use headroom_store::{
    Backend, Condition, Error, FailureKind, Metadata, Page, Store, Upload, UploadOffer,
};
use tokio::runtime::Runtime;

use crate::faulty::{Conditions, Fault, Faulty};
use crate::{is_whole, offer, open, open_with, put, put_part, runtime};

/// Continues the only upload, of `a`, as if its writer had been silent for long: as soon as that
/// does not write just now.
fn take_over(faulty: &Faulty, store: &Store) -> Upload {
    let journal = faulty.memory.keys().remove(0);
    loop {
        let long_ago = SystemTime::now() - Duration::from_secs(61);
        faulty.memory.set_modified(&journal, long_ago);
        match store.begin_upload("a", &offer(1)) {
            Ok(upload) => return upload,
            Err(error) => assert!(matches!(error, Error::Busy(_)), "{error}"),
        }
    }
}

#[test]
fn the_condition_of_a_completion_is_checked() {
    let runtime = runtime();
    let (_, store) = open(&runtime);
    let upload = store.begin_upload("a", &offer(1)).expect("the store does it");
    put_part(&upload, 0).expect("the store does it");
    put_part(&upload, 1).expect("the store does it");
    let there = put(&store, "a").expect("the store does it");
    let error = upload.complete([7; 32], Condition::New).expect_err("it is refused");
    assert!(matches!(error, Error::Changed(_)), "{error}");
    upload.complete([7; 32], Condition::Is(there)).expect("the store does it");
    assert!(is_whole(&store, "a"));
}

#[test]
fn one_of_two_writers_is_told_that_the_other_is_busy() {
    let runtime = runtime();
    let (faulty, store) = open(&runtime);
    let first = store.begin_upload("a", &offer(1)).expect("the store does it");
    put_part(&first, 0).expect("the store does it");
    let error = store.begin_upload("a", &offer(1)).expect_err("it is refused");
    assert!(matches!(error, Error::Busy(_)), "{error}");
    assert!(error.is_passing());
    let second = take_over(&faulty, &store);
    // it replaces a part, and sees its journal in other hands
    let error = put_part(&first, 0).expect_err("it is refused");
    assert!(matches!(error, Error::Busy(_)), "{error}");
    assert!(matches!(put_part(&first, 1), Err(Error::Busy(_))));
    assert!(matches!(first.complete([7; 32], Condition::Any), Err(Error::Busy(_))));
    put_part(&second, 0).expect("the store does it");
    put_part(&second, 1).expect("the store does it");
    second.complete([7; 32], Condition::Any).expect("the store does it");
    drop(first);
    drop(second);
    assert!(is_whole(&store, "a"));
    assert_eq!(faulty.memory.keys().len(), 2, "{:?}", faulty.memory.keys());
}

#[test]
fn a_writer_that_lost_its_upload_leaves_the_next_one_alone() {
    let runtime = runtime();
    let (faulty, store) = open(&runtime);
    let first = store.begin_upload("a", &offer(1)).expect("the store does it");
    put_part(&first, 0).expect("the store does it");
    let second = take_over(&faulty, &store);
    faulty.will("part", [Fault::Fails(FailureKind::NotFound)]);
    assert!(matches!(put_part(&second, 1), Err(Error::Gone(_))));
    let third = store.begin_upload("a", &offer(1)).expect("the store does it");
    assert!(matches!(put_part(&first, 1), Err(Error::Busy(_))));
    assert!(matches!(first.abandon(), Err(Error::Busy(_))));
    drop(first);
    drop(second);
    put_part(&third, 0).expect("the store does it");
    put_part(&third, 1).expect("the store does it");
    third.complete([7; 32], Condition::New).expect("the store does it");
    assert!(is_whole(&store, "a"));
}

#[test]
fn a_writer_is_not_taken_for_dead_because_the_clock_of_the_store_is_behind() {
    let runtime = runtime();
    let (faulty, store) = open(&runtime);
    faulty.set_behind(Duration::from_secs(600));
    let upload = store.begin_upload("a", &offer(1)).expect("the store does it");
    let error = store.begin_upload("a", &offer(1)).expect_err("it is refused");
    assert!(matches!(error, Error::Busy(_)), "{error}");
    assert_eq!(store.abort_uploads(Duration::ZERO).expect("the store does it"), 0);
    // what told the time is gone
    assert_eq!(faulty.memory.keys().len(), 1, "{:?}", faulty.memory.keys());
    drop(upload);
}

#[test]
fn an_upload_is_not_given_up_early_because_the_clock_of_the_store_is_behind() {
    let runtime = runtime();
    let (faulty, store) = open(&runtime);
    faulty.set_behind(Duration::from_secs(7200));
    let upload = store.begin_upload("a", &offer(1)).expect("the store does it");
    put_part(&upload, 0).expect("the store does it");
    drop(upload);
    assert_eq!(store.abort_uploads(Duration::from_secs(3600)).expect("the store does it"), 0);
    assert_eq!(store.abort_uploads(Duration::ZERO).expect("the store does it"), 1);
    assert_eq!(faulty.memory.keys(), Vec::<String>::new());
}

#[test]
fn a_store_that_ignores_conditions_takes_no_uploads_in_parts() {
    let runtime = runtime();
    for (conditions, found) in [
        (Conditions::IgnoresNew, "ignores If-None-Match"),
        (Conditions::IgnoresIs, "ignores If-Match"),
    ] {
        let (careless, store) = open_with(&runtime, conditions);
        for _ in 0..2 {
            let error = store.begin_upload("a", &offer(1)).expect_err("it is refused");
            assert!(matches!(&error, Error::Refused(why) if why.contains(found)), "{error}");
        }
        assert_eq!(careless.memory.keys(), Vec::<String>::new());
        assert_eq!(careless.memory.uploads(), 0);
        // what has no other writer to fear is stored
        put(&store, "small").expect("the store does it");
    }
    let (_, store) = open_with(&runtime, Conditions::Honoured);
    drop(store.begin_upload("a", &offer(1)).expect("the store does it"));
    let before = store.requests();
    drop(store.begin_upload("b", &offer(1)).expect("the store does it"));
    // a trial alone stores four
    assert!(store.requests().put - before.put < 4, "it is tried once");
}

/// Begins an upload of `a` and leaves it to contributors; returns its nonce.
fn share(store: &Store) -> [u8; 16] {
    let upload = store.begin_upload("a", &offer(1)).expect("the store does it");
    upload.release().expect("the store does it");
    upload.nonce()
}

#[test]
fn joining_an_upload_that_is_taken_over_meanwhile_leaves_nothing() {
    let runtime = runtime();
    let (faulty, store) = open(&runtime);
    let nonce = share(&store);
    let main = faulty.memory.keys().remove(0);
    // the next write is the journal of the contributor, which has read that of the upload
    faulty.will("put", [Fault::Removes(main)]);
    let error = store.join_upload("a", &offer(1), nonce).expect_err("it is refused");
    assert!(matches!(error, Error::Gone(_)), "{error}");
    assert_eq!(faulty.memory.keys(), Vec::<String>::new());
}

#[test]
fn joining_an_upload_that_another_server_begins_at_the_same_time_is_tried_again() {
    let runtime = runtime();
    let (faulty, store) = open(&runtime);
    let nonce = share(&store);
    let main = faulty.memory.keys().remove(0);
    // before the journal of the contributor is written, another server takes the upload over, and
    // leaves it to contributors again
    faulty.will("put", [Fault::Copies(main.clone(), main.clone())]);
    let error = store.join_upload("a", &offer(1), nonce).expect_err("it is refused");
    assert!(matches!(error, Error::Busy(_)) && error.is_passing(), "{error}");
    assert_eq!(faulty.memory.keys(), [main]);
    drop(store.join_upload("a", &offer(1), nonce).expect("it takes part"));
}

#[test]
fn joining_an_upload_at_which_the_store_does_not_let_it_look_leaves_nothing() {
    let runtime = runtime();
    let (faulty, store) = open(&runtime);
    let nonce = share(&store);
    let before = faulty.memory.keys();
    faulty.will("head", [Fault::Fails(FailureKind::Refused)]);
    let error = store.join_upload("a", &offer(1), nonce).expect_err("it is refused");
    assert!(matches!(error, Error::Refused(_)), "{error}");
    assert_eq!(faulty.memory.keys(), before);
    // who knows no nonce need not wait until a journal is old
    drop(store.begin_upload("a", &offer(1)).expect("nobody takes part"));
}

#[test]
fn a_contributor_that_joins_while_its_upload_is_taken_over_is_stopped() {
    let runtime = runtime();
    let (faulty, store) = open(&runtime);
    let nonce = share(&store);
    let one = store.join_upload("a", &offer(1), nonce).expect("the store does it");
    put_part(&one, 0).expect("the store does it");
    drop(one);
    let keys = faulty.memory.keys();
    let [main, journal] = keys.as_slice() else { panic!("{keys:?}") };
    // the next write is that of the journal of the upload: those of contributors are listed
    faulty.will("put", [Fault::Copies(journal.clone(), format!("{main}.parts/late"))]);
    let whole = store.take_over_upload("a", &offer(1), nonce).expect("the store does it");
    assert!(whole.values(0).is_some() && whole.values(1).is_none());
    assert_eq!(faulty.memory.keys(), std::slice::from_ref(main));
    drop(whole);
}

/// A contributor stores on, others may take part, and what it has stored counts.
fn assert_goes_on(store: &Store, contributor: &Upload, nonce: [u8; 16]) {
    put_part(contributor, 0).expect("the store does it");
    contributor.release().expect("its journal is there");
    assert_eq!(store.find_released_upload("a", &offer(1)).expect("an answer"), Some(nonce));
    let whole = store.begin_upload("a", &offer(1)).expect("nobody is at work");
    assert!(whole.values(0).is_some() && whole.values(1).is_none());
}

#[test]
fn a_server_that_begins_does_not_stop_a_contributor_that_joined_meanwhile() {
    let runtime = runtime();
    let (faulty, store) = open(&runtime);
    let nonce = share(&store);
    let one = store.join_upload("a", &offer(1), nonce).expect("the store does it");
    // as if it had joined after the journals of contributors were listed
    faulty.will("list", [Fault::Answers(Page::default())]);
    let error = store.begin_upload("a", &offer(1)).expect_err("it is refused");
    assert!(matches!(error, Error::Busy(_)), "{error}");
    assert_goes_on(&store, &one, nonce);
}

#[test]
fn an_upload_that_a_contributor_joins_while_it_is_given_up_is_kept() {
    let runtime = runtime();
    let (faulty, store) = open(&runtime);
    let nonce = share(&store);
    let one = store.join_upload("a", &offer(1), nonce).expect("the store does it");
    let listed = runtime.block_on(faulty.memory.list(".headroom/uploads/", None));
    // as if it had joined after the journals of contributors were listed
    let pages = [listed.expect("a page"), Page::default()];
    faulty.will("list", pages.map(Fault::Answers));
    assert_eq!(store.abort_uploads(Duration::ZERO).expect("the store does it"), 0);
    assert_goes_on(&store, &one, nonce);
}

#[test]
fn an_upload_that_is_begun_while_journals_without_one_are_removed_keeps_its_contributor() {
    let runtime = runtime();
    let (faulty, store) = open(&runtime);
    let nonce = share(&store);
    let one = store.join_upload("a", &offer(1), nonce).expect("the store does it");
    let listed = runtime.block_on(faulty.memory.list(".headroom/uploads/", None));
    // as if it had been begun after all uploads were listed, and this one was looked for once
    let before = Page { objects: Vec::new(), ..listed.expect("a page") };
    faulty.will("list", [Fault::Answers(before)]);
    faulty.will("head", [Fault::Fails(FailureKind::NotFound)]);
    assert_eq!(store.abort_uploads(Duration::ZERO).expect("the store does it"), 0);
    put_part(&one, 0).expect("the store does it");
    one.release().expect("its journal is there");
}

#[test]
fn an_upload_is_left_to_contributors_again_when_nobody_can_tell_whether_one_joined() {
    let runtime = runtime();
    let (faulty, store) = open(&runtime);
    let nonce = share(&store);
    let listed = runtime.block_on(faulty.memory.list(".headroom/uploads/", None));
    let refused = || Fault::Fails(FailureKind::Refused);
    // contributors are listed before the journal of the upload is written, and not afterwards
    faulty.will("list", [Fault::Answers(Page::default()), refused()]);
    let error = store.begin_upload("a", &offer(1)).expect_err("it is refused");
    assert!(matches!(error, Error::Refused(_)), "{error}");
    assert_eq!(store.find_released_upload("a", &offer(1)).expect("an answer"), Some(nonce));
    let pages = [listed.expect("a page"), Page::default()];
    faulty.will("list", pages.map(Fault::Answers).into_iter().chain([refused()]));
    let error = store.abort_uploads(Duration::ZERO).expect_err("it is refused");
    assert!(matches!(error, Error::Refused(_)), "{error}");
    assert_eq!(store.find_released_upload("a", &offer(1)).expect("an answer"), Some(nonce));
}

#[test]
fn an_upload_is_given_up_although_the_answer_to_its_journal_was_lost() {
    let runtime = runtime();
    let (faulty, store) = open(&runtime);
    share(&store);
    // the first write only tells the store's time
    faulty.will("put", [Fault::Removes("nothing".to_owned()), Fault::Lost]);
    assert_eq!(store.abort_uploads(Duration::ZERO).expect("the store does it"), 1);
    assert_eq!(faulty.memory.uploads(), 0);
    assert_eq!(faulty.memory.keys(), Vec::<String>::new());
}

/// Stores something under the name of a contributor's journal; returns its key.
fn forge(runtime: &Runtime, faulty: &Faulty, name: &str, bytes: usize) -> String {
    let main = faulty.memory.keys().remove(0);
    let key = format!("{main}.parts/{name}");
    let (content, none) = (Bytes::from(vec![0; bytes]), Metadata::new());
    let stored = runtime.block_on(faulty.memory.put(&key, content, &none, &Condition::Any));
    stored.expect("the store does it");
    key
}

#[test]
fn journals_of_many_contributors_are_read_eight_at_once_and_decided_about_in_order() {
    let runtime = runtime();
    let (faulty, store) = open(&runtime);
    let nonce = share(&store);
    for n in 0..20 {
        let one = store.join_upload("a", &offer(1), nonce).expect("the store does it");
        match n {
            3 => put_part(&one, 0).expect("the store does it"),
            17 => put_part(&one, 1).expect("the store does it"),
            _ => {}
        }
    }
    assert_eq!(faulty.most_reading(), 1);
    // two that are too long for this upload, both among the first eight; one is damaged
    let long = ["0", "00"].map(|name| forge(&runtime, &faulty, name, 1 << 20));
    forge(&runtime, &faulty, "x", 10);
    let before = faulty.memory.keys();
    for key in &long {
        let error = store.take_over_upload("a", &offer(1), nonce).expect_err("it is refused");
        let names_it = |why: &str| why.starts_with(&format!("{key} in "));
        assert!(matches!(&error, Error::Reply(why) if names_it(why)), "{key}: {error}");
        let kept = faulty.memory.keys();
        assert!(before.iter().all(|key| long.contains(key) || kept.contains(key)), "{kept:?}");
        runtime.block_on(faulty.memory.delete(key)).expect("the store does it");
    }
    let requests = store.requests();
    let whole = store.take_over_upload("a", &offer(1), nonce).expect("the store does it");
    // that of the upload, and those beside it, once each
    assert_eq!(store.requests().get - requests.get, 1 + 21);
    assert_eq!(faulty.most_reading(), 8);
    assert!(whole.values(0).is_some() && whole.values(1).is_some());
    whole.complete_over([7; 32]).expect("the store does it");
    drop(whole);
    assert!(is_whole(&store, "a"));
}

#[test]
fn a_journal_that_is_too_long_to_be_read_concurrently_others_is_read_alone() {
    let runtime = runtime();
    let (faulty, store) = open(&runtime);
    // of 512 parts, whose journal may have 4.6 MiB
    let large = || UploadOffer { size: 4 << 30, ..offer(1) };
    let upload = store.begin_upload("a", &large()).expect("the store does it");
    upload.release().expect("the store does it");
    let nonce = upload.nonce();
    drop(upload);
    // both are damaged, which is no error
    forge(&runtime, &faulty, "0", 4_400_000);
    forge(&runtime, &faulty, "1", 10);
    let requests = store.requests();
    let whole = store.take_over_upload("a", &large(), nonce).expect("the store does it");
    assert_eq!(store.requests().get - requests.get, 1 + 2 + 1);
    assert_eq!(faulty.memory.keys().len(), 1, "{:?}", faulty.memory.keys());
    drop(whole);
    // one that no upload of this size has
    let key = forge(&runtime, &faulty, "0", 5_000_000);
    let error = store.take_over_upload("a", &large(), nonce).expect_err("it is refused");
    assert!(matches!(&error, Error::Reply(why) if why.starts_with(&key)), "{error}");
}
