//! Files that come into a store.

use std::io::Write;

use super::*;
use crate::files::{ErrorKind, FileType, Sent, Status};

#[test]
fn a_small_file_takes_one_request_in_a_new_directory() {
    run(|runtime| {
        let root = root(runtime);
        root.make_directory(&path("d")).expect("made");
        let before = root.requests();
        for n in 0..50 {
            let content = bytes(n, usize::from(n) * 100);
            let stored = root.store(&path(&format!("d/{n}")), &content, &seal(&content));
            stored.expect("stored");
        }
        let requests = root.requests().since(&before);
        assert_eq!((requests.put, requests.total()), (50, 50), "{requests:?}");
        assert_eq!(read(&root.store, "d/7"), bytes(7, 700));
        let metadata = root.look(&path("d/7")).expect("an answer").expect("a file");
        assert_eq!((metadata.size, metadata.mode, metadata.mtime), (700, 0o640, TIME));
        assert_eq!(metadata.file_type, FileType::File);
    });
}

#[test]
fn many_files_in_an_old_directory_take_few_requests_more() {
    run(|runtime| {
        let root = root(runtime);
        put(&root.store, "d/sub/x", b"x");
        put(&root.store, "d/y", b"y");
        let before = root.requests();
        for n in 0..200 {
            root.store(&path(&format!("d/{n}")), b"content", &seal(b"content")).expect("stored");
        }
        let requests = root.requests().since(&before);
        assert_eq!(requests.put, 200);
        assert!(requests.total() < 250, "{requests:?}");
        let error = root.store(&path("d/sub"), b"", &seal(b"")).expect_err("stored");
        assert!(matches!(error.kind(), ErrorKind::Clash { here: FileType::Directory }), "{error}");
    });
}

#[test]
fn files_do_not_replace_directories_nor_lie_below_files() {
    run(|runtime| {
        let root = root(runtime);
        put(&root.store, "d/x", b"x");
        put(&root.store, "f", b"f");
        let store = |name: &str| root.for_transfer().store(&path(name), b"new", &seal(b"new"));
        let error = store("d").expect_err("stored");
        assert_eq!(
            error.to_string(),
            "d cannot be stored: a directory is here under that name; remove or rename it first"
        );
        let error = store("f/x").expect_err("stored");
        assert!(matches!(error.kind(), ErrorKind::NotBeneath), "{error}");
        let error = root.make_directory(&path("f")).expect_err("made");
        assert!(matches!(error.kind(), ErrorKind::Clash { here: FileType::File }), "{error}");
        store("f").expect("it is replaced");
        assert_eq!(read(&root.store, "f"), b"new");
        let large = bytes(1, 9 * MIB);
        let error = root.begin(&path("d"), &offer(large.len()), 0o644).expect_err("begun");
        assert!(matches!(error.kind(), ErrorKind::Clash { .. }), "{error}");
    });
}

#[test]
fn names_that_a_store_cannot_hold_fail_clearly() {
    run(|runtime| {
        let root = root(runtime);
        let long = ["n".repeat(250).as_str(); 5].join("/");
        let not_text = RelPath::parse(b"\xff").expect("a path");
        let names = [path(&long), path("a\nb"), path(".headroom/uploads"), not_text];
        for name in names.iter().chain([&path(".x.0.headroom-part")]) {
            let error = root.store(name, b"x", &seal(b"x")).expect_err("stored");
            assert!(error.to_string().len() > 40, "{error}");
            assert!(root.begin(name, &offer(9 * MIB), 0o644).is_err(), "{name}");
            assert!(root.make_directory(name).is_err(), "{name}");
            let sent = Sent::File { size: 1, mode: 0, mtime: TIME, hash: None, attributes: None };
            // then it is stored, and that fails
            if let Ok(status) = root.compare(name, &sent) {
                assert_eq!(status, Status::Missing, "{name}");
            }
        }
        assert_eq!(root.requests().put, 0, "nothing was stored");
    });
}

