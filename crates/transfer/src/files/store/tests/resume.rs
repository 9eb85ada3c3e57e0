//! Transfers that go on where earlier ones have ended.

use std::time::Instant;

use super::super::Partial;
use super::*;
use crate::files::{ErrorKind, PartialRole};

/// Longer than anything here takes, even on a busy machine.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

/// Begins a file as soon as the transfer before has let it go.
pub(super) fn begin(root: &Root, offer: &Offer) -> Partial {
    let began = Instant::now();
    loop {
        match root.begin(&path("f"), offer, 0o640) {
            Err(error) if matches!(error.kind(), ErrorKind::Busy) => {
                assert!(began.elapsed() < PATIENCE, "{error}");
                std::thread::sleep(Duration::from_millis(10));
            }
            begun => return begun.expect("begun"),
        }
    }
}

/// Waits until so many parts were stored since a count.
pub(super) fn wait_for_parts(root: &Root, before: u64, count: u64) {
    let began = Instant::now();
    while root.requests().part < before + count {
        assert!(began.elapsed() < PATIENCE, "parts are not stored");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn whole_parts_are_not_sent_again() {
    run(|runtime| {
        let root = root(runtime);
        let content = bytes(1, 20 * MIB);
        let partial = begin(&root, &offer(content.len()));
        // the second part, and some of the first
        write_spans(&partial, PART..2 * PART, &content);
        write_spans(&partial, [0, 3], &content);
        wait_for_parts(&root, 0, 1);
        drop(partial);
        // by another server
        let other = Root::new(root.store.clone(), &StoreOptions::default(), runtime.clone());
        let partial = begin(&other, &offer(content.len()));
        assert_eq!(present(&partial), (PART..2 * PART).collect::<Vec<_>>());
        write_spans(&partial, (0..PART).chain(2 * PART..20), &content);
        assert_eq!(partial.came(), 12 * MIB as u64);
        partial.finish(&seal(&content)).expect("finished");
        assert!(read(&root.store, "f") == content);
        assert_eq!(root.requests().part, 3);
        // the next offer finds the file, and nothing is sent or stored
        let partial = begin(&other, &offer(content.len()));
        assert_eq!(present(&partial).len(), 20);
        partial.finish(&seal(&content)).expect("it is there");
        assert_eq!(root.requests().part, 3);
    });
}

#[test]
fn several_transfers_store_parts_of_one_upload_and_one_takes_it_over() {
    run(|runtime| {
        let root = root(runtime);
        let content = bytes(1, 20 * MIB);
        let begin = |size: usize, role: PartialRole| {
            root.begin_shared(&path("f"), &offer(size), 0o640, role).expect("begun")
        };
        let begin_part = |role| begin(content.len(), role).expect("an upload");
        let first = begin_part(PartialRole::Begin);
        let name = first.upload().expect("a name");
        let others = [PartialRole::Join(name), PartialRole::JoinOrBegin].map(begin_part);
        let parts = [0..PART, PART..2 * PART, 2 * PART..20];
        for (partial, spans) in [first].iter().chain(&others).zip(parts) {
            assert_eq!(partial.upload(), Some(name));
            write_spans(partial, spans.clone(), &content);
            assert!(spans.clone().all(|span| partial.known(span).is_some()), "{spans:?}");
            partial.leave().expect("it is left");
        }
        let whole = begin_part(PartialRole::TakeOver(name));
        assert_eq!(present(&whole).len(), 20);
        whole.finish(&seal(&content)).expect("finished");
        assert!(read(&root.store, "f") == content);
        assert_eq!(root.requests().part, 3);

        // a file that has become small has no ranges, and is stored all the same
        for role in [PartialRole::Begin, PartialRole::Join(name), PartialRole::JoinOrBegin] {
            assert!(begin(MIB, role).is_none(), "{role:?}");
        }
        let small = begin(MIB, PartialRole::TakeOver(name)).expect("a partial file");
        assert_eq!(small.upload(), None);
        write_spans(&small, [0], &content[..MIB]);
        small.finish(&seal(&content[..MIB])).expect("finished");
        assert!(read(&root.store, "f") == content[..MIB]);
    });
}

#[test]
fn a_file_in_transfer_is_busy() {
    run(|runtime| {
        let root = root(runtime);
        let partial = begin(&root, &offer(9 * MIB));
        let error = root.begin(&path("f"), &offer(9 * MIB), 0o640).expect_err("begun");
        assert!(matches!(error.kind(), ErrorKind::Busy), "{error}");
        partial.abandon().expect("abandoned");
        drop(partial);
        begin(&root, &offer(9 * MIB));
    });
}

#[test]
fn spans_of_the_replaced_object_are_reused() {
    run(|runtime| {
        let root = root(runtime);
        let old = bytes(2, 20 * MIB);
        let partial = begin(&root, &offer(old.len()));
        partial.write_at(0, &old).expect("written");
        partial.finish(&seal(&old)).expect("finished");
        let mut new = old.clone();
        new[9 * MIB + 5] ^= 1;
        let mtime = Time { seconds: TIME.seconds + 1, ..TIME };
        let partial = begin(&root, &Offer { mtime, ..offer(new.len()) });
        assert_eq!(present(&partial).len(), 20, "the sender compares");
        write_spans(&partial, [9], &new);
        let stored = partial.finish(&Seal { mtime, ..seal(&new) }).expect("finished");
        assert!(stored.replaced);
        assert!(read(&root.store, "f") == new);
        let metadata = root.look(&path("f")).expect("an answer").expect("a file");
        assert_eq!(metadata.mtime, mtime);
    });
}

#[test]
fn parts_of_a_file_that_has_changed_are_discarded() {
    run(|runtime| {
        let root = root(runtime);
        let old = bytes(3, 20 * MIB);
        let partial = begin(&root, &offer(old.len()));
        write_spans(&partial, 0..PART, &old);
        wait_for_parts(&root, 0, 1);
        drop(partial);
        // another content with the same size and time
        let mut new = old.clone();
        new[MIB] ^= 1;
        let partial = begin(&root, &offer(new.len()));
        assert_eq!(present(&partial).len(), PART as usize);
        write_spans(&partial, [1].into_iter().chain(PART..20), &new);
        let error = partial.finish(&seal(&new)).expect_err("the other spans are not here");
        assert!(matches!(error.kind(), ErrorKind::StaleParts), "{error}");
        drop(partial);
        let partial = begin(&root, &offer(new.len()));
        assert!(present(&partial).is_empty());
        partial.write_at(0, &new).expect("written");
        partial.finish(&seal(&new)).expect("finished");
        assert!(read(&root.store, "f") == new);
    });
}

#[test]
fn old_uploads_are_given_up() {
    run(|runtime| {
        let root = root(runtime);
        let partial = begin(&root, &offer(9 * MIB));
        write_spans(&partial, 0..PART, &bytes(4, 9 * MIB));
        wait_for_parts(&root, 0, 1);
        assert_eq!(root.remove_unfinished(Duration::ZERO).removed, 0, "it is in use");
        drop(partial);
        let began = Instant::now();
        while root.remove_unfinished(Duration::ZERO).removed == 0 {
            assert!(began.elapsed() < PATIENCE, "it stays");
            std::thread::sleep(Duration::from_millis(10));
        }
        assert!(present(&begin(&root, &offer(9 * MIB))).is_empty());
    });
}
