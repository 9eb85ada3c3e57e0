//! A file counts as stored only when it is on the disk, where that is asked for: here
//! the disk refuses, for one thread.

use std::io::Write;

use super::*;
use crate::files::{Error, Stored};

/// Runs something on a thread to which the kernel answers EIO when it syncs a file.
fn where_nothing_is_synced<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    let [fsync, fdatasync] = [system_call(74, 82), system_call(75, 83)];
    where_refused([fsync, fdatasync].map(|call| (call, Vec::new())), Errno::EIO, work)
}

fn seal(content: &[u8], fsync: bool) -> Seal {
    Seal { root: blake3::hash(content), mode: 0o644, mtime: TIME, fsync }
}

#[test]
fn a_file_that_is_not_synced_does_not_get_its_name() {
    let (folder, root) = root();
    let large = vec![5; 2 * MIB + 1];
    let partial = |name: &str| {
        let offer = Offer { size: large.len() as u64, mtime: TIME, data: 0, reuse: false };
        let partial = root.begin(&path(name), &offer).expect("it is new");
        partial.write_at(0, &large).expect("it is written");
        partial
    };
    let store = |name: &str, fsync| -> [Result<Stored, Error>; 2] {
        [
            root.store(&path(&format!("{name} small")), b"content", &seal(b"content", fsync)),
            partial(&format!("{name} large")).finish(&seal(&large, fsync)),
        ]
    };
    let grow = |name: &str, fsync| {
        let mut growing = root.create_stream_file(&path(name)).expect("it is new");
        growing.write_all(b"content").expect("it is written");
        growing.finish(fsync)
    };
    where_nothing_is_synced(|| {
        for stored in store("safe", true) {
            let error = stored.expect_err("the disk refuses").to_string();
            assert!(error.contains("cannot be stored"), "{error}");
        }
        assert!(grow("safe pipe", true).is_err());
        assert!(root.seal_directory(&path("d"), 0o700, TIME, true, None).is_err());
        for stored in store("quick", false) {
            stored.expect("nobody asked for the disk");
        }
        grow("quick pipe", false).expect("nobody asked for the disk");
    });
    for name in ["safe small", "safe large", "safe pipe"] {
        assert!(!folder.path().join(name).exists(), "{name}");
    }
    let left = std::fs::read_dir(folder.path()).expect("a folder").flatten();
    let mut left = left.map(|entry| entry.file_name().into_encoded_bytes());
    assert!(!left.any(|name| name.starts_with(b".safe pipe")), "what goes on nowhere is left");
    for name in ["quick small", "quick large", "quick pipe"] {
        assert!(folder.path().join(name).exists(), "{name}");
    }
    // and where the disk does as it is told, all is well
    for stored in store("safe", true) {
        stored.expect("it is on the disk");
    }
}
