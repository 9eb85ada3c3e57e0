//! Directories and links that are made at once with their mode and time, on several threads.

use super::*;
use crate::files::{ErrorKind, FileType};

/// The requests that something takes.
fn taken<T>(root: &Root, work: impl FnOnce() -> T) -> (T, headroom_store::Requests) {
    let before = root.requests();
    let done = work();
    (done, root.requests().since(&before))
}

fn make(root: &Root, name: &str) -> Result<(), crate::files::Error> {
    root.make_sealed_directory(&path(name), 0o750, TIME)
}

#[test]
fn a_directory_in_a_new_one_takes_one_request() {
    run(|runtime| {
        let root = root(runtime);
        let (made, requests) = taken(&root, || make(&root, "d"));
        made.expect("made");
        assert_eq!((requests.put, requests.total()), (1, 4), "{requests:?}");
        let (made, requests) = taken(&root, || make(&root, "d/e"));
        made.expect("made");
        assert_eq!((requests.put, requests.total()), (1, 1), "{requests:?}");
        for name in ["d", "d/e"] {
            let metadata = root.look(&path(name)).expect("an answer").expect("a directory");
            assert_eq!((metadata.file_type, metadata.mode), (FileType::Directory, 0o750));
            assert_eq!(metadata.mtime, TIME);
        }
        // another transfer finds it as it should be
        let root = root.for_transfer();
        let (made, requests) = taken(&root, || make(&root, "d"));
        made.expect("found");
        assert_eq!((requests.head, requests.total()), (1, 1), "{requests:?}");
        let changed = root.make_sealed_directory(&path("d"), 0o700, TIME);
        changed.expect("changed");
        assert_eq!(root.look(&path("d")).expect("an answer").expect("it").mode, 0o700);
    });
}

#[test]
fn what_comes_into_a_directory_waits_until_it_is_made() {
    run(|runtime| {
        let root = root(runtime);
        let making = root.expect_directory(&path("d")).expect("a name");
        assert!(making.is_some());
        std::thread::scope(|scope| {
            let stored = scope.spawn(|| root.store(&path("d/f"), b"x", &seal(b"x")));
            make(&root, "d").expect("made");
            stored.join().expect("it ends").expect("stored");
        });
        drop(making);
        let requests = root.requests();
        assert_eq!((requests.put, requests.total()), (2, 5), "{requests:?}");
        // in a new one nothing waits, and the files are new, too
        assert!(root.expect_directory(&path("d/e")).expect("a name").is_none());
        let (stored, requests) = taken(&root, || root.store(&path("d/e/f"), b"x", &seal(b"x")));
        stored.expect("stored");
        assert_eq!(requests.total(), 1, "{requests:?}");
    });
}

#[test]
fn a_file_is_no_directory_for_what_comes_below_it() {
    run(|runtime| {
        let root = root(runtime);
        put(&root.store, "f", b"x");
        let making = root.expect_directory(&path("f")).expect("a name");
        let error = make(&root, "f").expect_err("made");
        assert!(matches!(error.kind(), ErrorKind::Clash { here: FileType::File }), "{error}");
        drop(making);
        let error = root.store(&path("f/x"), b"x", &seal(b"x")).expect_err("stored");
        assert!(matches!(error.kind(), ErrorKind::NotBeneath), "{error}");
        assert!(root.expect_directory(&path("d/.x.0.headroom-part")).is_err());
    });
}

#[test]
fn a_link_has_its_time_at_once() {
    run(|runtime| {
        let root = root(runtime);
        make(&root, "d").expect("made");
        let link = |target: &[u8]| root.make_sealed_symlink(&path("d/l"), target, Some(TIME));
        let (made, requests) = taken(&root, || link(b"here"));
        assert!(!made.expect("made").replaced);
        assert_eq!((requests.put, requests.total()), (1, 1), "{requests:?}");
        let root = root.for_transfer();
        assert_eq!(root.target(&path("d/l")).expect("a target"), b"here");
        let metadata = root.look(&path("d/l")).expect("an answer").expect("a link");
        assert_eq!((metadata.file_type, metadata.mtime), (FileType::Symlink, TIME));
        let link = |target: &[u8]| root.make_sealed_symlink(&path("d/l"), target, Some(TIME));
        assert!(link(b"there").expect("made").replaced);
        let (_, requests) = taken(&root, || link(b"there"));
        assert_eq!(requests.put, 0, "it is there");
    });
}

#[test]
fn a_file_that_was_compared_is_replaced_in_one_request() {
    use crate::files::{Sent, Status};
    run(|runtime| {
        let root = root(runtime);
        root.store(&path("f"), b"old", &seal(b"old")).expect("stored");
        let root = root.for_transfer();
        let sent = Sent::File { size: 5, mode: 0o640, mtime: TIME, hash: None, attributes: None };
        assert_eq!(root.compare(&path("f"), &sent).expect("compared"), Status::ContentDiffers);
        root.store(&path("other"), b"x", &seal(b"x")).expect("stored");
        let (stored, requests) = taken(&root, || root.store(&path("f"), b"newer", &seal(b"newer")));
        assert!(stored.expect("stored").replaced);
        assert_eq!(requests.put, 1, "{requests:?}");
        assert_eq!(read(&root.store, "f"), b"newer");
        assert_eq!(root.own_requests().put, 2);
    });
}
