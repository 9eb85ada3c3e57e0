//! Small new files, which are written without a name.

use std::fs;
use std::os::unix::fs::MetadataExt;

use nix::fcntl::{AT_FDCWD, AtFlags, OFlag, openat};
use nix::sys::stat::Mode;
use seccompiler::{SeccompCmpArgLen, SeccompCmpOp, SeccompCondition};

use super::super::ErrorKind;
use super::*;

const FLOCK: i64 = system_call(73, 32);
const FTRUNCATE: i64 = system_call(77, 46);
const OPENAT: i64 = system_call(257, 56);
const UNLINKAT: i64 = system_call(263, 35);
const RENAMEAT: i64 = system_call(264, 38);
const LINKAT: i64 = system_call(265, 37);
const RENAMEAT2: i64 = system_call(316, 276);

/// Calls that have these bits in an argument.
fn with_bits(argument: u8, bits: i32) -> Vec<SeccompRule> {
    let bits = bits as u64;
    let is_set = SeccompCmpOp::MaskedEq(bits);
    let condition = SeccompCondition::new(argument, SeccompCmpArgLen::Dword, is_set, bits);
    vec![SeccompRule::new(vec![condition.expect("an argument")]).expect("a rule")]
}

fn unnamed_files() -> (i64, Vec<SeccompRule>) {
    (OPENAT, with_bits(2, OFlag::O_TMPFILE.bits()))
}

/// Links to open files without /proc, which users other than root may not make before Linux 6.10.
fn links_to_open_files() -> (i64, Vec<SeccompRule>) {
    (LINKAT, with_bits(4, AtFlags::AT_EMPTY_PATH.bits()))
}

fn has_unnamed_files(folder: &Path) -> bool {
    let mode = Mode::S_IRUSR | Mode::S_IWUSR;
    openat(AT_FDCWD, folder, OFlag::O_TMPFILE | OFlag::O_WRONLY, mode).is_ok()
}

#[test]
fn a_small_new_file_has_no_partial_file() {
    let (folder, root) = root();
    if !has_unnamed_files(folder.path()) {
        return;
    }
    for (name, lacks) in [("a", None), ("b", Some(links_to_open_files()))] {
        let needed_for_partial_files =
            [FLOCK, FTRUNCATE, UNLINKAT, RENAMEAT, RENAMEAT2].map(|call| (call, Vec::new()));
        let refused = needed_for_partial_files.into_iter().chain(lacks);
        where_refused(refused, Errno::ENOENT, || {
            root.store(&path(name), b"content", &seal(b"content")).expect("stored");
        });
    }
    let large = bytes(1, 100_000);
    let synced = Seal { fsync: true, ..seal(b"content") };
    let others = [(&large[..], seal(&large)), (&b"content"[..], synced)];
    let renames = [RENAMEAT, RENAMEAT2].map(|call| (call, Vec::new()));
    where_refused(renames, Errno::EPERM, || {
        for (content, seal) in others {
            let stored = root.store(&path("c"), content, &seal);
            stored.expect_err("a partial file is renamed");
        }
    });
    assert_eq!(names(folder.path()), [b"a", b"b"]);
}

#[test]
fn a_small_file_is_stored_whatever_the_system_lacks() {
    let lacking: [(_, Errno); 4] = [
        (None, Errno::ENOSYS),
        (Some(unnamed_files()), Errno::EOPNOTSUPP),
        (Some(links_to_open_files()), Errno::ENOENT),
        (Some((LINKAT, Vec::new())), Errno::EPERM),
    ];
    for (refused, errno) in lacking {
        let (folder, root) = root();
        root.make_directory(&path("d"), 0o755).expect("made");
        where_refused(refused, errno, || {
            for (n, content) in [&b"old"[..], b"", b"content"].into_iter().enumerate() {
                let seal = Seal { mode: 0o4755, ..seal(content) };
                let stored = root.store(&path("d/file"), content, &seal).expect("stored");
                assert_eq!(stored.replaced, n > 0, "{errno}");
            }
            root.store(&path("empty"), b"", &seal(b"")).expect("stored");
        });
        let file = folder.path().join("d/file");
        assert_eq!(fs::read(&file).expect("a file"), b"content");
        let metadata = fs::metadata(&file).expect("a file");
        assert_eq!(metadata.mode() & 0o7777, 0o755, "{errno}");
        assert_eq!((metadata.mtime(), metadata.mtime_nsec()), (TIME.seconds, 123_456_789));
        assert_eq!(metadata.nlink(), 1);
        assert_eq!(names(&folder.path().join("d")), [b"file"], "{errno}");
        assert_eq!(names(folder.path()), [&b"d"[..], b"empty"], "{errno}");
    }
}

#[test]
fn a_small_file_with_a_wrong_hash_gets_no_name() {
    let (folder, root) = root();
    let error = root.store(&path("file"), b"other", &seal(b"content")).expect_err("stored");
    assert!(matches!(error.kind(), ErrorKind::Mismatch), "{error}");
    assert!(names(folder.path()).is_empty());
}
