//! Files that come in any order and any pieces, and get their names.

use std::fs;
use std::os::unix::fs::MetadataExt;

use headroom_transfer_proto::span::{Tree, Verification};
use proptest::prelude::*;

use super::super::ErrorKind;
use super::*;

#[test]
fn a_received_file_has_content_mode_and_time() {
    let (folder, root) = root();
    for (size, mode, fsync) in
        [(0, 0o644, false), (1, 0o600, true), (64 << 10, 0o4755, false), (MIB + 1, 0o400, true)]
    {
        let content = bytes(1, size);
        let mtime = Time { seconds: -5, nanoseconds: 999_999_999 };
        let seal = Seal { mode, mtime, fsync, ..seal(&content) };
        let name = path("file");
        let there = folder.path().join("file").exists();
        let stored = root.store(&name, &content, &seal).expect("stored");
        assert_eq!(stored.replaced, there);
        assert_eq!(fs::read(folder.path().join("file")).expect("a file"), content);
        let metadata = root.look(&name).expect("an answer").expect("a file");
        assert_eq!(
            (metadata.size, metadata.mode, metadata.mtime),
            (size as u64, mode & 0o777, mtime)
        );
        let metadata = fs::metadata(folder.path().join("file")).expect("a file");
        assert_eq!(metadata.mode() & 0o7000, 0, "a peer sets no set-user-ID bit");
        assert_eq!(names(folder.path()), [b"file"]);
    }
}

#[test]
fn an_incomplete_file_does_not_replace_the_old_one() {
    let (folder, root) = root();
    fs::write(folder.path().join("file"), "old").expect("a file");
    let content = bytes(2, 3 * MIB);
    let partial = root.begin(&path("file"), &offer(content.len())).expect("begun");
    for span in [2, 0] {
        write_span(&partial, span, &content);
        assert_eq!(fs::read(folder.path().join("file")).expect("a file"), b"old");
    }
    let error = partial.finish(&seal(&content)).expect_err("finished");
    assert_eq!(error.to_string(), "file cannot be stored: 1 of its 3 spans did not arrive");
    write_span(&partial, 1, &content);
    assert_eq!(partial.whole_spans(), 3);
    assert!(partial.finish(&seal(&content)).expect("finished").replaced);
    assert_eq!(fs::read(folder.path().join("file")).expect("a file"), content);
    // what comes late changes nothing
    partial.write_at(0, &bytes(3, MIB)).expect("passed over");
    assert_eq!(fs::read(folder.path().join("file")).expect("a file"), content);
    assert!(partial.finish(&seal(&content)).is_err(), "it has its name already");
}

#[test]
fn a_file_with_a_wrong_hash_gets_no_name_and_is_removed() {
    let (folder, root) = root();
    let content = bytes(4, 2 * MIB);
    let partial = root.begin(&path("file"), &offer(content.len())).expect("begun");
    let mut other = content.clone();
    other[MIB + 5] ^= 1;
    partial.write_at(0, &other).expect("written");
    let error = partial.finish(&seal(&content)).expect_err("finished");
    assert!(matches!(error.kind(), ErrorKind::Mismatch), "{error}");
    assert!(names(folder.path()).is_empty());
    let error = root.store(&path("file"), &other, &seal(&content)).expect_err("stored");
    assert!(matches!(error.kind(), ErrorKind::Mismatch), "{error}");
    assert!(names(folder.path()).is_empty());
}

#[test]
fn a_file_with_a_wrong_crc_gets_no_name_and_is_removed() {
    let (folder, root) = root();
    let content = bytes(4, 2 * MIB + 9);
    let spans = Spans::new(content.len() as u64).verified_by(Verification::Crc64);
    let mut tree = Tree::new(spans);
    for span in 0..spans.count() {
        let range = spans.range(span).expect("a span");
        let bytes = &content[range.start as usize..range.end as usize];
        tree.insert(span, spans.value(span, bytes).expect("all bytes"));
    }
    let seal = seal_of(tree.root().expect("all spans"));
    // small pieces from the end on, as datagrams that overtake each other bring them
    let receive = |content: &[u8]| {
        let mut partial = root.begin(&path("file"), &offer(content.len())).expect("begun");
        partial.set_verification(Verification::Crc64);
        for (n, piece) in content.chunks(7_000).enumerate().rev() {
            partial.write_at(n as u64 * 7_000, piece).expect("written");
        }
        assert_eq!(partial.came(), content.len() as u64);
        partial.finish(&seal)
    };
    let mut other = content.clone();
    other[MIB + 5] ^= 1;
    let error = receive(&other).expect_err("finished");
    assert!(matches!(error.kind(), ErrorKind::Mismatch), "{error}");
    assert!(names(folder.path()).is_empty());
    receive(&content).expect("finished");
    assert_eq!(std::fs::read(folder.path().join("file")).expect("a file"), content);
}

#[test]
fn bytes_behind_the_end_are_refused() {
    let (_folder, root) = root();
    let partial = root.begin(&path("file"), &offer(10)).expect("begun");
    for (offset, len) in [(10, 1), (0, 11), (9, 2), (u64::MAX, 1), (1 << 40, 1)] {
        let error = partial.write_at(offset, &vec![1; len]).expect_err("written");
        assert!(matches!(error.kind(), ErrorKind::BeyondEnd), "{error}");
        let error = partial.write_zeros(offset, len as u64).expect_err("written");
        assert!(matches!(error.kind(), ErrorKind::BeyondEnd), "{error}");
    }
    assert!(partial.write_zeros(1, u64::MAX).is_err());
    partial.write_at(10, &[]).expect("nothing is nowhere");
    assert_eq!(partial.whole_spans(), 0);
}

