//! Peers that name what is not theirs, and neighbours on this machine that put
//! links and other things where files are being received.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use rustix::fs::{CWD, RenameFlags, renameat_with};

use super::super::{Error, ErrorKind, FileType, temporary};
use super::*;

/// A root beside a folder that a link in the root leads to.
struct Beside {
    _folder: tempfile::TempDir,
    root: std::path::PathBuf,
    outside: std::path::PathBuf,
}

fn beside() -> Beside {
    let folder = tempfile::tempdir().expect("a folder");
    let (root, outside) = (folder.path().join("root"), folder.path().join("outside"));
    fs::create_dir(&root).expect("a root");
    fs::create_dir(&outside).expect("a folder outside");
    fs::write(outside.join("secret"), "before").expect("a file outside");
    Beside { _folder: folder, root, outside }
}

impl Beside {
    /// Nothing outside was made, changed or removed.
    fn assert_untouched(&self) {
        assert_eq!(names(&self.outside), [b"secret"]);
        assert_eq!(fs::read(self.outside.join("secret")).expect("a file"), b"before");
        let metadata = fs::metadata(self.outside.join("secret")).expect("a file");
        assert_ne!(metadata.mtime(), TIME.seconds);
    }
}

/// CVE-2019-6111 (scp) and CVE-2023-43616 (croc): names that lead outside are no
/// names, so that no operation of a root can be asked for with one.
#[test]
fn a_crafted_name_is_refused() {
    for name in [
        "../outside/secret",
        "/etc/cron.d/evil",
        "a/../../outside/secret",
        "..",
        ".",
        "./../outside/secret",
        "a/./../../outside",
        "a//../../outside",
        "~/../../x/..",
        "a\0/../../outside",
    ] {
        assert!(RelPath::parse(name.as_bytes()).is_err(), "{name:?}");
    }
}

#[test]
fn no_operation_goes_through_a_link_to_the_outside() {
    let beside = beside();
    symlink(&beside.outside, beside.root.join("out")).expect("a link");
    symlink("../outside", beside.root.join("relative")).expect("a link");
    symlink(".", beside.root.join("here")).expect("a link");
    fs::create_dir(beside.root.join("inside")).expect("a folder");
    symlink("../../outside", beside.root.join("inside/out")).expect("a link");
    symlink("/", beside.root.join("top")).expect("a link");
    let through_top = beside.outside.strip_prefix("/").expect("an absolute path");
    let through_top = format!("top/{}", through_top.to_str().expect("UTF-8"));
    for root in both_ways(&beside.root) {
        for link in ["out", "relative", "here/out", "inside/out", through_top.as_str()] {
            let [file, new] = ["secret", "new"].map(|name| path(&format!("{link}/{name}")));
            let link = path(link);
            let refused = |error: Error| {
                assert!(matches!(error.kind(), ErrorKind::NotBeneath), "{link}: {error}");
            };
            for file in [&file, &new] {
                refused(root.begin(file, &offer(5)).expect_err("begun"));
                refused(root.store(file, b"after", &seal(b"after")).expect_err("stored"));
                refused(root.make_directory(file, 0o755).expect_err("made"));
                refused(root.make_symlink(file, b"secret").expect_err("made"));
                refused(root.look(file).expect_err("seen"));
            }
            refused(root.remove(&file).expect_err("removed"));
            refused(root.list(Some(&link)).expect_err("listed"));
            refused(root.below(&link).expect_err("opened"));
            refused(root.seal_directory(&link, 0o777, TIME, false, None).expect_err("sealed"));
        }
    }
    beside.assert_untouched();
    assert_eq!(names(&beside.root.join("inside")), [b"out"]);
}

#[test]
fn a_link_at_the_files_own_name_is_replaced_and_not_followed() {
    let beside = beside();
    for root in both_ways(&beside.root) {
        symlink("../outside/secret", beside.root.join("a")).expect("a link");
        let stored = root.store(&path("a"), b"after", &seal(b"after")).expect("stored");
        assert!(stored.replaced);
        assert_eq!(fs::read(beside.root.join("a")).expect("a file"), b"after");
        assert!(fs::symlink_metadata(beside.root.join("a")).expect("a file").is_file());
        root.remove(&path("a")).expect("removed");
        symlink("../outside/secret", beside.root.join("a")).expect("a link");
        root.remove(&path("a")).expect("the link is removed, not what it leads to");
    }
    beside.assert_untouched();
}

