//! One directory's content becomes another's, either way.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::time::{Duration, SystemTime};

use super::*;
use crate::{Excludes, Summary, SyncOptions};

const DELETE: fn() -> SyncOptions = || SyncOptions { delete: true, ..SyncOptions::default() };

fn without(patterns: &[&str]) -> SyncOptions {
    let patterns = patterns.iter().map(ToString::to_string).collect();
    SyncOptions { excludes: Excludes::new(patterns).expect("patterns"), ..DELETE() }
}

/// Makes one side like the other, either way.
async fn sync(ground: &Ground, up: bool, options: &SyncOptions) -> (Summary, Arc<Notes>) {
    let server = ground.start();
    let mut client = ground.connect(&server).await.expect("a connection");
    let notes = Notes::new();
    let summary = match up {
        true => client.sync_to(&ground.here("tree"), b"tree", options, notes.clone()).await,
        false => client.sync_from(b"tree", &ground.here("tree"), options, notes.clone()).await,
    };
    server.stop();
    (summary.expect("it is brought in line"), notes)
}

/// The source and the destination.
fn sides(ground: &Ground, up: bool) -> (PathBuf, PathBuf) {
    let (here, served) = (ground.here("tree"), ground.served("tree"));
    if up { (here, served) } else { (served, here) }
}

fn make_tree(root: &Path) {
    write(&root.join("small"), b"small");
    write(&root.join("empty"), b"");
    write(&root.join("a/large"), &content(3 << 20));
    write(&root.join("a/b/deep"), b"deep");
    std::fs::create_dir(root.join("nothing in it")).expect("a folder");
    symlink("a", root.join("link")).expect("a link");
    let old = SystemTime::UNIX_EPOCH + Duration::new(1_000_000_000, 123_456_789);
    let small = std::fs::File::open(root.join("small")).expect("it is there");
    small.set_modified(old).expect("a time");
}

#[test]
fn sync_copies_a_tree_and_then_only_what_changed() {
    for up in [true, false] {
        let ground = Ground::new();
        let (from, to) = sides(&ground, up);
        make_tree(&from);
        run(async {
            let (all, _) = sync(&ground, up, &DELETE()).await;
            assert_eq!((all.stored, all.failed, all.removed), (8, 0, 0));
            assert_eq!(all.moved, (3 << 20) + 5 + 4);
            assert_eq!(tree(&from), tree(&to));

            let (none, _) = sync(&ground, up, &DELETE()).await;
            assert_eq!((none.stored, none.unchanged, none.moved), (0, 8, 0));
            assert_eq!(none.kept, all.moved);
            assert_eq!(tree(&from), tree(&to));

            // a byte of three spans is another one; permissions alone move nothing
            let mut large = content(3 << 20);
            large[(1 << 20) + 7] ^= 1;
            write(&from.join("a/large"), &large);
            let mode = std::fs::Permissions::from_mode(0o640);
            std::fs::set_permissions(from.join("small"), mode).expect("chmod");
            let (some, _) = sync(&ground, up, &DELETE()).await;
            assert_eq!((some.stored, some.unchanged), (1, 7));
            assert!((1..64 << 10).contains(&some.moved) && some.reused > 0, "{some:?}");
            assert_eq!(some.kept + some.moved, all.moved);
            assert_eq!(tree(&from), tree(&to));
        });
    }
}

