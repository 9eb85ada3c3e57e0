//! Transfers that end early, and the next ones that go on.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};

use super::super::{ErrorKind, temporary};
use super::*;

fn value(file: &[u8], span: u64) -> headroom_transfer_proto::span::ChainingValue {
    let spans = Spans::new(file.len() as u64);
    let range = spans.range(span).expect("a span");
    spans.value(span, &file[range.start as usize..range.end as usize]).expect("its bytes")
}

#[test]
fn existing_data_is_found_and_only_the_rest_is_written() {
    let (folder, root) = root();
    let content = bytes(1, 5 * MIB + 77);
    let begin = || root.begin(&path("file"), &offer(content.len())).expect("begun");
    let partial = begin();
    for span in [0, 3, 5] {
        write_span(&partial, span, &content);
    }
    // half of one, and the connection is gone
    partial.write_at(MIB as u64, &content[MIB..MIB + MIB / 2]).expect("written");
    drop(partial);
    assert_eq!(names(folder.path()).len(), 1, "what came stays");
    let mut partial = begin();
    let spans = partial.spans();
    let here: Vec<_> =
        (0..spans.count()).map(|span| partial.present(span).expect("an answer")).collect();
    assert_eq!(partial.present(6).expect("an answer"), None, "there is no such span");
    for span in [0, 3, 5] {
        assert_eq!(here[span as usize], Some(value(&content, span)), "span {span}");
        assert_eq!(partial.present(span).expect("an answer"), here[span as usize]);
    }
    assert_ne!(here[1], Some(value(&content, 1)), "half of it");
    assert_eq!((here[2], here[4]), (None, None), "nothing of them came");
    for span in [1, 2, 4] {
        write_span(&partial, span, &content);
    }
    assert_eq!(partial.present(2).expect("an answer"), None, "it came just now");
    partial.finish(&seal(&content)).expect("finished");
    assert_eq!(fs::read(folder.path().join("file")).expect("a file"), content);
    assert_eq!(names(folder.path()), [b"file"]);
}

#[test]
fn existing_data_is_always_hashed_again() {
    let (folder, root) = root();
    let content = bytes(2, 2 * MIB);
    let begin = || root.begin(&path("file"), &offer(content.len())).expect("begun");
    begin().write_at(0, &content).expect("written");
    // a disk that lost an byte
    let name = names(folder.path()).pop().expect("what came");
    assert!(temporary::is_temporary(&name));
    let name = folder.path().join(std::ffi::OsStr::from_bytes(&name));
    let file = File::options().write(true).open(&name).expect("what came");
    file.write_all_at(&[content[7] ^ 1], 7).expect("written");
    let mut partial = begin();
    assert_ne!(partial.present(0).expect("an answer"), Some(value(&content, 0)));
    assert_eq!(partial.present(1).expect("an answer"), Some(value(&content, 1)));
    write_span(&partial, 0, &content);
    partial.finish(&seal(&content)).expect("finished");
    assert_eq!(fs::read(folder.path().join("file")).expect("a file"), content);
    // a sender that says of a wrong span that it is right
    begin().write_at(0, &content).expect("written");
    let file = File::options().write(true).open(&name).expect("what came");
    file.write_all_at(&[content[7] ^ 1], 7).expect("written");
    let mut partial = begin();
    partial.present(0).expect("an answer");
    partial.present(1).expect("an answer");
    let error = partial.finish(&seal(&content)).expect_err("finished");
    assert!(matches!(error.kind(), ErrorKind::Mismatch), "{error}");
    assert_eq!(names(folder.path()), [b"file"]);
}

#[test]
fn another_offer_begins_anew() {
    let (folder, root) = root();
    let content = bytes(3, MIB);
    let offer = offer(MIB);
    root.begin(&path("file"), &offer).expect("begun").write_at(0, &content).expect("written");
    let later = Offer { mtime: Time { nanoseconds: 1, ..TIME }, ..offer };
    let mut partial = root.begin(&path("file"), &later).expect("begun");
    assert_eq!(partial.present(0).expect("an answer"), None);
    drop(partial);
    assert_eq!(names(folder.path()).len(), 1, "of that which got nothing, nothing stays");
}

#[test]
fn one_transfer_of_a_file_at_a_time() {
    let (folder, root) = root();
    let begin = || root.begin(&path("file"), &offer(5));
    let first = begin().expect("begun");
    let error = begin().expect_err("begun");
    assert!(matches!(error.kind(), ErrorKind::Busy), "{error}");
    assert_eq!(
        error.to_string(),
        "file cannot be stored: another transfer of the same file is in progress; wait until it has \
         ended",
    );
    first.write_at(0, b"after").expect("written");
    first.finish(&seal(b"after")).expect("finished");
    let second = begin().expect("begun: the first has ended");
    second.abandon().expect("removed");
    assert_eq!(names(folder.path()), [b"file"]);
}

