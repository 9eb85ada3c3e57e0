//! A disk that becomes full, and has room again.

use std::fs;
use std::io::Write;

use headroom_testing::privileged;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, unshare};

use super::super::ErrorKind;
use super::*;

#[test]
fn received_data_stays_when_the_disk_is_full() {
    if !privileged() {
        return;
    }
    // mounts of this thread alone, which end with it
    let disk = std::thread::spawn(|| {
        unshare(CloneFlags::CLONE_NEWNS).expect("a mount namespace");
        let nothing: Option<&str> = None;
        let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
        mount(nothing, "/", nothing, private, nothing).expect("private mounts");
        let (folder, _) = root();
        let disk = |flags, size| {
            mount(Some("tmpfs"), folder.path(), Some("tmpfs"), flags, Some(size)).expect("a disk");
        };
        disk(MsFlags::empty(), "size=3m");
        fill(folder.path(), || disk(MsFlags::MS_REMOUNT, "size=30m"));
        disk(MsFlags::MS_REMOUNT, "size=10m");
        fill_by_stream(folder.path());
        umount2(folder.path(), MntFlags::MNT_DETACH).expect("unmounted");
    });
    disk.join().expect("no panic");
}

/// What came from a pipe cannot be resumed, and is told so.
fn fill_by_stream(folder: &Path) {
    let root = Root::open(folder).expect("a root");
    let before = names(folder);
    let mut stream = root.create_stream_file(&path("piped")).expect("begun");
    let error = stream.write_all(&bytes(2, 8 * MIB)).expect_err("written");
    let error = stream.error(error);
    assert!(matches!(error.kind(), ErrorKind::FullOnce), "{error}");
    assert_eq!(
        error.to_string(),
        "piped cannot be stored: the disk is full; make room and send it again from the beginning",
    );
    drop(stream);
    assert_eq!(names(folder), before, "nothing stays");
}

fn fill(folder: &Path, make_room: impl Fn()) {
    let root = Root::open(folder).expect("a root");
    let content = bytes(1, 8 * MIB);
    let error = root.begin(&path("file"), &offer(8 * MIB)).expect_err("begun");
    assert!(matches!(error.kind(), ErrorKind::NoSpace { .. }), "{error}");
    assert!(names(folder).is_empty());
    // room that is gone when the bytes come
    let optimistic = Offer { data: 0, ..offer(8 * MIB) };
    let partial = root.begin(&path("file"), &optimistic).expect("begun");
    let error = partial.write_at(0, &content).expect_err("written");
    assert_eq!(
        error.to_string(),
        "file cannot be written: the disk is full; make room and repeat the command to resume",
    );
    let error = partial.finish(&seal(&content)).expect_err("finished");
    assert!(matches!(error.kind(), ErrorKind::Incomplete { .. }), "{error}");
    assert!(!folder.join("file").exists());
    let before = names(folder);
    let error = root.store(&path("small"), b"content", &seal(b"content")).expect_err("stored");
    assert!(matches!(error.kind(), ErrorKind::Full), "{error}");
    assert_eq!(names(folder), before, "nothing stays of a small file");
    // the same transfer can go on as well
    make_room();
    let half = &content[..4 * MIB];
    partial.write_at(0, half).expect("written");
    drop(partial);
    let mut partial = root.begin(&path("file"), &optimistic).expect("begun");
    let here = (0..8).filter(|span| {
        let bytes = &content[*span as usize * MIB..][..MIB];
        let value = partial.spans().value(*span, bytes);
        partial.present(*span).expect("an answer") == value
    });
    let here: Vec<_> = here.collect();
    assert_eq!(here, [0, 1, 2, 3]);
    partial.write_at(4 * MIB as u64, &content[4 * MIB..]).expect("written");
    partial.finish(&seal(&content)).expect("finished");
    assert_eq!(fs::read(folder.join("file")).expect("a file"), content);
}
