//! Files made from their old versions.

use std::fs;

use headroom_transfer_proto::message::{ChunkKind, ChunkSize};

use super::super::{ErrorKind, Links, Source, SourceKind};
use super::*;

fn begin(root: &Root, size: usize) -> Partial {
    root.begin(&path("file"), &Offer { reuse: true, ..offer(size) }).expect("begun")
}

#[test]
fn ranges_of_the_old_file_are_copied_to_other_offsets() {
    let (folder, root) = root();
    let old = bytes(1, 3 * MIB + 5);
    fs::write(folder.path().join("file"), &old).expect("a file");
    let new = [&b"inserted"[..], &old[..MIB], &old[MIB + 77..]].concat();
    let partial = begin(&root, new.len());
    assert_eq!(partial.old_size(), Some(old.len() as u64));
    let (start, behind) = (8, 8 + MIB as u64);
    assert_eq!(partial.copy_old(0, start, MIB as u64).expect("copied"), MIB as u64);
    assert_eq!(partial.write_at(0, b"inserted").expect("written"), 8);
    let len = (2 * MIB + 5 - 77) as u64;
    assert_eq!(partial.copy_old(MIB as u64 + 77, behind, len).expect("copied"), len);
    assert_eq!(partial.copy_old(0, start, 100).expect("copied"), 0, "they are there");
    assert_eq!(partial.came(), new.len() as u64);
    partial.finish(&seal(&new)).expect("finished");
    assert_eq!(fs::read(folder.path().join("file")).expect("a file"), new);
}

#[test]
fn a_long_range_is_copied_as_a_whole_or_fails() {
    let (folder, root) = root();
    let old = bytes(4, 19 * MIB + 7);
    fs::write(folder.path().join("file"), &old).expect("a file");
    let new = [&b"inserted"[..], &old].concat();
    let partial = begin(&root, new.len());
    assert_eq!(partial.write_at(0, b"inserted").expect("written"), 8);
    let len = old.len() as u64;
    assert_eq!(partial.copy_old(0, 8, len).expect("copied"), len);
    assert_eq!(partial.copy_old(0, 8, len).expect("nothing"), 0, "it is there");
    partial.finish(&seal(&new)).expect("finished");
    assert!(fs::read(folder.path().join("file")).expect("a file") == new);
    // it becomes shorter after it was opened
    let partial = begin(&root, new.len());
    fs::write(folder.path().join("file"), &old[..12 * MIB]).expect("a file");
    let error = partial.copy_old(0, 0, new.len() as u64).expect_err("it is shorter");
    assert!(matches!(error.kind(), ErrorKind::Shorter), "{error}");
}

#[test]
fn only_the_old_file_is_copied_and_within_both() {
    let (folder, root) = root();
    let none = begin(&root, MIB);
    assert_eq!(none.old_size(), None);
    let error = none.copy_old(0, 0, 1).expect_err("there is none");
    assert!(matches!(error.kind(), ErrorKind::Missing), "{error}");
    drop(none);
    fs::write(folder.path().join("file"), bytes(2, 1000)).expect("a file");
    let partial = begin(&root, MIB);
    for (from, to, len) in [
        (0, 0, 1001),
        (1000, 0, 1),
        (u64::MAX, 0, 1),
        (1, 0, u64::MAX),
        (0, MIB as u64, 1),
        (0, MIB as u64 - 9, 10),
        (0, u64::MAX, 1),
    ] {
        let error = partial.copy_old(from, to, len).expect_err("beyond an end");
        assert!(matches!(error.kind(), ErrorKind::BeyondEnd), "{from} {to} {len}: {error}");
    }
    assert_eq!(partial.copy_old(1000, MIB as u64, 0).expect("nothing"), 0);
    // it becomes shorter after it was opened
    fs::write(folder.path().join("file"), b"short").expect("a file");
    let error = partial.copy_old(0, 0, 1000).expect_err("it is shorter");
    assert!(matches!(error.kind(), ErrorKind::Shorter), "{error}");
}

#[test]
fn both_sides_describe_the_same_content_in_the_same_way() {
    let (folder, root) = root();
    let content = bytes(3, 2 * MIB + 9);
    fs::write(folder.path().join("file"), &content).expect("a file");
    let partial = begin(&root, MIB);
    let mut walk = Source::new([folder.path().join("file")], Links::default());
    let found = walk.next().expect("a name").expect("it can be sent");
    let SourceKind::File(source) = found.kind else { panic!("it is a file") };
    let reader = source.open().expect("it can be read");
    for kind in [ChunkKind::Block, ChunkKind::Chunk, ChunkKind::Group] {
        let (mut here, mut there) = (Vec::new(), Vec::new());
        let ranges = [7..MIB as u64, MIB as u64 + 1..2 * MIB as u64 + 9];
        let size = ChunkSize::MIN;
        let noted = reader.describe(&ranges, size, kind, |offset, chunk| {
            here.push((offset, chunk));
            true
        });
        noted.expect("described");
        let noted = partial.describe_old(&ranges, size, kind, |offset, chunk| {
            there.push((offset, chunk));
            true
        });
        noted.expect("described");
        assert!(!here.is_empty() && here == there);
    }
}
