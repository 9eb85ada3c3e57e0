//! Objects, uploads in parts, markers of directories and listings, at each of the servers.

use std::thread;
use std::time::Duration;

use bytes::Bytes;
use headroom_store::{Condition, Error, Metadata, SPAN, UploadOffer};

use crate::servers::{KEYS, over_moto, run, run_at, run_over_moto, run_over_versitygw};
use crate::{MIB, names, open, runtime};

#[test]
fn objects_are_stored_read_and_removed() {
    run("objects::inside_objects", &KEYS);
}

#[test]
fn versitygw_stores_reads_and_removes_objects() {
    run_over_versitygw("objects::inside_objects");
}

#[test]
fn moto_stores_reads_and_removes_objects() {
    run_over_moto("objects::inside_objects");
}

#[test]
#[ignore = "run by objects_are_stored_read_and_removed"]
fn inside_objects() {
    let runtime = runtime();
    let store = open(&runtime);
    let mut metadata = Metadata::new();
    metadata.set("headroom-mtime", "1700000000.5").expect("metadata");
    metadata.set("mtime", "1700000000.5").expect("metadata");
    let content = Bytes::from((0..=255u8).cycle().take(3 * MIB).collect::<Vec<u8>>());
    let key = "d/ü %2F+?.txt";
    let first =
        store.put(key, content.clone(), &metadata, Condition::New).expect("the store does it");
    assert!(first.is_known());
    let object = store.look(key).expect("an answer").expect("it is there");
    assert_eq!(object.name, "ü %2F+?.txt");
    assert_eq!((object.size, &object.version), (content.len() as u64, &first));
    assert_eq!(object.metadata.as_ref(), Some(&metadata));
    assert_eq!(
        store.read(key, 5..MIB as u64, Some(&first)).expect("the store does it"),
        content.slice(5..MIB)
    );
    assert!(matches!(store.read(key, 0..4 << 20, None), Err(Error::Changed(_))));
    assert!(matches!(store.read(key, 4 << 20..5 << 20, None), Err(Error::Changed(_))));

    let write = |condition| store.put(key, Bytes::from_static(b"2"), &Metadata::new(), condition);
    assert!(matches!(write(Condition::New), Err(Error::Changed(_))));
    let second = write(Condition::Is(first.clone())).expect("the store does it");
    assert!(matches!(write(Condition::Is(first.clone())), Err(Error::Changed(_))));
    assert!(matches!(store.read(key, 0..1, Some(&first)), Err(Error::Changed(_))));
    assert_eq!(
        store.read(key, 0..1, Some(&second)).expect("the store does it"),
        Bytes::from_static(b"2")
    );

    store.copy(key, "d/copy", false).expect("the store does it");
    assert!(matches!(store.copy(key, "d/copy", false), Err(Error::Changed(_))));
    store.copy(key, "d/copy", true).expect("the store does it");
    assert_eq!(names(store.list("d")), ["copy", "ü %2F+?.txt"]);
    store.remove(key).expect("the store does it");
    store.remove(key).expect("the store does it");
    assert_eq!(store.look(key).expect("the store does it"), None);
    assert!(matches!(store.read(key, 0..1, None), Err(Error::NotFound(_))));
    assert_eq!(names(store.list_all("")), ["d/", "d/copy"]);
}

#[test]
fn large_objects_are_stored_in_parts() {
    run("objects::inside_parts", &KEYS);
}

#[test]
fn versitygw_stores_large_objects_in_parts() {
    run_over_versitygw("objects::inside_parts");
}

#[test]
fn moto_stores_large_objects_in_parts() {
    run_over_moto("objects::inside_parts");
}

