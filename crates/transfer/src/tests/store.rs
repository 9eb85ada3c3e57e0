//! A server over an object store, in memory.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use tokio::runtime::Handle;

use super::*;
use crate::SyncOptions;
use crate::files::Root;
use crate::server::Served;

const MIB: u64 = 1 << 20;

impl Ground {
    /// Starts a server over a store.
    fn serve(&self, root: &Root) -> Server {
        start(&self.server, Options { root: Served::Opened(root.clone()), ..self.options() })
    }
}

fn make_tree(root: &Path) {
    write(&root.join("small"), b"small");
    write(&root.join("empty"), b"");
    write(&root.join("a/large"), &content(19 << 20));
    write(&root.join("a/middle"), &content(3 << 20));
    write(&root.join("a-b"), b"before the directory a in a listing");
    write(&root.join("a/b/deep"), b"deep");
    std::fs::create_dir(root.join("nothing in it")).expect("a folder");
    symlink("a", root.join("link")).expect("a link");
    let old = SystemTime::UNIX_EPOCH + Duration::new(1_000_000_000, 123_456_789);
    for name in ["small", "a/large", "nothing in it", "a"] {
        let file = std::fs::File::open(root.join(name)).expect("it is there");
        file.set_modified(old).expect("a time");
    }
    for (name, mode) in [("small", 0o640), ("nothing in it", 0o750)] {
        let mode = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(root.join(name), mode).expect("chmod");
    }
}

/// The names in a directory, with a letter for their kind.
async fn names(client: &mut Client, path: &[u8]) -> Vec<String> {
    let mut names = Vec::new();
    let listed = client.list(path, |listed| {
        names.push(format!("{} {:?}", listed.path, listed.kind));
    });
    listed.await.expect("a list");
    names
}

#[test]
fn a_tree_is_unchanged_after_put_and_get_over_a_store() {
    let ground = Ground::new();
    make_tree(&ground.here("tree"));
    run(async {
        let root = Root::in_memory(Handle::current());
        let server = ground.serve(&root);
        let mut client = ground.connect(&server).await.expect("a connection");
        let notes = Notes::new();
        let put = client.put(&[ground.here("tree")], b"", false, notes.clone()).await;
        let put = put.expect("it is sent");
        assert_eq!((put.stored, put.failed), (11, 0), "{:?}", notes.0.lock());
        let expected = [
            "a Directory",
            "a-b File",
            "empty File",
            "link Symlink",
            "nothing in it Directory",
            "small File",
        ];
        assert_eq!(names(&mut client, b"tree").await, expected);
        // by another server, which shares nothing but the store
        let other = ground.serve(&root);
        let mut client = ground.connect(&other).await.expect("a connection");
        let back = ground.here("back/");
        let got = client.get(&[b"tree".to_vec()], &back, false, notes.clone()).await;
        let got = got.expect("it is fetched");
        assert_eq!((got.stored, got.failed), (11, 0), "{:?}", notes.0.lock());
        assert_eq!(tree(&ground.here("tree")), tree(&back.join("tree")));
        // a large file that is there is not sent again
        let again = client.put(&[ground.here("tree/a")], b"tree", false, notes.clone()).await;
        let again = again.expect("it is sent");
        assert_eq!((again.failed, again.kept), (0, 19 * MIB), "{:?}", notes.0.lock());
    });
}

