//! A spool whose disk becomes full, and has room again.

use std::path::Path;
use std::time::Instant;

use headroom_testing::privileged;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, unshare};

use super::resume::{PATIENCE, begin, wait_for_parts};
use super::*;
use crate::files::ErrorKind;

#[test]
fn a_full_spool_fails_a_file_and_loses_no_part_of_it() {
    if !privileged() {
        return;
    }
    // mounts of this thread and those that it starts, which end with them
    let disk = std::thread::spawn(|| {
        unshare(CloneFlags::CLONE_NEWNS).expect("a mount namespace");
        let nothing: Option<&str> = None;
        let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
        mount(nothing, "/", nothing, private, nothing).expect("private mounts");
        let folder = tempfile::tempdir().expect("a folder");
        let disk = |flags, size: &str| {
            mount(Some("tmpfs"), folder.path(), Some("tmpfs"), flags, Some(size)).is_ok()
        };
        assert!(disk(MsFlags::empty(), "size=12m"));
        run(|runtime| fill(runtime, folder.path(), |size| disk(MsFlags::MS_REMOUNT, size)));
        umount2(folder.path(), MntFlags::MNT_DETACH).expect("unmounted");
    });
    disk.join().expect("no panic");
}

fn fill(runtime: &Handle, folder: &Path, resize: impl Fn(&str) -> bool) {
    let options = StoreOptions { spool: Some(folder.to_owned()), ..StoreOptions::default() };
    let root = Root::new(store(runtime), &options, runtime.clone());
    let content = bytes(6, 20 * MIB);
    let partial = begin(&root, &offer(content.len()));
    write_spans(&partial, 0..PART, &content);
    wait_for_parts(&root, 0, 1);
    // a disk cannot become smaller than what is on it: the part has left the spool
    let began = Instant::now();
    while !resize("size=1m") {
        assert!(began.elapsed() < PATIENCE, "the spool keeps a part that is stored");
        std::thread::sleep(Duration::from_millis(10));
    }
    let error = partial.write_at(8 * MIB as u64, &content[8 * MIB..12 * MIB]);
    assert_eq!(
        error.expect_err("written").to_string(),
        "f cannot be written: the disk is full; make room and repeat the command to resume",
    );
    let error = partial.finish(&seal(&content)).expect_err("finished");
    assert!(matches!(error.kind(), ErrorKind::Incomplete { .. }), "{error}");
    assert!(root.look(&path("f")).expect("an answer").is_none());
    drop(partial);
    assert!(resize("size=30m"));
    let partial = begin(&root, &offer(content.len()));
    assert_eq!(present(&partial), (0..PART).collect::<Vec<_>>());
    write_spans(&partial, PART..20, &content);
    partial.finish(&seal(&content)).expect("finished");
    assert!(read(&root.store, "f") == content);
    assert_eq!(root.requests().part, 3, "no part was stored twice");
}