#[test]
#[ignore = "run by large_objects_are_stored_in_parts"]
fn inside_parts() {
    let runtime = runtime();
    let store = open(&runtime);
    let mut metadata = Metadata::new();
    metadata.set("headroom-mode", "640").expect("metadata");
    let content = Bytes::from((0..=250u8).cycle().take(9 * MIB + 5).collect::<Vec<u8>>());
    let offer = UploadOffer { size: content.len() as u64, tag: [3; 16], metadata };
    let values = |part: &Bytes, fill| vec![[fill; 32]; part.len().div_ceil(SPAN as usize)];
    let (head, tail) = (content.slice(..8 * MIB), content.slice(8 * MIB..));
    let upload = store.begin_upload("big", &offer).expect("the store does it");
    upload.put_part(1, tail.clone(), values(&tail, 2)).expect("the store does it");
    drop(upload);
    assert_eq!(store.look("big").expect("the store does it"), None);

    let upload = store.begin_upload("big", &offer).expect("the store does it");
    assert_eq!(upload.values(1), Some(values(&tail, 2)));
    upload.put_part(0, head.clone(), values(&head, 1)).expect("the store does it");
    let version = upload.complete([9; 32], Condition::New).expect("the store does it");
    drop(upload);
    assert_eq!(
        store.read("big", 0..offer.size, Some(&version)).expect("the store does it"),
        content
    );
    let object = store.look("big").expect("an answer").expect("it is there");
    assert_eq!(object.metadata.expect("metadata").get("headroom-mode"), Some("640"));
    let record = store.record("big", &version).expect("an answer").expect("it is there");
    assert_eq!(record.values, [values(&head, 1), values(&tail, 2)].concat());
    assert_eq!(names(store.list("")), ["big"]);

    let upload = store.begin_upload("big", &offer).expect("the store does it");
    upload.put_part(0, head.clone(), values(&head, 1)).expect("the store does it");
    upload.put_part(1, tail.clone(), values(&tail, 2)).expect("the store does it");
    assert!(matches!(upload.complete([9; 32], Condition::New), Err(Error::Changed(_))));
    drop(upload);
    assert_eq!(store.abort_uploads(Duration::ZERO).expect("the store does it"), 1);
    assert_eq!(store.abort_uploads(Duration::ZERO).expect("the store does it"), 0);
    store.remove("big").expect("the store does it");
    assert_eq!(names(store.list("")), Vec::<String>::new());
}

#[test]
fn an_upload_is_completed_over_what_was_expected() {
    run("objects::inside_completions", &KEYS);
}

#[test]
fn versitygw_completes_an_upload_over_what_was_expected() {
    run_over_versitygw("objects::inside_completions");
}

/// moto ignores `If-Match` there: the store looks before it completes.
#[test]
fn moto_completes_an_upload_over_what_was_expected() {
    run_over_moto("objects::inside_completions");
}

#[test]
#[ignore = "run by an_upload_is_completed_over_what_was_expected"]
fn inside_completions() {
    let runtime = runtime();
    let store = open(&runtime);
    let put = |content: &'static [u8]| {
        let content = Bytes::from_static(content);
        store.put("a", content, &Metadata::new(), Condition::Any).expect("the store does it")
    };
    let offer = UploadOffer { size: 3, tag: [5; 16], metadata: Metadata::new() };
    let upload = store.begin_upload("a", &offer).expect("the store does it");
    let part = Bytes::from_static(b"new");
    upload.put_part(0, part.clone(), vec![[1; 32]]).expect("the store does it");
    let first = put(b"first");
    put(b"second");
    for condition in [Condition::New, Condition::Is(first)] {
        let complete = upload.complete([9; 32], condition);
        assert!(matches!(complete, Err(Error::Changed(_))), "{complete:?}");
    }
    upload.complete_over([9; 32]).expect("the store does it");
    assert_eq!(store.read("a", 0..3, None).expect("the store does it"), part);
}

/// moto compares no checksums, and says what it was sent.
#[test]
fn moto_is_sent_the_sha256_of_objects_and_parts() {
    over_moto(|moto, home| {
        moto.record();
        run_at(moto.address(), home, "objects::inside_checksums", &KEYS);
        let recording = moto.recording();
        // as `openssl dgst -sha256 -binary | base64` prints them
        for (target, sha256) in [
            ("/a/prefix/object\"", "xEsnM59Qfi5MgN2aqdQu90C8i2GecX86pFhi3ieHQok="),
            ("/a/prefix/upload?partNumber=1&", "NROuGjkIbConONqmMLni8wT0G1lFIo4HQaEXpQj8Ubk="),
        ] {
            let header = format!("\"X-Amz-Checksum-Sha256\": \"{sha256}\"");
            let mut requests = recording.lines().filter(|line| line.contains(target));
            assert!(requests.any(|line| line.contains(&header)), "{target}: {recording}");
        }
    });
}