/// A link that the sender made first, and then a file through it.
#[test]
fn links_of_the_sender_are_stored_and_not_followed() {
    let beside = beside();
    for root in both_ways(&beside.root) {
        for target in ["../outside", "/etc", "..", "a/../../outside", "sub/.."] {
            let error = root.make_symlink(&path("link"), target.as_bytes()).expect_err("made");
            assert!(matches!(error.kind(), ErrorKind::LeavesRoot), "{error}");
        }
        root.make_directory(&path("sub"), 0o755).expect("made");
        assert!(!root.make_symlink(&path("link"), b"sub").expect("made").replaced);
        assert!(root.make_symlink(&path("link"), b"sub").expect("there").replaced);
        let error = root.begin(&path("link/file"), &offer(1)).expect_err("begun");
        assert!(matches!(error.kind(), ErrorKind::NotBeneath), "{error}");
        // `here/sub/../..` is inside by its words, and outside in truth
        root.make_symlink(&path("here"), b".").expect("made");
        let error = root.make_symlink(&path("up"), b"here/sub/../..").expect_err("made");
        assert!(matches!(error.kind(), ErrorKind::LeavesRoot), "{error}");
        assert!(root.make_symlink(&path("link"), b"here").expect("made").replaced);
        assert_eq!(fs::read_link(beside.root.join("link")).expect("a link"), Path::new("here"));
        root.make_symlink(&path("sub/up"), b"../here").expect("made");
        for name in ["sub/up", "sub", "link", "here"] {
            root.remove(&path(name)).expect("removed");
        }
        assert!(names(&beside.root).is_empty());
    }
    beside.assert_untouched();
}

/// CVE-2026-43619 (rsync): a directory on the way becomes a link between the
/// check and the use.
#[test]
fn a_directory_that_becomes_a_link_while_a_file_comes() {
    let beside = beside();
    for root in both_ways(&beside.root) {
        root.make_directory(&path("dir"), 0o755).expect("made");
        let partial = root.begin(&path("dir/secret"), &offer(5)).expect("begun");
        partial.write_at(0, b"af").expect("written");
        fs::rename(beside.root.join("dir"), beside.root.join("moved")).expect("renamed");
        symlink("../outside", beside.root.join("dir")).expect("a link");
        partial.write_at(2, b"ter").expect("written");
        partial.finish(&Seal { fsync: true, ..seal(b"after") }).expect("finished");
        assert_eq!(fs::read(beside.root.join("moved/secret")).expect("a file"), b"after");
        fs::remove_file(beside.root.join("dir")).expect("removed");
        fs::remove_dir_all(beside.root.join("moved")).expect("removed");
    }
    beside.assert_untouched();
}

/// The directory of the last small file is not always looked up again for the next one.
#[test]
fn a_directory_that_becomes_a_link_between_two_small_files() {
    let beside = beside();
    let (dir, moved) = (beside.root.join("dir"), beside.root.join("moved"));
    for root in both_ways(&beside.root) {
        let store = |name: &str| root.store(&path(name), b"after", &seal(b"after"));
        root.make_directory(&path("dir"), 0o755).expect("made");
        store("dir/first").expect("stored");
        fs::rename(&dir, &moved).expect("renamed");
        symlink("../outside", &dir).expect("a link");
        match store("dir/secret") {
            Ok(_) => assert_eq!(fs::read(moved.join("secret")).expect("a file"), b"after"),
            Err(error) => assert!(matches!(error.kind(), ErrorKind::NotBeneath), "{error}"),
        }
        // the directory is removed, and made again
        fs::remove_dir_all(&moved).expect("removed");
        fs::remove_file(&dir).expect("removed");
        root.make_directory(&path("dir"), 0o755).expect("made");
        store("dir/secret").expect("stored");
        assert_eq!(names(&dir), [b"secret"]);
        fs::remove_dir_all(&dir).expect("removed");
    }
    beside.assert_untouched();
}

/// The same by brute force: a thread changes a directory for a link to the
/// outside and back as fast as it can, while files are stored and removed below.
#[test]
fn a_directory_that_becomes_a_link_again_and_again() {
    let beside = beside();
    fs::create_dir_all(beside.root.join("a/dir")).expect("a folder");
    symlink(&beside.outside, beside.root.join("link")).expect("a link");
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (dir, link) = (beside.root.join("a/dir"), beside.root.join("link"));
            while !done.load(Ordering::Relaxed) {
                renameat_with(CWD, &dir, CWD, &link, RenameFlags::EXCHANGE).expect("changed");
            }
        });
        for root in both_ways(&beside.root) {
            for n in 0..1000 {
                let (made, secret) = (path(&format!("a/dir/{n}")), path("a/dir/secret"));
                // either outcome is right, as long as nothing happens outside
                let _ = root.store(&secret, b"after", &seal(b"after"));
                let _ = root.make_directory(&made, 0o777);
                let _ = root.seal_directory(&made, 0o777, TIME, false, None);
                let _ = root.make_symlink(&path(&format!("a/dir/l{n}")), b"x");
                let _ = root.remove(&secret);
                let _ = root.list(Some(&path("a/dir"))).map(Iterator::count);
            }
        }
        done.store(true, Ordering::Relaxed);
    });
    beside.assert_untouched();
    // what is in it was made while it was a directory
    let inside = [beside.root.join("a/dir"), beside.root.join("link")];
    let inside = inside.iter().find(|name| name.symlink_metadata().is_ok_and(|m| m.is_dir()));
    let inside = names(inside.expect("the directory"));
    assert!(inside.iter().all(|name| !temporary::is_temporary(name)), "parts were left behind");
}