#[test]
fn sync_over_a_store_moves_what_differs_and_removes_what_is_not_there() {
    let ground = Ground::new();
    make_tree(&ground.here("tree"));
    run(async {
        let root = Root::in_memory(Handle::current());
        let server = ground.serve(&root);
        let mut client = ground.connect(&server).await.expect("a connection");
        let notes = Notes::new();
        let options = SyncOptions { delete: true, ..SyncOptions::default() };
        let from = ground.here("tree");
        let all = client.sync_to(&from, b"d", &options, notes.clone()).await.expect("a sync");
        assert_eq!((all.stored, all.failed), (10, 0), "{:?}", notes.0.lock());

        let before = root.requests().expect("a store");
        let none = client.sync_to(&from, b"d", &options, notes.clone()).await.expect("a sync");
        assert_eq!((none.stored, none.unchanged, none.moved), (0, 10, 0), "{:?}", notes.0.lock());
        let requests = root.requests().expect("a store").since(&before);
        assert_eq!((requests.put, requests.part, requests.get), (0, 0, 0), "{requests:?}");

        std::fs::remove_dir_all(from.join("a/b")).expect("removed");
        std::fs::remove_file(from.join("empty")).expect("removed");
        std::fs::remove_file(from.join("a-b")).expect("removed");
        write(&from.join("a-b/now a directory"), b"content");
        let mode = std::fs::Permissions::from_mode(0o600);
        std::fs::set_permissions(from.join("small"), mode).expect("chmod");
        let some = client.sync_to(&from, b"d", &options, notes.clone()).await.expect("a sync");
        assert_eq!((some.failed, some.moved), (0, 7), "{:?}", notes.0.lock());
        for removed in ["removed: a/b/deep", "removed: a/b", "removed: empty", "removed: a-b"] {
            assert!(notes.has(&[removed]), "{removed}: {:?}", notes.0.lock());
        }
        let to = ground.here("back");
        let got = client.sync_from(b"d", &to, &options, notes.clone()).await.expect("a sync");
        assert_eq!(got.failed, 0, "{:?}", notes.0.lock());
        assert_eq!(tree(&from), tree(&to));
    });
}

#[test]
fn many_small_files_are_stored_and_fetched_at_once() {
    let ground = Ground::new();
    for n in 0..1500 {
        write(&ground.here(&format!("many/{}/{n}", n % 7)), format!("content of {n}").as_bytes());
    }
    run(async {
        let root = Root::in_memory(Handle::current());
        let server = ground.serve(&root);
        let mut client = ground.connect(&server).await.expect("a connection");
        let put = client.put(&[ground.here("many")], b"", false, Arc::new(())).await;
        assert_eq!(put.expect("it is sent").stored, 1500 + 8);
        let requests = root.requests().expect("a store");
        assert!(requests.total() < 1500 + 100, "{requests:?}");
        let back = ground.here("back/");
        let got = client.get(&[b"many".to_vec()], &back, false, Arc::new(())).await;
        assert_eq!(got.expect("it is fetched").stored, 1500 + 8);
        assert_eq!(tree(&ground.here("many")), tree(&back.join("many")));
        let options = SyncOptions::default();
        let to = ground.here("synced");
        let got = client.sync_from(b"many", &to, &options, Arc::new(())).await;
        assert_eq!(got.expect("it is fetched").failed, 0);
        assert_eq!(tree(&ground.here("many")), tree(&to));
    });
}

#[test]
fn the_summary_counts_the_requests_that_a_transfer_took() {
    let ground = Ground::new();
    for n in 0..40 {
        write(&ground.here(&format!("some/{}/{n}", n % 4)), format!("content of {n}").as_bytes());
    }
    run(async {
        let root = Root::in_memory(Handle::current());
        let server = ground.serve(&root);
        let mut client = ground.connect(&server).await.expect("a connection");
        let put = client.put(&[ground.here("some")], b"", false, Arc::new(())).await;
        let put = put.expect("it is sent").requests.expect("they are counted");
        assert_eq!((put.put, put.get), (45, 0), "{put:?}");
        let all = root.requests().expect("a store");
        // another transfer on the same connection, whose requests are its own
        let back = ground.here("back/");
        let got = client.get(&[b"some".to_vec()], &back, false, Arc::new(())).await;
        let got = got.expect("it is fetched").requests.expect("they are counted");
        assert_eq!((got.put, got.get), (0, 40), "{got:?}");
        assert!(got.total() < 60, "one for each file, few others: {got:?}");
        let since = root.requests().expect("a store").since(&all);
        assert_eq!(got, since);
        let options = SyncOptions::default();
        let to = ground.here("some");
        let same = client.sync_to(&to, b"some", &options, Arc::new(())).await.expect("a sync");
        assert_eq!((same.stored, same.unchanged), (0, 44));
        let same = same.requests.expect("they are counted");
        assert_eq!((same.put, same.get), (0, 0), "{same:?}");
        // a server over a disk has none
        let disk = ground.start();
        let mut client = ground.connect(&disk).await.expect("a connection");
        let put = client.put(&[ground.here("some")], b"", false, Arc::new(())).await;
        assert_eq!(put.expect("it is sent").requests, None);
    });
}