#[test]
fn a_file_that_is_not_the_sender_s_is_not_stored() {
    run(|runtime| {
        let root = root(runtime);
        let error = root.store(&path("f"), b"one", &seal(b"other")).expect_err("stored");
        assert!(matches!(error.kind(), ErrorKind::Mismatch), "{error}");
        for size in [3 * MIB, 17 * MIB + 5] {
            let content = bytes(2, size);
            let partial = root.begin(&path("f"), &offer(size), 0o644).expect("begun");
            let spans = partial.spans().count();
            write_spans(&partial, 1..spans, &content);
            let error = partial.finish(&seal(&content)).expect_err("finished");
            assert!(matches!(error.kind(), ErrorKind::Incomplete { missing: 1, .. }), "{error}");
            let mut other = content.clone();
            other[7] ^= 1;
            write_spans(&partial, [0], &other);
            let error = partial.finish(&seal(&content)).expect_err("finished");
            assert!(matches!(error.kind(), ErrorKind::Mismatch), "{error}");
        }
        assert!(root.look(&path("f")).expect("an answer").is_none());
    });
}

#[test]
fn a_file_of_several_parts_comes_in_any_order_from_several_threads() {
    run(|runtime| {
        let root = root(runtime);
        let content = bytes(3, 19 * MIB + 777);
        let partial = root.begin(&path("f"), &offer(content.len()), 0o640).expect("begun");
        assert!(present(&partial).is_empty());
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let (partial, content) = (&partial, &content);
                scope.spawn(move || {
                    for (n, bytes) in content.chunks(70_000).enumerate() {
                        // some pieces come to two threads
                        if n % 4 == thread || n % 5 == thread {
                            partial.write_at(n as u64 * 70_000, bytes).expect("written");
                        }
                    }
                });
            }
        });
        partial.finish(&seal(&content)).expect("finished");
        assert!(read(&root.store, "f") == content);
        let requests = root.requests();
        assert_eq!((requests.part, requests.complete), (3, 1), "{requests:?}");
        let metadata = root.look(&path("f")).expect("an answer").expect("a file");
        assert_eq!((metadata.mode, metadata.mtime), (0o640, TIME));
        assert_eq!(partial.came(), content.len() as u64);
    });
}

#[test]
fn zeros_and_empty_files_are_stored() {
    run(|runtime| {
        let root = root(runtime);
        for size in [0, 1, 2 * MIB, 18 * MIB] {
            let partial = root.begin(&path("f"), &offer(size), 0o644).expect("begun");
            partial.write_zeros(0, size as u64).expect("written");
            partial.finish(&seal(&vec![0; size])).expect("finished");
            assert!(read(&root.store, "f") == vec![0; size], "{size}");
        }
    });
}

#[test]
fn sizes_that_no_store_has_are_refused() {
    run(|runtime| {
        let root = root(runtime);
        for size in [u64::MAX, 1 << 62, 60 << 40] {
            let offer = Offer { size, ..offer(0) };
            let error = root.begin(&path("f"), &offer, 0o644).expect_err("begun");
            assert!(error.to_string().starts_with("f cannot be stored: "), "{error}");
        }
    });
}

#[test]
fn what_is_read_back_and_is_wrong_is_removed() {
    run(|runtime| {
        let options = StoreOptions { read_back: true, ..StoreOptions::default() };
        let root = Root::new(store(runtime), &options, runtime.clone());
        for size in [0, 100, 9 * MIB] {
            let content = bytes(4, size);
            let before = root.requests();
            let partial = root.begin(&path("f"), &offer(size), 0o644).expect("begun");
            partial.write_at(0, &content).expect("written");
            partial.finish(&seal(&content)).expect("finished");
            let reads = root.requests().since(&before).get;
            assert!(size == 0 || reads >= size.div_ceil(8 * MIB) as u64, "{reads}");
        }
        let object = root.object("f").expect("an answer").expect("an object");
        let wrong = root.read_back("f", object.size, &object.version, &blake3::hash(b"other"));
        assert!(matches!(wrong, Err(ErrorKind::ReadBack)));
        assert!(root.object("f").expect("an answer").is_none());
    });
}

#[test]
fn a_stream_is_stored_when_its_end_has_come() {
    run(|runtime| {
        let root = root(runtime);
        for size in [0, 5, 8 * MIB, 20 * MIB + 1] {
            let content = bytes(5, size);
            let mut file = root.create_stream_file(&path("s/file")).expect("begun");
            for piece in content.chunks(100_000) {
                file.write_all(piece).expect("written");
            }
            drop(root.create_stream_file(&path("s/other")).expect("begun"));
            file.finish().expect("stored");
            assert!(read(&root.store, "s/file") == content, "{size}");
        }
        let metadata = root.look(&path("s/file")).expect("an answer").expect("a file");
        assert_eq!(metadata.mode, 0o644);
        assert!(root.look(&path("s/other")).expect("an answer").is_none());
    });
}