#[test]
fn sizes_that_no_disk_has() {
    let (folder, root) = root();
    let begin = |size, data| root.begin(&path("f"), &Offer { size, data, ..offer(0) });
    let error = begin(1 << 60, 1 << 60).expect_err("begun");
    assert!(
        matches!(error.kind(), ErrorKind::NoSpace { needed, .. } if *needed == 1 << 60),
        "{error}"
    );
    assert!(names(folder.path()).is_empty(), "nothing is left of it");
    let error = begin(u64::MAX, 0).expect_err("begun");
    assert!(matches!(error.kind(), ErrorKind::TooLarge(u64::MAX)), "{error}");
    assert!(names(folder.path()).is_empty(), "nothing is left of it");
    // all holes: the file system decides
    if let Err(error) = begin(i64::MAX as u64, 0) {
        assert!(matches!(error.kind(), ErrorKind::TooLarge(_)), "{error}");
    }
    assert!(names(folder.path()).is_empty(), "nothing is left of it");
    assert!(root.free_space().expect("an answer") > 0);
}

#[test]
fn a_file_is_received_by_four_threads_in_pieces() {
    let (folder, root) = root();
    let content = bytes(5, 8 * MIB + 333);
    for piece in [1400, 70_000, MIB, 3 * MIB] {
        let partial = root.begin(&path("file"), &offer(content.len())).expect("begun");
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let (partial, content) = (&partial, &content);
                scope.spawn(move || {
                    for (n, bytes) in content.chunks(piece).enumerate() {
                        // some pieces come to two threads
                        if n % 4 == thread || n % 5 == thread {
                            partial.write_at((n * piece) as u64, bytes).expect("written");
                        }
                    }
                });
            }
        });
        partial.finish(&seal(&content)).expect("finished");
        assert_eq!(fs::read(folder.path().join("file")).expect("a file"), content);
    }
}

#[test]
fn directories_get_mode_and_time_at_the_end() {
    let (folder, root) = root();
    root.make_directory(&path("d"), 0o500).expect("made");
    root.make_directory(&path("d"), 0o500).expect("it is there");
    root.store(&path("d/file"), b"x", &seal(b"x")).expect("stored");
    root.seal_directory(&path("d"), 0o2555, TIME, true, None).expect("sealed");
    let metadata = root.look(&path("d")).expect("an answer").expect("a directory");
    assert_eq!((metadata.mode, metadata.mtime), (0o2555, TIME));
    root.seal_directory(&path("d"), 0o755, TIME, false, None).expect("sealed");
    assert!(root.remove(&path("d")).is_err(), "it is not empty");
    let error = root.make_directory(&path("a/b"), 0o755).expect_err("made");
    assert!(matches!(error.kind(), ErrorKind::Missing), "{error}");
    assert_eq!(names(folder.path()), [b"d"]);
    let below = root.below(&path("d")).expect("a root");
    assert_eq!(below.path(), folder.path().join("d"));
    below.remove(&path("file")).expect("removed");
    root.remove(&path("d")).expect("removed");
}

#[test]
fn a_listing_is_sorted_and_without_unfinished_files() {
    let (folder, root) = root();
    for name in ["b", "a", "c"] {
        root.store(&path(name), name.as_bytes(), &seal(name.as_bytes())).expect("stored");
    }
    std::os::unix::fs::symlink("/etc", folder.path().join("link")).expect("a link");
    let partial = root.begin(&path("d"), &offer(5)).expect("begun");
    partial.write_at(0, b"x").expect("written");
    let listed: Vec<_> = root
        .list(None)
        .expect("a listing")
        .map(|found| {
            found.map(|(name, metadata)| (name.to_string(), metadata.file_type.to_string()))
        })
        .collect::<Result<_, _>>()
        .expect("names");
    let expected = [("a", "a file"), ("b", "a file"), ("c", "a file"), ("link", "a symbolic link")];
    assert_eq!(listed, expected.map(|(name, file_type)| (name.into(), file_type.into())));
    assert_eq!(root.list(None).expect("a listing").count(), 4);
    let error = root.list(Some(&path("none"))).expect_err("a listing");
    assert_eq!(error.to_string(), "none cannot be listed: there is no such file or directory",);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Whatever pieces come, again and overlapping and some of them wrong: a file
    /// that gets its name is the one that was sent.
    #[test]
    fn any_pieces_in_any_order(
        size in 1..3 * MIB,
        pieces in prop::collection::vec((any::<prop::sample::Index>(), 1..400_000_usize, 0..40_u8), 0..30),
        zeros in any::<bool>(),
    ) {
        let (folder, root) = root();
        let mut content = bytes(6, size);
        if zeros {
            content[size / 3..size / 2].fill(0);
        }
        let partial = root.begin(&path("file"), &offer(size)).expect("begun");
        let mut wrong = false;
        for (start, len, kind) in &pieces {
            let start = start.index(size);
            let end = size.min(start + len);
            let mut piece = content[start..end].to_vec();
            if *kind == 0 {
                piece[0] ^= 0x55;
                wrong = true;
            }
            if piece.iter().all(|byte| *byte == 0) {
                partial.write_zeros(start as u64, piece.len() as u64).expect("written");
            } else {
                partial.write_at(start as u64, &piece).expect("written");
            }
        }
        partial.write_at(0, &content).expect("written");
        match partial.finish(&seal(&content)) {
            Ok(_) => {
                prop_assert!(fs::read(folder.path().join("file")).expect("a file") == content);
            }
            Err(error) => {
                prop_assert!(wrong && matches!(error.kind(), ErrorKind::Mismatch), "{}", error);
                prop_assert!(names(folder.path()).is_empty());
            }
        }
    }
}
