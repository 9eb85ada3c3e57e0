//! What a store makes of answers that are errors, late, cut, wrong or old, as they come over a
//! connection. `tests/faults` has the same, and more, without one.
//!
//! No server makes them: moto's transitions of states concern restores from archives alone, and its
//! settings only relax what it requires. So a proxy does, before servers that answer differently.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use headroom_store::{Condition, Entry, Error, Metadata, Patience, SPAN, UploadOffer, Version};
use headroom_testing::{FaultyProxy, WireFault};

use crate::servers::{KEYS, over_moto, over_s3s_fs, over_versitygw, run_at};
use crate::{MIB, names, open, runtime};

/// A server is in trouble.
const ERROR: WireFault = WireFault::Answers(500, "InternalError");
/// A server asks for less.
const SLOW: WireFault = WireFault::Answers(503, "SlowDown");

/// Kinds of requests, and what happens to the next ones of each.
type Faults<'a> = &'a [(&'static str, &'a [WireFault])];

/// Runs an ignored test over `s3s-fs` behind a proxy that makes these faults, all of them.
fn run_with(test: &str, faults: Faults<'_>) {
    over_s3s_fs(|server, home| run_behind_proxy(server, home, test, faults));
}

/// Does the same over moto, where that is.
fn run_over_moto_with(test: &str, faults: Faults<'_>) {
    over_moto(|moto, home| run_behind_proxy(moto.address(), home, test, faults));
}

/// Runs an ignored test over a server behind a proxy.
fn run_behind_proxy(server: SocketAddr, home: &Path, test: &str, faults: Faults<'_>) {
    let proxy = FaultyProxy::start(server);
    for &(kind, faults) in faults {
        proxy.will(kind, faults.iter().copied());
    }
    run_at(proxy.address(), home, test, &KEYS);
    assert!(proxy.left().is_empty(), "{:?} did not happen", proxy.left());
}

fn hashed(content: &'static [u8]) -> (Bytes, Metadata) {
    let mut metadata = Metadata::new();
    metadata.set("headroom-blake3", blake3::hash(content).to_hex().as_str()).expect("metadata");
    (Bytes::from_static(content), metadata)
}

const REPEATED: Faults<'static> = &[
    ("list", &[SLOW, WireFault::Cut]),
    ("put", &[ERROR, SLOW, WireFault::Lost]),
    ("get", &[ERROR, SLOW, WireFault::Cut, WireFault::Lost]),
    ("head", &[WireFault::Nothing, ERROR, WireFault::Lost]),
    ("copy", &[SLOW, WireFault::Lost]),
    ("delete", &[ERROR, WireFault::Lost]),
];

#[test]
fn errors_lost_answers_and_cut_bodies_are_repeated() {
    run_with("faults::inside_repeated", REPEATED);
}

#[test]
fn errors_lost_answers_and_cut_bodies_of_moto_are_repeated() {
    run_over_moto_with("faults::inside_repeated", REPEATED);
}

#[test]
#[ignore = "run by errors_lost_answers_and_cut_bodies_are_repeated"]
fn inside_repeated() {
    let runtime = runtime();
    // its first listing comes after two attempts
    let store = open(&runtime);
    let (content, metadata) = hashed(b"stored once, whatever is lost");
    // the answer to what was stored is lost, and the question of the repeated put is answered
    let version =
        store.put("a", content.clone(), &metadata, Condition::New).expect("the store does it");
    let read = store.read("a", 0..content.len() as u64, Some(&version));
    assert_eq!(read.expect("the store does it"), content);
    let object = store.look("a").expect("an answer").expect("it is there");
    assert_eq!((&object.version, object.metadata.as_ref()), (&version, Some(&metadata)));
    store.copy("a", "b", true).expect("the store does it");
    store.remove("a").expect("the store does it");
    assert_eq!(names(store.list("")), ["b"]);
    let requests = store.requests();
    assert!(requests.retried >= 13 && requests.slowed >= 3, "{requests:?}");
}

const IN_PARTS: Faults<'static> = &[
    ("create", &[ERROR, SLOW]),
    ("part", &[SLOW, WireFault::Lost, ERROR]),
    ("complete", &[ERROR, WireFault::Lost]),
    ("abort", &[SLOW]),
];

#[test]
fn uploads_in_parts_survive_errors_and_lost_answers() {
    run_with("objects::inside_parts", IN_PARTS);
}

#[test]
fn uploads_in_parts_to_moto_survive_errors_and_lost_answers() {
    run_over_moto_with("objects::inside_parts", IN_PARTS);
}

#[test]
fn a_server_that_never_answers_is_not_waited_for() {
    run_with("faults::inside_silence", &[("get", &[WireFault::Silence])]);
}

#[test]
#[ignore = "run by a_server_that_never_answers_is_not_waited_for"]
fn inside_silence() {
    let runtime = runtime();
    let store = open(&runtime);
    let (content, metadata) = hashed(b"read in the end");
    store.put("a", content.clone(), &metadata, Condition::New).expect("the store does it");
    // a slow machine may miss this limit more than once
    let attempt = Duration::from_secs(3);
    let store = store.with_patience(Patience { attempt, attempts: 100, ..Patience::default() });
    let read = store.read("a", 0..content.len() as u64, None).expect("the store does it");
    assert_eq!(read, content);
    assert!(store.requests().retried >= 1);
}

#[test]
fn wrong_etags_are_noticed_before_content_is_used() {
    run_with(
        "faults::inside_wrong_etags",
        &[("put", &[WireFault::OtherEtag]), ("get", &[WireFault::Nothing, WireFault::OtherEtag])],
    );
}