#[test]
fn files_of_equal_size_and_time_are_read_only_with_checksum() {
    for up in [true, false] {
        let ground = Ground::new();
        let (from, to) = sides(&ground, up);
        make_tree(&from);
        run(async {
            sync(&ground, up, &DELETE()).await;
            let time = std::fs::metadata(to.join("small")).and_then(|meta| meta.modified());
            let time = time.expect("it is there");
            write(&to.join("small"), b"SMALL");
            std::fs::File::open(to.join("small")).expect("it").set_modified(time).expect("a time");
            let (none, _) = sync(&ground, up, &DELETE()).await;
            assert_eq!((none.stored, none.moved), (0, 0));
            assert_eq!(std::fs::read(to.join("small")).expect("it is there"), b"SMALL");

            let checksum = SyncOptions { checksum: true, ..DELETE() };
            let dry = SyncOptions { dry_run: true, ..checksum.clone() };
            let (planned, notes) = sync(&ground, up, &dry).await;
            assert_eq!((planned.stored, planned.moved), (1, 5));
            assert!(notes.has(&["changed: small"]));
            let (one, _) = sync(&ground, up, &checksum).await;
            assert_eq!((one.stored, one.unchanged, one.moved), (1, 7, 5));
            assert_eq!(tree(&from), tree(&to));
        });
    }
}

/// What the destination has and the source has not; and what lies outside.
fn litter(ground: &Ground, to: &Path) -> PathBuf {
    let outside = ground.folder.path().join("outside");
    write(&outside.join("precious"), b"precious");
    write(&to.join("a/b/more"), b"more");
    write(&to.join("a/more.o"), b"object");
    write(&to.join("zz/deep/more"), b"more");
    write(&to.join("zz/deep/kept.o"), b"object");
    write(&to.join("aa/one"), b"one");
    symlink(&outside, to.join("way out")).expect("a link");
    symlink("../../outside", to.join("zz/way out")).expect("a link");
    outside
}

#[test]
fn delete_removes_what_the_source_does_not_have() {
    for up in [true, false] {
        let ground = Ground::new();
        let (from, to) = sides(&ground, up);
        make_tree(&from);
        let outside = litter(&ground, &to);
        run(async {
            let (_, notes) = sync(&ground, up, &SyncOptions::default()).await;
            assert!(to.join("zz/deep/more").exists() && !notes.has(&["removed"]));

            let (some, notes) = sync(&ground, up, &without(&["*.o"])).await;
            // aa, aa/one, a/b/more, way out, zz/deep/more, zz/way out
            assert_eq!((some.stored, some.failed, some.removed), (0, 0, 6), "{notes:?}");
            assert!(notes.has(&["removed: way out"]) && notes.has(&["left out", "zz/deep stays"]));
            let left = std::fs::read(to.join("zz/deep/kept.o")).expect("it is excluded");
            assert_eq!(left, b"object");

            let (rest, _) = sync(&ground, up, &DELETE()).await;
            assert_eq!((rest.stored, rest.failed, rest.removed), (0, 0, 4));
            assert_eq!(tree(&from), tree(&to));
            assert_eq!(std::fs::read(outside.join("precious")).expect("it stays"), b"precious");
        });
    }
}

#[test]
fn a_dry_run_reports_everything_and_changes_nothing() {
    for up in [true, false] {
        let ground = Ground::new();
        let (from, to) = sides(&ground, up);
        make_tree(&from);
        let dry = SyncOptions { dry_run: true, ..without(&["empty"]) };
        run(async {
            let (all, notes) = sync(&ground, up, &dry).await;
            assert_eq!((all.stored, all.failed, all.moved), (7, 0, (3 << 20) + 5 + 4));
            assert!(notes.has(&["new: a/b/deep"]) && !to.exists());

            sync(&ground, up, &DELETE()).await;
            litter(&ground, &to);
            write(&from.join("a/large"), b"small now");
            let before = tree(&to);
            let (some, notes) = sync(&ground, up, &dry).await;
            assert_eq!((some.stored, some.unchanged, some.moved), (1, 6, 9), "{notes:?}");
            // with a/more.o, zz, zz/deep and zz/deep/kept.o
            assert_eq!((some.failed, some.removed), (0, 10), "{notes:?}");
            assert!(notes.has(&["changed: a/large"]) && notes.has(&["removed: zz/deep/more"]));
            assert_eq!(tree(&to), before);
        });
    }
}