#[test]
fn pipes_sockets_and_directories_are_neither_opened_nor_replaced() {
    let (folder, root) = root();
    mkfifo(&folder.path().join("pipe"), Mode::from_bits_truncate(0o600)).expect("a pipe");
    let _socket = UnixListener::bind(folder.path().join("socket")).expect("a socket");
    fs::create_dir(folder.path().join("directory")).expect("a directory");
    for (name, here) in
        [("pipe", FileType::Pipe), ("socket", FileType::Socket), ("directory", FileType::Directory)]
    {
        // a pipe that were opened would block this test
        let error = root.begin(&path(name), &offer(1)).expect_err("begun");
        assert!(matches!(error.kind(), ErrorKind::Clash { here: h } if *h == here), "{error}");
        let error = root.make_symlink(&path(name), b"x").expect_err("made");
        assert!(matches!(error.kind(), ErrorKind::Clash { here: h } if *h == here), "{error}");
    }
    assert_eq!(names(folder.path()), [&b"directory"[..], b"pipe", b"socket"]);
    root.store(&path("file"), b"x", &seal(b"x")).expect("stored");
    let error = root.make_directory(&path("file"), 0o755).expect_err("made");
    assert_eq!(
        error.to_string(),
        "file cannot be made: a file is here under that name; remove or rename it first",
    );
    let error = root.begin(&path("file/below"), &offer(1)).expect_err("begun");
    assert!(matches!(error.kind(), ErrorKind::NotBeneath), "{error}");
    // the name is taken by a directory while the file comes
    let partial = root.begin(&path("late"), &offer(1)).expect("begun");
    partial.write_at(0, b"x").expect("written");
    fs::create_dir(folder.path().join("late")).expect("a directory");
    let error = partial.finish(&seal(b"x")).expect_err("finished");
    assert!(matches!(error.kind(), ErrorKind::Clash { here: FileType::Directory }), "{error}");
}

/// The temporary name is no secret: whoever may write to the directory can put
/// something there first.
#[test]
fn a_foreign_file_at_the_temporary_name_is_not_written_to() {
    let beside = beside();
    let root = Root::open(&beside.root).expect("a root");
    let name = temporary::of_file(b"file", 5, TIME);
    let temporary = beside.root.join(std::ffi::OsStr::from_bytes(&name));
    let secret = beside.outside.join("secret");
    // a small file that is new has no temporary name
    fs::write(beside.root.join("file"), "old").expect("a file");
    let puts: [&dyn Fn(); 4] = [
        &|| symlink(&secret, &temporary).expect("a link"),
        &|| fs::hard_link(&secret, &temporary).expect("a hard link"),
        &|| mkfifo(&temporary, Mode::from_bits_truncate(0o666)).expect("a pipe"),
        &|| fs::create_dir(&temporary).expect("a directory"),
    ];
    for put in puts {
        put();
        for _ in 0..2 {
            let error = root.store(&path("file"), b"after", &seal(b"after")).expect_err("stored");
            assert!(matches!(error.kind(), ErrorKind::Foreign(_)), "{error}");
        }
        let kind = temporary.symlink_metadata().expect("it is still there").file_type();
        if kind.is_dir() {
            fs::remove_dir(&temporary).expect("removed");
        } else {
            assert!(kind.is_fifo() || kind.is_symlink() || kind.is_file());
            fs::remove_file(&temporary).expect("removed");
        }
    }
    beside.assert_untouched();
    // it is moved away while the file comes, and another one put in its place
    let partial = root.begin(&path("file"), &offer(5)).expect("begun");
    partial.write_at(0, b"after").expect("written");
    fs::remove_file(&temporary).expect("removed");
    fs::write(&temporary, "other").expect("another");
    let error = partial.finish(&seal(b"after")).expect_err("finished");
    assert!(matches!(error.kind(), ErrorKind::Moved), "{error}");
    assert_eq!(fs::read(beside.root.join("file")).expect("a file"), b"old");
    partial.abandon().expect("nothing of ours is left to remove");
    assert_eq!(fs::read(&temporary).expect("a file"), b"other");
}

#[test]
fn a_peer_cannot_use_names_of_partial_files() {
    let (_folder, root) = root();
    let name = temporary::of_file(b"file", 5, TIME);
    let name = RelPath::single(&name).expect("a name");
    for error in [
        root.begin(&name, &offer(1)).expect_err("begun"),
        root.make_directory(&name, 0o755).expect_err("made"),
        root.make_symlink(&name, b"x").expect_err("made"),
    ] {
        assert!(matches!(error.kind(), ErrorKind::Reserved), "{error}");
    }
}

#[test]
fn messages_show_no_control_characters() {
    let (_folder, root) = root();
    let name = RelPath::parse(b"\x1b]0;title\x07/\x9b2J").expect("a path");
    let error = root.begin(&name, &offer(1)).expect_err("begun");
    assert_eq!(
        error.to_string(),
        "\\u{1b}]0;title\\u{7}/\\x9b2J cannot be stored: there is no such file or directory",
    );
}