/// Two that race: each file that gets the name is whole, whoever was first.
#[test]
fn transfers_of_one_file_from_many_threads() {
    let (folder, root) = root();
    let contents: Vec<_> = (0..4).map(|seed| bytes(seed, 100_000)).collect();
    let stored = std::thread::scope(|scope| {
        let threads: Vec<_> = contents
            .iter()
            .map(|content| {
                scope.spawn(|| {
                    (0..200)
                        .filter(|_| match root.store(&path("f"), content, &seal(content)) {
                            Ok(_) => true,
                            Err(error) => {
                                assert!(matches!(error.kind(), ErrorKind::Busy), "{error}");
                                false
                            }
                        })
                        .count()
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).sum::<usize>()
    });
    assert!(stored > 0);
    assert!(contents.contains(&fs::read(folder.path().join("f")).expect("a file")));
    assert_eq!(names(folder.path()), [b"f"]);
}

#[test]
fn spans_of_the_existing_file_are_reused() {
    let (folder, root) = root();
    let old = bytes(4, 4 * MIB + 10);
    fs::write(folder.path().join("file"), &old).expect("a file");
    let mut new = old.clone();
    new[MIB + 3] ^= 1;
    new.extend(bytes(5, MIB));
    let reuse = Offer { reuse: true, ..offer(new.len()) };
    let mut partial = root.begin(&path("file"), &reuse).expect("begun");
    let here: Vec<_> = (0..6).map(|span| partial.present(span).expect("an answer")).collect();
    for span in [0, 2, 3] {
        assert_eq!(here[span as usize], Some(value(&new, span)), "span {span}");
    }
    assert_eq!(here[1], Some(value(&old, 1)), "what the sender finds to be another");
    assert_eq!((here[4], here[5]), (None, None), "the old file has not all of them");
    for span in [1, 4, 5] {
        write_span(&partial, span, &new);
    }
    assert_eq!(fs::read(folder.path().join("file")).expect("a file"), old);
    partial.finish(&seal(&new)).expect("finished");
    assert_eq!(fs::read(folder.path().join("file")).expect("a file"), new);
    // to a shorter one, and not asked to take anything over
    let mut partial = root.begin(&path("file"), &offer(MIB)).expect("begun");
    assert_eq!(partial.present(0).expect("an answer"), None);
    drop(partial);
    let reuse = Offer { reuse: true, ..offer(MIB) };
    let mut partial = root.begin(&path("file"), &reuse).expect("begun");
    assert_eq!(partial.present(0).expect("an answer"), Some(value(&new[..MIB], 0)));
    partial.finish(&seal(&new[..MIB])).expect("finished");
    assert_eq!(fs::read(folder.path().join("file")).expect("a file"), new[..MIB]);
}

/// Zeros that come where an earlier transfer left something else.
#[test]
fn zeros_replace_existing_content() {
    let (folder, root) = root();
    let content = bytes(6, 2 * MIB);
    let begin = || root.begin(&path("file"), &offer(content.len())).expect("begun");
    begin().write_at(0, &content).expect("written");
    let partial = begin();
    partial.write_zeros(0, MIB as u64).expect("written");
    partial.write_at(MIB as u64, &vec![0; MIB]).expect("written");
    let zeros = vec![0; 2 * MIB];
    partial.finish(&seal(&zeros)).expect("finished");
    assert_eq!(fs::read(folder.path().join("file")).expect("a file"), zeros);
    assert!(fs::metadata(folder.path().join("file")).expect("a file").blocks() < 64);
}

/// Killed when it had its mode and not yet its name.
#[test]
fn an_unfinished_file_that_nobody_may_write_to() {
    let (folder, root) = root();
    let content = bytes(7, MIB);
    let begin = || root.begin(&path("file"), &offer(MIB)).expect("begun");
    begin().write_at(0, &content).expect("written");
    let name = names(folder.path()).pop().expect("what came");
    let name = folder.path().join(std::ffi::OsStr::from_bytes(&name));
    fs::set_permissions(name, fs::Permissions::from_mode(0o0)).expect("a mode");
    let partial = begin();
    partial.write_at(0, &content).expect("written");
    partial.finish(&seal(&content)).expect("finished");
    assert_eq!(names(folder.path()), [b"file"]);
}