/// Cuts the connection when so many bytes were sent and the store has so many parts.
struct Cut {
    left: AtomicU64,
    connection: quinn::Connection,
    root: Root,
    parts: u64,
}

impl Observer for Cut {
    fn event(&self, event: Event<'_>) {
        let Event::Moved { bytes } = event else { return };
        let take = |left: u64| Some(left.saturating_sub(bytes));
        let before = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take);
        if !(1..=bytes).contains(&before.expect("it always changes")) {
            return;
        }
        tokio::task::block_in_place(|| {
            while self.root.requests().is_none_or(|requests| requests.part < self.parts) {
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        self.connection.close(0u32.into(), b"");
    }
}

#[test]
fn an_interrupted_put_resumes_at_another_server() {
    let ground = Ground::new();
    let size = (60 << 20) + 4321;
    write(&ground.here("file"), &content(size));
    run(async {
        let root = Root::in_memory(Handle::current());
        let server = ground.serve(&root);
        let mut client = ground.connect(&server).await.expect("a connection");
        let connection = client.connection().clone();
        let left = AtomicU64::new(40 * MIB);
        let cut = Arc::new(Cut { left, connection, root: root.clone(), parts: 2 });
        let put = client.put(&[ground.here("file")], b"file", false, cut).await;
        assert!(matches!(put, Err(Error::Lost(_))), "{put:?}");

        let other = ground.serve(&root);
        let mut client = ground.connect(&other).await.expect("a connection");
        assert!(names(&mut client, b"").await.is_empty(), "no half of it has the name");
        let notes = Notes::new();
        let put = client.put(&[ground.here("file")], b"file", false, notes.clone()).await;
        let put = put.expect("it is sent");
        assert_eq!((put.stored, put.failed), (1, 0), "{:?}", notes.0.lock());
        assert_eq!(put.kept + put.moved, size as u64);
        assert!(put.kept >= 8 * MIB, "{} bytes were kept", put.kept);
        let back = ground.here("back");
        client.get(&[b"file".to_vec()], &back, false, notes.clone()).await.expect("it is fetched");
        assert!(std::fs::read(back).expect("a file") == content(size));
    });
}

#[test]
fn names_are_made_renamed_and_removed_in_a_store() {
    let ground = Ground::new();
    write(&ground.here("file"), b"content");
    run(async {
        let root = Root::in_memory(Handle::current());
        let server = ground.serve(&root);
        let mut client = ground.connect(&server).await.expect("a connection");
        client.make_directory(b"d/e", true).await.expect("made");
        let put = client.put(&[ground.here("file")], b"d/e/", false, Arc::new(())).await;
        assert_eq!(put.expect("it is sent").stored, 1);
        let put = client.put_stream(&b"a stream"[..], b"d/stream", false, Arc::new(())).await;
        assert_eq!(put.expect("it is sent").stored, 1);
        client.rename(b"d/e/file", b"d", false).await.expect("renamed");
        assert_eq!(names(&mut client, b"d").await, ["e Directory", "file File", "stream File"]);
        let refused = client.rename(b"d", b"x", false).await.expect_err("renamed");
        assert!(refused.to_string().contains("no directories to rename"), "{refused}");
        let refused = client.put(&[ground.here("file")], b"d/file/x", false, Arc::new(())).await;
        assert!(refused.is_err_and(|error| error.to_string().contains("a file is here")));
        let removed = client.remove(b"d", true, Arc::new(())).await.expect("removed");
        assert_eq!((removed.removed, removed.failed), (4, 0));
        assert!(names(&mut client, b"").await.is_empty());
    });
}