#[test]
fn nothing_is_removed_where_something_failed() {
    for up in [true, false] {
        let ground = Ground::new();
        let (from, to) = sides(&ground, up);
        make_tree(&from);
        write(&to.join("more"), b"more");
        // a socket cannot be replaced
        let socket = std::os::unix::net::UnixListener::bind(to.join("small"));
        drop(socket.expect("a socket"));
        run(async {
            let (some, notes) = sync(&ground, up, &DELETE()).await;
            assert_eq!((some.failed, some.removed), (1, 0));
            assert!(notes.has(&["failed", "small cannot be stored: a socket is here"]));
            assert!(notes.has(&["left out", "nothing was removed"]), "{notes:?}");
            assert!(to.join("more").exists() && to.join("a/large").exists());
        });
    }
    // a source that is not there has no names, but that is no reason to remove all
    let ground = Ground::new();
    write(&ground.here("tree/more"), b"more");
    run(async {
        let (none, notes) = sync(&ground, false, &DELETE()).await;
        assert_eq!((none.failed, none.removed), (1, 0), "{notes:?}");
        assert!(ground.here("tree/more").exists());
    });
}

#[test]
fn names_that_the_source_does_not_send_are_not_removed() {
    for up in [true, false] {
        let ground = Ground::new();
        let (from, to) = sides(&ground, up);
        make_tree(&from);
        let socket = std::os::unix::net::UnixListener::bind(from.join("b"));
        drop(socket.expect("a socket"));
        write(&to.join("b"), b"of old");
        write(&to.join("c"), b"of old");
        run(async {
            let (some, notes) = sync(&ground, up, &DELETE()).await;
            assert_eq!((some.failed, some.removed), (0, 1), "{notes:?}");
            assert!(to.join("b").exists() && !to.join("c").exists());
        });
    }
}

#[test]
fn files_become_directories_and_directories_files() {
    for up in [true, false] {
        let ground = Ground::new();
        let (from, to) = sides(&ground, up);
        write(&from.join("one/file"), b"file");
        write(&from.join("two"), b"two");
        write(&from.join("three/file"), b"file");
        write(&to.join("one"), b"one");
        write(&to.join("two/file"), b"file");
        symlink("two", to.join("three")).expect("a link");
        run(async {
            let (careful, notes) = sync(&ground, up, &SyncOptions::default()).await;
            assert_eq!((careful.failed, careful.removed), (1, 2), "{notes:?}");
            assert!(to.join("two/file").exists() && to.join("one/file").exists());
            let (all, notes) = sync(&ground, up, &DELETE()).await;
            assert_eq!((all.failed, all.removed), (0, 2), "{notes:?}");
            assert_eq!(tree(&from), tree(&to));
        });
    }
}

#[test]
fn more_files_than_may_be_offered_at_once() {
    for up in [true, false] {
        let ground = Ground::new();
        let (from, to) = sides(&ground, up);
        for n in 0..5000 {
            write(&from.join(format!("{}/{n}", n % 9)), format!("content of {n}").as_bytes());
        }
        for n in 0..100 {
            write(&from.join(format!("large {n}")), &content(70_000 + n));
        }
        run(async {
            let (all, _) = sync(&ground, up, &DELETE()).await;
            assert_eq!((all.stored, all.failed), (5109, 0));
            assert_eq!(tree(&from), tree(&to));
            let (none, _) = sync(&ground, up, &DELETE()).await;
            assert_eq!((none.stored, none.unchanged, none.moved), (0, 5109, 0));
        });
    }
}