#[test]
#[ignore = "run by wrong_etags_are_noticed_before_content_is_used"]
fn inside_wrong_etags() {
    let runtime = runtime();
    let store = open(&runtime);
    let (content, metadata) = hashed(b"of one version");
    let told = store.put("a", content.clone(), &metadata, Condition::New);
    let told = told.expect("the store does it");
    let read = |version: &Version| store.read("a", 0..content.len() as u64, Some(version));
    assert!(matches!(read(&told), Err(Error::Changed(_))), "no such version");
    let there = store.look("a").expect("an answer").expect("it is there").version;
    assert_ne!(there, told);
    assert!(matches!(read(&there), Err(Error::Changed(_))), "the answer is of another");
    assert_eq!(read(&there).expect("the store does it"), content);
    // what was never there is replaced by nothing
    let replace = store.put("a", content.clone(), &metadata, Condition::Is(told));
    assert!(matches!(replace, Err(Error::Changed(_))), "{replace:?}");
}

const WRONG_PART: Faults<'static> = &[("part", &[WireFault::OtherEtag])];

#[test]
fn a_wrong_etag_of_a_part_gives_no_wrong_object() {
    run_with("faults::inside_wrong_part", WRONG_PART);
}

#[test]
fn a_wrong_etag_of_a_part_gives_no_wrong_object_at_versitygw() {
    over_versitygw(|server, home| {
        run_behind_proxy(server, home, "faults::inside_wrong_part", WRONG_PART);
    });
}

#[test]
fn a_wrong_etag_of_a_part_gives_no_wrong_object_at_moto() {
    run_over_moto_with("faults::inside_wrong_part", WRONG_PART);
}

#[test]
#[ignore = "run by a_wrong_etag_of_a_part_gives_no_wrong_object"]
fn inside_wrong_part() {
    let runtime = runtime();
    let store = open(&runtime);
    let content = Bytes::from((0..=250u8).cycle().take(9 * MIB + 5).collect::<Vec<u8>>());
    let offer = UploadOffer { size: content.len() as u64, tag: [4; 16], metadata: Metadata::new() };
    let values = |part: &Bytes| vec![[1; 32]; part.len().div_ceil(SPAN as usize)];
    let (head, tail) = (content.slice(..8 * MIB), content.slice(8 * MIB..));
    let attempt = || {
        let upload = store.begin_upload("big", &offer).expect("the store does it");
        assert_eq!((upload.values(0), upload.values(1)), (None, None), "it begins");
        upload.put_part(0, head.clone(), values(&head)).expect("the store does it");
        upload.put_part(1, tail.clone(), values(&tail)).expect("the store does it");
        upload.complete([9; 32], Condition::New)
    };
    // a server that compares the ETags of parts refuses, and one that does not has the right ones
    if let Err(error) = attempt() {
        assert!(matches!(error, Error::Gone(_)), "{error}");
        assert_eq!(store.look("big").expect("an answer"), None);
        attempt().expect("the store does it");
    }
    let read = store.read("big", 0..offer.size, None).expect("the store does it");
    assert!(read == content);
    assert_eq!(store.abort_uploads(Duration::ZERO).expect("the store does it"), 0);
}

#[test]
fn an_old_listing_gives_errors_and_no_wrong_content() {
    // the first is that of opening the store
    let lists = [WireFault::Nothing, WireFault::Nothing, WireFault::Stale];
    run_with("faults::inside_old_listing", &[("list", &lists)]);
}

#[test]
#[ignore = "run by an_old_listing_gives_errors_and_no_wrong_content"]
fn inside_old_listing() {
    let runtime = runtime();
    let store = open(&runtime);
    let put = |key: &str, content: &'static [u8]| {
        let (content, metadata) = hashed(content);
        store.put(key, content, &metadata, Condition::Any).expect("the store does it")
    };
    put("replaced", b"a long content, once");
    put("removed", b"a content that is no more");
    assert_eq!(names(store.list("")), ["removed", "replaced"]);
    put("replaced", b"a short one");
    store.remove("removed").expect("the store does it");
    put("added", b"a new one");
    for entry in store.list("") {
        let Entry::Object(old) = entry.expect("an entry") else { panic!("a directory") };
        let read = store.read(&old.name, 0..old.size, Some(&old.version));
        match old.name.as_str() {
            "removed" => assert!(matches!(read, Err(Error::NotFound(_))), "{read:?}"),
            "replaced" => assert!(matches!(read, Err(Error::Changed(_))), "{read:?}"),
            other => panic!("{other} was listed too early"),
        }
    }
    // what it does not show is there
    assert!(store.look("added").expect("an answer").is_some());
    assert_eq!(names(store.list("")), ["added", "replaced"]);
}

#[test]
fn a_wrong_clock_is_named_and_is_final() {
    let skewed = WireFault::Answers(403, "RequestTimeTooSkewed");
    run_with("faults::inside_wrong_clock", &[("put", &[skewed])]);
}

#[test]
#[ignore = "run by a_wrong_clock_is_named_and_is_final"]
fn inside_wrong_clock() {
    let runtime = runtime();
    let store = open(&runtime);
    let (content, metadata) = hashed(b"of a machine with a wrong clock");
    let put = || store.put("a", content.clone(), &metadata, Condition::New);
    let error = put().expect_err("it is refused");
    assert!(matches!(&error, Error::Refused(why) if why.contains("the clock")), "{error}");
    assert_eq!(store.requests().put, 1);
    put().expect("the store does it");
}