#[test]
#[ignore = "run by moto_is_sent_the_sha256_of_objects_and_parts"]
fn inside_checksums() {
    let runtime = runtime();
    let store = open(&runtime);
    let (object, part) = (Bytes::from_static(b"an object"), Bytes::from_static(b"a part"));
    store.put("object", object, &Metadata::new(), Condition::New).expect("the store does it");
    let offer = UploadOffer { size: part.len() as u64, tag: [6; 16], metadata: Metadata::new() };
    let upload = store.begin_upload("upload", &offer).expect("the store does it");
    upload.put_part(0, part, vec![[1; 32]]).expect("the store does it");
    upload.complete([9; 32], Condition::New).expect("the store does it");
}

#[test]
fn markers_of_directories_are_taken() {
    run("objects::inside_markers", &KEYS);
}

#[test]
#[ignore = "run by markers_of_directories_are_taken"]
fn inside_markers() {
    let runtime = runtime();
    let store = open(&runtime);
    let mut metadata = Metadata::new();
    metadata.set("headroom-mode", "755").expect("metadata");
    store.put("e/", Bytes::new(), &metadata, Condition::Any).expect("the store does it");
    store.put("f/x", Bytes::new(), &metadata, Condition::Any).expect("the store does it");
    // this server makes directories of markers, and neither lists them nor keeps their metadata
    assert_eq!(store.look("e/").expect("an answer"), None);
    assert_eq!(store.look("f/").expect("an answer"), None);
    assert_eq!(store.look("g/").expect("an answer"), None);
    assert_eq!(store.look("e").expect("an answer"), None);
    assert_eq!(store.look("f").expect("an answer"), None);
    assert_eq!(store.requests().retried, 0);
    assert_eq!(names(store.list("")), ["f/"]);
    store.remove("e/").expect("the store does it");
    store.remove("f/").expect("the store does it");
    assert_eq!(names(store.list_all("")), ["f/", "f/x"]);
}

#[test]
fn versitygw_keeps_markers_of_directories_and_their_metadata() {
    run_over_versitygw("objects::inside_kept_markers");
}

#[test]
fn moto_keeps_markers_of_directories_and_their_metadata() {
    run_over_moto("objects::inside_kept_markers");
}

#[test]
#[ignore = "run by versitygw_keeps_markers_of_directories_and_their_metadata"]
fn inside_kept_markers() {
    let runtime = runtime();
    let store = open(&runtime);
    let mut metadata = Metadata::new();
    metadata.set("headroom-mode", "755").expect("metadata");
    store.put("e/", Bytes::new(), &metadata, Condition::New).expect("the store does it");
    store.put("f/x", Bytes::new(), &metadata, Condition::Any).expect("the store does it");
    let again = store.put("e/", Bytes::new(), &metadata, Condition::New);
    assert!(matches!(again, Err(Error::Changed(_))), "{again:?}");
    let marker = store.look("e/").expect("an answer").expect("it is there");
    assert_eq!((marker.size, marker.metadata.as_ref()), (0, Some(&metadata)));
    for missing in ["e", "f", "g/", "f/x/"] {
        assert_eq!(store.look(missing).expect("an answer"), None, "{missing}");
    }
    assert_eq!(names(store.list("")), ["e/", "f/"]);
    assert_eq!(names(store.list("e")), Vec::<String>::new());
    store.remove("e/").expect("the store does it");
    store.remove("f/x").expect("the store does it");
    assert_eq!(names(store.list_all("")), Vec::<String>::new());
    assert_eq!(store.requests().retried, 0);
}

#[test]
fn many_objects_are_listed_in_pages() {
    run("objects::inside_pages", &KEYS);
}

#[test]
fn versitygw_lists_many_objects_in_pages() {
    run_over_versitygw("objects::inside_pages");
}

#[test]
fn moto_lists_many_objects_in_pages() {
    run_over_moto("objects::inside_pages");
}

#[test]
#[ignore = "run by many_objects_are_listed_in_pages"]
fn inside_pages() {
    const MANY: usize = 1003;
    let runtime = runtime();
    let store = open(&runtime);
    thread::scope(|scope| {
        for first in 0..8 {
            let store = &store;
            scope.spawn(move || {
                for number in (first..MANY).step_by(8) {
                    let key = format!("many/{number:04}");
                    let metadata = Metadata::new();
                    store
                        .put(&key, Bytes::from_static(b"x"), &metadata, Condition::New)
                        .expect("the store does it");
                }
            });
        }
    });
    let expected: Vec<String> = (0..MANY).map(|number| format!("{number:04}")).collect();
    assert_eq!(names(store.list("many")), expected);
    assert_eq!(store.requests().put, MANY as u64);
    assert_eq!(store.requests().retried, 0);
}