#[test]
fn too_many_names_to_remove_remove_nothing() {
    /// Names of 3.7 kB, of which 32 MiB are no more than that.
    const SURPLUS: usize = 9500;
    let ground = Ground::new();
    let (from, to) = sides(&ground, true);
    let deep: PathBuf = (0..15).map(|_| "d".repeat(245)).collect();
    std::fs::create_dir_all(from.join(&deep)).expect("folders");
    std::fs::create_dir_all(to.join(&deep)).expect("folders");
    for n in 0..SURPLUS {
        std::fs::File::create(to.join(&deep).join(n.to_string())).expect("a file");
    }
    write(&from.join("new"), b"new");
    run(async {
        let (all, notes) = sync(&ground, true, &DELETE()).await;
        assert_eq!((all.stored, all.failed, all.removed), (1, 1, 0));
        assert!(notes.has(&["nothing is removed", "32 MiB"]), "{notes:?}");
    });
    assert_eq!(std::fs::read_dir(to.join(&deep)).expect("a folder").count(), SURPLUS);
    assert_eq!(std::fs::read(to.join("new")).expect("a file"), b"new");
}

#[test]
fn a_read_only_key_removes_nothing() {
    let ground = Ground::new();
    make_tree(&ground.served("tree"));
    std::fs::create_dir(ground.here("tree")).expect("a folder");
    let mut options = ground.options();
    let access = Access { read_only: true, ..Access::default() };
    options.policy.keys.insert(ground.client.public(), access);
    run(async {
        let server = start(&ground.server, options);
        for sync_options in [DELETE(), SyncOptions { dry_run: true, ..DELETE() }] {
            let mut client = ground.connect(&server).await.expect("a connection");
            let from = ground.here("tree");
            let put = client.sync_to(&from, b"tree", &sync_options, Arc::new(())).await;
            assert!(matches!(put, Err(Error::Refused(_))), "{put:?}");
        }
        let mut client = ground.connect(&server).await.expect("a connection");
        let to = ground.here("tree");
        let got = client.sync_from(b"tree", &to, &DELETE(), Arc::new(())).await;
        assert_eq!(got.expect("it may read").failed, 0);
        assert_eq!(tree(&ground.served("tree")), tree(&to));
    });
}

#[test]
fn a_sender_out_of_order_removes_nothing() {
    use crate::control::{Greeting, MessageReader, MessageWriter, hello};
    use headroom_transfer_proto::message::{EntryKind, Message, Time};
    use headroom_transfer_proto::path::RelPath;
    let ground = Ground::new();
    make_tree(&ground.served(""));
    let before = tree(&ground.served(""));
    let entry = |id, path: &[u8]| {
        let mtime = Time { seconds: 0, nanoseconds: 0 };
        let path = RelPath::parse(path).expect("a name");
        Message::Entry { id, path, kind: EntryKind::Directory { mode: 0o755, mtime, more: None } }
    };
    let request = Message::Sync {
        path: None,
        upload: true,
        delete: true,
        dry_run: false,
        checksum: false,
        fsync: false,
        exclude: Vec::new(),
        compress: None,
        tree: None,
    };
    run(async {
        let server = ground.start();
        for names in [[&b"b"[..], b"a"], [b"a", b"a"], [b"a.b", b"a/b"]] {
            let client = ground.connect(&server).await.expect("a connection");
            let (send, receive) = client.connection().open_bi().await.expect("a stream");
            let (mut writer, mut reader) = (MessageWriter::new(send), MessageReader::new(receive));
            // the server ends it as soon as it sees what is wrong
            let conversation = async {
                for message in [
                    hello(Greeting::default()),
                    request.clone(),
                    entry(1, names[0]),
                    entry(2, names[1]),
                    Message::EntriesEnd { files: 0, bytes: 0 },
                ] {
                    writer.send(&message).await?;
                }
                reader.recv_hello().await?;
                while !matches!(reader.expect().await?, Message::End { .. }) {}
                Ok::<_, Error>(())
            };
            let error = conversation.await.expect_err("it is not taken").to_string();
            assert!(error.contains("in the order of a walk"), "{error}");
        }
        // only the directories that were named are there besides
        for name in ["b", "a.b"] {
            std::fs::remove_dir(ground.served(name)).expect("it was made");
        }
        let names = |tree: Vec<(Vec<u8>, String)>| tree.into_iter().map(|(name, _)| name);
        assert!(names(tree(&ground.served(""))).eq(names(before)));
    });
}
